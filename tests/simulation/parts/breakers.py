"""A queue with a circuit breaker: what its workers call is down now and then, and operators pause and resume it.

An observer asks for the settings all the time. So the checker of histories knows when the breaker was open, and that
one job at a time was tried then; when all is to end, the breaker has to close by itself.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from pinlater.model import Ack, DequeueRequest, Job
from tests.simulation.callers import Caller
from tests.simulation.cluster import PASSWORD
from tests.simulation.parts.part import Died, Part, Program
from tests.simulation.parts.worker import OVER

FRAGILE = "fragile"
RULE = "50%/5/20s/2s"
DOWN_S, UP_S = (60.0, 120.0), (5.0, 20.0)
"""How long what the workers call is away, and is there; the former is what the checker takes to be certain, twice."""

ATTEMPTS = 1_000
AWAY_S = 0.5
"""A worker that was refused comes back so much later."""


class Breakers(Part):
    NAME = "breakers"
    is_down = False

    async def set_up(self) -> None:
        await self.set_up_queue(FRAGILE, pause_on_failures=RULE, crash_budget="0", succeeded_ttl="0s")

    def programs(self) -> Iterable[Program]:
        return (
            *self.producers(self._produce),
            *self.workers(self._work),
            Program("provider", self._come_and_go, is_producer=True),
            Program("operator", self._operate, is_producer=True),
            Program("observer", self._observe),
        )

    async def _produce(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            jobs = [Job(self.body(caller), attempts_allowed=ATTEMPTS) for _ in range(self.settings.burst)]
            self.accepted(await self.call("enqueue", caller.client.enqueue(FRAGILE, jobs)))

    async def _work(self, caller: Caller, rng: random.Random) -> None:
        while True:
            request = DequeueRequest(FRAGILE, rng.randint(1, 3), wait_ms=rng.choice((0, self.settings.wait_ms)))
            jobs = await self.call("dequeue", caller.client.dequeue(request))
            if not jobs:
                await asyncio.sleep(AWAY_S)
            for job in jobs or ():
                if rng.random() < 0.02 and not self.is_finishing:
                    raise Died
                await asyncio.sleep(self.settings.work_s * rng.uniform(0.2, 1.8))
                ack = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor)]
                both = ((), ack) if self.is_down else (ack, ())
                outcomes = await self.call("ack", caller.client.ack(FRAGILE, *both))
                if outcomes and outcomes[0] in OVER:
                    self.ended(job.descriptor)

    async def _come_and_go(self, caller: Caller, rng: random.Random) -> None:
        while True:
            self.is_down = True
            await asyncio.sleep(rng.uniform(*DOWN_S))
            self.is_down = False
            await asyncio.sleep(rng.uniform(*UP_S))

    async def _operate(self, caller: Caller, rng: random.Random) -> None:
        """Rarely, so that most openings are left alone."""
        while True:
            await asyncio.sleep(rng.uniform(60.0, 180.0))
            for change in ({"paused": "true"}, {"paused": "false"}):
                await self.call("update_queue", caller.client.update_queue(FRAGILE, PASSWORD, set=change))
                await asyncio.sleep(rng.uniform(1.0, 10.0))

    async def _observe(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.call("get_queues", caller.client.get_queues([FRAGILE]))
            await asyncio.sleep(1.0)

    async def open_up(self, caller: Caller) -> None:
        """The breaker is left to itself."""
        self.is_down = False
        await self.set_queue(caller, FRAGILE, paused="false")
