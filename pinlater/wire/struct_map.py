"""Structs of the interface <-> the model: what copies one into the other, derived from the fields of both.

A struct's attributes have the names of the model (see interface.py), so that a server's answers and what is inside a
request are mostly encoded as they are. What is read, and the request itself, is copied by a function for each pair,
which is compiled when it is first needed and does what one would write by hand. A field that was not sent is what the
interface says, else what the model says, else nothing of its kind; what reads the same when it is left out is not sent.
A field that only one side has is a TypeError, but for those in `_ELSEWHERE`; what is no copy stands in `BY_HAND`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum, StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from pinlater.errors import ProtocolError, RequestInvalid
from pinlater.model import AckOutcome, Grant, JobFilter, JobInfo, Misfire, ScheduleChange
from pinlater.model.job_holds import HoldReason
from pinlater.wire.interface import I32, MAP, Field, Layout, Node

_ELSEWHERE: set[tuple[type | str, str]] = {
    (JobInfo, "dedupe_for_ms"),
    (Grant, "calls_per_second"),
    (Grant, "bounds"),
    (JobFilter, "future"),  # of a delete, to which it does not matter
    ("PinLaterCheckpointJobRequest", "new_text"),
}
"""Fields of the model that some struct does not have, and the other way round."""

_PARTS = {ScheduleChange}
"""Of these, what was not sent is None, whatever the interface's default is."""

_AS: dict[tuple[type, str], str] = {
    (JobInfo, "run_after_ms"): "created_at_ms",
    (JobInfo, "updated_at_ms"): "created_at_ms",
}
"""Another field that says it where this one was not sent."""

BY_HAND: dict[tuple[type, str], Callable[[Any], Any]] = {}
"""What reads a field of the model from the struct, where that is no copy of its own."""

WRITTEN_BY_HAND: dict[object, Callable[[Any], Any]] = {}
"""What makes of an object in a request one that is encoded: by its type, or by the model and its field."""

_NEWER: dict[type, IntEnum] = {
    AckOutcome: AckOutcome.UNKNOWN,
    HoldReason: HoldReason.UNKNOWN,
    Misfire: Misfire.RUN_ONCE,
}
"""What an answer's number that only a newer server knows is read as; elsewhere it is a ProtocolError."""

_NO_DEFAULT = object()
_ZEROS: dict[object, str] = {str: "''", int: "0", bool: "False", bytes: "b''", list: "[]", dict: "{}", Mapping: "{}"}
_SEQUENCES = (list, tuple, Sequence)
_NOTHINGS = {"''", "0", "False", "b''", "[]", "{}", "()", "0.0"}


class _Numbers(dict[int, Any]):
    """The values of an enum, or a flag, by their numbers on the wire."""

    def __init__(self, kind: type, field: str, of_request: bool) -> None:
        super().__init__({0: False, 1: True} if kind is bool else {int(each): each for each in cast("Any", kind)})
        self._kind = kind
        self._field = field
        self._of_request = of_request

    def __missing__(self, number: int) -> Any:
        """RequestInvalid in a request; else what is known in its place, or ProtocolError."""
        if self._of_request:
            allowed = "0 or 1" if self._kind is bool else ", ".join(f"{each.name} {each:d}" for each in self.values())
            raise RequestInvalid.of(self._field, number, allowed)
        if self._kind in _NEWER:
            return _NEWER[self._kind]
        raise ProtocolError(f"{number} is no {self._kind.__name__}")


def _is_word(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, StrEnum)


@dataclasses.dataclass(frozen=True, slots=True)
class ModelMember:
    """A field of the model, or an argument of a call."""

    name: str
    hint: Any
    optional: bool
    default: object

    def made_default(self) -> object:
        return self.default.factory() if isinstance(self.default, _Made) else self.default


def _member(name: str, hint: Any, default: object) -> ModelMember:
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    others = [each for each in kinds if each is not NoneType]
    return ModelMember(name, others[0], len(others) < len(kinds), default)


