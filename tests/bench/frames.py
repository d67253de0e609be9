"""Calls as a plain Thrift client sends them, and its look at the answers: framed, binary, one at a time."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

from pinlater.model import Ack, DequeuedJob, DequeueRequest, Job, RequestContext
from pinlater.wire import convert as wire
from pinlater.wire.codec import decode_reply, encode_call
from pinlater.wire.faults import error_from_exception
from pinlater.wire.message import REPLY, Protocol, write_header

CONTEXT = RequestContext("bench")
_SUCCESS, _VOID = b"\x0c\x00\x00", b"\x00"
"""What follows the header of an answer that is no exception: field 0, a struct; or nothing."""


def create_queue(seqid: int, queue: str) -> bytes:
    return _framed("createQueue", seqid, name=queue)


def enqueue(seqid: int, queue: str, jobs: Sequence[Job]) -> bytes:
    return _framed("enqueueJobs", seqid, request=wire.enqueue_to_wire(queue, jobs))


def dequeue(seqid: int, queue: str, limit: int, succeeded: Sequence[Ack] = ()) -> bytes:
    request = DequeueRequest(queue, limit, succeeded=succeeded)
    return _framed("dequeueJobs", seqid, request=wire.dequeue_to_wire(request))


def ack(seqid: int, queue: str, succeeded: Sequence[Ack]) -> bytes:
    return _framed("ackDequeuedJobs", seqid, request=wire.acks_to_wire(queue, succeeded, ()))


def check(method: str, seqid: int, answer: bytes) -> None:
    """The answer is to that very call, and is a success."""
    header = write_header(Protocol.BINARY, REPLY, method, seqid)
    if not answer.startswith((header + _SUCCESS, header + _VOID)):
        raise RuntimeError(f"{method} {seqid} was answered with {decode_reply(answer)}")


def jobs_of(answer: bytes) -> list[DequeuedJob]:
    """Those that a dequeue was answered with."""
    reply = decode_reply(answer)
    if reply.exception is not None:
        raise error_from_exception(reply.exception)
    return wire.dequeued_from_wire(reply.success)


def _framed(method: str, seqid: int, **arguments: Any) -> bytes:
    message = encode_call(method, seqid, wire.call_args(method, CONTEXT, **arguments))
    return len(message).to_bytes(4, "big") + message


class Caller:
    """A connection that sends one call and waits for its answer, or sends now and asks for the answer later."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def call(self, frame: bytes) -> bytes:
        self.send(frame)
        return self.answer()

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def answer(self) -> bytes:
        """Without its frame."""
        length = int.from_bytes(self._file.read(4), "big")
        answer = self._file.read(length)
        if not length or len(answer) < length:
            raise RuntimeError("the server closed the connection")
        return answer

    def close(self) -> None:
        self._file.close()
        self._socket.close()
