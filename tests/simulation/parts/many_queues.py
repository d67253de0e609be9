"""Dequeues from many queues at once, shared by weight; one of the queues is not there."""

from __future__ import annotations

import random
from collections.abc import Iterable

from pinlater.model import Job, QueueShare
from tests.simulation.callers import Caller
from tests.simulation.parts.part import Part, Program
from tests.simulation.parts.worker import Habits, Worker

WEIGHTS = {"many-a": 1, "many-b": 3, "many-c": 10, "many-d": 1}
LIMITS = {"many-b": {"max_jobs_per_second": "1/s"}, "many-d": {"max_in_progress": "4"}}
MISSING = "many-missing"


class ManyQueues(Part):
    NAME = "many_queues"

    async def set_up(self) -> None:
        for queue in WEIGHTS:
            await self.set_up_queue(queue, succeeded_ttl="10m", **LIMITS.get(queue, {}))

    def programs(self) -> Iterable[Program]:
        return (*self.producers(self._produce), *self.workers(self._work))

    async def _work(self, caller: Caller, rng: random.Random) -> None:
        shares = [QueueShare(queue, weight) for queue, weight in WEIGHTS.items()]
        if rng.random() < 0.3:
            shares.append(QueueShare(MISSING))
        await Worker(self, caller, rng, shares, Habits(limit=8)).run()

    async def _produce(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            queue = rng.choice(list(WEIGHTS))
            jobs = [
                Job(self.body(caller), rng.randint(1, 3), self.run_after_ms(rng), rng.randint(1, 4))
                for _ in range(rng.randint(1, self.settings.burst))
            ]
            self.accepted(await self.call("enqueue", caller.client.enqueue(queue, jobs)))

    async def open_up(self, caller: Caller) -> None:
        for queue, limits in LIMITS.items():
            await self.set_queue(caller, queue, **dict.fromkeys(limits, "none"))
