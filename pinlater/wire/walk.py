"""The careful reader of a message's struct: makes nothing, but refuses what the C codec lets through.

Refused are repeated fields, known fields of a wrong type, missing required ones, invalid UTF-8, containers and nesting
over their bounds, and more fields and elements than `max_steps`. Unknown fields are skipped, whatever they hold.

A walk is a generator over a buffer that may still grow: it yields how long the buffer must at least be for the walk to
go on, and keeps its place in `at`. So a message that comes byte by byte costs no more than one that comes whole.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import repeat

from pinlater.wire.layout import LIST, MAP, SET, SIZES, STRING, STRUCT, Field, Layout, Node
from pinlater.wire.limits import WireLimits
from pinlater.wire.malformed import WireError

MAX_DEPTH = 32
UNKNOWN_COSTS = 3
"""What an unknown field or element counts more than a known one: it takes longer, and nobody means many of them."""

Walk = Generator[int, None, None]
Buffer = bytes | bytearray


class BinaryWalk:
    """One walk over a struct in the binary protocol; `at` is where it stands."""

    fixed = SIZES
    share = 1.0
    """The part of `max_steps` that this walk may take: less, where a step takes longer."""

    def __init__(self, data: Buffer, at: int, limits: WireLimits) -> None:
        self.data = data
        self.at = at
        self.limits = limits
        self._steps = int(limits.max_steps * self.share)

    def struct(self, layout: Layout) -> Walk:
        """Walk one struct of the interface. Written out, since it is what a large message spends its time in."""
        data, fields, seen, at = self.data, layout.fields, 0, self.at
        while True:
            while len(data) < at + 1:
                yield at + 1
            ttype = data[at]
            if not ttype:
                break
            while len(data) < at + 3:
                yield at + 3
            field = fields.get(data[at + 1] << 8 | data[at + 2])
            self.at = at = at + 3
            self._steps -= 1
            if self._steps < 0:
                raise self._too_many()
            if field is None:
                self._step(UNKNOWN_COSTS)
                yield from self.skip(ttype, 1)
                at = self.at
                continue
            node = field.node
            if node.ttype != ttype or seen & field.bit:
                raise wrong_field(layout, field, ttype)
            seen |= field.bit
            if ttype == STRING:
                while len(data) < at + 4:
                    yield at + 4
                length = int.from_bytes(data[at : at + 4], "big")
                if length > self.limits.max_message_bytes:
                    raise self._too_long(length)
                end = at + 4 + length
                while len(data) < end:
                    yield end
                if node.text:
                    check_utf8(data[at + 4 : end])
                at = end
            elif node.size:
                at += node.size
                while len(data) < at:
                    yield at
            else:
                yield from self.value(node)
                at = self.at
        self.at = at + 1
        if seen & layout.required_bits != layout.required_bits:
            raise missing_field(layout, seen)

    def value(self, node: Node) -> Walk:
        """Walk one value of a known type."""
        if node.ttype == STRING:
            yield from self.string(node.text)
        elif node.struct is not None:
            yield from self.struct(node.struct)
        elif node.ttype == MAP:
            yield from self._map(node)
        elif node.ttype in (LIST, SET):
            yield from self._list(node)
        else:
            yield from self._bytes(self.fixed[node.ttype])

    def string(self, text: bool) -> Walk:
        yield from self._need(4)
        length = int.from_bytes(self.data[self.at : self.at + 4], "big")
        self.at += 4
        yield from self._text(length, text)

    def _text(self, length: int, text: bool) -> Walk:
        if length > self.limits.max_message_bytes:
            raise self._too_long(length)
        yield from self._need(length)
        if text:
            check_utf8(self.data[self.at : self.at + length])
        self.at += length

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
            yield from self.struct(value.struct) if value.struct is not None else self.value(value)

    def _map(self, node: Node) -> Walk:
        yield from self._need(6)
        types, count = (self.data[self.at], self.data[self.at + 1]), self._i32(self.at + 2)
        self.at += 6
        yield from self._pairs(node, types, count)

    def _pairs(self, node: Node, types: tuple[int, ...], count: int) -> Walk:
        key, value = node.key, node.value
        assert key is not None
        assert value is not None
        self._count(count)
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
            yield from self.string(False)
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
        self._count(count * len(types))
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

    def _count(self, count: int) -> None:
        if not 0 <= count <= self.limits.max_container:
            raise WireError(f"a container of {count} elements; allowed: 0 to {self.limits.max_container}")
        self._step(count)

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


def check_utf8(raw: Buffer) -> None:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        raise WireError(f"a string that is not UTF-8: {error.reason} at byte {error.start}") from error


def check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise WireError(f"nested deeper than {MAX_DEPTH}")
