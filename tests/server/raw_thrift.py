"""Messages with any content at all, written with Apache's plain Python protocols.

A struct is a list of (id, wire type, value); a list is (wire type, values), a map (key type, value type, pairs), and a
string is bytes.
"""

from __future__ import annotations

import struct
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from pinlater.wire.message import Protocol

BOOL, BYTE, DOUBLE, I16, I32, I64 = TType.BOOL, TType.BYTE, TType.DOUBLE, TType.I16, TType.I32, TType.I64
STRING, STRUCT, MAP, SET, LIST = TType.STRING, TType.STRUCT, TType.MAP, TType.SET, TType.LIST
WIRE_TYPES = (BOOL, BYTE, DOUBLE, I16, I32, I64, STRING, STRUCT, MAP, SET, LIST)
CALL = 1
CONTEXT = (1, STRUCT, [(1, STRING, b"me")])
SAMPLES: dict[int, Any] = {
    BOOL: True,
    BYTE: 1,
    DOUBLE: 0.5,
    I16: 1,
    I32: 1,
    I64: 1,
    STRING: b"mail",
    STRUCT: [],
    MAP: (STRING, STRING, []),
    SET: (STRING, []),
    LIST: (STRING, []),
}


def message(
    name: str, fields: list[Any], protocol: Protocol = Protocol.BINARY, seqid: int = 7, kind: int = CALL
) -> bytes:
    """A whole message, without a frame."""
    buffer = TMemoryBuffer()
    if protocol is Protocol.COMPACT:
        writer = TCompactProtocol(buffer)
    else:
        writer = TBinaryProtocol(buffer, strictWrite=protocol is Protocol.BINARY)
    writer.writeMessageBegin(name, kind, seqid)
    _value(writer, STRUCT, fields)
    writer.writeMessageEnd()
    return bytes(buffer.getvalue())


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def enqueue(bodies: list[bytes], protocol: Protocol = Protocol.BINARY, seqid: int = 7, queue: bytes = b"mail") -> bytes:
    """A call of enqueueJobs, without a frame."""
    jobs = [[(1, STRING, body)] for body in bodies]
    request = (2, STRUCT, [(1, STRING, queue), (2, LIST, (STRUCT, jobs))])
    return message("enqueueJobs", [CONTEXT, request], protocol, seqid)


def _value(writer: Any, ttype: int, value: Any) -> None:
    if ttype == STRUCT:
        _struct(writer, value)
    elif ttype in (LIST, SET):
        element, values = value
        writer.writeListBegin(element, len(values))
        for item in values:
            _value(writer, element, item)
        writer.writeListEnd()
    elif ttype == MAP:
        key, inner, pairs = value
        writer.writeMapBegin(key, inner, len(pairs))
        for one, other in pairs:
            _value(writer, key, one)
            _value(writer, inner, other)
        writer.writeMapEnd()
    else:
        names = {BOOL: "Bool", BYTE: "Byte", DOUBLE: "Double", I16: "I16", I32: "I32", I64: "I64", STRING: "Binary"}
        getattr(writer, f"write{names[ttype]}")(value)


def _struct(writer: Any, fields: list[Any]) -> None:
    writer.writeStructBegin("")
    for field_id, ttype, value in fields:
        writer.writeFieldBegin("", ttype, field_id)
        _value(writer, ttype, value)
        writer.writeFieldEnd()
    writer.writeFieldStop()
    writer.writeStructEnd()
