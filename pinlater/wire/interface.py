"""The interface file, loaded at run time: its structs and methods in the forms that the two readers need.

The file is shipped inside the package `pinlater.idl`; in a checkout it lies in `thrift/`, beside the package. The C
codec of Apache's package reads a tuple of field tuples; the validator reads a dict by field id. Both are derived once
from thriftpy2's `thrift_spec`. Decoded structs are instances of plain classes whose attributes have the names of the
model (`run_after_ms`, not `runAfterTimestampMillis`), so that the objects of the model are encoded as they are, without
a copy. An optional field that was not sent is None: defaults belong to struct_map.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from pinlater.wire.grammar import with_grammar
from pinlater.wire.message import REPLY, SEQID_BYTES, Protocol, write_header

with with_grammar():
    import thriftpy2

BOOL, BYTE, DOUBLE, I16, I32, I64 = 2, 3, 4, 6, 8, 10
STRING, STRUCT, MAP, SET, LIST = 11, 12, 13, 14, 15
SIZES = {BOOL: 1, BYTE: 1, DOUBLE: 8, I16: 2, I32: 4, I64: 8}
_THRIFTPY_BINARY = 18
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

_STRICT = {"queueName", "name", "bodyRegexToMatch", "dedupeKey", "serializeKey", "sendId", "regex"}
"""Text of requests that must be UTF-8: with one character exchanged it would name another queue, key or request, or
match other jobs.
In all other text what is no UTF-8 becomes U+FFFD, as with every classic server; nothing that has a form (descriptors,
passwords, continuations, keys of settings) is valid with that in it.
"""


_FEW_HAVE = {"PinLaterJob": 100, "PinLaterJobAckInfo": 102}
"""From which id on few messages have the fields of a struct: without them its jobs take less time (`Signature.plain`).
"""
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
        self._layouts: dict[type, Layout] = {}
        self._fields_below = fields_below or {}

    def of(self, thrift_class: Any, *, all_required: bool = False) -> Layout:
        """The layout of one of thriftpy2's classes. `all_required` is for arguments, which the file does not mark."""
        layout = self._layouts.get(thrift_class)
        if layout is None:
            name = thrift_class.__name__
            below = self._fields_below.get(name, _MORE_THAN_ANY_ID)
            defaults = dict(thrift_class.default_spec)
            fields = [
                self._field(name, key, spec, all_required)._replace(default=defaults[spec[1]])
                for key, spec in thrift_class.thrift_spec.items()
                if key < below
            ]
            layout = self._layouts[thrift_class] = Layout(name, fields)
            for spec in thrift_class.thrift_spec.values():
                if not hasattr(layout.cls, attribute := _attribute(name, spec[1])):
                    setattr(layout.cls, attribute, None)
        return layout

    def _field(self, struct: str, field_id: int, spec: tuple[Any, ...], all_required: bool) -> Field:
        """`spec` is (type, name, required), with what it is made of in third place where the type needs it."""
        ttype, name, required = spec[0], spec[1], spec[-1]
        inner = spec[2] if len(spec) == 4 else None
        node = self._node(ttype if inner is None else (ttype, inner))
        if (struct, name) in _KEPT_AS_BYTES:
            node = Node(STRING)
        elif node.text and name in _STRICT:
            node = Node(STRING, text=True, strict=True)
        return Field(field_id, name, _attribute(struct, name), node, all_required or required, 1 << field_id)

    def _node(self, spec: Any) -> Node:
        ttype, inner = spec if isinstance(spec, tuple) else (spec, None)
        if ttype == _THRIFTPY_BINARY:
            return Node(STRING)
        if ttype == STRING:
            return Node(STRING, text=True)
        if ttype == STRUCT:
            return Node(STRUCT, struct=self.of(inner))
        if ttype in (LIST, SET):
            return Node(ttype, value=self._node(inner))
        if ttype == MAP:
            return Node(MAP, key=self._node(inner[0]), value=self._node(inner[1]))
        return number(ttype)


def number(ttype: int) -> Node:
    """The type of a number or a boolean."""
    return Node(ttype, size=SIZES[ttype])


def _attribute(struct: str, field: str) -> str:
    renamed = _RENAMED.get((struct, field)) or _NAMES.get(field)
    if renamed is not None:
        return renamed
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", field).lower()
    return re.sub(r"(_timestamp)?_millis$", "_ms", snake)


FILE_NAME = "pinlater.thrift"


def interface_path() -> Path:
    """Where the interface file lies: in this checkout, else in the installed package."""
    beside = Path(__file__).resolve().parents[2] / "thrift" / FILE_NAME
    if beside.is_file():
        return beside
    return Path(str(resources.files("pinlater.idl") / FILE_NAME))


def load() -> ModuleType:
    """The interface as a thriftpy2 module, whose classes any plain thriftpy2 client can use."""
    return thriftpy2.load(str(interface_path()), module_name="pinlater_thrift")


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

    def encode_args(self, args: Any) -> list[Any]:
        """That of the form which these arguments have."""
        plain = self.plain
        return (self.args if plain is None or type(args.request) is not plain.request else plain.args).encode_args

    @property
    def forms(self) -> tuple[Layout, ...]:
        """The arguments without the context, in each form, the usual one first."""
        return (self.others,) if self.plain is None else (self.plain.others, self.others)


def _job_bodies(args: Any) -> list[bytes]:
    return [job.body for job in args.request.jobs]


_BODIES = {"enqueueJobs": _job_bodies}


def _methods(module: ModuleType, layouts: Layouts) -> dict[str, Signature]:
    service = module.PinLater
    methods = {}
    for name in service.thrift_services:
        args = layouts.of(getattr(service, f"{name}_args"), all_required=True)
        result = getattr(service, f"{name}_result")
        methods[name] = Signature(
            name,
            args,
            _without_context(args),
            layouts.of(result),
            void=0 not in result.thrift_spec,
            reply_head=write_header(Protocol.BINARY, REPLY, name, 0)[:-SEQID_BYTES],
            bodies=_BODIES.get(name),
            plain=_plain(service, args) if name in _WITH_MANY_JOBS else None,
        )
    return methods


def _without_context(args: Layout) -> Layout:
    return Layout(args.name, [field for field in args.fields.values() if field.name != "context"], args.cls)


def _plain(service: Any, args: Layout) -> PlainArgs:
    plain = PLAIN_LAYOUTS.of(getattr(service, args.name), all_required=True)
    plain = Layout(plain.name, list(plain.fields.values()), args.cls)
    request = next(field.node.struct for field in plain.fields.values() if field.name == "request")
    assert request is not None
    return PlainArgs(request.cls, plain, _without_context(plain))


MODULE = load()
LAYOUTS = Layouts()
PLAIN_LAYOUTS = Layouts(_FEW_HAVE)
CONTEXT = LAYOUTS.of(MODULE.RequestContext)
SIGNATURES: dict[str, Signature] = _methods(MODULE, LAYOUTS)


def struct(name: str) -> type:
    """The plain class that a struct of the interface is decoded into; a field that was not sent is None."""
    return LAYOUTS.of(getattr(MODULE, name)).cls


def filled(cls: type, **values: Any) -> Any:
    """A struct with these values; None, and what is not named, is not sent."""
    target = cls()
    vars(target).update(values)
    return target


def plain_struct(name: str) -> type:
    """The same without what few messages have; see `Signature.plain`."""
    return PLAIN_LAYOUTS.of(getattr(MODULE, name)).cls
