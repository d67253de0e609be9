"""The interface file, loaded at run time: its structs and methods in the forms that the two readers need.

The file is shipped inside the package `pinlater.idl`; in a checkout it lies in `thrift/`, beside the package. The C
codec of Apache's package reads a tuple of field tuples; the validator reads a dict by field id. Both are derived once.
Decoded structs are instances of plain classes whose attributes have the names of the
model (`run_after_ms`, not `runAfterTimestampMillis`), so that the objects of the model are encoded as they are, without
a copy. An optional field that was not sent is None: defaults belong to struct_map.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from pinlater.wire.interface_file import FieldSpec, interface_path, read_interface
from pinlater.wire.message import REPLY, SEQID_BYTES, Protocol, write_header

BOOL, BYTE, DOUBLE, I16, I32, I64 = 2, 3, 4, 6, 8, 10
STRING, STRUCT, MAP, SET, LIST = 11, 12, 13, 14, 15
SIZES = {BOOL: 1, BYTE: 1, DOUBLE: 8, I16: 2, I32: 4, I64: 8}
_NUMBERS = {"bool": BOOL, "byte": BYTE, "double": DOUBLE, "i16": I16, "i32": I32, "i64": I64}
_MORE_THAN_ANY_ID = 1 << 15

_NAMES = {
    "queueName": "queue",
    "jobDescriptor": "descriptor",
    "jobState": "state",
    "bodyRegexToMatch": "body_regex",
    "numAttemptsAllowed": "attempts_allowed",
    "numOfAttemptsAllowed": "attempts_allowed",
    "appendCustomStatus": "append_status",
    "prependCustomStatus": "prepend_status",
    "putP50Millis": "put_p50_ms",
    "putP99Millis": "put_p99_ms",
    "getP50Millis": "get_p50_ms",
    "getP99Millis": "get_p99_ms",
}
"""The model's names of fields that do not follow from those of the interface."""

_RENAMED = {
    ("PinLaterCheckpointJobRequest", "newBody"): "new_text",
    ("PinLaterCheckpointJobRequest", "newBodyBytes"): "new_body",
    ("PinLaterCheckpointJobsRequest", "requests"): "checkpoints",
    ("PinLaterJobAckRequest", "jobsSucceeded"): "succeeded",
    ("PinLaterJobAckRequest", "jobsFailed"): "failed",
    ("PinLaterGetJobCountRequest", "countFutureJobs"): "future",
    ("PinLaterScanJobsRequest", "scanFutureJobs"): "future",
    ("PinLaterScanJobsResponse", "scannedJobs"): "jobs",
    ("PinLaterLookupJobRequest", "jobDescriptors"): "descriptors",
    ("PinLaterRetryFailedJobsRequest", "attemptsToAllow"): "attempts",
    ("FlowStage", "parentStage"): "parent",
    ("WorkerJob", "jobDescriptor"): "job_descriptor",
    ("WorkerJobInfo", "jobDescriptor"): "job_descriptor",
    ("CancelJobsRequest", "jobDescriptors"): "descriptors",
    ("ExplainJobsRequest", "jobDescriptors"): "descriptors",
    ("CancelJobsRequest", "mode"): "running",
    ("CancelJobsResponse", "keyOutcomes"): "by_key",
    ("RescheduleJobsRequest", "jobs"): "changes",
    ("JobSelection", "jobDescriptors"): "descriptors",
    ("ChangeFoundJobsRequest", "mode"): "stops_running",
    ("GetQueuesRequest", "queueNames"): "names",
    ("UpdateQueueRequest", "queueName"): "name",
    ("UpdateQueueRequest", "settings"): "set",
    ("UpdateGroupRequest", "settings"): "set",
    ("GetClusterStatusRequest", "queueNames"): "queues",
    ("UpdateScheduleRequest", "schedule"): "change",
    ("UpdateTokenRequest", "tokenHash"): "hash",
    ("UpdateTokenRequest", "expiresAtMillis"): "expires_ms",
    ("TokenView", "expiresAtMillis"): "expires_ms",
    ("TokenView", "lastUsedAtMillis"): "last_used_ms",
}
"""Those that are so in one struct only: the model's, or of an argument the call's."""

