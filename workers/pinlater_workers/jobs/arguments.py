"""The arguments of a job's function: checked where they are given, converted where they arrive."""

from __future__ import annotations

import functools
import math
import operator
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import Parameter, isroutine, signature
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, NoReturn

import msgspec
from msgspec import inspect

from pinlater.job_body import SECRET_MASK
from pinlater_workers.envelope import Encoding, plain
from pinlater_workers.errors import ArgumentsInvalid, ConfigurationError
from pinlater_workers.pydantic_models import is_model, read_model

MAX_SHAPES = 100
"""The most shapes of calls that are remembered: what a function with **names is given can have any."""

PLAIN_VALUES = "plain values (None, bool, int, float, str, and lists and dicts of these)"
"""What a parameter takes whose annotation takes anything."""

_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)

_NOT_FINITE = 'JSON has no inf and no nan; MessagePack has (encoding="msgpack")'

_EXACT = {bool, int, float, str, bytes, NoneType}
_CODECS: dict[Encoding, tuple[Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    "json": (msgspec.json.Encoder(enc_hook=plain).encode, msgspec.json.decode),
    "msgpack": (msgspec.msgpack.Encoder(enc_hook=plain).encode, msgspec.msgpack.decode),
}


class Arguments:
    """The parameters of one function. ConfigurationError, when it is made: a parameter that no job can have."""

    def __init__(self, function: Callable[..., Any], job: str) -> None:
        self._job = job
        parameters = _parameters(function, job)
        hints = argument_hints(function, job)
        self._positional: list[tuple[str, Annotation]] = []
        self._named: dict[str, Annotation] = {}
        self._rest: Annotation | None = None
        self._rest_named: Annotation | None = None
        self._required_positions = 0
        self._required: set[str] = set()
        self._secrets: frozenset[str] = frozenset()
        self._shapes: dict[int | tuple[object, ...], Sequence[tuple[str, Annotation]]] = {}
        for parameter in parameters:
            self._add(parameter, self._annotation(parameter, hints.get(parameter.name, Any)))

    @property
    def names(self) -> frozenset[str]:
        """Of the parameters that can be given by name."""
        return frozenset(self._named)

    def _annotation(self, parameter: Parameter, hint: Any) -> Annotation:
        name = parameter.name
        try:
            return Annotation(hint, or_none=parameter.default is None)
        except TypeError as error:
            raise ConfigurationError(
                f"job {self._job!r}: parameter {name!r} is annotated with {hint!r}: {error}; allowed: what msgspec "
                "can check (numbers, texts, bytes, times, enums, dataclasses, TypedDict, list, dict, ...), Path, "
                "models of pydantic, and what a function with @app.provide makes that stands before the job"
            ) from error

    def _add(self, parameter: Parameter, annotation: Annotation) -> None:
        if parameter.kind in _BY_POSITION:
            self._positional.append((parameter.name, annotation))
        if parameter.kind in _BY_NAME:
            self._named[parameter.name] = annotation
        if parameter.kind is Parameter.VAR_POSITIONAL:
            self._rest = annotation
        elif parameter.kind is Parameter.VAR_KEYWORD:
            self._rest_named = annotation
        elif parameter.default is Parameter.empty:
            if parameter.kind is Parameter.POSITIONAL_ONLY:
                self._required_positions = len(self._positional)
            else:
                self._required.add(parameter.name)

    def hide(self, secrets: Sequence[str]) -> str:
        """Show the values of these parameters in no error. What a body says of them: names, and indices of those that
        can be given by position. ConfigurationError: no such parameter.
        """
        names = dict.fromkeys([*(name for name, _ in self._positional), *self._named])
        for name in secrets:
            if name not in names and self._rest_named is None:
                allowed = ", ".join(names) or "none, as it has no parameters with names"
                raise ConfigurationError(f"job {self._job!r}: secret names {name!r}; allowed: {allowed}")
        self._secrets = frozenset(secrets)
        places = [str(place) for place, (name, _) in enumerate(self._positional) if name in self._secrets]
        return " ".join([*places, *secrets])

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any], encoding: Encoding) -> None:
        """The function takes them, as they arrive. ArgumentsInvalid names the parameter, the value and its type."""
        values = (*args, *kwargs.values()) if kwargs else args
        for place, (name, annotation) in enumerate(self._takers(args, kwargs)):
            value = values[place]
            if type(value) not in annotation.surely:
                self._try(annotation.check, name, annotation, value, encoding)

    def surely_takes(self, calls: Sequence[Sequence[Any] | Mapping[str, Any]]) -> bool:
        """Whether these are calls of one shape, with arguments, in all of which `check` would find nothing, as their
        values arrive as they are. ArgumentsInvalid: that shape is wrong.
        """
        kinds = set(map(type, calls))
        is_named = kinds == {dict}
        if not is_named and not kinds <= {tuple, list}:
            return False
        if len(set(map(tuple if is_named else len, calls))) != 1:
            return False
        first: Any = calls[0]
        if not first:
            return False
        takers = self._takers((), first) if is_named else self._takers(first, {})
        places = first if is_named else range(len(first))
        return all(
            annotation.surely.issuperset(map(type, map(operator.itemgetter(place), calls)))
            for place, (_, annotation) in zip(places, takers, strict=True)
        )

    def check_names(self, *names: str) -> None:
        """The function can be called with these arguments. ArgumentsInvalid."""
        self._takers([], dict.fromkeys(names))

    def check_written(self, args: Sequence[Any], kwargs: Mapping[str, Any], encoding: Encoding) -> None:
        """ArgumentsInvalid for the one that cannot be written, where writing all of them failed."""
        takers = self._takers(args, kwargs)
        for place, value in enumerate((*args, *kwargs.values())):
            name, annotation = takers[place]
            self._try(annotation.check_written, name, annotation, value, encoding)

    def read(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], encoding: Encoding
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a body as the function's annotations want them. ArgumentsInvalid likewise, but without the
        value: it becomes the job's status, and those who may read no bodies read that.
        """
        takers = self._takers(args, kwargs)
        values = [*args, *kwargs.values()]
        for place, value in enumerate(values):
            name, annotation = takers[place]
            if type(value) not in annotation.exact:
                values[place] = self._try(annotation.read, name, annotation, value, encoding, shows_value=False)
        if not kwargs:
            return tuple(values), {}
        return tuple(values[: len(args)]), dict(zip(kwargs, values[len(args) :], strict=True))

    def _takers(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[tuple[str, Annotation]]:
        """The parameter of each argument, in order. Calls of one shape are fitted once."""
        shape = (len(args), *kwargs) if kwargs else len(args)
        takers = self._shapes.get(shape)
        if takers is None:
            self._fit(args, kwargs)
            takers = [*self._by_position(len(args)), *self._by_name(kwargs)]
            if len(self._shapes) < MAX_SHAPES:
                self._shapes[shape] = takers
        return takers

    def _by_position(self, count: int) -> Iterator[tuple[str, Annotation]]:
        yield from self._positional[:count]
        if self._rest is not None:
            for index in range(len(self._positional), count):
                yield f"argument {index + 1}", self._rest

    def _by_name(self, names: Iterable[str]) -> Iterator[tuple[str, Annotation]]:
        for name in names:
            annotation = self._named.get(name, self._rest_named)
            if annotation is not None:
                yield name, annotation

    def _try(
        self,
        act: Callable[[Any, Encoding], Any],
        name: str,
        annotation: Annotation,
        value: Any,
        encoding: Encoding,
        *,
        shows_value: bool = True,
    ) -> Any:
        try:
            return act(value, encoding)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            problem = f"{_shown(value)}: {why}" if shows_value else f"not what it may be: {why}"
            problem = SECRET_MASK if name in self._secrets else problem
            raise ArgumentsInvalid(f"job {self._job!r}: {name} is {problem}; allowed: {annotation.shown}") from None

    def _fit(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """As many as there are parameters, and none twice."""
        given = len(args)
        if given > len(self._positional) and self._rest is None:
            self._refuse(f"takes {len(self._positional)} arguments by position, {given} are given")
        if given < self._required_positions:
            self._refuse(f"{self._positional[given][0]} is missing")
        by_position = {name for name, _ in self._positional[:given]}
        for name in kwargs:
            if name in self._named:
                if name in by_position:
                    self._refuse(f"{name} is given twice")
            elif self._rest_named is None:
                self._refuse(f"has no parameter {name!r}")
        missing = self._required - by_position - kwargs.keys()
        if missing:
            self._refuse(f"{', '.join(sorted(missing))} missing")

    def _refuse(self, why: str) -> None:
        raise ArgumentsInvalid(f"job {self._job!r}: {why}")


def _parameters(function: Callable[..., Any], job: str) -> list[Parameter]:
    if not isroutine(function) or isinstance(function, functools.partial):  # which is a routine too since Python 3.14
        raise ConfigurationError(f"job {job!r} is a {type(function).__name__}; allowed: a function")
    try:
        return list(signature(function).parameters.values())
    except ValueError as error:
        raise ConfigurationError(f"job {job!r}: {error}; allowed: a function of Python") from error


def argument_hints(function: Callable[..., Any], job: str) -> dict[str, Any]:
    """The annotations of its parameters, and of what it returns, by name. ConfigurationError: one means nothing."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception as error:
        raise ConfigurationError(
            f"job {job!r}: its annotations cannot be resolved: {error}; import what they name where the function is "
            "defined, outside of TYPE_CHECKING"
        ) from error


