"""Plain jobs: at once and later, of all priorities, alone, in lists and many at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from pinlater.model import Job
from tests.simulation.callers import Caller
from tests.simulation.parts.part import Part, Program
from tests.simulation.parts.worker import Habits, Worker
from tests.simulation.virtual_time import now_ms

QUEUE = "plain"


class Plain(Part):
    NAME = "plain"

    async def set_up(self) -> None:
        succeeded_ttl, failed_ttl = self.rng.choice(("0s", "30s", "24h")), self.rng.choice(("0s", "1m", "7d"))
        crash_budget = self.rng.choice(("0", "3"))
        await self.set_up_queue(QUEUE, succeeded_ttl=succeeded_ttl, failed_ttl=failed_ttl, crash_budget=crash_budget)

    def programs(self) -> Iterable[Program]:
        return (*self.producers(self._produce), *self.workers(self._work))

    async def _work(self, caller: Caller, rng: random.Random) -> None:
        await Worker(self, caller, rng, [QUEUE], Habits()).run()

    async def _produce(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            jobs = [self._job(caller, rng) for _ in range(rng.randint(1, self.settings.burst))]
            if rng.random() < 0.2:
                jobs = [Job(each.body, jobs[0].priority, now_ms() + 1_000) for each in jobs]  # all at one time
            if rng.random() < 0.5:
                timeout, resend = rng.choice((None, None, 1.0)), rng.choice((None, None, True))
                enqueued = caller.client.enqueue(QUEUE, jobs, timeout=timeout, resend=resend)
                self.accepted(await self.call("enqueue", enqueued))
            else:
                each = (self.call("enqueue", caller.client.enqueue(QUEUE, job)) for job in jobs)
                self.accepted([name for name in await asyncio.gather(*each) if name is not None])

    def _job(self, caller: Caller, rng: random.Random) -> Job:
        return Job(self.body(caller), rng.randint(1, 3), self.run_after_ms(rng), rng.randint(1, 5))
