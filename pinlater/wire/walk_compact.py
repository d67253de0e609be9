"""The careful reader for the compact protocol: the same refusals as walk.py, other bytes."""

from __future__ import annotations

from itertools import repeat

from pinlater.wire.layout import BOOL, BYTE, DOUBLE, I16, I32, I64, LIST, MAP, SET, STRING, STRUCT, Layout, Node
from pinlater.wire.malformed import WireError
from pinlater.wire.walk import BinaryWalk, Walk, check_depth, check_field, check_required, check_utf8

_TRUE, _FALSE = 1, 2
_TYPES = {
    _TRUE: BOOL,
    _FALSE: BOOL,
    3: BYTE,
    4: I16,
    5: I32,
    6: I64,
    7: DOUBLE,
    8: STRING,
    9: LIST,
    10: SET,
    11: MAP,
    12: STRUCT,
}
_VARINT_BYTES = {I16: 3, I32: 5, I64: 10}


class CompactWalk(BinaryWalk):
    """One walk over a struct in the compact protocol. Field ids are differences; a boolean is its type."""

    fixed = {BOOL: 1, BYTE: 1, DOUBLE: 8}
    _varint_value = 0

    def struct(self, layout: Layout) -> Walk:
        seen: set[int] = set()
        last = 0
        while True:
            yield from self._need(1)
            mark = self.data[self.at]
            if not mark & 0x0F:
                self.at += 1
                break
            yield from self._field_id(mark, last)
            last = self._varint_value
            ttype = _type(mark & 0x0F)
            self._step()
            field = layout.fields.get(last)
            if field is None:
                if ttype != BOOL:
                    yield from self.skip(ttype, 1)
                continue
            check_field(layout, field, ttype, seen)
            if ttype != BOOL:
                yield from self.value(field.node)
        check_required(layout, seen)

    def value(self, node: Node) -> Walk:
        if node.ttype in _VARINT_BYTES:
            yield from self._varint(_VARINT_BYTES[node.ttype])
        else:
            yield from super().value(node)

    def string(self, text: bool) -> Walk:
        yield from self._varint(5)
        length = self._varint_value
        if length > self.limits.max_message_bytes:
            raise WireError(f"a string of {length} bytes; allowed: 0 to {self.limits.max_message_bytes}")
        yield from self._need(length)
        if text:
            check_utf8(self.data[self.at : self.at + length])
        self.at += length

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
            if not mark & 0x0F:
                self.at += 1
                return
            yield from self._field_id(mark, 0)
            self._step()
            ttype = _type(mark & 0x0F)
            if ttype != BOOL:
                yield from self.skip(ttype, depth + 1)

    def _list(self, node: Node) -> Walk:
        assert node.value is not None
        yield from self._list_header()
        ttype, count = self._header
        self._count(count)
        if count and ttype != node.value.ttype:
            raise WireError(f"elements of wire type {ttype}; expected {node.value.ttype}")
        for _ in repeat(None, count):
            yield from self.value(node.value)

    def _map(self, node: Node) -> Walk:
        assert node.key is not None
        assert node.value is not None
        yield from self._map_header()
        key, value, count = self._header
        self._count(count)
        if count and (key, value) != (node.key.ttype, node.value.ttype):
            raise WireError(f"a map of wire types {key}, {value}; expected {node.key.ttype}, {node.value.ttype}")
        for _ in repeat(None, count):
            yield from self.value(node.key)
            yield from self.value(node.value)

    def _list_header(self) -> Walk:
        yield from self._need(1)
        mark = self.data[self.at]
        self.at += 1
        count = mark >> 4
        if count == 15:
            yield from self._varint(5)
            count = self._varint_value
        self._header: tuple[int, ...] = (_type(mark & 0x0F), count)

    def _map_header(self) -> Walk:
        yield from self._varint(5)
        count = self._varint_value
        if not count:
            self._header = (0, 0, 0)
            return
        yield from self._need(1)
        mark = self.data[self.at]
        self.at += 1
        self._header = (_type(mark >> 4), _type(mark & 0x0F), count)

    def _field_id(self, mark: int, last: int) -> Walk:
        """Leaves the id in `_varint_value`: as a difference in the mark, or as a zigzag varint behind it."""
        self.at += 1
        if mark >> 4:
            self._varint_value = last + (mark >> 4)
        else:
            yield from self._varint(3)
            self._varint_value = (self._varint_value >> 1) ^ -(self._varint_value & 1)

    def _varint(self, most: int) -> Walk:
        """Leaves the value, unsigned, in `_varint_value`."""
        value = shift = 0
        for _ in repeat(None, most):
            yield from self._need(1)
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self._varint_value = value
                return
            shift += 7
        raise WireError(f"a varint of more than {most} bytes")


def _type(compact: int) -> int:
    ttype = _TYPES.get(compact)
    if ttype is None:
        raise WireError(f"there is no compact wire type {compact}")
    return ttype
