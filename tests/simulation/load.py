"""Callers of a simulated cluster, and the ledger of all jobs, by which is judged what the cluster did.

Callers are on whichever server lives, and go to another one when theirs dies, as clients do. A job that an enqueue has
answered with must be done in the end. Nobody else may have it while a worker's claim on it counts.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from pinlater.errors import PinLaterError
from pinlater.model import Ack, AckOutcome, DequeuedJob, DequeueRequest, Job, RequestContext
from tests.simulation.cluster import Cluster, ServerGone
from tests.simulation.virtual_time import now_ms

WAIT_MS = 2_000
ACK_PAUSE_S = 0.5


class Held(NamedTuple):
    """A worker has the job until then."""

    claim: str
    until_ms: int


class Timed(NamedTuple):
    """A call: when it began, and how long it took."""

    began_s: float
    took_s: float


@dataclass
class Ledger:
    """`due_ms`: of each job that an enqueue has answered with, when it is due."""

    due_ms: dict[str, int] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    maybe_done: set[str] = field(default_factory=set)
    """An ack was sent, and what became of it was not answered."""
    held: dict[str, Held] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    """Of callers, by call and reason."""
    enqueues: list[Timed] = field(default_factory=list)
    handed_out: dict[str, list[float]] = field(default_factory=dict)
    """By queue, when each job was."""

    def stored(self, descriptor: str, due_ms: int) -> None:
        self.due_ms[descriptor] = due_ms

    def received(self, queue: str, job: DequeuedJob) -> None:
        at_ms, name = now_ms(), job.descriptor
        self.handed_out.setdefault(queue, []).append(at_ms / 1000)
        if at_ms < max(job.run_after_ms, self.due_ms.get(name, 0)):
            self.violations.append(f"{name} was handed out {job.run_after_ms - at_ms} ms early")
        held = self.held.get(name)
        if held is not None and at_ms < held.until_ms:
            self.violations.append(f"{name} was handed out again {held.until_ms - at_ms} ms before its claim ends")
        if name in self.done:
            self.violations.append(f"{name} was handed out although it was done")
        self.held[name] = Held(job.claim_descriptor, job.claim_expires_at_ms)

    def acked(self, name: str, outcome: AckOutcome) -> None:
        """An ack of the worker that had it was answered."""
        self.held.pop(name, None)
        if outcome is AckOutcome.SUCCEEDED:
            self.done.add(name)
            self.maybe_done.discard(name)

    def undone(self) -> set[str]:
        """Jobs that were stored and, as far as their workers know, never done."""
        return self.due_ms.keys() - self.done - self.maybe_done


@dataclass(frozen=True)
class LoadSettings:
    queue: str = "mail"
    producers: int = 2
    jobs: int = 5
    """Of one enqueue."""
    pause_s: float = 0.4
    """Between two enqueues of a producer, on average."""
    delayed: float = 0.1
    """The part of the jobs that are due up to 3 s later."""
    workers: int = 4
    limit: int = 5
    """Of one dequeue."""
    work_s: float = 0.1
    """For one batch of jobs, on average."""


class Load:
    """Producers and workers of one queue."""

    def __init__(self, cluster: Cluster, ledger: Ledger, settings: LoadSettings) -> None:
        self.settings = settings
        self._cluster = cluster
        self._ledger = ledger
        self._producing: list[asyncio.Task[None]] = []
        self._working: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._producing = [loop.create_task(self._produce(n)) for n in range(self.settings.producers)]
        self._working = [loop.create_task(self._work(n)) for n in range(self.settings.workers)]

    async def stop_producing(self) -> None:
        await _cancel(self._producing)

    async def stop(self) -> None:
        await _cancel([*self._producing, *self._working])

    # -- producers ---------------------------------------------------------------------------------------------------

    async def _produce(self, number: int) -> None:
        settings, loop = self.settings, asyncio.get_running_loop()
        context = RequestContext(f"producer-{number}")
        while True:
            await asyncio.sleep(settings.pause_s * random.uniform(0.5, 1.5))
            jobs = [Job(b"x", random.randint(1, 3), self._run_after_ms(), 20) for _ in range(settings.jobs)]
            server = random.choice(self._cluster.servers)
            began_s = loop.time()
            try:
                names = await self._cluster.call(server, server.service.enqueue(settings.queue, jobs, context=context))
            except (PinLaterError, ServerGone) as error:
                self._ledger.errors[f"enqueue {_reason(error)}"] += 1
                continue
            self._ledger.enqueues.append(Timed(began_s, loop.time() - began_s))
            for name, job in zip(names, jobs, strict=True):
                self._ledger.stored(name, job.run_after_ms or 0)

    def _run_after_ms(self) -> int | None:
        return now_ms() + random.randint(1, 3_000) if random.random() < self.settings.delayed else None

    # -- workers -----------------------------------------------------------------------------------------------------

    async def _work(self, number: int) -> None:
        settings, context = self.settings, RequestContext(f"worker-{number}")
        request = DequeueRequest(settings.queue, settings.limit, wait_ms=WAIT_MS)
        while True:
            server = random.choice(self._cluster.servers)
            try:
                jobs = await self._cluster.call(server, server.service.dequeue(request, context=context))
            except (PinLaterError, ServerGone) as error:
                self._ledger.errors[f"dequeue {_reason(error)}"] += 1
                await asyncio.sleep(0.1)
                continue
            for job in jobs:
                self._ledger.received(settings.queue, job)
            if jobs:
                await asyncio.sleep(settings.work_s * random.uniform(0.5, 1.5))
                await self._ack(jobs, context)

    async def _ack(self, jobs: list[DequeuedJob], context: RequestContext) -> None:
        """Again and again until all were answered, or their claims have ended; each ack is fenced by its claim."""
        left = list(jobs)
        while left and now_ms() < min(job.claim_expires_at_ms for job in left):
            server = random.choice(self._cluster.servers)
            self._ledger.maybe_done.update(job.descriptor for job in left)
            acks = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in left]
            try:
                outcomes = await self._cluster.call(
                    server, server.service.ack(self.settings.queue, acks, [], context=context)
                )
            except (PinLaterError, ServerGone) as error:
                self._ledger.errors[f"ack {_reason(error)}"] += 1
                await asyncio.sleep(ACK_PAUSE_S)
                continue
            for job, outcome in zip(left, outcomes or [AckOutcome.SUCCEEDED] * len(left), strict=True):
                self._ledger.acked(job.descriptor, outcome)
            return


def _reason(error: Exception) -> str:
    return error.reason if isinstance(error, PinLaterError) else "server gone"


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
