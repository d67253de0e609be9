"""Counts, scans, searches and the numbers of operators, of a queue on which others work."""

from __future__ import annotations

import random
from collections.abc import Iterable

from pinlater.model import ExtendedJob, Job, JobFilter, JobState
from pinlater.model.job_selection import JobPhase, JobSelection
from tests.simulation.callers import Caller
from tests.simulation.parts.part import Part, Program
from tests.simulation.parts.worker import Habits, Worker

QUEUE = "counts"


class Counts(Part):
    NAME = "counts"

    async def set_up(self) -> None:
        await self.set_up_queue(QUEUE, succeeded_ttl="30s", failed_ttl="1m")

    def programs(self) -> Iterable[Program]:
        return (
            *self.producers(self._produce),
            *self.workers(self._work),
            Program("counter", self._count, is_producer=True),
        )

    async def _work(self, caller: Caller, rng: random.Random) -> None:
        await Worker(self, caller, rng, [QUEUE], Habits()).run()

    async def _produce(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            jobs = [self._job(caller, rng) for _ in range(rng.randint(1, self.settings.burst))]
            self.accepted(await self.call("enqueue", caller.client.enqueue(QUEUE, jobs)))

    def _job(self, caller: Caller, rng: random.Random) -> Job:
        planned = (self.body(caller), rng.randint(1, 3), self.run_after_ms(rng, 0.5), rng.randint(1, 3))
        return ExtendedJob(*planned, tags=("red",)) if rng.random() < 0.3 else Job(*planned)

    async def _count(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            deed = rng.choice((self._count_jobs, self._scan, self._search, self._see))
            await deed(caller, rng)

    def _filter(self, rng: random.Random) -> JobFilter:
        state = rng.choice(tuple(JobState))
        future = state is JobState.PENDING and rng.random() < 0.5
        return JobFilter(QUEUE, state, rng.choice((None, 1, 2, 3)), future)

    async def _count_jobs(self, caller: Caller, rng: random.Random) -> None:
        counted = caller.client.count(self._filter(rng), allow_partial=rng.random() < 0.3)
        await self.call("count", counted)

    async def _scan(self, caller: Caller, rng: random.Random) -> None:
        async def pages() -> None:
            async for _ in caller.client.scan_pages(self._filter(rng), limit=rng.randint(2, 20)):
                """The history has it."""

        await self.call("scan", pages())

    async def _search(self, caller: Caller, rng: random.Random) -> None:
        phases, tags = [rng.choice(tuple(JobPhase))], rng.choice(((), ("red",)))
        await self.call("search", caller.client.search_jobs(JobSelection(QUEUE, phases, tags=tags), limit=20))

    async def _see(self, caller: Caller, rng: random.Random) -> None:
        names = self.some_known(rng, 5)
        if rng.random() < 0.5:
            await self.call("status", caller.client.cluster_status(queues=[QUEUE]))
        elif names:
            await self.call("explain", caller.client.explain_jobs(names))