def result_hint(function: Callable[..., Any], job: str) -> Any:
    """What it is annotated to return; Any: it does not say. ConfigurationError: what cannot be resolved."""
    return argument_hints(function, job).get("return", Any)


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # nested too deeply; or the class of an application, which may raise anything
        text = f"a {type(value).__qualname__}"
    return text if len(text) <= 100 else f"{text[:100]}..."


class Annotation:
    """What a parameter takes. `shown` is its text for people; values of the types `exact` arrive as they are, and
    those of `surely` also travel, whatever the encoding.
    """

    def __init__(self, hint: Any, *, or_none: bool = False, is_open: bool = True) -> None:
        """TypeError: a type that cannot be written and read again. `or_none`: None is taken as well. `is_open`: another
        annotation can be put in its place.
        """
        self._is_open = is_open
        hint = Any if hint is object else hint
        hint = hint | None if or_none and hint is not Any else hint
        info = inspect.type_info(hint)
        self.shown = PLAIN_VALUES if _is_any(info) else inspect_text(hint)
        _refuse_custom(info, set())
        self.exact = _exact_types(hint)
        self.surely = self.exact - {float}
        self._loose = _is_loose(info)
        self._slot = msgspec.defstruct("Slot", [("value", hint)], array_like=True)
        msgspec.json.Decoder(self._slot, dec_hook=_made)

    def read(self, value: Any, encoding: Encoding) -> Any:
        """The value of a body as the function wants it. ValueError: it is none."""
        if type(value) in self.exact:
            return value
        try:
            slot = msgspec.convert([value], self._slot, dec_hook=_made, str_keys=encoding == "json")
        except msgspec.ValidationError as error:
            raise ValueError(_reason(error)) from error
        return slot.value  # type: ignore[attr-defined]

    def check(self, value: Any, encoding: Encoding) -> None:
        """The value is one that arrives, but for what `check_written` alone sees. ValueError or TypeError: why not."""
        if type(value) in self.exact and (type(value) is not float or math.isfinite(value)):
            return
        self.check_written(value, encoding)

    def check_written(self, value: Any, encoding: Encoding) -> None:
        """Written and read, it arrives. Sees also texts that are no Unicode, and numbers that an encoding lacks."""
        if encoding == "json" and isinstance(value, float) and not math.isfinite(value):
            raise ValueError(_NOT_FINITE)
        write, parse = _CODECS[encoding]
        arrived = self.read(parse(write(value)), encoding)
        if self._loose and arrived != value:
            self._compare(value, arrived, encoding)

    def _compare(self, value: Any, arrived: Any, encoding: Encoding) -> None:
        """TypeError: what arrives is something else, beyond a tuple that arrives as a list."""
        if isinstance(value, tuple | list) and isinstance(arrived, list) and len(value) == len(arrived):
            for one, other in zip(value, arrived, strict=True):
                self._compare(one, other, encoding)
        elif isinstance(value, dict) and isinstance(arrived, dict) and value.keys() == arrived.keys():
            for key, one in value.items():
                self._compare(one, arrived[key], encoding)
        elif value != arrived and (value == value or arrived == arrived):  # a NaN differs from itself
            self._refuse(value, arrived, encoding)

    def _refuse(self, value: Any, arrived: Any, encoding: Encoding) -> NoReturn:
        """Advises only what helps."""
        if isinstance(value, dict) and isinstance(arrived, dict):
            keys = functools.reduce(operator.or_, (type(key) for key in value))
            helps = self._is_open and _arrives(dict[keys, Any], value, encoding)  # type: ignore[valid-type]
            advice = "annotate it, as in dict[int, str]" if helps else "make texts of its keys"
            raise TypeError(f"a key that is no text would arrive as one; {advice}")
        kind = type(value).__name__
        if encoding == "json" and isinstance(value, float):
            advice = _NOT_FINITE
        elif self._is_open and _arrives(type(value), value, encoding):
            advice = f"annotate it, so that it arrives as {kind}"
        else:
            advice = "make a plain value of it"
        raise TypeError(f"{_shown(value)} would arrive as {type(arrived).__name__}; {advice}")


