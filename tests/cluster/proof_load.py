"""Producers and workers on plain connections to every server, which retry nothing, and whose calls are a history.

`Load.calls` has what each call came to, and when.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Sequence
from itertools import count
from typing import Any, NamedTuple

from pinlater.model import Ack, DequeuedJob, DequeueRequest, Job
from pinlater.wire.codec import Reply
from pinlater.wire.convert import acks_to_wire, dequeue_to_wire, dequeued_from_wire, enqueue_to_wire
from pinlater.wire.faults import error_from_exception
from tests.faults.recorded_run import RecordedPlain, RecordedRun

ATTEMPTS = 1_000
LATEST_MS = 1_000
"""How far ahead a delayed job is."""

PAUSE_S = 0.03
NO_ANSWER_S = 20.0
ENQUEUE, DEQUEUE, ACK = "enqueueJobs", "dequeueJobs", "ackJobs"


class Call(NamedTuple):
    """One call that ended, in seconds of the monotonic clock; `shard` is that of the jobs it named, if it named any."""

    method: str
    port: int
    began_s: float
    ended_s: float
    error: str = ""
    shard: str = ""


class Gone(Exception):
    """The connection broke."""


def shard_of(descriptor: str) -> str:
    return descriptor.split(":")[1][1:]


class Load:
    """`producers` and `workers` connections to each port."""

    def __init__(
        self,
        ports: Sequence[int],
        queue: str,
        run: RecordedRun,
        *,
        producers: int = 5,
        workers: int = 5,
        failing: float = 0.1,
        seed: int = 0,
    ) -> None:
        self.calls: list[Call] = []
        self.landed: defaultdict[str, int] = defaultdict(int)
        """Jobs whose enqueue was answered, by shard."""
        self.last_sent_s: defaultdict[str, float] = defaultdict(float)
        """When the last enqueue began whose job is there, by shard."""
        self.stored: dict[str, bytes] = {}
        """Their bodies by descriptor; no two are alike."""
        self._numbers = count()
        self._ports = ports
        self._queue = queue
        self._run = run
        self._shape = producers, workers
        self._failing = failing
        self._random = random.Random(seed)
        self._going = True
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Load:
        producers, workers = self._shape
        for port in self._ports:
            steps = [self._produce] * producers + [self._work] * workers
            self._tasks += [asyncio.create_task(self._connected(port, step)) for step in steps]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._going = False
        await asyncio.gather(*self._tasks)

    # -- what it saw -------------------------------------------------------------------------------------------------

    def answered(self, method: str, since_s: float) -> list[Call]:
        """Calls that were answered without an error, and began since then."""
        return [each for each in self.calls if each.began_s >= since_s and each.method == method and not each.error]

    def errors(self, since_s: float, *, apart_from: Collection[str] = ()) -> list[Call]:
        """Errors since then; without those of acks for jobs on these shards, which nobody else can answer."""
        return [each for each in self.calls if each.ended_s >= since_s and each.error and each.shard not in apart_from]

    async def goes_on(
        self, calls: int = 100, within_s: float = 120.0, methods: Sequence[str] = (ENQUEUE, DEQUEUE, ACK)
    ) -> None:
        """Until so many more calls of each kind were answered on each port, beginning now."""
        since_s = time.monotonic()
        async with asyncio.timeout(within_s):
            for method in methods:
                for port in self._ports:
                    while sum(each.port == port for each in self.answered(method, since_s)) < calls:
                        await asyncio.sleep(0.02)

    async def lands_on(self, shard: str, within_s: float = 120.0) -> None:
        """Until a new job is stored there."""
        had = self.landed[shard]
        async with asyncio.timeout(within_s):
            while self.landed[shard] == had:
                await asyncio.sleep(0.02)

    # -- what it does ------------------------------------------------------------------------------------------------

    async def _connected(self, port: int, step: Callable[[RecordedPlain, int], Coroutine[Any, Any, None]]) -> None:
        """One step after the other; a new connection when one breaks."""
        while self._going:
            try:
                plain = await self._run.plain(port)
            except OSError:
                await asyncio.sleep(PAUSE_S)
                continue
            try:
                while self._going:
                    await step(plain, port)
                    await asyncio.sleep(self._random.uniform(0, 2 * PAUSE_S))
            except Gone:
                await asyncio.sleep(PAUSE_S)
            finally:
                await plain.close()

    async def _call(self, plain: RecordedPlain, port: int, method: str, shard: str, request: Any) -> Reply | None:
        """The answer; None for an error."""
        began_s = time.monotonic()
        error = ""
        try:
            async with asyncio.timeout(NO_ANSWER_S):
                reply = await plain.reply(method, request=request)
        except (OSError, asyncio.IncompleteReadError) as broken:  # TimeoutError is an OSError
            error = f"connection: {broken!r}"
            raise Gone from broken
        else:
            if reply.exception is not None:
                failure = error_from_exception(reply.exception)
                error = f"{type(failure).__name__}: {failure.message}"
        finally:
            self.calls.append(Call(method, port, began_s, time.monotonic(), error, shard))
        return None if error else reply

    async def _produce(self, plain: RecordedPlain, port: int) -> None:
        delay_ms = self._random.choice((0, 0, self._random.randint(1, LATEST_MS)))
        run_after_ms = time.time_ns() // 1_000_000 + delay_ms
        body = b"%d" % next(self._numbers)
        began_s = time.monotonic()
        job = Job(body.ljust(200), run_after_ms=run_after_ms, attempts_allowed=ATTEMPTS)
        answer = await self._call(plain, port, ENQUEUE, "", enqueue_to_wire(self._queue, [job]))
        if answer is not None:
            (descriptor,) = answer.success.job_descriptors
            shard = shard_of(descriptor)
            self.landed[shard] += 1
            self.last_sent_s[shard] = max(self.last_sent_s[shard], began_s)
            self.stored[descriptor] = job.body

    async def _work(self, plain: RecordedPlain, port: int) -> None:
        request = DequeueRequest(self._queue, self._random.randint(1, 20), wait_ms=100)
        answer = await self._call(plain, port, DEQUEUE, "", dequeue_to_wire(request))
        if answer is None:
            return
        jobs = dequeued_from_wire(answer.success)
        by_shard: defaultdict[str, list[DequeuedJob]] = defaultdict(list)
        for job in jobs:
            by_shard[shard_of(job.descriptor)].append(job)
        for shard, held in by_shard.items():
            await self._finish(plain, port, shard, held)

    async def _finish(self, plain: RecordedPlain, port: int, shard: str, jobs: Sequence[DequeuedJob]) -> None:
        bad = [job for job in jobs if self._random.random() < self._failing]
        good = [job for job in jobs if job not in bad]
        acks = [[Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in each] for each in (good, bad)]
        await self._call(plain, port, ACK, shard, acks_to_wire(self._queue, *acks))
