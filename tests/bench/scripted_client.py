"""A client that does what it is told, one line after the other: `python -m tests.bench.scripted_client SERVER`.

For counting the instructions of its calls: `WHAT TIMES` carries that out and says `done`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from pinlater import AsyncClient, Client, Job
from pinlater.model import Ack, DequeuedJob, DequeueRequest
from pinlater.server.server_process import new_loop
from pinlater_workers import App
from tests.bench.worker_process import make_app

QUEUE = "bench"
BATCH = 100
IN_FLIGHT = 50


class FetchScheduler:
    """What can be asked for, by name; each is done so many times."""

    def __init__(self, client: AsyncClient, blocking: Client, app: App) -> None:
        self._client = client
        self._blocking = blocking
        self._job_type = app.job_types["thread"]
        self._body = os.urandom(200)
        self._claimed: list[list[DequeuedJob]] = []

    def named(self, what: str) -> Callable[[int], Awaitable[None]]:
        return {
            "single": self._single,
            "singles": self._singles,
            "blocking": partial(self._in_a_thread, self._block_one),
            "blocking list": partial(self._in_a_thread, self._block_list),
            "framework": partial(self._in_a_thread, self._enqueue_many),
            "enqueue": self._enqueue,
            "dequeue": self._dequeue,
            "ack": self._ack,
        }[what]

    async def _single(self, times: int) -> None:
        for _ in range(times):
            await self._client.enqueue(QUEUE, self._job())

    async def _singles(self, times: int) -> None:
        """Single calls, many at a time."""
        for _ in range(times // IN_FLIGHT):
            await asyncio.gather(*(self._client.enqueue(QUEUE, self._job()) for _ in range(IN_FLIGHT)))

    async def _in_a_thread(self, one: Callable[[], object], times: int) -> None:
        def enqueue() -> None:
            for _ in range(times):
                one()

        await asyncio.to_thread(enqueue)

    def _block_one(self) -> None:
        self._blocking.enqueue(QUEUE, self._job())

    def _block_list(self) -> None:
        self._blocking.enqueue(QUEUE, [self._job() for _ in range(BATCH)])

    def _enqueue_many(self) -> None:
        self._job_type.enqueue_many([(number,) for number in range(BATCH)])

    async def _enqueue(self, times: int) -> None:
        for _ in range(times):
            await self._client.enqueue(QUEUE, [self._job() for _ in range(BATCH)])

    async def _dequeue(self, times: int) -> None:
        for _ in range(times):
            self._claimed.append(await self._client.dequeue(DequeueRequest(QUEUE, BATCH)))

    async def _ack(self, times: int) -> None:
        for _ in range(times):
            await self._client.ack(QUEUE, [Ack(job.descriptor) for job in self._claimed.pop()])

    def _job(self) -> Job:
        return Job(self._body, attempts_allowed=5)


async def run(server: str) -> None:
    async with AsyncClient(server) as client:
        await client.create_queue(QUEUE)
        asking = FetchScheduler(client, Client(server), make_app(server))
        gc.collect()
        gc.freeze()
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            what, _, times = line.rstrip().rpartition(" ")
            await asking.named(what)(int(times))
            print("done", flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run(sys.argv[1]))
