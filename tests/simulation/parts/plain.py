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
        await self.set_queue(
            QUEUE,
            {
                "claim_timeout": f"{self.settings.claim_timeout_s}s",
                "succeeded_ttl": self.rng.choice(("0s", "30s", "24h")),
                "failed_ttl": self.rng.choice(("0s", "1m", "7d")),
            },
        )

    def programs(self) -> Iterable[Program]:
        for number in range(self.settings.producers):
            yield Program(f"producer-{number}", self._produce, is_producer=True)
        for number in range(self.settings.workers):
            yield Program(f"worker-{number}", self._work)

    async def _work(self, caller: Caller, rng: random.Random) -> None:
        await Worker(self, caller, rng, QUEUE, Habits()).run()

    async def _produce(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            jobs = [self._job(caller, rng) for _ in range(rng.randint(1, self.settings.burst))]
            if rng.random() < 0.5:
                timeout = rng.choice((None, None, 1.0))
                listed = await self.call("enqueue", caller.client.enqueue(QUEUE, jobs, timeout=timeout))
                self.accepted(listed or ())
            else:
                each = (self.call("enqueue", caller.client.enqueue(QUEUE, job)) for job in jobs)
                self.accepted([name for name in await asyncio.gather(*each) if name is not None])

    def _job(self, caller: Caller, rng: random.Random) -> Job:
        run_after_ms = None
        if rng.random() < 0.3:
            run_after_ms = now_ms() + rng.randint(-1_000, round(self.settings.delay_s * 1000))
        return Job(self.body(caller), rng.randint(1, 3), run_after_ms, rng.randint(1, 5))
