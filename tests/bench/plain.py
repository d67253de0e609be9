"""Plain connections, each with one call after the other and none beside it: `python -m tests.bench.plain --help`.

They join nothing and reuse nothing: every call is encoded by itself, with a random body of its own, and every answer is
held against its call. Says `ready`, waits for a line on standard input, and prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, cast

import uvloop

from pinlater.model import Ack, Job
from tests.bench import frames

QUEUE = "bench"


class Connection(asyncio.Protocol):
    """Framed, and one call at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._answer: asyncio.Future[bytes] | None = None
        self._seqid = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer = data = self._buffer + data
        if len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:4], "big")):
            self._buffer = b""
            assert self._answer is not None
            assert len(data) == end
            self._answer.set_result(data[4:])

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionError("the server closed the connection"))

    async def call(self, method: str, frame: Callable[..., bytes], *arguments: Any) -> bytes:
        """The answer, a success, without its frame."""
        self._seqid += 1
        self._answer = self._loop.create_future()
        self._transport.write(frame(self._seqid, *arguments))
        answer = await self._answer
        frames.check(method, self._seqid, answer)
        return answer


async def enqueue(connection: Connection, calls: int) -> None:
    for _ in range(calls):
        await connection.call("enqueueJobs", frames.enqueue, QUEUE, [_job()])


async def empty(connection: Connection, calls: int) -> None:
    """The same call without a job: answered without the store."""
    for _ in range(calls):
        await connection.call("enqueueJobs", frames.enqueue, QUEUE, [])


async def cycles(connection: Connection, calls: int) -> None:
    """Enqueue a job, dequeue one (it may be that of another connection), and ack it with the next dequeue."""
    acks: list[Ack] = []
    for _ in range(calls):
        await connection.call("enqueueJobs", frames.enqueue, QUEUE, [_job()])
        jobs = frames.jobs_of(await connection.call("dequeueJobs", frames.dequeue, QUEUE, 1, acks))
        if not jobs:
            raise RuntimeError("as many jobs as dequeues were enqueued, and a dequeue found none")
        acks = [Ack(job.descriptor) for job in jobs]
    await connection.call("ackDequeuedJobs", frames.ack, QUEUE, acks)


def _job() -> Job:
    return Job(os.urandom(200), attempts_allowed=5)


WHAT: dict[str, Callable[[Connection, int], Coroutine[Any, Any, None]]] = {
    "enqueue": enqueue,
    "empty": empty,
    "cycles": cycles,
}


async def run(server: str, what: str, calls: int, connections: int) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    host, port = server.rsplit(":", 1)
    opened = [(await loop.create_connection(Connection, host, int(port)))[1] for _ in range(connections)]
    each = calls // connections
    await opened[0].call("createQueue", frames.create_queue, QUEUE)
    await asyncio.gather(*(WHAT[what](connection, each // 10 + 1) for connection in opened))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    began, cpu_began = time.monotonic(), time.process_time()
    await asyncio.gather(*(WHAT[what](connection, each) for connection in opened))
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu_began
    return {"jobs": each * connections, "seconds": round(seconds, 4), "cpu": round(cpu, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="HOST:PORT")
    parser.add_argument("--what", choices=WHAT, required=True)
    parser.add_argument("--calls", type=int, required=True, help="of all connections together")
    parser.add_argument("--connections", type=int, default=64)
    given = parser.parse_args()
    print(json.dumps(uvloop.run(run(given.server, given.what, given.calls, given.connections))), flush=True)


if __name__ == "__main__":
    main()
