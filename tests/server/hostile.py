"""Messages that are made to take long or much memory, each a name and its bytes (unframed)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from pinlater.model import Job, RequestContext
from pinlater.wire.codec import encode_call
from pinlater.wire.convert import call_args, enqueue_to_wire
from pinlater.wire.message import Protocol
from pinlater.wire.methods import LOOKUP
from pinlater.wire.operator_methods import UPDATE_QUEUE
from tests.server.raw_thrift import CONTEXT, STRING, message

MIB = 1024 * 1024
BINARY_TYPES = {"bool": 2, "byte": 3, "double": 4, "i16": 6, "i32": 8, "i64": 10, "string": 11, "struct": 12}
BINARY_CONTAINERS = {"map": 13, "set": 14, "list": 15}
COMPACT_TYPES = {"bool": 1, "byte": 3, "i16": 4, "i32": 5, "i64": 6, "double": 7, "string": 8, "list": 9, "struct": 12}


def _enqueue_head(protocol: Protocol) -> bytes:
    """An enqueue call up to and with its queue's name; the rest of the request struct follows."""
    whole = message("enqueueJobs", [CONTEXT, (2, 12, [(1, STRING, b"mail")])], protocol)
    return whole[:-2]


def _binary_field(field_id: int, ttype: int) -> bytes:
    return struct.pack(">bh", ttype, field_id)


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return out + bytes((value,))


def binary_messages(size: int = 16 * MIB - 64) -> Iterator[tuple[str, bytes]]:
    """For the binary protocol, each up to `size` bytes long."""
    head = _enqueue_head(Protocol.BINARY)
    for field_id, where in ((2, "jobs"), (99, "an unknown list")):
        begin = head + _binary_field(field_id, 15)
        for name, ttype in (BINARY_TYPES | BINARY_CONTAINERS | {"stop": 0, "void": 1, "no type": 77}).items():
            for count in (2**31 - 1, -1, 1_000_000, 65_536):
                yield (
                    f"{where}: {count} elements of {name}, zeros follow",
                    begin + struct.pack(">bi", ttype, count) + bytes(size // 4),
                )
    yield "jobs: as many empty structs as fit", head + _binary_field(2, 15) + struct.pack(">bi", 12, size) + bytes(size)
    piece = _binary_field(2, 15) + struct.pack(">bi", 12, 10_000) + bytes(10_000)
    yield "jobs: 10,000 empty structs, again and again", head + piece * (size // len(piece))
    small = _binary_field(2, 15) + struct.pack(">bi", 12, 0)
    yield "jobs: an empty list, again and again", head + small * (size // len(small))
    body = _binary_field(1, 11) + struct.pack(">i", 0)
    one_job = head + _binary_field(2, 15) + struct.pack(">bi", 12, 1)
    yield "one job with its body again and again", one_job + body * (size // len(body))
    flag = _binary_field(99, 2) + b"\x01"
    yield "one job with an unknown flag again and again", one_job + flag * (size // len(flag))
    rows = struct.pack(">bi", 15, 65_536) + (struct.pack(">bi", 2, 65_536) + bytes(65_536)) * (size // 65_541)
    yield "unknown lists of lists of flags", head + _binary_field(99, 15) + rows
    empties = struct.pack(">bi", 15, 65_536) + struct.pack(">bi", 2, 0) * 65_536
    yield "unknown lists of empty lists", head + (_binary_field(99, 15) + empties) * (size // (len(empties) + 3))
    for name, step in (("structs", _binary_field(1, 12)), ("lists", struct.pack(">bi", 15, 1))):
        first = _binary_field(99, 12) if name == "structs" else _binary_field(99, 15)
        yield f"{name} nested without end", head + first + step * (size // len(step))
    yield "a string of 2 GiB", head + _binary_field(99, 11) + struct.pack(">i", 2**31 - 1) + bytes(1000)
    yield "a string of -1 bytes", head + _binary_field(99, 11) + struct.pack(">i", -1) + bytes(1000)


def compact_messages(size: int = 16 * MIB - 64) -> Iterator[tuple[str, bytes]]:
    """For the compact protocol, each up to `size` bytes long."""
    head = _enqueue_head(Protocol.COMPACT)
    for mark, where in ((b"\x19", "jobs"), (b"\x09" + _varint(198), "an unknown list")):
        for ctype in range(16):
            for count in (2**32 - 1, 2**31 - 1, 1_000_000, 65_536):
                header = bytes((0xF0 | ctype,)) + _varint(count)
                yield (
                    f"{where}: {count} elements of compact type {ctype}, zeros follow",
                    head + mark + header + bytes(size // 4),
                )
    piece = b"\x09\x04" + b"\xfc" + _varint(10_000) + bytes(10_000)
    yield "jobs: 10,000 empty structs, again and again", head + piece * (size // len(piece))
    yield "one job with a flag again and again", head + b"\x19\x1c" + b"\x01\x06" * (size // 2)
    yield "unknown flags", head + b"\x19\x1c" + b"\x11" * size
    rows = b"\xf9" + _varint(65_536) + (b"\xf1" + _varint(65_536) + bytes(65_536)) * (size // 65_540)
    yield "unknown lists of lists of flags", head + b"\x09" + _varint(198) + rows
    yield "structs nested without end", head + b"\x1c" * size
    yield "lists nested without end", head + b"\x09" + _varint(198) + b"\x19" * size
    yield "a string of 4 GiB", head + b"\x08" + _varint(198) + _varint(2**32 - 1) + bytes(1000)
    yield "a varint without end", head + b"\x16" + b"\xff" * (size // 16)


def many_jobs(protocol: Protocol) -> bytes:
    """Nothing wrong with it but the number of its fields."""
    request = enqueue_to_wire("mail", [Job(b"body", 2, None, 3, "status")] * 40_000)
    return encode_call("enqueueJobs", 1, call_args("enqueueJobs", RequestContext("me"), request=request), protocol)


def many_texts(protocol: Protocol) -> bytes:
    """Pairs and elements, each a short text."""
    texts = [str(number) for number in range(60_000)]
    request = UPDATE_QUEUE.request("mail", "secret", dict.fromkeys(texts, "x"), texts, False)
    return encode_call("updateQueue", 1, call_args("updateQueue", RequestContext("me"), request=request), protocol)


def many_descriptors(protocol: Protocol) -> bytes:
    """A list that is walked to its end, and a byte too many there."""
    request = LOOKUP.request([str(number) for number in range(60_000)], False)
    args = call_args("lookupJobs", RequestContext("me"), request=request)
    return encode_call("lookupJobs", 1, args, protocol) + b"x"


def all_messages() -> Iterator[tuple[str, bytes]]:
    for protocol in (Protocol.BINARY, Protocol.COMPACT):
        yield f"{protocol.name.lower()}, 40,000 jobs with all their fields", many_jobs(protocol)
        yield f"{protocol.name.lower()}, 180,000 short texts", many_texts(protocol)
        yield f"{protocol.name.lower()}, 60,000 descriptors and a byte", many_descriptors(protocol)
    for name, data in binary_messages():
        yield f"binary, {name}", data
    for name, data in compact_messages():
        yield f"compact, {name}", data
    small = 120 * 1024  # just too short to be walked first
    for name, data in binary_messages(small):
        yield f"binary of 120 KiB, {name}", data
    for name, data in compact_messages(small):
        yield f"compact of 120 KiB, {name}", data