def inspect_text(hint: Any) -> str:
    """
    >>> inspect_text(int), inspect_text(list[str] | None)
    ('int', 'list[str] | None')
    """
    return (
        hint.__qualname__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")
    )


def _exact_types(hint: Any) -> frozenset[type]:
    """The types whose values need no conversion; none where there is one that does."""
    members = typing.get_args(hint) if typing.get_origin(hint) in (UnionType, typing.Union) else (hint,)
    return frozenset(members) & _EXACT


def _refuse_custom(info: inspect.Type, seen: set[int]) -> None:
    """TypeError for a class that msgspec does not know, wherever it stands in the annotation."""
    if id(info) in seen:
        return
    seen.add(id(info))
    if isinstance(info, inspect.CustomType) and not (_is_path(info.cls) or is_model(info.cls)):
        raise TypeError(f"{info.cls.__qualname__} is not a type that JSON and MessagePack can carry")
    for part in _parts(info):
        _refuse_custom(part, seen)


def _parts(info: inspect.Type) -> list[inspect.Type]:
    """What a type is made of, one level down."""
    found: list[inspect.Type] = []
    for field in info.__struct_fields__:
        value = getattr(info, field)
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, inspect.Type):
                found.append(each)
            elif isinstance(each, inspect.Field):
                found.append(each.type)
    return found


