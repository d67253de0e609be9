"""The careful reader of a message's struct: makes nothing, but refuses what the C codec lets through.

Refused are repeated fields, known fields of a wrong type, missing required ones, containers and nesting over their
bounds, and more fields and elements than `max_steps`. Unknown fields are skipped, whatever they hold. A strict text
that is not UTF-8 is only noted (`not_text`): the message can be read to its end, and answered.

A walk is a generator over a buffer that may still grow: it yields how long the buffer must at least be for the walk to
go on, and keeps its place in `at`. So a message that comes byte by byte costs no more than one that comes whole.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import repeat
from typing import NamedTuple

from pinlater.wire.interface import (
    BOOL,
    BYTE,
    DOUBLE,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    SET,
    SIZES,
    STRING,
    STRUCT,
    Field,
    Layout,
    Node,
)
from pinlater.wire.message import WireError, WireLimits

MAX_DEPTH = 32
UNKNOWN_COSTS = 3
"""What an unknown field or element counts more than a known one: it takes longer, and nobody means many of them."""

Walk = Generator[int, None, None]
Buffer = bytes | bytearray


class NotText(NamedTuple):
    """A strict text that is not UTF-8: the field's name in the interface, and its bytes."""

    field: str
    raw: bytes


class BinaryValidator:
    """One walk over a struct in the binary protocol; `at` is where it stands."""

    fixed = SIZES
    share = 1.0
    """The part of `max_steps` that this walk may take: less, where a step takes longer."""

    def __init__(self, data: Buffer, at: int, limits: WireLimits) -> None:
        self.data = data
        self.at = at
        self.limits = limits
        self.not_text: NotText | None = None
        self._steps = int(limits.max_steps * self.share)

    def struct(self, layout: Layout) -> Walk:
        """Walk one struct of the interface. Written out, since it is what a large message spends its time in."""
        data, fields, seen, at = self.data, layout.fields, 0, self.at
        size, most = len(data), 4 + self.limits.max_message_bytes
        while True:
            while size < at + 3:  # the three bytes of a field, or the last one of the struct
                if size > at and not data[at]:
                    break
                yield at + 1 if size <= at else at + 3
                size = len(data)
            ttype = data[at]
            if not ttype:
                break
            field = fields.get(data[at + 1] << 8 | data[at + 2])
            at += 3
            if field is None:
                self.at = at
                self._step(1 + UNKNOWN_COSTS)
                yield from self.skip(ttype, 1)
                at = self.at
                size = len(data)
                continue
            node = field.node
            if node.ttype != ttype or seen & field.bit:
                raise wrong_field(layout, field, ttype)
            seen |= field.bit
            if ttype == STRING:
                while size < at + 4:
                    yield at + 4
                    size = len(data)
                end = at + 4 + int.from_bytes(data[at : at + 4], "big")
                if end > at + most:
                    raise self._too_long(end - at - 4)
                while size < end:
                    yield end
                    size = len(data)
                if node.strict:
                    self.check_text(field, data[at + 4 : end])
                at = end
            elif node.size:
                at += node.size
                while size < at:
                    yield at
                    size = len(data)
            else:
                self.at = at
                yield from self.value(node)
                at = self.at
                size = len(data)
        self.at = at + 1
        self._step(seen.bit_count())
        if seen & layout.required_bits != layout.required_bits:
            raise missing_field(layout, seen)

    def value(self, node: Node) -> Walk:
        """Walk one value of a known type."""
        if node.ttype == STRING:
            return self.string()
        if node.struct is not None:
            return self.struct(node.struct)
        if node.ttype == MAP:
            return self._map(node)
        if node.ttype in (LIST, SET):
            return self._list(node)
        return self._bytes(self.fixed[node.ttype])

    def check_text(self, field: Field, raw: Buffer) -> None:
        """Note the first strict text that is not UTF-8."""
        try:
            raw.decode()
        except UnicodeDecodeError:
            self.not_text = self.not_text or NotText(field.name, bytes(raw))

    def string(self) -> Walk:
        data, at = self.data, self.at + 4
        while len(data) < at:
            yield at
        length = int.from_bytes(data[at - 4 : at], "big")
        if length > self.limits.max_message_bytes:
            raise self._too_long(length)
        end = at + length
        while len(data) < end:
            yield end
        self.at = end

    def _list(self, node: Node) -> Walk:
        yield from self._need(5)
        ttype, count = self.data[self.at], self._i32(self.at + 1)
        self.at += 5
        yield from self._elements(node, ttype, count)

    def _elements(self, node: Node, ttype: int, count: int) -> Walk:
        value = node.value
        assert value is not None
        self._count(count)
        if count and ttype != value.ttype:
            raise WireError(f"elements of wire type {ttype}; expected {value.ttype}")
        for _ in repeat(None, count):
            yield from self.value(value)

    def _map(self, node: Node) -> Walk:
        yield from self._need(6)
        types, count = (self.data[self.at], self.data[self.at + 1]), self._i32(self.at + 2)
        self.at += 6
        yield from self._pairs(node, types, count)

    def _pairs(self, node: Node, types: tuple[int, ...], count: int) -> Walk:
        key, value = node.key, node.value
        assert key is not None
        assert value is not None
        self._count(count, 2)
        if count and types != (key.ttype, value.ttype):
            raise WireError(f"a map of wire types {types}; expected {(key.ttype, value.ttype)}")
        for _ in repeat(None, count):
            yield from self.value(key)
            yield from self.value(value)

    def skip(self, ttype: int, depth: int) -> Walk:
        """Walk over a value that the interface does not know."""
        check_depth(depth)
        if ttype in self.fixed:
            yield from self._bytes(self.fixed[ttype])
        elif ttype == STRING:
            yield from self.string()
        elif ttype == STRUCT:
            yield from self._skip_struct(depth)
        elif ttype in (LIST, SET):
            yield from self._need(5)
            element, count = self.data[self.at], self._i32(self.at + 1)
            self.at += 5
            yield from self._skip_elements((element,), count, depth)
        elif ttype == MAP:
            yield from self._need(6)
            types, count = (self.data[self.at], self.data[self.at + 1]), self._i32(self.at + 2)
            self.at += 6
            yield from self._skip_elements(types, count, depth)
        else:
            raise WireError(f"there is no wire type {ttype}")

    def _skip_struct(self, depth: int) -> Walk:
        while True:
            yield from self._need(1)
            ttype = self.data[self.at]
            if not ttype:
                self.at += 1
                return
            yield from self._bytes(3)
            self._step(1 + UNKNOWN_COSTS)
            yield from self.skip(ttype, depth + 1)

    def _skip_elements(self, types: tuple[int, ...], count: int, depth: int) -> Walk:
        self._count(count, len(types))
        if len(types) == 1 and self.fixed.get(types[0]):
            yield from self._bytes(count * self.fixed[types[0]])
            return
        self._step(UNKNOWN_COSTS * count * len(types))
        for ttype in types * count:
            yield from self.skip(ttype, depth + 1)

    def _bytes(self, count: int) -> Walk:
        yield from self._need(count)
        self.at += count

    def _need(self, count: int) -> Walk:
        while len(self.data) < self.at + count:
            yield self.at + count

    def _i32(self, at: int) -> int:
        return int.from_bytes(self.data[at : at + 4], "big", signed=True)

    def _count(self, count: int, each: int = 1) -> None:
        if not 0 <= count <= self.limits.max_container:
            raise WireError(f"a container of {count} elements; allowed: 0 to {self.limits.max_container}")
        self._step(count * each)

    def _step(self, count: int = 1) -> None:
        self._steps -= count
        if self._steps < 0:
            raise self._too_many()

    def _too_many(self) -> WireError:
        return WireError(f"more than {self.limits.max_steps} fields and elements in one message")

    def _too_long(self, length: int) -> WireError:
        return WireError(f"a string of {length} bytes; allowed: 0 to {self.limits.max_message_bytes}")