@cache
def members(model: type) -> tuple[ModelMember, ...]:
    """The fields of a dataclass or a NamedTuple, in order."""
    hints = get_type_hints(model)
    if not dataclasses.is_dataclass(model):
        defaults: dict[str, object] = model._field_defaults  # type: ignore[attr-defined]
        names: tuple[str, ...] = model._fields  # type: ignore[attr-defined]
        return tuple(_member(name, hints[name], defaults.get(name, _NO_DEFAULT)) for name in names)
    found = []
    for each in dataclasses.fields(model):
        default: object = _NO_DEFAULT if each.default is dataclasses.MISSING else each.default
        if each.default_factory is not dataclasses.MISSING:
            default = _Made(each.default_factory)
        found.append(_member(each.name, hints[each.name], default))
    return tuple(found)


@cache
def arguments(call: Callable[..., Any]) -> tuple[ModelMember, ...]:
    """Those of a call of Api, but for its context, in order."""
    hints = get_type_hints(call)
    own = [each for each in inspect.signature(call).parameters.values() if each.name not in ("self", "context")]
    return tuple(
        _member(each.name, hints[each.name], _NO_DEFAULT if each.default is each.empty else each.default)
        for each in own
    )


def _takes_names(model: type) -> bool:
    """Whether it is made by the names of its fields alone."""
    return dataclasses.is_dataclass(model) and any(each.kw_only for each in dataclasses.fields(model))


@dataclasses.dataclass(frozen=True, slots=True)
class _Made:
    factory: Callable[[], object]


class _Source:
    """Puts together the source of a function, and the names that it needs."""

    def __init__(self, of_request: bool) -> None:
        self._of_request = of_request
        self._names: dict[str, Any] = {}
        self._depth = 0

    def name(self, value: Any) -> str:
        name = f"_{len(self._names)}"
        self._names[name] = value
        return name

    def function(self, arguments: str, *lines: str) -> Any:
        made: dict[str, Any] = {}
        body = "".join(f"    {line}\n" for line in lines)
        exec(compile(f"def made({arguments}):\n{body}", "<struct_map>", "exec"), self._names, made)
        return made["made"]

    def made(self, model: type, struct: Layout, sent: str, others: Iterable[str] = (), unsent: str = "") -> str:
        """An object of the model from the struct `sent`; `others` are fields of the struct that are none of it.
        `unsent`: the last field of the model, which no such struct has.
        """
        fields = {field.attribute: field for field in struct.fields.values()}
        values, left = [], {name for name in fields if (struct.name, name) not in _ELSEWHERE}.difference(others)
        named = _takes_names(model)  # by place where it can be: by name it takes twice as long
        for member in members(model):
            left.discard(member.name)
            if member.name == unsent:
                break
            by_hand = BY_HAND.get((model, member.name))
            if by_hand is not None:
                value = f"{self.name(by_hand)}({sent})"
            elif (model, member.name) in _AS:
                value, other = (f"{sent}.{each}" for each in (member.name, _AS[model, member.name]))
                value = f"{other} if {value} is None else {value}"
            elif member.name in fields:
                value = self.member(member, fields[member.name], sent, model in _PARTS)
            elif (model, member.name) in _ELSEWHERE:
                named = True
                continue
            else:
                raise TypeError(f"{model.__name__}.{member.name} has no field in {struct.name}")
            values.append(f"{member.name}={value}" if named else value)
        if left:
            raise TypeError(f"{model.__name__} has no field for {struct.name}: {', '.join(sorted(left))}")
        return f"{self.name(model)}({', '.join(values)})"

    def member(self, member: ModelMember, field: Field, sent: str, is_part: bool = False) -> str:
        at = f"{sent}.{field.attribute}"
        value = self._value(member.hint, field.node, field.name, at)
        if field.required:
            return value
        absent = "None" if is_part else self.absent(member, field)
        if absent == "None" and value == at:
            return at
        if absent in _NOTHINGS and value == at:
            return f"{at} or {absent}"
        return f"{absent} if {at} is None else {value}"

    def absent(self, member: ModelMember, field: Field) -> str:
        """The source of what a field is that was not sent."""
        if field.default is not None:
            default: object = field.default
            if isinstance(member.hint, type) and issubclass(member.hint, IntEnum):
                default = member.hint(field.default)
        elif member.default is _NO_DEFAULT:
            return "None" if member.optional else _ZEROS[get_origin(member.hint) or member.hint]
        else:
            default = member.default
        if isinstance(default, _Made):
            simple = {list: "[]", dict: "{}"}.get(default.factory)  # type: ignore[call-overload]
            return simple or f"{self.name(default.factory)}()"
        if default is None or default == () or type(default) in (bool, int, str, bytes, float):
            return repr(default)
        return self.name(default)

    def _value(self, hint: Any, node: Node, field: str, at: str) -> str:
        """The source of a value that was sent; `at` itself where nothing has to be made of it."""
        kind = get_origin(hint)
        if node.struct is not None:
            return f"{self.name(reader(hint, node.struct, of_request=self._of_request))}({at})"
        if kind in _SEQUENCES:
            return self._sequence(kind, get_args(hint)[0], node, field, at)
        if kind in (dict, Mapping):
            assert node.value is not None
            self._depth += 1
            key, each = f"k{self._depth}", f"v{self._depth}"
            value = self._value(get_args(hint)[1], node.value, field, each)
            return at if value == each else f"{{{key}: {value} for {key}, {each} in {at}.items()}}"
        if isinstance(hint, type) and (issubclass(hint, IntEnum) or (hint is bool and node.ttype == I32)):
            return f"{self.name(_Numbers(hint, field, self._of_request))}[{at}]"
        return f"{self.name(hint)}({at})" if _is_word(hint) else at

    def _sequence(self, kind: Any, item: Any, node: Node, field: str, at: str) -> str:
        """Words that only a newer server knows are left out, with what they are the word of."""
        assert node.value is not None
        self._depth += 1
        each, struct, known = f"v{self._depth}", node.value.struct, ""
        words = [(item, each)] if struct is None else [(one.hint, f"{each}.{one.name}") for one in members(item)]
        for hint, word in words:
            if _is_word(hint):
                known = f" if {word} in {self.name(set(map(str, hint)))}"
        value = self._value(item, node.value, field, each) if struct is None else self.made(item, struct, each)
        source = at if value == each else f"[{value} for {each} in {at}{known}]"
        return f"tuple({source})" if kind is tuple else source


