"""Messages of Thrift: valid ones of every call, made from the interface, and what they become by their structure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.transport.TTransport import TMemoryBuffer

from pinlater.wire.codec import encode_call, encode_reply
from pinlater.wire.interface import BOOL, DOUBLE, LIST, MAP, SET, SIGNATURES, STRING, STRUCT, Layout, Node
from pinlater.wire.message import Protocol
from tests.extremes.calls import OTHER_ROWS, ROWS, ExtremeCall, Job, Stock
from tests.fuzz.bytes_changed import changed_bytes
from tests.server import raw_thrift

PROTOCOLS = (Protocol.BINARY, Protocol.COMPACT)
QUEUE = "mail"
TEXTS = {
    "queueName": QUEUE,
    "name": "mail",
    "jobDescriptor": f"{QUEUE}:s1:p1:1790000000000001",
    "claimDescriptor": "memory:1:1790000000000:1:me",
    "continuation": "0",
    "cron": "30 3 * * *",
    "timezone": "Europe/Berlin",
    "expression": "sum(result)",
    "settings": "1",
}
"""What a text field needs to be taken; others are a word."""

_LEFT_OUT = {"everyMillis", "onlyIfVersion", "numbers", "keys", "parent"}
"""Fields that take the place of others: a call with both is refused before it is looked at."""

_DEEP, _MANY = 70, 300
"""Levels and elements that a message is made to have: a little beyond what any valid one has."""

_TREE_AT_MOST = 20_000
"""Bytes of a message that is read with Apache's plain Python protocol."""


def calls() -> Iterator[bytes]:
    """Each call with all its fields, with those alone that must be there, and as one that can be carried out, in each
    protocol.
    """
    for rows in (ROWS, OTHER_ROWS):
        for name, row in rows.items():
            args = ExtremeCall(name, ("context", "source"), "me", row).arguments(_stock())
            for protocol in PROTOCOLS:
                yield encode_call(name, 7, args, protocol)
    for name, signature in SIGNATURES.items():
        for whole in (True, False):
            args = _value(Node(STRUCT, struct=signature.args), "", whole)
            for protocol in PROTOCOLS:
                yield encode_call(name, 7, args, protocol)


def _stock() -> Stock:
    running = [Job(TEXTS["jobDescriptor"], TEXTS["claimDescriptor"])]
    return Stock(QUEUE, QUEUE, QUEUE, QUEUE, "word", "1", "first", 1, running, [TEXTS["jobDescriptor"]], QUEUE)


def answers() -> Iterator[bytes]:
    """Each call's answer with all its fields, and its exception, in each protocol."""
    for name, signature in SIGNATURES.items():
        fields = signature.result.fields
        success = _value(fields[0].node, "", True) if 0 in fields else None
        error = _value(fields[max(fields)].node, "", True)
        for protocol in PROTOCOLS:
            yield encode_reply(name, 7, success, protocol=protocol)
            yield encode_reply(name, 7, exception=error, protocol=protocol)


def _value(node: Node, field: str, whole: bool) -> Any:
    if node.struct is not None:
        return _struct(node.struct, whole)
    if node.ttype in (LIST, SET):
        assert node.value is not None
        return [_value(node.value, field, whole)] if whole else []
    if node.ttype == MAP:
        assert node.key is not None
        assert node.value is not None
        return {_value(node.key, field, whole): _value(node.value, field, whole)} if whole else {}
    if node.ttype == STRING:
        return TEXTS.get(field, "word") if node.text else b"body"
    return {BOOL: False, DOUBLE: 0.5}.get(node.ttype, 1)


def _struct(layout: Layout, whole: bool) -> Any:
    made = layout.cls()
    for field in layout.fields.values():
        if field.required or (whole and field.name not in _LEFT_OUT):
            setattr(made, field.attribute, _value(field.node, field.name, whole))
    return made


_STRANGE = (12_345, raw_thrift.BYTE, 0x55)
_STRANGE_BYTES, _NO_TYPE = b"\x03\x30\x39\x55", b"\x4d\x30\x39"
"""How it is written in the binary protocol, and what stands in its place."""


