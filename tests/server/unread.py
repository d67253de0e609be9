"""Callers who ask for large answers and read none, and a good caller beside them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Sequence

from pinlater.model import DequeueRequest
from pinlater.wire.codec import encode_call
from pinlater.wire.convert import call_args, dequeue_to_wire
from pinlater.wire.methods import LOOKUP
from tests.server.running import ME, Plain

BODY_BYTES = 1_000_000


def lookups(descriptors: Sequence[str], calls: int) -> bytes:
    """So many pipelined calls, framed; each asks for these jobs with their bodies."""
    request = LOOKUP.request(descriptors, include_body=True)
    return _framed("lookupJobs", request, calls)


def dequeues(queue: str, limit: int, calls: int) -> bytes:
    """So many pipelined calls, framed; each asks for so many jobs."""
    return _framed("dequeueJobs", dequeue_to_wire(DequeueRequest(queue, limit)), calls)


def _framed(method: str, request: object, calls: int) -> bytes:
    messages = [encode_call(method, seqid, call_args(method, ME, request=request)) for seqid in range(1, calls + 1)]
    return b"".join(len(message).to_bytes(4, "big") + message for message in messages)


async def large_jobs(plain: Plain, queue: str, jobs: int) -> list[str]:
    """The descriptors of that many new jobs with large bodies."""
    await plain.create_queue(queue)
    return [each for _ in range(jobs) for each in await plain.enqueue(queue, bytes(BODY_BYTES))]


@contextlib.asynccontextmanager
async def non_readers(port: int, connections: int, calls: bytes) -> AsyncIterator[list[socket.socket]]:
    """Connections that send these calls and never read; closed with the block."""
    socks = []
    try:
        for _ in range(connections):
            sock = socket.create_connection(("127.0.0.1", port))
            sock.setblocking(False)
            socks.append(sock)
            await asyncio.get_running_loop().sock_sendall(sock, calls)
        yield socks
    finally:
        for sock in socks:
            sock.close()


async def cycle_times(plain: Plain, queue: str, *, seconds: float, pause_s: float = 0.002) -> list[float]:
    """How long a good caller waits, in seconds: each time for a small job stored, and handed out."""
    times = []
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        for call in (plain.enqueue(queue, b"x"), plain.dequeue(queue)):
            began = time.monotonic()
            await call
            times.append(time.monotonic() - began)
        await asyncio.sleep(pause_s)
    return times
