"""Producers who enqueue at a steady pace, also while all shards are out and servers keep their jobs for later."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from pinlater.model import ExtendedJob, Job
from tests.simulation.callers import Caller
from tests.simulation.parts.part import Part, Program
from tests.simulation.parts.worker import Habits, Worker

QUEUE = "overflow"
STEADY_S = 1.0


class Overflow(Part):
    NAME = "overflow"

    async def set_up(self) -> None:
        await self.set_up_queue(QUEUE, succeeded_ttl="1m")

    def programs(self) -> Iterable[Program]:
        return (*self.producers(self._produce), *self.workers(self._work))

    async def _work(self, caller: Caller, rng: random.Random) -> None:
        await Worker(self, caller, rng, [QUEUE], Habits()).run()

    async def _produce(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await asyncio.sleep(rng.uniform(0.5, 1.5) * max(STEADY_S, self.settings.pause_s / 2))
            planned = (self.body(caller), rng.randint(1, 3), self.run_after_ms(rng, 0.2), rng.randint(1, 3))
            job = ExtendedJob(*planned, dedupe_key=f"key-{rng.randrange(50)}") if rng.random() < 0.2 else Job(*planned)
            descriptor = await self.call("enqueue", caller.client.enqueue(QUEUE, job))
            if descriptor is not None:
                self.accepted([descriptor])
                if rng.random() < 0.3:
                    await self.call("lookup", caller.client.lookup([descriptor]))