class _Tree:
    """A message as `raw_thrift.message` takes it."""

    def __init__(self, data: bytes) -> None:
        """Whatever Apache's reader raises: it is no message."""
        buffer = TMemoryBuffer(data)
        self.protocol = Protocol.COMPACT if data[:1] == b"\x82" else Protocol.BINARY
        reader = TCompactProtocol(buffer) if self.protocol is Protocol.COMPACT else TBinaryProtocol(buffer)
        reader.string_length_limit = reader.container_length_limit = len(data)
        self.name, self.kind, self.seqid = reader.readMessageBegin()
        self.fields = _read(reader, STRUCT)

    def bytes(self) -> bytes:
        written = raw_thrift.message(self.name, self.fields, self.protocol, self.seqid, self.kind)
        return written.replace(_STRANGE_BYTES, _NO_TYPE)


def _read(reader: Any, ttype: int) -> Any:
    if ttype == STRUCT:
        reader.readStructBegin()
        fields = []
        while (head := reader.readFieldBegin())[1]:
            fields.append((head[2], head[1], _read(reader, head[1])))
            reader.readFieldEnd()
        reader.readStructEnd()
        return fields
    if ttype in (LIST, SET):
        element, size = reader.readListBegin() if ttype == LIST else reader.readSetBegin()
        values = [_read(reader, element) for _ in range(size)]
        reader.readListEnd()
        return (element, values)
    if ttype == MAP:
        key, value, size = reader.readMapBegin()
        pairs = [(_read(reader, key), _read(reader, value)) for _ in range(size)]
        reader.readMapEnd()
        return (key, value, pairs)
    names = {2: "Bool", 3: "Byte", 4: "Double", 6: "I16", 8: "I32", 10: "I64", 11: "Binary"}
    return getattr(reader, f"read{names[ttype]}")()


_WHOLE_NUMBERS = {3: 7, 6: 15, 8: 31, 10: 63}
_SCALARS = (
    b"",
    b"mail",
    b"\xff\xfe",
    "\u0000\u2028\U0001f600".encode(),
    b"x" * 300,
    b"mail:s1:p1:1",
    b"2018-01-01",
    b'{"a":[1]}',
    b"PINLATER/1 application/json\n{}",
)


def changed_message(data: bytes, dice: Random) -> bytes:
    """Another message: of other types, lengths, depths, with fields gone, twice, unknown; or its bytes changed."""
    if dice.random() < 0.3 or len(data) > _TREE_AT_MOST:
        return changed_bytes(data, dice)
    try:
        tree = _Tree(data)
        for _ in range(dice.choice((1, 1, 1, 2, 4))):
            dice.choice(_CHANGES)(tree, dice)
        changed = tree.bytes()
    except Exception:  # whatever Apache's protocol makes of what is no message, and of values that do not fit
        return changed_bytes(data, dice)
    return changed_bytes(changed, dice) if dice.random() < 0.1 else changed


def _structs(value: Any, ttype: int = STRUCT) -> Iterator[list[Any]]:
    """Every list of fields in a value, itself first."""
    if ttype == STRUCT:
        yield value
        for _, inner, each in value:
            yield from _structs(each, inner)
    elif ttype in (LIST, SET):
        for each in value[1]:
            yield from _structs(each, value[0])
    elif ttype == MAP:
        for key, each in value[2]:
            yield from _structs(key, value[0])
            yield from _structs(each, value[1])


def _one_field(tree: _Tree, dice: Random) -> tuple[list[Any], int]:
    found = [(fields, at) for fields in _structs(tree.fields) for at in range(len(fields))]
    return dice.choice(found)


def _leave_out(tree: _Tree, dice: Random) -> None:
    fields, at = _one_field(tree, dice)
    del fields[at]


def _double(tree: _Tree, dice: Random) -> None:
    fields, at = _one_field(tree, dice)
    fields.insert(dice.randrange(len(fields) + 1), fields[at])


