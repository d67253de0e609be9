"""Answers of things of the model, and things of the model of forms: what copies one into the other, by their fields.

A field of an answer is that of the thing with its name; `X_at_ms` may be `X_ms` there, and what a thing lacks, a part
of it may have. `SOURCES` of an answer or a form says by field another name in the model, or what makes a field of an
answer. An enum becomes its word. Bytes are as the encoding beside them says, or else JSON as it was sent. What may be
left out is left out where there is nothing. What a form does not have, or leaves out, is as the model has it.

The functions are compiled when they are first needed, and do what one would write by hand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import cache
from itertools import zip_longest
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, UNSET, Meta, Raw, Struct, UnsetType, defstruct, structs

from pinlater.http.encodings import Encoding, from_json, to_json
from pinlater.model import CONTINUATION_END, CONTINUATION_START
from pinlater.wire.struct_map import ModelMember, arguments, members

A = TypeVar("A", bound=Struct)
M = TypeVar("M")
BodyValue = Annotated[Raw, Meta(description="A string; with the encoding `json` any JSON value.")]
Maker = TypeVar("Maker", bound=Callable[..., Any])

_NAMES = {"UNSET": UNSET, "Raw": Raw, "to_json": to_json, "from_json": from_json}
_NAMES |= {"START": CONTINUATION_START, "END": CONTINUATION_END}
_NOTHING: frozenset[str] = frozenset()
_SEQUENCES = (list, tuple, Sequence)
_MAPPINGS = (dict, Mapping)


def _kept(maker: Maker) -> Maker:
    """A cache. By its types that of functools takes no classes of any kind."""
    return cast("Maker", cache(maker))


def answer_of(kind: type[A], thing: Any, encoding: Encoding = "text", **given: Any) -> A:
    """An answer that says what a thing of the model does. `given`: fields that are none of it."""
    answer: A = _answer_maker(kind, type(thing), frozenset(given) if given else _NOTHING)(thing, encoding, given)
    return answer


def answers_of(kind: type[A], things: Iterable[Any], encoding: Encoding = "text") -> list[A]:
    return [_answer_maker(kind, type(thing), _NOTHING)(thing, encoding, {}) for thing in things]


def request_of(model: type[M], form: Struct, at: str = "", **given: Any) -> M:
    """What a form stands for. `given`: fields that it does not have. RequestInvalid: bytes are not in their encoding;
    it names the field, which stands below `at`.
    """
    request: M = _request_maker(model, type(form), frozenset(given) if given else _NOTHING)(form, at, given)
    return request


def requests_of(model: type[M], forms: Iterable[Struct], at: str) -> list[M]:
    """`at`: the field that has the forms."""
    return [request_of(model, form, f"{at}[{place}].") for place, form in enumerate(forms)]


def arguments_of(call: Callable[..., Any], form: Struct, first: int = 0) -> dict[str, Any]:
    """What a form has of the arguments of a call of Api, after the `first` ones. RequestInvalid."""
    return _arguments_maker(call, type(form), first)(form, "", None)


@cache
def words(kind: type[IntEnum]) -> dict[int, str]:
    """As JSON has the values of an enum."""
    return {each: each.name.lower() for each in kind}


def words_of(values: Iterable[IntEnum]) -> list[Any]:
    """
    >>> from pinlater.model import JobState
    >>> words_of([JobState.IN_PROGRESS, JobState.FAILED])
    ['in_progress', 'failed']
    """
    return [words(type(each))[each] for each in values]


@cache
def _values(kind: type[IntEnum]) -> dict[str, IntEnum]:
    return {each.name.lower(): each for each in kind}


def _split(hint: Any) -> tuple[Any, str | None]:
    """A type, and what may stand for no value."""
    if get_origin(hint) not in (Union, UnionType):
        return hint, None
    kinds = get_args(hint)
    others = [each for each in kinds if each not in (NoneType, UnsetType)]
    absent = "UNSET" if UnsetType in kinds else "None" if NoneType in kinds else None
    return (others[0] if len(others) == 1 else hint), absent


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, IntEnum)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _places(made: Any) -> Sequence[str]:
    """The names of what it is made of, as far as that may be given by place."""
    if issubclass(made, Struct):
        return made.__struct_fields__  # type: ignore[no-any-return]
    if made is dict:
        return []
    if dataclasses.is_dataclass(made):
        return [] if any(field.kw_only for field in dataclasses.fields(made)) else [*made.__dataclass_fields__]
    return made._fields  # type: ignore[no-any-return]


class _Code:
    """The source of a function, and the names that it needs."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = dict(_NAMES)
        self._depth = 0

    def name(self, value: Any) -> str:
        name = f"_{len(self._names)}"
        self._names[name] = value
        return name

    def fresh(self) -> str:
        self._depth += 1
        return f"v{self._depth}"

    def compiled(self, arguments: str, made: type, values: Mapping[str, str], before: Iterable[str] = ()) -> Any:
        # by place as far as that goes: by name it takes twice as long
        at_place, parts = True, []
        for (name, value), place in zip_longest(values.items(), _places(made)[: len(values)]):
            at_place = at_place and name == place
            parts.append(value if at_place else f"{name}={value}")
        call = f"{self.name(made)}({', '.join(parts)})"
        lines = "".join(f"    {line}\n" for line in (*before, f"return {call}"))
        exec(compile(f"def made({arguments}):\n{lines}", "<model_map>", "exec"), self._names)
        return self._names["made"]