_KEPT_AS_BYTES = {("PinLaterCheckpointJobRequest", "newBody")}
"""Fields that the interface calls a string but whose bytes are kept as they came."""

_STRICT = {"queueName", "name", "bodyRegexToMatch", "dedupeKey", "serializeKey", "sendId", "regex", "tags", "group"}
"""Text of requests that must be UTF-8: with one character exchanged it would name another queue, key or request, or
match other jobs.
In all other text what is no UTF-8 becomes U+FFFD, as with every classic server; nothing that has a form (descriptors,
passwords, continuations, keys of settings) is valid with that in it.
"""


_FEW_HAVE = {"PinLaterJob": 100, "PinLaterJobAckInfo": 102}
"""From which id on few messages have the fields of a struct: without them its jobs take less time (`Signature.plain`).
"""
_FEWER_HAVE = {"PinLaterJob": 108}
"""The same among those that few messages have."""

_WITH_MANY_JOBS = {"enqueueJobs", "ackJobs", "ackDequeuedJobs", "dequeueJobs"}


class Node(NamedTuple):
    """The type of a value: its wire type and what it is made of. A `text` is a string of characters, and a `strict`
    one must be UTF-8; `size` is that of a number in the binary protocol, else 0."""

    ttype: int
    text: bool = False
    strict: bool = False
    key: Node | None = None
    value: Node | None = None
    struct: Layout | None = None
    size: int = 0


class Field(NamedTuple):
    id: int
    name: str
    attribute: str
    node: Node
    required: bool
    bit: int
    default: Any = None
    """That of the interface."""


class _Missing:
    """Stands where a required field was not sent. The codec leaves out None, but cannot encode this: TypeError or
    AttributeError, so that a message which lacks something is found out when it is encoded again, at no cost.
    """


MISSING = _Missing()


class Struct:
    """The root of all decoded structs: attributes; None for what was not sent, MISSING where it had to be."""

    no_body = b""

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({shown})"

    def __eq__(self, other: object) -> bool:
        """Whether these are the same struct with the same values, whichever forms they were read in."""
        if not isinstance(other, Struct):
            return NotImplemented
        return type(self).__name__ == type(other).__name__ and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


class Layout:
    """One struct: its class, its fields, and its form for the C codec.

    `decode_args` has a field tuple at the index of each field id; `encode_args` has no gaps; `bodiless_args` encodes
    every required binary field as if it were empty, so that a message can be measured without copying its bodies.
    """

    def __init__(self, name: str, fields: list[Field], cls: type | None = None) -> None:
        """`cls` is that of another layout, of which this one has some fields."""
        self.name = name
        self.fields = {field.id: field for field in fields}
        self.required_bits = sum(field.bit for field in fields if field.required)
        self.cls: type = cls or type(
            name, (Struct,), {field.attribute: MISSING if field.required else None for field in fields}
        )
        ordered = [self.fields[field_id] for field_id in sorted(self.fields)]
        sparse: list[Any] = [None] * (max(self.fields, default=-1) + 1)
        for field in fields:
            sparse[field.id] = _field_tuple(field, "decode_args")
        self.decode_args: list[Any] = [self.cls, tuple(sparse)]
        self.encode_args: list[Any] = [self.cls, tuple(_field_tuple(field, "encode_args") for field in ordered)]
        self.bodiless_args: list[Any] = [self.cls, tuple(_field_tuple(field, "bodiless_args") for field in ordered)]
        self._getters = [(field.name, attrgetter(field.attribute)) for field in fields if field.required]
        self._nested = [(attrgetter(f.attribute), f.node) for f in fields if _holds_struct(f.node)]

    def missing(self, values: list[Any]) -> str | None:
        """The name of a required field that one of these structs, or one inside them, lacks."""
        for name, get in self._getters:
            if [None for value in values if get(value) is MISSING]:
                return f"{self.name}.{name}"
        for get, node in self._nested:
            for value in values:
                inner = get(value)
                if inner is not None:
                    name_or_none = _missing_in(node, inner)
                    if name_or_none is not None:
                        return name_or_none
        return None


