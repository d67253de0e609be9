"""Messages in a stream, framed or not, distinguished by the first bytes."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from pinlater.wire.codec import BadCall, walk_struct
from pinlater.wire.interface import SIGNATURES, Layout
from pinlater.wire.message import (
    BINARY_FIRST_BYTE,
    COMPACT_FIRST_BYTE,
    DEFAULT_LIMITS,
    Header,
    Incomplete,
    WireError,
    WireLimits,
    read_header,
)
from pinlater.wire.strangers import protocol_spoken
from pinlater.wire.validator import BinaryValidator, Walk

_UNKNOWN = Layout("arguments", [])
_length_at = Struct(">I").unpack_from


class StrangerError(WireError):
    """The bytes are not those of Thrift, but of another protocol, which is known."""

    def __init__(self, protocol: str) -> None:
        super().__init__(f"these are not PinLater's calls: the other side speaks {protocol}")
        self.protocol = protocol


class Splitter:
    """Cuts what arrives on one connection into messages.

    The first byte decides: 0x80 and 0x82 begin an unframed message (a frame's length would be negative), anything else
    is the length of a frame, which is checked before a byte of the frame is kept. WireError means that the stream is
    lost; where it is a BadCall, it can still be answered.
    """

    def __init__(self, limits: WireLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._buffer = bytearray()
        self._needed = 1
        self._walker: _Unframed | None = None
        self.framed: bool | None = None

    @property
    def buffered(self) -> int:
        """Bytes of a message that is not complete."""
        return len(self._buffer)

    def whole(self, data: bytes) -> bytes | None:
        """The message that `data` is, one frame and nothing else, as most often; None: `feed` it."""
        length = len(data) - 4
        if (
            not self._buffer
            and 0 < length <= self._limits.max_message_bytes
            and _length_at(data) == (length,)
            and self.framed is not False
        ):
            self.framed = True
            return data[4:]
        return None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The messages that are complete with `data`, in order; each without its frame.

        Iterate to the end before the next call. WireError after those that were whole.
        """
        if self.framed is None and data:
            self.framed = data[0] not in (BINARY_FIRST_BYTE, COMPACT_FIRST_BYTE)
        if not self.framed:
            return self._unframed(data)
        return self._frames(data)

    def _frames(self, data: bytes) -> Iterator[bytes]:
        buffer = self._buffer
        if buffer:
            buffer += data
            if len(buffer) < self._needed:
                return
            if self._needed > 4:
                message = bytes(memoryview(buffer)[4 : self._needed])
                data = bytes(memoryview(buffer)[self._needed :])
                buffer.clear()
                yield message
            else:
                data = bytes(buffer)
                buffer.clear()
        at, end = 0, len(data)
        while end - at >= 4:
            length = self._length(data, at)
            if end - at - 4 < length:
                self._needed = length + 4
                buffer += data[at:] if at else data
                return
            yield data[at + 4 : at + 4 + length]
            at += 4 + length
        self._needed = 4
        buffer += data[at:]

    def _length(self, data: bytes, at: int) -> int:
        length = int.from_bytes(data[at : at + 4], "big", signed=True)
        if not 0 < length <= self._limits.max_message_bytes:
            raise self._refusal(length, data[at:])
        return length

    def _refusal(self, length: int, data: bytes) -> WireError:
        """What begins with no frame that is allowed. An error that can be answered, where a header can be read."""
        limits = self._limits
        if spoken := protocol_spoken(data):
            return StrangerError(spoken)
        by = f" ({limits.frame_setting})" if limits.frame_setting else ""
        error = WireError(f"a frame of {length} bytes; allowed: 1 to {limits.max_message_bytes}{by}")
        try:
            return BadCall(read_header(data, 4), error)
        except WireError:
            return error

    def _unframed(self, data: bytes) -> Iterator[bytes]:
        buffer = self._buffer
        buffer += data
        while buffer and len(buffer) >= self._needed:
            if self._walker is None:
                self._walker = _Unframed(buffer, self._limits)
            self._needed = self._walker.advance()
            end = self._walker.end
            if max(end, self._needed) > self._limits.max_unframed_bytes:
                raise self._walker.refusal(
                    f"over {self._limits.max_unframed_bytes} bytes without a frame; send it framed"
                )
            if self._needed:
                return
            self._walker = None
            message = bytes(memoryview(buffer)[:end])
            del buffer[:end]
            self._needed = 1
            yield message


class _Unframed:
    """Finds the end of one message at the start of a growing buffer, without reading any byte twice."""

    def __init__(self, buffer: bytearray, limits: WireLimits) -> None:
        self._buffer = buffer
        self._limits = limits
        self._walk: BinaryValidator | None = None
        self._steps: Walk | None = None
        self._header: Header | None = None
        self.end = 0

    def advance(self) -> int:
        """Read on: 0 where the message is whole (`end` says where), else how long the buffer must at least be."""
        if self._steps is None:
            try:
                self._begin(read_header(self._buffer))
            except Incomplete as error:
                return error.needed
        assert self._steps is not None
        assert self._walk is not None
        try:
            needed = next(self._steps, 0)
        except WireError as error:
            raise self.refusal(error.message) from error
        self.end = self._walk.at
        return needed

    def refusal(self, reason: str) -> WireError:
        """An error that can be answered, where the header was readable."""
        error = WireError(reason)
        return error if self._header is None else BadCall(self._header, error)

    def _begin(self, header: Header) -> None:
        self._header = header
        method = SIGNATURES.get(header.name)
        self._walk = walk_struct(self._buffer, header, self._limits)
        self._steps = self._walk.struct(_UNKNOWN if method is None else method.args)