def _is_loose(info: inspect.Type) -> bool:
    """It lets any value through somewhere, so that what arrives has to be compared with what was given."""
    if isinstance(info, inspect.ListType | inspect.DictType | inspect.UnionType | inspect.VarTupleType):
        return any(_is_loose(part) for part in _parts(info))
    return isinstance(info, inspect.AnyType)


def _is_any(info: inspect.Type) -> bool:
    members = info.types if isinstance(info, inspect.UnionType) else (info,)
    return any(isinstance(each, inspect.AnyType) for each in members)


def _is_path(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, PurePath)


def _made(kind: type, value: Any) -> Any:
    """For msgspec: a value of a class that it does not know."""
    if is_model(kind):
        return read_model(kind, value)
    if _is_path(kind) and isinstance(value, str):
        return kind(value)
    raise TypeError(f"Expected `str`, got `{type(value).__name__}`")


_QUOTED = re.compile(r"\A(Invalid(?: enum)? value) .*?(?=(?: - at `[^`]*`)?\Z)", re.DOTALL)


def _reason(error: msgspec.ValidationError) -> str:
    """msgspec's words, without the value and its own place: whoever called names these, where it may."""
    words = _QUOTED.sub(r"\1", str(error))
    return words.replace("`$[0]`", "`$`").replace(" - at `$`", "").replace("`$[0]", "`$")


def _arrives(hint: Any, value: Any, encoding: Encoding) -> bool:
    """So annotated, it arrives as it is."""
    try:
        Annotation(hint).check_written(value, encoding)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False
    return True
