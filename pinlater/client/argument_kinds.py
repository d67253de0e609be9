"""The types of arguments of a public call, checked by its annotations; a wrong one is refused by name.

A call that is made rarely is `checked` before it begins. One that is made often lets the conversion fail, and asks here
why: that costs nothing where all is well.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from functools import cache, wraps
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pinlater.errors import ArgumentInvalid, PinLaterError, RequestInvalid

CallT = TypeVar("CallT", bound=Callable[..., Any])

FAULTS = (AttributeError, TypeError, ValueError, LookupError, ArithmeticError, RequestInvalid)
"""What the conversion of an argument of another kind ends in."""

CHECKED_AT_FIRST = 8
"""So many entries of a list are checked before a call; all of them where it fails."""

_MAY_BE_NAN = {"fraction"}
"""A worker's 0/0, which says nothing of how far a job is, and fails no heartbeat."""

_BITS = {"priority": 8, "limit": 32, "next_limit": 32, "attempts": 32, "attempts_allowed": 32, "weight": 32}
"""Of numbers that are narrower on the wire than the others, which have 64."""


class _Fault(NamedTuple):
    name: str
    value: object
    wanted: str


class _Parameters(NamedTuple):
    by_place: tuple[str, ...]
    rest: str
    kinds: Mapping[str, Any]


def checked(call: CallT) -> CallT:
    """The same call, whose arguments are checked before it begins. ArgumentInvalid."""

    @wraps(call)
    async def checked_call(*args: Any, **given: Any) -> Any:
        named = _named(call, args, given)
        check_kinds(call, named, CHECKED_AT_FIRST)
        try:
            return await call(*args, **given)
        except FAULTS as error:
            explain(error, call, named)
            raise

    return cast(CallT, checked_call)


def explain(error: Exception, call: Callable[..., Any], given: Iterable[tuple[str, object]]) -> None:
    """ArgumentInvalid where an argument of another kind is the reason; nothing for the answer of a server."""
    if not isinstance(error, PinLaterError) or error.__cause__ is not None:
        check_kinds(call, given)


def check_kinds(call: Callable[..., Any], given: Iterable[tuple[str, object]], first: int | None = None) -> None:
    """ArgumentInvalid: the first argument that is of another kind; `first`: of lists, so many entries are checked."""
    kinds = _parameters(call).kinds
    for name, value in given:
        if name in kinds and (found := _fault(value, kinds[name], name, first)) is not None:
            of = "a client" if call.__name__ == "__init__" else call.__name__  # Client and AsyncClient take the same
            raise ArgumentInvalid.of_kind(f"{of}: {found.name}", found.value, found.wanted) from None


@cache
def _parameters(call: Callable[..., Any]) -> _Parameters:
    own = inspect.signature(call).parameters.values()
    by_place = tuple(each.name for each in own if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD))
    rest = next((each.name for each in own if each.kind is each.VAR_POSITIONAL), "")
    return _Parameters(by_place, rest, get_type_hints(call))


def _named(call: Callable[..., Any], args: tuple[Any, ...], given: Mapping[str, Any]) -> list[tuple[str, object]]:
    by_place, rest, _ = _parameters(call)
    names = by_place + (rest,) * (len(args) - len(by_place))
    return [*zip(names, args, strict=False), *given.items()]


def _fault(value: Any, kind: Any, name: str, first: int | None) -> _Fault | None:
    """What is wrong with the value, or with the first part of it that is of another kind."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        faults = []
        for each in get_args(kind):
            found = _fault(value, each, name, first)
            if found is None:
                return None
            faults.append(found)
        return next((each for each in faults if each.name != name), _Fault(name, value, kind_text(kind)))
    if origin is Literal:
        return None if value in get_args(kind) else _Fault(name, value, kind_text(kind))
    if origin is not None and issubclass(origin, Collection):
        return _fault_of_entries(value, kind, origin, name, first)
    if not _is_of(value, kind if origin is None else origin, name):
        return _Fault(name, value, kind_text(kind, name))
    fields = _field_kinds(kind) if isinstance(kind, type) else {}
    faults_of_fields = (
        _fault(getattr(value, field, None), wanted, f"{name}.{field}", first) for field, wanted in fields.items()
    )
    return next(filter(None, faults_of_fields), None)


def _fault_of_entries(value: Any, kind: Any, origin: type, name: str, first: int | None) -> _Fault | None:
    is_mapping = issubclass(origin, Mapping)
    if not isinstance(value, Collection) or isinstance(value, str | bytes) or isinstance(value, Mapping) != is_mapping:
        return _Fault(name, value, kind_text(kind))
    kinds = get_args(kind)
    if isinstance(value, Mapping):
        pairs = islice(value.items(), first)
        found = (_fault(each, kinds[1], f"{name}[{key!r:.50}]", first) for key, each in pairs)
        keys = (_fault(key, kinds[0], f"a name in {name}", first) for key in islice(value, first))
        return next(filter(None, (*keys, *found)), None)
    return next(
        filter(None, (_fault(each, kinds[0], f"{name}[{n}]", first) for n, each in enumerate(islice(value, first)))),
        None,
    )


def _is_of(value: Any, kind: Any, name: str) -> bool:
    if kind is None or kind is type(None):
        return value is None
    if kind is bool:
        return isinstance(value, bool) or (isinstance(value, int) and value in (0, 1))
    if kind is float:
        return isinstance(value, int | float) and (value == value or name.rpartition(".")[2] in _MAY_BE_NAN)
    if kind is int:
        if not hasattr(type(value), "__index__"):
            return False
        most = 1 << (_bits(name) - 1)
        return -most <= int(value) < most
    if kind is Callable:
        return callable(value)
    if not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    if issubclass(kind, Enum) and issubclass(kind, int) and isinstance(value, int):
        return value in kind.__members__.values()
    return isinstance(value, kind)


def _bits(name: str) -> int:
    return _BITS.get(name.rpartition(".")[2], 64)


@cache
def _field_kinds(kind: type) -> Mapping[str, Any]:
    """Of a small record; none of what else can be an argument. What does not count in comparisons is no caller's: a
    server keeps there what it knows of a call that it passes on.
    """
    if dataclasses.is_dataclass(kind):
        kinds = get_type_hints(kind)
        return {each.name: kinds[each.name] for each in dataclasses.fields(kind) if each.compare}
    return get_type_hints(kind) if issubclass(kind, tuple) else {}


def kind_text(kind: Any, name: str = "") -> str:
    """A kind as people say it.

    >>> kind_text(int | None), kind_text(list[str]), kind_text(Literal["a", "b"])
    ('int or None', 'a list of str', "'a' or 'b'")
    """
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(kind_text(each, name) for each in get_args(kind))
    if origin is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if kind is int and name and _bits(name) < 64:
        return f"int of {_bits(name)} bits"
    if kind is None or kind is type(None):
        return "None"
    if kind is float:
        return "a number"
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return "a dict of " + " and ".join(map(kind_text, get_args(kind)))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Collection):
        return f"a list of {kind_text(get_args(kind)[0])}"
    if origin is Callable or kind is Callable:
        return "a function"
    return str(getattr(kind, "__name__", kind))
