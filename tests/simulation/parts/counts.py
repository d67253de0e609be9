"""Counts, scans, searches and the numbers of operators, of a queue on which others work."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from pinlater.model import CONTINUATION_END, CONTINUATION_START, ExtendedJob, Job, JobFilter, JobState
from pinlater.model.job_selection import JobPhase, JobSelection
from tests.simulation.callers import Caller
from tests.simulation.parts.part import Part, Program
from tests.simulation.parts.worker import Habits, Worker

QUEUE = "counts"
MOST_PAGES = 10


class Counts(Part):
    NAME = "counts"

    async def set_up(self) -> None:
        await self.set_up_queue(QUEUE, succeeded_ttl=self.rng.choice(("30s", "24h")), failed_ttl="1m")

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
            if rng.random() < 0.3:
                jobs = [replace(each, run_after_ms=jobs[0].run_after_ms) for each in jobs]
            self.accepted(await self.call("enqueue", caller.client.enqueue(QUEUE, jobs)))

    def _job(self, caller: Caller, rng: random.Random) -> Job:
        planned = (self.body(caller), rng.randint(1, 3), self.run_after_ms(rng, 0.5), rng.randint(1, 3))
        tags = tuple(rng.sample(("red", "green"), rng.choice((0, 0, 1, 2))))
        return ExtendedJob(*planned, tags=tags) if tags else Job(*planned)

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
        selection = JobSelection(
            QUEUE,
            [rng.choice(tuple(JobPhase))],
            rng.choice((None, [rng.randint(1, 3)])),
            tags=rng.choice(((), ("red",), ("green",))),
        )
        continuation = CONTINUATION_START
        for _ in range(MOST_PAGES):
            found = caller.client.search_jobs(selection, limit=rng.randint(2, 20), continuation=continuation)
            page = await self.call("search", found)
            if page is None or page.continuation == CONTINUATION_END:
                break
            continuation = page.continuation

    async def _see(self, caller: Caller, rng: random.Random) -> None:
        names = self.some_known(rng, 5)
        if rng.random() < 0.5:
            await self.call("status", caller.client.cluster_status(queues=[QUEUE]))
        elif names:
            await self.call("explain", caller.client.explain_jobs(names))
