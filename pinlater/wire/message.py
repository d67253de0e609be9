"""The outside of a message: its bounds, the header in front of its struct, and the errors of bytes that are none.

A header says which protocol, what kind of message, its name and its sequence id.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from pinlater.errors import ProtocolError


class ApplicationErrorKind(IntEnum):
    """The kinds of TApplicationException that this server sends."""

    UNKNOWN_METHOD = 1
    INVALID_MESSAGE_TYPE = 2
    INTERNAL_ERROR = 6
    PROTOCOL_ERROR = 7


class WireError(ProtocolError):
    """A message that cannot be decoded. `kind` is what an answer to it says."""

    def __init__(self, message: str, *, kind: ApplicationErrorKind = ApplicationErrorKind.PROTOCOL_ERROR) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Bounds on one message. All are well above those of the service, which refuses by name what is merely too much."""

    max_message_bytes: int = 16 * 1024 * 1024
    """A frame's declared length, and the longest string."""

    frame_setting: str = ""
    """The setting that bounds a frame, for people."""

    max_unframed_bytes: int = 1024 * 1024
    """A message without a frame, whose length nobody declares."""

    max_container: int = 65_536
    """Elements of one list, set or map."""

    max_steps: int = 100_000
    """Fields and elements of one message, counted where it is walked: some 50 ms of work at the most. 10,000 jobs
    take 60,000, also where fewer are allowed (`CompactValidator.share`)."""

    walk_over_bytes: int = 128 * 1024
    """From this size on a message is walked before it is decoded; below, the decoder cannot be made to take long."""


DEFAULT_LIMITS = WireLimits()


MAX_NAME_BYTES = 128
SEQID_BYTES = 4
CALL, REPLY, EXCEPTION = 1, 2, 3
BINARY_FIRST_BYTE = 0x80
COMPACT_FIRST_BYTE = 0x82
_COMPACT_VERSION = 1
_BINARY = struct.Struct(">HBBi")
_I32 = struct.Struct(">i")


class Protocol(IntEnum):
    """How a message is encoded. BINARY_OLD, the binary protocol without a version, answers those who use it."""

    BINARY = 0
    COMPACT = 1
    BINARY_OLD = 2


_STRICT = Protocol.BINARY


class Header(NamedTuple):
    """`body` is the offset of the struct."""

    protocol: Protocol
    kind: int
    name: str
    seqid: int
    body: int


class Incomplete(WireError):
    """The bytes end inside the message; at least `needed` bytes are needed to read on."""

    def __init__(self, needed: int) -> None:
        super().__init__("the message ends early")
        self.needed = needed


def protocol_of(first_byte: int) -> Protocol:
    """By the first byte of a message: strict binary and compact have a mark there, a name's length begins with 0."""
    if first_byte == BINARY_FIRST_BYTE:
        return Protocol.BINARY
    if first_byte == COMPACT_FIRST_BYTE:
        return Protocol.COMPACT
    if first_byte == 0:
        return Protocol.BINARY_OLD
    raise WireError(f"a message cannot begin with byte 0x{first_byte:02x}")


def read_header(data: bytes | bytearray, start: int = 0) -> Header:
    """The header of the message at `start`. WireError; Incomplete where it ends early."""
    if len(data) <= start:
        raise Incomplete(start + 1)
    if data[start] == BINARY_FIRST_BYTE:
        return _read_binary(data, start)
    if protocol_of(data[start]) is Protocol.COMPACT:
        return _read_compact(data, start)
    return _read_old(data, start)


def write_header(protocol: Protocol, kind: int, name: str, seqid: int) -> bytes:
    if protocol is _STRICT:
        return _binary_head(kind, name) + _I32.pack(seqid)
    raw = name.encode()
    if protocol is Protocol.BINARY_OLD:
        return _I32.pack(len(raw)) + raw + bytes((kind,)) + _I32.pack(seqid)
    mark = bytes((COMPACT_FIRST_BYTE, (kind << 5) | _COMPACT_VERSION))
    return mark + _varint(seqid & 0xFFFFFFFF) + _varint(len(raw)) + raw


@lru_cache(maxsize=256)
def _binary_head(kind: int, name: str) -> bytes:
    """What stands in front of the sequence id; the same for all calls of a method."""
    raw = name.encode()
    return _BINARY.pack(0x8001, 0, kind, len(raw)) + raw


def _read_binary(data: bytes | bytearray, start: int) -> Header:
    if len(data) < start + 8:
        raise Incomplete(start + 8)
    version, _, kind, length = _BINARY.unpack_from(data, start)
    if version != 0x8001:
        raise WireError(f"binary protocol of version 0x{version:04x} is not spoken here")
    end = start + 8 + _name_length(length)
    if len(data) < end + 4:
        raise Incomplete(end + 4)
    return Header(_STRICT, kind, _name(bytes(data[start + 8 : end])), _I32.unpack_from(data, end)[0], end + 4)


def _read_old(data: bytes | bytearray, start: int) -> Header:
    if len(data) < start + 4:
        raise Incomplete(start + 4)
    end = start + 4 + _name_length(_I32.unpack_from(data, start)[0])
    if len(data) < end + 5:
        raise Incomplete(end + 5)
    (seqid,) = _I32.unpack_from(data, end + 1)
    return Header(Protocol.BINARY_OLD, data[end], _name(bytes(data[start + 4 : end])), seqid, end + 5)


def _read_compact(data: bytes | bytearray, start: int) -> Header:
    if len(data) < start + 2:
        raise Incomplete(start + 2)
    kind = data[start + 1] >> 5
    if data[start + 1] & 0x1F != _COMPACT_VERSION:
        raise WireError("this version of the compact protocol is not spoken here")
    seqid, at = read_varint(data, start + 2, 5)
    length, at = read_varint(data, at, 5)
    end = at + _name_length(length)
    if len(data) < end:
        raise Incomplete(end)
    seqid &= 0xFFFFFFFF
    return Header(Protocol.COMPACT, kind, _name(bytes(data[at:end])), seqid - ((seqid & 0x80000000) << 1), end)


def read_varint(data: bytes | bytearray, at: int, most: int) -> tuple[int, int]:
    """An unsigned varint of at most `most` bytes, and the offset behind it."""
    value = shift = 0
    for _ in range(most):
        if len(data) <= at:
            raise Incomplete(at + 1)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise WireError(f"a varint of more than {most} bytes")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _name_length(length: int) -> int:
    if not 0 <= length <= MAX_NAME_BYTES:
        raise WireError(f"a method name of {length} bytes; allowed: up to {MAX_NAME_BYTES}")
    return length


@lru_cache(maxsize=256)
def _name(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise WireError("the method name is not UTF-8") from error
