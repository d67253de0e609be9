"""Producers and workers over plain connections that retry nothing, whose calls are a history."""

from __future__ import annotations

import asyncio
import random
import time

from pinlater.model import Ack, DequeuedJob, DequeueRequest, Job
from pinlater.wire.convert import acks_to_wire, dequeue_to_wire, dequeued_from_wire, enqueue_to_wire
from tests.faults.recorded_run import RecordedRun
from tests.server.running import Plain

QUEUE = "mail"
ATTEMPTS = 1_000
LATEST_MS = 1_500
"""How far ahead a delayed job is."""

LATE_WORKERS = 0.002
"""The share of dequeues whose acks come when the claims have expired."""

RECONNECT_PAUSE_S = 0.05
BROKEN = (OSError, asyncio.IncompleteReadError, AssertionError)


class Load:
    """`producers` and `workers` connections; `calls` counts what was answered, `stored` the enqueues among them.

    `pause_s`: of each connection, before its next call.
    """

    def __init__(
        self,
        port: int,
        run: RecordedRun,
        claim_timeout_ms: int,
        *,
        producers: int = 32,
        workers: int = 32,
        seed: int = 0,
        body_bytes: int = 200,
        pause_s: float = 0.0,
    ) -> None:
        self._port = port
        self._run = run
        self._late_s = 1.25 * claim_timeout_ms / 1000
        self._shape = producers, workers
        self._random = random.Random(seed)
        self._body_bytes = body_bytes
        self._pause_s = pause_s
        self._going = True
        self._tasks: list[asyncio.Task[None]] = []
        self.calls = self.stored = 0

    def start(self) -> None:
        producers, workers = self._shape
        self._tasks = [asyncio.create_task(self._connected(self._produce)) for _ in range(producers)]
        self._tasks += [asyncio.create_task(self._connected(self._work)) for _ in range(workers)]

    async def stop(self) -> None:
        self._going = False
        await asyncio.gather(*self._tasks)

    async def grows_by(self, calls: int, within_s: float = 90.0) -> None:
        """Until so many more calls are answered."""
        target = self.calls + calls
        async with asyncio.timeout(within_s):
            while self.calls < target:
                await asyncio.sleep(0.01)

    async def _connected(self, step: object) -> None:
        """One step after the other; a new connection after every failure."""
        while self._going:
            try:
                plain = await self._run.plain(self._port)
            except OSError:
                await asyncio.sleep(RECONNECT_PAUSE_S)
                continue
            try:
                while self._going:
                    await step(plain)  # type: ignore[operator]
                    await asyncio.sleep(self._pause_s)
            except BROKEN:
                await asyncio.sleep(RECONNECT_PAUSE_S)
            finally:
                await plain.close()

    async def _produce(self, plain: Plain) -> None:
        delay_ms = self._random.choice((0, 0, self._random.randint(1, LATEST_MS)))
        run_after_ms = time.time_ns() // 1_000_000 + delay_ms
        job = Job(self._random.randbytes(self._body_bytes), run_after_ms=run_after_ms, attempts_allowed=ATTEMPTS)
        await plain.call("enqueueJobs", request=enqueue_to_wire(QUEUE, [job]))
        self.calls += 1
        self.stored += 1

    async def _work(self, plain: Plain) -> None:
        jobs = await take(plain, self._random.randint(1, 8), wait_ms=100)
        self.calls += 1
        succeeded, failed = [], []
        for job in jobs:
            fate = self._random.random()
            if fate < 0.85:
                succeeded.append(job)
            elif fate < 0.95:
                failed.append(job)
        if self._random.random() < LATE_WORKERS:
            await asyncio.sleep(self._late_s)
        if succeeded or failed:
            await acknowledge(plain, succeeded, failed)
            self.calls += 1


async def take(plain: Plain, limit: int, wait_ms: int) -> list[DequeuedJob]:
    answer = await plain.call("dequeueJobs", request=dequeue_to_wire(DequeueRequest(QUEUE, limit, wait_ms=wait_ms)))
    return dequeued_from_wire(answer)


async def acknowledge(plain: Plain, succeeded: list[DequeuedJob], failed: list[DequeuedJob]) -> None:
    """Ack under the claims. A success is final when its answer says so: that of an ack which came behind the end of its
    claim says that it had no effect.
    """
    good = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in succeeded]
    bad = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in failed]
    await plain.call("ackJobs", request=acks_to_wire(QUEUE, good, bad))
