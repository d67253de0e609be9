"""Jobs with large bodies, which lie in a tier outside of the shards."""

from __future__ import annotations

import random
from collections.abc import Iterable

from pinlater.model import DequeuedJob, Job
from pinlater.model.job_selection import JobPhase, JobSelection
from tests.simulation.callers import Caller
from tests.simulation.parts.part import Part, Program
from tests.simulation.parts.worker import Habits, Worker

QUEUE, LETTERS = "bodies", "bodies-dead"
TIER = "cold"
"""By this name the servers must know one."""

SIZES = (100, 1_000, 5_000, 50_000)


class _Reporter(Worker):
    def result(self, job: DequeuedJob) -> bytes:
        return job.body[: self.rng.choice(SIZES)]


class Bodies(Part):
    NAME = "bodies"

    async def set_up(self) -> None:
        await self.set_up_queue(LETTERS, bodies=f"{TIER}: size > 512B", succeeded_ttl="1m")
        ttl = self.rng.choice(("0s", "10s", "1h"))
        await self.set_up_queue(
            QUEUE, bodies=f"{TIER}: size > 512B", dead_letter_queue=LETTERS, succeeded_ttl=ttl, failed_ttl="1m"
        )

    def programs(self) -> Iterable[Program]:
        return (
            *self.producers(self._produce),
            *self.workers(self._work),
            Program("reader", self._read, is_producer=True),
        )

    async def _work(self, caller: Caller, rng: random.Random) -> None:
        await _Reporter(self, caller, rng, [QUEUE, LETTERS], Habits(fails_for_good=0.1, reports=0.5)).run()

    async def _produce(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            jobs = [
                Job(self.body(caller), rng.randint(1, 3), self.run_after_ms(rng), rng.randint(1, 3))
                for _ in range(rng.randint(1, self.settings.burst))
            ]
            self.accepted(await self.call("enqueue", caller.client.enqueue(QUEUE, jobs)))

    def body(self, caller: Caller) -> bytes:
        return super().body(caller).ljust(self.rng.choice(SIZES), b".")

    async def _read(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            lookup = caller.client.lookup
            known = self.some_known(rng, 5)
            found = await self.call("lookup", lookup(known, include_body=True, include_result=True)) if known else None
            failed = await self.call(
                "search", caller.client.search_jobs(JobSelection(QUEUE, [JobPhase.FAILED]), limit=10)
            )
            infos = [*(found or {}).values(), *(failed.jobs if failed else ())]
            names = [each for info in infos for each in (info.descriptor, info.moved_to) if each]
            for _ in range(2 if names else 0):  # the history tells by the second look that a body is missing
                await self.call("lookup", lookup(names, include_body=True))