def _holds_struct(node: Node | None) -> bool:
    return node is not None and (node.struct is not None or _holds_struct(node.value))


def _missing_in(node: Node, value: Any) -> str | None:
    if node.struct is not None:
        return node.struct.missing([value])
    assert node.value is not None
    assert node.value.struct is not None
    return node.value.struct.missing(list(value.values() if node.ttype == MAP else value))


def _field_tuple(field: Field, form: str) -> tuple[Any, ...]:
    node = field.node
    bodiless = form == "bodiless_args" and field.required and node.ttype == STRING and not node.text
    return (field.id, node.ttype, "no_body" if bodiless else field.attribute, _type_args(node, form), None)


def _type_args(node: Node, form: str) -> Any:
    """What stands in fourth place of a field tuple; the structs inside are taken in the same form."""
    if node.ttype == STRING:
        return "UTF8" if node.text else "BINARY"
    if node.struct is not None:
        return getattr(node.struct, form)
    if node.ttype in (LIST, SET):
        assert node.value is not None
        return (node.value.ttype, _type_args(node.value, form), False)
    if node.ttype == MAP:
        assert node.key is not None
        assert node.value is not None
        return (node.key.ttype, _type_args(node.key, form), node.value.ttype, _type_args(node.value, form), False)
    return None


class Layouts:
    """The layouts of an interface, each derived once. `fields_below`: of these structs, only fields with such ids."""

    def __init__(self, fields_below: Mapping[str, int] | None = None) -> None:
        self._layouts: dict[str, Layout] = {}
        self._fields_below = fields_below or {}

    def of(self, name: str) -> Layout:
        """The layout of a struct of the interface."""
        return self._layouts.get(name) or self.made_of(name, INTERFACE.structs[name])

    def made_of(self, name: str, specs: Sequence[FieldSpec], *, all_required: bool = False) -> Layout:
        """The layout of these fields, under a name. `all_required` is for arguments, which the file does not mark."""
        below = self._fields_below.get(name, _MORE_THAN_ANY_ID)
        fields = [self._field(name, spec, all_required) for spec in specs if spec.id < below]
        layout = self._layouts[name] = Layout(name, fields)
        for spec in specs:
            if not hasattr(layout.cls, attribute := _attribute(name, spec.name)):
                setattr(layout.cls, attribute, None)
        return layout

    def _field(self, struct: str, spec: FieldSpec, all_required: bool) -> Field:
        node = self._node(spec.type)
        if (struct, spec.name) in _KEPT_AS_BYTES:
            node = Node(STRING)
        elif node.text and spec.name in _STRICT:
            node = Node(STRING, text=True, strict=True)
        attribute, is_required = _attribute(struct, spec.name), all_required or spec.is_required
        return Field(spec.id, spec.name, attribute, node, is_required, 1 << spec.id, spec.default)

    def _node(self, written: str) -> Node:
        if written in ("string", "binary"):
            return Node(STRING, text=written == "string")
        if written in _NUMBERS:
            return number(_NUMBERS[written])
        outer, _, inner = written.partition("<")
        if outer in ("list", "set"):
            return Node(LIST if outer == "list" else SET, value=self._node(inner[:-1]))
        if outer == "map":
            key, _, value = inner[:-1].partition(", ")
            return Node(MAP, key=self._node(key), value=self._node(value))
        return number(I32) if written in INTERFACE.enums else Node(STRUCT, struct=self.of(written))


def number(ttype: int) -> Node:
    """The type of a number or a boolean."""
    return Node(ttype, size=SIZES[ttype])