def _renumber(tree: _Tree, dice: Random) -> None:
    fields, at = _one_field(tree, dice)
    number, ttype, value = fields[at]
    fields[at] = (dice.choice((number + 1, number - 1, 0, 99, 100, dice.randrange(1, 130), 32_767, -1)), ttype, value)


def _retype(tree: _Tree, dice: Random) -> None:
    fields, at = _one_field(tree, dice)
    ttype = dice.choice(raw_thrift.WIRE_TYPES)
    fields[at] = (fields[at][0], ttype, raw_thrift.SAMPLES[ttype])


def _revalue(tree: _Tree, dice: Random) -> None:
    fields, at = _one_field(tree, dice)
    number, ttype, value = fields[at]
    fields[at] = (number, ttype, _another(value, ttype, dice))


def _another(value: Any, ttype: int, dice: Random) -> Any:
    if ttype == BOOL:
        return not value
    if ttype == DOUBLE:
        return dice.choice((float("nan"), float("inf"), float("-inf"), -0.0, 1e308, 5e-324, dice.random()))
    if ttype in _WHOLE_NUMBERS:
        end = 2 ** _WHOLE_NUMBERS[ttype]
        low, high = max(-end, value - 3), min(end - 1, value + 3)
        return dice.choice((-end, end - 1, 0, 1, -1, dice.randrange(-end, end), dice.randint(low, max(low, high))))
    if ttype == STRING:
        return dice.choice((changed_bytes(value, dice), changed_bytes(value, dice), *_SCALARS))
    if ttype in (LIST, SET):
        element, values = value
        return dice.choice(
            (
                (element, values * dice.choice((2, 3, _MANY))),
                (element, []),
                (dice.choice(raw_thrift.WIRE_TYPES), []),
                (element, [_another(each, element, dice) for each in values]),
            )
        )
    if ttype == MAP:
        key, inner, pairs = value
        more = [(_another(one, key, dice), _another(other, inner, dice)) for one, other in pairs]
        return (key, inner, dice.choice((pairs * 2, pairs + more, more, [])))
    return dice.choice((value + value, value[::-1], []))


def _graft(tree: _Tree, dice: Random) -> None:
    """One part of the message also where another one was."""
    (fields, at), (others, there) = _one_field(tree, dice), _one_field(tree, dice)
    fields[at] = (fields[at][0], *others[there][1:])


def _add_strange(tree: _Tree, dice: Random) -> None:
    """A field of a type that there is not, without a value."""
    fields = dice.choice(list(_structs(tree.fields)))
    fields.insert(dice.randrange(len(fields) + 1), _STRANGE)


def _nest(tree: _Tree, dice: Random) -> None:
    fields, at = _one_field(tree, dice)
    number, ttype, value = fields[at]
    is_struct = dice.random() < 0.5
    for _ in range(dice.choice((1, 2, _DEEP))):
        ttype, value = (STRUCT, [(1, ttype, value)]) if is_struct else (LIST, (ttype, [value]))
    fields[at] = (number, ttype, value)


def _rename(tree: _Tree, dice: Random) -> None:
    tree.name = dice.choice((*SIGNATURES, "", "ping", "x" * 200))


def _mark(tree: _Tree, dice: Random) -> None:
    tree.kind = dice.choice((0, 1, 2, 3, 4, 7))
    tree.seqid = dice.choice((0, -1, 2**31 - 1, -(2**31)))


def _shuffle(tree: _Tree, dice: Random) -> None:
    dice.shuffle(dice.choice(list(_structs(tree.fields))))


def _translate(tree: _Tree, dice: Random) -> None:
    tree.protocol = dice.choice((*PROTOCOLS, Protocol.BINARY_OLD))


_CHANGES: tuple[Callable[[_Tree, Random], None], ...] = (
    _revalue,
    _revalue,
    _revalue,
    _leave_out,
    _double,
    _renumber,
    _retype,
    _graft,
    _add_strange,
    _nest,
    _rename,
    _mark,
    _shuffle,
    _translate,
)