# -- the fields of answers ---------------------------------------------------------------------------------------------


class Answer(Struct, omit_defaults=True):
    """What is answered."""


def has_fields_of(*things: Any, without: Collection[str] = ()) -> Callable[[type[A]], type[A]]:
    """Gives an answer the fields of things of the model, and then those that it has besides. What may be None there may
    be left out. Of a field of both, the answer says the type.
    """

    def completed(declared: type[A]) -> type[A]:
        own = {field.name: (field.name, field.type, *_default_of(field)) for field in structs.fields(declared)}
        fields: dict[str, Any] = {}
        for member in (member for thing in things for member in members(thing) if member.name not in without):
            fields |= {field[0]: field for field in _json_fields(member.name, member.hint, member.optional)}
        space = {name: value for name, value in vars(declared).items() if name in ("__doc__", "SOURCES")}
        complete: Any = defstruct(
            declared.__name__,
            sorted((fields | own).values(), key=len),  # what there must be first
            bases=declared.__bases__,
            namespace=space,
            module=declared.__module__,
        )
        return cast("type[A]", complete)

    return completed


def _default_of(field: structs.FieldInfo) -> tuple[Any, ...]:
    if field.default_factory is not NODEFAULT:
        return (msgspec.field(default_factory=field.default_factory),)
    return () if field.default is NODEFAULT else (field.default,)


def _json_fields(name: str, hint: Any, may_be_none: bool) -> list[tuple[Any, ...]]:
    if hint is bytes:
        encoding = f"{name}_encoding"
        if may_be_none:
            return [(name, BodyValue | UnsetType, UNSET), (encoding, Encoding | None, None)]
        return [(name, BodyValue), (encoding, Encoding)]
    kind = Literal[tuple(words(hint).values())] if _is_enum(hint) else hint
    return [(name, kind | None, None) if may_be_none else (name, kind)]


# -- answers -----------------------------------------------------------------------------------------------------------


@_kept
def _answer_maker(kind: Any, model: Any, given: frozenset[str]) -> Callable[[Any, Encoding, Mapping[str, Any]], Any]:
    code, values, before = _Code(), {}, []
    hints = _hints(kind)
    for name in kind.__struct_fields__:
        source = _source_of(kind, name)
        if name in given:
            values[name] = f"given[{name!r}]"
        elif callable(source):
            values[name] = f"{code.name(source)}(s)"
        elif name == "next_cursor":
            values[name] = "None if s.continuation == END else s.continuation"
        elif f"{name}_encoding" in hints:
            hint, at = _source(model, source)
            data = f"to_json({at}, encoding)"
            whole = data if _split(hint)[1] is None else f"(UNSET, None) if {at} is None else {data}"
            before.append(f"{name}, {name}_encoding = {whole}")
            values[name] = name
        elif name.endswith("_encoding") and name.removesuffix("_encoding") in values:
            values[name] = name
        else:
            hint, at = _source(model, source)
            values[name] = _shown(code, hints[name], hint, at)
    return code.compiled("s, encoding, given", kind, values, before)  # type: ignore[no-any-return]


def _source_of(kind: type, name: str) -> Any:
    return getattr(kind, "SOURCES", {}).get(name, name)


def _field_of(form: type, member: str) -> str:
    sources: dict[str, str] = getattr(form, "SOURCES", {})
    return next((field for field, source in sources.items() if source == member), member)


def _source(model: type, name: str, at: str = "s") -> tuple[Any, str]:
    """The type of what a thing of the model has of this name, and where. TypeError: it has nothing."""
    found = _found(model, name, at)
    if found is None:
        raise TypeError(f"{model.__name__} has no {name}")
    return found


