"""Long chains, since work is slow, of which half the jobs expire while they wait or are cancelled."""

from __future__ import annotations

import random
from collections.abc import Iterable

from pinlater.model import ExtendedJob
from tests.simulation.callers import Caller
from tests.simulation.parts.part import Part, Program
from tests.simulation.parts.worker import Habits, SlowWorker
from tests.simulation.virtual_time import now_ms

QUEUE = "chains"
CHAINS = 4
WAIT_MS = (1_000, 8_000)
"""How long jobs may wait that expire."""


class Chains(Part):
    NAME = "chains"

    async def set_up(self) -> None:
        await self.set_up_queue(QUEUE, succeeded_ttl="1m", failed_ttl="1m")

    def programs(self) -> Iterable[Program]:
        return (
            *self.producers(self._produce),
            *self.workers(self._work),
            Program("canceller", self._cancel_some, is_producer=True),
        )

    async def _work(self, caller: Caller, rng: random.Random) -> None:
        await SlowWorker(self, caller, rng, [QUEUE], Habits(limit=1, rides=0.0)).run()

    async def _produce(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            job = ExtendedJob(self.body(caller), rng.randint(1, 3), serialize_key=f"slow-{rng.randrange(CHAINS)}")
            if rng.random() < 0.5:
                job.expires_at_ms = now_ms() + rng.randint(*WAIT_MS)
            descriptor = await self.call("enqueue", caller.client.enqueue(QUEUE, job))
            self.accepted([descriptor] if descriptor else [])

    async def _cancel_some(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            names = self.some_known(rng, 2)
            if names:
                await self.call("cancel", caller.client.cancel(names))
