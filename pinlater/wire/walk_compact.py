"""The careful reader for the compact protocol: the same refusals as walk.py, other bytes."""

from __future__ import annotations

from itertools import repeat

from pinlater.wire.layout import BOOL, BYTE, DOUBLE, I16, I32, I64, LIST, MAP, SET, STRING, STRUCT, Layout, Node
from pinlater.wire.malformed import WireError
from pinlater.wire.walk import UNKNOWN_COSTS, BinaryWalk, Walk, check_depth, missing_field, wrong_field

_NO_TYPE = 0
_TYPES = (_NO_TYPE, BOOL, BOOL, BYTE, I16, I32, I64, DOUBLE, STRING, LIST, SET, MAP, STRUCT, *[_NO_TYPE] * 3)
"""The wire type of each compact one; skipping one that does not exist is refused."""

_VARINT_BYTES = {I16: 3, I32: 5, I64: 10}


class CompactWalk(BinaryWalk):
    """One walk over a struct in the compact protocol. Field ids are differences; a boolean is its type."""

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