def _attribute(struct: str, field: str) -> str:
    renamed = _RENAMED.get((struct, field)) or _NAMES.get(field)
    if renamed is not None:
        return renamed
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", field).lower()
    return re.sub(r"(_timestamp)?_millis$", "_ms", snake)


class PlainArgs(NamedTuple):
    """Arguments whose `request` is of this class, and their layouts, with the context and without."""

    request: type
    args: Layout
    others: Layout


@dataclass(frozen=True, slots=True)
class Signature:
    """One call: what it takes and what it answers (`success` and, for an error, `e`)."""

    name: str
    args: Layout
    others: Layout
    """The arguments without the context."""

    result: Layout
    void: bool
    reply_head: bytes
    """With what an answer in the binary protocol begins; the sequence id follows."""

    bodies: Callable[[Any], list[bytes]] | None = None
    """The bodies in its arguments, where it carries many; TypeError where one is missing."""

    plain: PlainArgs | None = None
    """The arguments without what few messages have, where this saves time."""

    forms: tuple[Layout, ...] = ()
    """The arguments without the context, in each form, the one with the fewest fields first."""

    def encode_args(self, args: Any) -> list[Any]:
        """That of the form which these arguments have."""
        plain = self.plain
        return (self.args if plain is None or type(args.request) is not plain.request else plain.args).encode_args


def _job_bodies(args: Any) -> list[bytes]:
    return [job.body for job in args.request.jobs]


_BODIES = {"enqueueJobs": _job_bodies}


def _signatures(layouts: Layouts) -> dict[str, Signature]:
    signatures = {}
    for name, method in INTERFACE.methods.items():
        args = layouts.made_of(f"{name}_args", method.args, all_required=True)
        result = layouts.made_of(f"{name}_result", method.result)
        less = [PLAIN_LAYOUTS] if name in _WITH_MANY_JOBS else []
        less += [KEYED_LAYOUTS] if name == "enqueueJobs" else []
        fewer = [_with_fewer_fields(each, method.args, args) for each in less]
        others = _without_context(args)
        signatures[name] = Signature(
            name,
            args,
            others,
            result,
            void=0 not in result.fields,
            reply_head=write_header(Protocol.BINARY, REPLY, name, 0)[:-SEQID_BYTES],
            bodies=_BODIES.get(name),
            plain=fewer[0] if fewer else None,
            forms=(*[each.others for each in fewer], others),
        )
    return signatures


def _without_context(args: Layout) -> Layout:
    return Layout(args.name, [field for field in args.fields.values() if field.name != "context"], args.cls)


def _with_fewer_fields(layouts: Layouts, specs: Sequence[FieldSpec], args: Layout) -> PlainArgs:
    fewer = layouts.made_of(args.name, specs, all_required=True)
    fewer = Layout(fewer.name, list(fewer.fields.values()), args.cls)
    request = next(field.node.struct for field in fewer.fields.values() if field.name == "request")
    assert request is not None
    return PlainArgs(request.cls, fewer, _without_context(fewer))


INTERFACE = read_interface(interface_path().read_text(encoding="utf-8"))
LAYOUTS = Layouts()
PLAIN_LAYOUTS = Layouts(_FEW_HAVE)
KEYED_LAYOUTS = Layouts(_FEWER_HAVE)
CONTEXT = LAYOUTS.of("RequestContext")
SIGNATURES: dict[str, Signature] = _signatures(LAYOUTS)


def struct(name: str) -> type:
    """The plain class that a struct of the interface is decoded into; a field that was not sent is None."""
    return LAYOUTS.of(name).cls


def filled(cls: type, **values: Any) -> Any:
    """A struct with these values; None, and what is not named, is not sent."""
    target = cls()
    vars(target).update(values)
    return target


def plain_struct(name: str) -> type:
    """The same without what few messages have; see `Signature.plain`."""
    return PLAIN_LAYOUTS.of(name).cls


def keyed_struct(name: str) -> type:
    """The same without what few of those have; see `Signature.forms`."""
    return KEYED_LAYOUTS.of(name).cls