def number_reader(kind: type, field: str, *, of_request: bool = False) -> Mapping[int, Any]:
    """The values of an enum by their numbers in this field of an answer, or of a request."""
    return _Numbers(kind, field, of_request)


@cache
def reader(model: type, struct: Layout, *, of_request: bool = False) -> Callable[[Any], Any]:
    """What makes an object of the model out of a decoded struct. `of_request`: of a request, whose invalid numbers are
    RequestInvalid.
    """
    source = _Source(of_request)
    return source.function("s", f"return {source.made(model, struct, 's')}")  # type: ignore[no-any-return]


def list_reader(
    model: type, struct: Layout, *, of_request: bool = False, others: Iterable[str] = (), unsent: str = ""
) -> Callable[[Any], Any]:
    """Reads a list of such structs in one pass. `others`: their fields that are none of the model; `unsent`: the last
    field of the model, where none of these structs has it.
    """
    source = _Source(of_request)
    return source.function("ss", f"return [{source.made(model, struct, 's', others, unsent)} for s in ss]")  # type: ignore[no-any-return]


# -- calls -------------------------------------------------------------------------------------------------------------


class CallShape:
    """How the arguments of a call of `Api` lie in those of the interface: one by one in its request, or the fields of
    one of them among the others; without a request, as arguments of their own.
    """

    def __init__(self, call: Callable[..., Any], args: Layout, result: Layout) -> None:
        self._call = call
        self._members = arguments(call)
        parameters = inspect.signature(call).parameters.values()
        self._by_name = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
        self._args = args
        request = next((each.node.struct for each in args.fields.values() if each.name == "request"), None)
        self.has_request = request is not None
        self._struct = args if request is None else request
        self._fields = {each.attribute: each for each in self._struct.fields.values() if each.name != "context"}
        self._returned = get_type_hints(call)["return"]
        self._success = result.fields.get(0)

    def serve(self) -> Callable[[Any, Any, Any], Any]:
        """Makes the call of an Api from decoded arguments. RequestInvalid."""
        source, values = _Source(True), []
        for member in self._members:
            named = f"{member.name}=" if member.name in self._by_name else ""
            if member.name in self._fields:
                values.append(named + source.member(member, self._fields[member.name], "s"))
            else:
                values.append(named + source.made(member.hint, self._struct, "s", self._others(member)))
        call = f"api.{self._call.__name__}({', '.join([*values, 'context=context'])})"
        return source.function(  # type: ignore[no-any-return]
            "api, args, context", f"s = args{'.request' if self.has_request else ''}", f"return {call}"
        )

    def _others(self, member: ModelMember) -> set[str]:
        """The fields of the request that are not those of this argument, but other arguments."""
        return {each.name for each in self._members if each is not member}

    def write(self) -> Callable[..., Any]:
        """Makes the request, or all arguments, from those of the call in order; `into` is None or the arguments."""
        source = _Source(False)
        arguments, lines, written = [], [f"r = {source.name(self._struct.cls)}()"], set()
        for member in self._members:
            default = "" if member.default is _NO_DEFAULT else f"={source.name(member.default)}"
            arguments.append(member.name + default)
            if member.name in self._fields:
                pairs = [(member, member.name, WRITTEN_BY_HAND.get(member.hint))]
            else:
                pairs = [
                    (
                        each,
                        f"{member.name}.{each.name}",
                        WRITTEN_BY_HAND.get((member.hint, each.name)) or WRITTEN_BY_HAND.get(each.hint),
                    )
                    for each in members(member.hint)
                    if each.name in self._fields
                ]
            for each, at, by_hand in pairs:
                value = at if by_hand is None else f"{source.name(by_hand)}({at})"
                lines.append(f"r.{each.name} = {self._written(source, each, value)}")
                written.add(each.name)
        if written != set(self._fields):
            raise TypeError(f"{self._call.__name__} does not say {set(self._fields) - written} of {self._struct.name}")
        return source.function(", ".join(arguments), *lines, "return r")  # type: ignore[no-any-return]

    def _written(self, source: _Source, member: ModelMember, value: str) -> str:
        field = self._fields[member.name]
        if field.node.ttype == MAP:  # the codec takes nothing but a dict for one
            return f"dict({value} or ()) or None"
        if not field.required and not member.optional and source.absent(member, field) in _NOTHINGS:
            return f"{value} or None"
        return value

    def answer(self) -> Callable[[Any], Any] | None:
        """Makes what is encoded of what an Api returned; None: it is that."""
        struct = None if self._success is None else self._success.node.struct
        if struct is None or get_origin(self._returned) not in _SEQUENCES:
            return None
        source = _Source(False)
        line = f"r.{self._list(struct).attribute} = answer"
        return source.function(  # type: ignore[no-any-return]
            "answer", f"r = {source.name(struct.cls)}()", line, "return r"
        )

    def result(self) -> Callable[[Any], Any] | None:
        """Makes what a client returns of a decoded answer; None: it is that."""
        if self._success is None or (self._success.node.struct is None and get_origin(self._returned) is not dict):
            return None
        source, struct = _Source(False), self._success.node.struct
        if get_origin(self._returned) in _SEQUENCES:
            assert struct is not None
            value = source.member(_member("", self._returned, _NO_DEFAULT), self._list(struct), "s")
        else:
            value = source._value(self._returned, self._success.node, self._success.name, "s")
        return source.function("s", f"return {value}")  # type: ignore[no-any-return]

    def _list(self, struct: Layout) -> Field:
        """The one field of an answer that is a list."""
        (field,) = struct.fields.values()
        return field