def _found(model: Any, name: str, at: str) -> tuple[Any, str] | None:
    hints = _hints(model)
    for each in (name, f"{name.removesuffix('_at_ms')}_ms"):
        if each in hints:
            return hints[each], f"{at}.{each}"
    known = getattr(model, name, None)
    if isinstance(known, property):
        return get_type_hints(known.fget)["return"], f"{at}.{name}"
    parts = ((part, _split(hint)[0]) for part, hint in hints.items())
    found = (_found(kind, name, f"{at}.{part}") for part, kind in parts if dataclasses.is_dataclass(kind))
    return next(filter(None, found), None)


def _shown(code: _Code, wanted: Any, hint: Any, at: str) -> str:
    (kind, absent), (has, missing) = _split(wanted), _split(hint)
    value = _json(code, kind, has, at)
    if absent is None:
        return value
    if missing is None or kind is Raw:
        return f"{at} or {absent}" if value == at else f"{value} if {at} else {absent}"
    return at if value == at and absent == "None" else f"{absent} if {at} is None else {value}"


def _json(code: _Code, kind: Any, has: Any, at: str) -> str:
    """The source of a value of JSON; `at` itself where nothing has to be made of it."""
    if kind is Raw:
        return f"Raw({at})"
    if _is_enum(has):
        return f"{code.name(words(has))}[{at}]"
    if isinstance(kind, type) and issubclass(kind, Struct):
        return f"{code.name(_answer_maker(kind, has, _NOTHING))}({at}, encoding, None)"
    if get_origin(kind) is list and get_origin(has) in _SEQUENCES:
        each = code.fresh()
        value = _json(code, get_args(kind)[0], get_args(has)[0], each)
        return at if value == each else f"[{value} for {each} in {at}]"
    if get_origin(kind) is dict and get_origin(has) in _MAPPINGS:
        key, each = code.fresh(), code.fresh()
        value = _json(code, get_args(kind)[1], get_args(has)[1], each)
        return at if value == each else f"{{{key}: {value} for {key}, {each} in {at}.items()}}"
    return at


# -- requests ----------------------------------------------------------------------------------------------------------


@_kept
def _request_maker(model: Any, form: Any, given: frozenset[str]) -> Callable[[Any, str, Mapping[str, Any]], Any]:
    code, values = _Code(), {}
    for member in members(model):
        value = f"given[{member.name!r}]" if member.name in given else _member_source(code, form, member)
        if value:
            values[member.name] = value
    return code.compiled("f, at, given", model, values)  # type: ignore[no-any-return]


@_kept
def _arguments_maker(call: Any, form: Any, first: int) -> Callable[[Any, str, None], dict[str, Any]]:
    code = _Code()
    sources = {each.name: _member_source(code, form, each) for each in arguments(call)[first:]}
    return code.compiled("f, at, given", dict, {name: value for name, value in sources.items() if value})  # type: ignore[no-any-return]


def _member_source(code: _Code, form: Any, member: ModelMember) -> str:
    """The source of what a form has of a field of the model, or of an argument; "" for nothing."""
    name = _field_of(form, member.name)
    if name not in form.__struct_fields__:
        return "f.cursor or START" if name == "continuation" and "cursor" in form.__struct_fields__ else ""
    kind, absent = _split(_hints(form)[name])
    value = _meant(code, form, kind, member.hint, f"f.{name}", name)
    if absent is not None and (value != f"f.{name}" or not member.optional):
        default = "None" if member.optional else code.name(member.made_default())
        return f"{default} if f.{name} is {absent} else {value}"
    return value


def _meant(code: _Code, form: Any, kind: Any, has: Any, at: str, place: str, index: str = "") -> str:
    """The source of what a value of a form stands for; `place` is its field, and `index` where it stands in that."""
    if kind is Raw:
        encoding = f"{place}_encoding"
        if encoding not in form.__struct_fields__:
            return f"bytes({at})"
        return f"from_json({at}, f.{encoding}, at + {place!r})"
    if _is_enum(has):
        return f"{code.name(_values(has))}[{at}]"
    if isinstance(kind, type) and issubclass(kind, Struct):
        below = f"f'{{at}}{place}{index}.'"
        return f"{code.name(_request_maker(has, kind, _NOTHING))}({at}, {below}, None)"
    if get_origin(kind) is list and get_origin(has) in _SEQUENCES:
        number, each = code.fresh(), code.fresh()
        value = _meant(code, form, get_args(kind)[0], get_args(has)[0], each, place, f"{index}[{{{number}}}]")
        return at if value == each else f"[{value} for {number}, {each} in enumerate({at})]"
    if get_origin(kind) is dict and get_origin(has) in _MAPPINGS:
        key, each = code.fresh(), code.fresh()
        value = _meant(code, form, get_args(kind)[1], get_args(has)[1], each, place, f"{index}.{{{key}}}")
        return at if value == each else f"{{{key}: {value} for {key}, {each} in {at}.items()}}"
    return at
