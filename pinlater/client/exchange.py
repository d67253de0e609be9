"""One method as bytes: calls of it, and answers to them. What is the same in every call is made once."""

from __future__ import annotations

from typing import Any

from pinlater.wire.codec import decode_result
from pinlater.wire.header import CALL, REPLY, SEQID_BYTES, Header, Protocol, write_header
from pinlater.wire.idl import SIGNATURES, Signature
from pinlater.wire.limits import WireLimits
from pinlater.wire.native import encode_struct


class Exchange:
    """Calls of a method are encoded, and the answer that is due is told by its first bytes."""

    __slots__ = ("_args", "_call_head", "_header", "_may_await_receipt", "_method", "_reply_head", "name")

    def __init__(self, method: Signature) -> None:
        self.name = method.name
        self._method = method
        self._may_await_receipt = method.name == "dequeueJobs"
        self._args = method.args.encode_args
        self._call_head = write_header(Protocol.BINARY, CALL, method.name, 0)[:-SEQID_BYTES]
        self._reply_head = write_header(Protocol.BINARY, REPLY, method.name, 0)[:-SEQID_BYTES]
        self._header = Header(Protocol.BINARY, REPLY, method.name, 0, len(self._reply_head) + SEQID_BYTES)

    def call(self, seqid: int, args: Any) -> bytes:
        """One call; TypeError and others where it cannot be encoded."""
        return self._call_head + seqid.to_bytes(SEQID_BYTES, "big") + encode_struct(args, Protocol.BINARY, self._args)

    def due(self, seqid: int) -> bytes:
        """With what the answer to that call begins."""
        return self._reply_head + seqid.to_bytes(SEQID_BYTES, "big")

    def awaits_receipt(self, result: Any) -> bool:
        """Whether the server awaits one of this answer."""
        return self._may_await_receipt and result.success is not None and bool(result.success.awaits_receipt)

    def result(self, answer: bytes, limits: WireLimits) -> Any:
        """What an answer that begins as is due holds: `success`, or the declared exception as `e`. WireError."""
        return decode_result(answer, self._header, self._method, limits)


EXCHANGES = {name: Exchange(method) for name, method in SIGNATURES.items()}
"""By the name of the method."""
