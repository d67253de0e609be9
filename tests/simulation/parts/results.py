"""Results: those that workers bring, and callers who wait for the ends of jobs or look them up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from pinlater.model import DequeuedJob, Job
from tests.simulation.callers import Caller
from tests.simulation.parts.part import Part, Program
from tests.simulation.parts.worker import Habits, Worker

QUEUE = "results"
MOST_BYTES = 2_000


class _Reporter(Worker):
    def result(self, job: DequeuedJob) -> bytes:
        """Some are too large."""
        length = self.rng.choice((0, 10, 100, MOST_BYTES, MOST_BYTES + 1))
        return (b"%b %d " % (job.body, length)).ljust(length, b".")


class Results(Part):
    NAME = "results"

    async def set_up(self) -> None:
        await self.set_up_queue(
            QUEUE,
            max_result=f"{MOST_BYTES}",
            result_ttl=self.rng.choice(("20s", "10m", "1h")),
            succeeded_ttl=self.rng.choice(("0s", "10s", "24h")),
        )

    def programs(self) -> Iterable[Program]:
        return (
            *self.producers(self._produce),
            *self.workers(self._work),
            Program("reader", self._read, is_producer=True),
        )

    async def _work(self, caller: Caller, rng: random.Random) -> None:
        await _Reporter(self, caller, rng, [QUEUE], Habits(reports=0.8)).run()

    async def _produce(self, caller: Caller, rng: random.Random) -> None:
        """Who enqueues, mostly waits for what comes of it."""
        while True:
            await self.rest(rng)
            jobs = [
                Job(self.body(caller), rng.randint(1, 3), self.run_after_ms(rng, 0.1), rng.randint(1, 3))
                for _ in range(rng.randint(1, self.settings.burst))
            ]
            names = await self.call("enqueue", caller.client.enqueue(QUEUE, jobs))
            self.accepted(names)
            if names and rng.random() < 0.7:
                timeout = rng.choice((1.0, 10.0, 40.0))
                if rng.random() < 0.5:
                    await self.call("wait", caller.client.wait(names, timeout=timeout))
                else:
                    waits = (self.call("wait", caller.client.wait(name, timeout=timeout)) for name in names)
                    await asyncio.gather(*waits)

    async def _read(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            names = self.some_known(rng, 5)
            if names:
                found = caller.client.lookup(
                    names,
                    include_body=rng.random() < 0.5,
                    include_result=rng.random() < 0.8,
                    include_trail=rng.random() < 0.3,
                )
                await self.call("lookup", found)

    async def look_back(self, caller: Caller) -> None:
        if self.known:
            await self.call("lookup", caller.client.lookup(list(self.known), include_result=True))