def wrong_field(layout: Layout, field: Field, ttype: int) -> WireError:
    """A known field has its own type and comes once."""
    if field.node.ttype != ttype:
        return WireError(f"{layout.name}.{field.name} has wire type {ttype}; expected {field.node.ttype}")
    return WireError(f"{layout.name}.{field.name} is there twice")


def missing_field(layout: Layout, seen: int) -> WireError:
    name = next(field.name for field in layout.fields.values() if field.bit & layout.required_bits & ~seen)
    return WireError(f"{layout.name}.{name} is missing")


def check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise WireError(f"nested deeper than {MAX_DEPTH}")


_NO_TYPE = 0
_TYPES = (_NO_TYPE, BOOL, BOOL, BYTE, I16, I32, I64, DOUBLE, STRING, LIST, SET, MAP, STRUCT, *[_NO_TYPE] * 3)
"""The wire type of each compact one; skipping one that does not exist is refused."""

_VARINT_BYTES = {I16: 3, I32: 5, I64: 10}


class CompactValidator(BinaryValidator):
    """The same refusals for the compact protocol. Field ids are differences; a boolean is its type."""

    fixed = {BOOL: 1, BYTE: 1, DOUBLE: 8}
    share = 0.7
    _varint_value = 0

    def struct(self, layout: Layout) -> Walk:
        data, fields, seen, last, at = self.data, layout.fields, 0, 0, self.at
        size = len(data)
        while True:
            while size <= at:
                yield at + 1
                size = len(data)
            mark = data[at]
            kind = mark & 0x0F
            at += 1
            if not kind:
                break
            if mark > 0x0F:
                last += mark >> 4
            else:
                self.at = at
                yield from self._field_id()
                last, at, size = self._varint_value, self.at, len(data)
            ttype = _TYPES[kind]
            field = fields.get(last)
            if field is None:
                self._step(1 + UNKNOWN_COSTS)
                if ttype != BOOL:
                    self.at = at
                    yield from self.skip(ttype, 1)
                    at, size = self.at, len(data)
                continue
            node = field.node
            if node.ttype != ttype or seen & field.bit:
                raise wrong_field(layout, field, ttype)
            seen |= field.bit
            if ttype in _VARINT_BYTES and size > at and data[at] < 0x80:
                at += 1
            elif ttype == STRING and size > at and data[at] < 0x80 and size > at + data[at]:  # short, and all there
                end = at + 1 + data[at]
                if node.strict:
                    self.check_text(field, data[at + 1 : end])
                at = end
            elif ttype != BOOL:
                self.at = at
                yield from self.value(node)
                at, size = self.at, len(data)
                if node.strict:
                    self.check_text(field, data[at - self._varint_value : at])
        self.at = at
        self._step(seen.bit_count())
        if seen & layout.required_bits != layout.required_bits:
            raise missing_field(layout, seen)

    def value(self, node: Node) -> Walk:
        return self._varint(_VARINT_BYTES[node.ttype]) if node.ttype in _VARINT_BYTES else super().value(node)

    def string(self) -> Walk:
        """Leaves its length in `_varint_value`."""
        data, at = self.data, self.at
        if len(data) > at and data[at] < 0x80:
            length, at = data[at], at + 1
            self._varint_value = length
        else:
            yield from self._varint(5)
            length, at = self._varint_value, self.at
            if length > self.limits.max_message_bytes:
                raise self._too_long(length)
        end = at + length
        while len(data) < end:
            yield end
        self.at = end

    def skip(self, ttype: int, depth: int) -> Walk:
        check_depth(depth)
        if ttype in _VARINT_BYTES:
            yield from self._varint(_VARINT_BYTES[ttype])
        elif ttype in (LIST, SET):
            yield from self._list_header()
            element, count = self._header
            yield from self._skip_elements((element,), count, depth)
        elif ttype == MAP:
            yield from self._map_header()
            *types, count = self._header
            yield from self._skip_elements(tuple(types), count, depth)
        else:
            yield from super().skip(ttype, depth)

    def _skip_struct(self, depth: int) -> Walk:
        while True:
            yield from self._need(1)
            mark = self.data[self.at]
            self.at += 1
            if not mark & 0x0F:
                return
            if mark <= 0x0F:
                yield from self._field_id()
            self._step(1 + UNKNOWN_COSTS)
            ttype = _TYPES[mark & 0x0F]
            if ttype != BOOL:
                yield from self.skip(ttype, depth + 1)

    def _list(self, node: Node) -> Walk:
        yield from self._list_header()
        yield from self._elements(node, *self._header)

    def _map(self, node: Node) -> Walk:
        yield from self._map_header()
        *types, count = self._header
        yield from self._pairs(node, tuple(types), count)

    def _list_header(self) -> Walk:
        yield from self._need(1)
        mark = self.data[self.at]
        self.at += 1
        count = mark >> 4
        if count == 15:
            yield from self._varint(5)
            count = self._varint_value
        self._header: tuple[int, ...] = (_TYPES[mark & 0x0F], count)

    def _map_header(self) -> Walk:
        yield from self._varint(5)
        count = self._varint_value
        if not count:
            self._header = (0, 0, 0)
            return
        yield from self._need(1)
        mark = self.data[self.at]
        self.at += 1
        self._header = (_TYPES[mark >> 4], _TYPES[mark & 0x0F], count)

    def _field_id(self) -> Walk:
        """Leaves the id of a field whose mark has no difference, a zigzag varint, in `_varint_value`."""
        yield from self._varint(3)
        self._varint_value = (self._varint_value >> 1) ^ -(self._varint_value & 1)

    def _varint(self, most: int) -> Walk:
        """Leaves the value, unsigned, in `_varint_value`."""
        data, at = self.data, self.at
        value = shift = 0
        for _ in repeat(None, most):
            while len(data) < at + 1:
                yield at + 1
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.at, self._varint_value = at, value
                return
            shift += 7
        raise WireError(f"a varint of more than {most} bytes")
