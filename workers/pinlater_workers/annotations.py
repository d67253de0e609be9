"""One annotation: which values may travel in a body and arrive as it says. Built once, used for every job."""

from __future__ import annotations

import math
import typing
from collections.abc import Callable
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, NoReturn

import msgspec
from msgspec import inspect

from pinlater_workers.envelope import plain
from pinlater_workers.job_settings import Encoding

_EXACT = {bool, int, float, str, bytes, NoneType}
_CODECS: dict[Encoding, tuple[Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    "json": (msgspec.json.Encoder(enc_hook=plain).encode, msgspec.json.decode),
    "msgpack": (msgspec.msgpack.Encoder(enc_hook=plain).encode, msgspec.msgpack.decode),
}


class Annotation:
    """What a parameter takes. `shown` is its text for people; values of the types `exact` arrive as they are."""

    def __init__(self, hint: Any, *, or_none: bool = False) -> None:
        """TypeError: a type that cannot be written and read again. `or_none`: None is taken as well."""
        hint = Any if hint is object else hint
        hint = hint | None if or_none and hint is not Any else hint
        self.shown = inspect_text(hint)
        info = inspect.type_info(hint)
        _refuse_custom(info, set())
        self.exact = _exact_types(hint)
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
            raise ValueError(_told(error)) from error
        return slot.value  # type: ignore[attr-defined]

    def check(self, value: Any, encoding: Encoding) -> None:
        """The value is one that arrives, but for what `check_written` alone sees. ValueError or TypeError: why not."""
        if type(value) in self.exact and (type(value) is not float or math.isfinite(value)):
            return
        self.check_written(value, encoding)

    def check_written(self, value: Any, encoding: Encoding) -> None:
        """Written and read, it arrives. Sees also texts that are no Unicode, and numbers that an encoding lacks."""
        write, parse = _CODECS[encoding]
        arrived = self.read(parse(write(value)), encoding)
        if self._loose and arrived != value:
            _compare(value, arrived)


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
    if isinstance(info, inspect.CustomType) and not _is_path(info.cls):
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


def _is_path(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, PurePath)


def _made(kind: type, value: Any) -> Any:
    """For msgspec: a value of a class that it does not know."""
    if _is_path(kind) and isinstance(value, str):
        return kind(value)
    raise TypeError(f"Expected `str`, got `{type(value).__name__}`")


def _told(error: msgspec.ValidationError) -> str:
    """msgspec's words, without the place of the value itself, which the caller names."""
    return str(error).replace("`$[0]`", "`$`").replace(" - at `$`", "").replace("`$[0]", "`$")


def _compare(value: Any, arrived: Any) -> None:
    """TypeError: what arrives is something else, beyond a tuple that arrives as a list."""
    if isinstance(value, tuple | list) and isinstance(arrived, list) and len(value) == len(arrived):
        for one, other in zip(value, arrived, strict=True):
            _compare(one, other)
    elif isinstance(value, dict) and isinstance(arrived, dict) and value.keys() == arrived.keys():
        for key, one in value.items():
            _compare(one, arrived[key])
    elif value != arrived and (value == value or arrived == arrived):  # a NaN differs from itself
        _refuse(value, arrived)


def _refuse(value: Any, arrived: Any) -> NoReturn:
    if isinstance(value, dict) and isinstance(arrived, dict):
        raise TypeError("a key that is no text would arrive as one; annotate the parameter, as in dict[int, str]")
    kind, other = type(value).__name__, type(arrived).__name__
    raise TypeError(f"{value!r:.100} would arrive as {other}; annotate the parameter, so that it arrives as {kind}")
