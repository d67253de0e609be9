"""A queue of many tenants: one that floods, calm ones, and jobs of nobody, with keys and delays among them."""

from __future__ import annotations

import random
from collections.abc import Iterable

from pinlater.model import ExtendedJob, OnDuplicate, RescheduleJob
from tests.simulation.callers import Caller
from tests.simulation.parts.part import Part, Program
from tests.simulation.parts.worker import Habits, Worker
from tests.simulation.virtual_time import now_ms

QUEUE, FLOOD = "groups", "flood"
TENANTS, KEYS = 12, 6
FLOODS, MOST_FLOODED = 6, 120
"""How many times the burst of others comes at once, and beyond how many jobs no more of them do."""


class Groups(Part):
    NAME = "groups"

    async def set_up(self) -> None:
        await self.set_up_queue(QUEUE, succeeded_ttl="10s", failed_ttl="30s")

    def programs(self) -> Iterable[Program]:
        return (
            Program("flooder", self._flood, is_producer=True),
            *self.producers(self._produce),
            *self.workers(self._work),
            Program("operator", self._operate, is_producer=True),
        )

    async def _work(self, caller: Caller, rng: random.Random) -> None:
        """Where nobody dies no claim goes back by itself, and turns are judged exactly."""
        goes_back = 0.1 if self.settings.deaths_per_hour else 0.0
        habits = Habits(binds=goes_back, confirms=goes_back, is_unfenced=0.0)
        await Worker(self, caller, rng, [QUEUE], habits).run()

    async def _flood(self, caller: Caller, rng: random.Random) -> None:
        """One tenant has more than anybody can work on, and stops now and then."""
        while True:
            await self.rest(rng)
            if len(self.open) < MOST_FLOODED and rng.random() < 0.9:
                some = FLOODS * rng.randint(1, self.settings.burst)
                jobs = [ExtendedJob(self.body(caller), priority=1, group=FLOOD) for _ in range(some)]
                self.accepted(await self.call("enqueue", caller.client.enqueue(QUEUE, jobs)))

    async def _produce(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            jobs = [self._job(caller, rng) for _ in range(rng.choice((1, 1, 2, self.settings.burst)))]
            if rng.random() < 0.4:
                jobs = [self._with_more(jobs[0], rng)]
            self.accepted(await self.call("enqueue", caller.client.enqueue(QUEUE, jobs)))

    def _job(self, caller: Caller, rng: random.Random) -> ExtendedJob:
        """Of a tenant: the first ones have most."""
        tenant = min(rng.randrange(1, TENANTS + 1), rng.randrange(TENANTS + 1))
        priority = 1 if rng.random() < 0.8 else 2
        group = f"tenant-{tenant}" if tenant else ""
        return ExtendedJob(self.body(caller), priority, self.run_after_ms(rng, 0.2), rng.randint(1, 4), group=group)

    def _with_more(self, job: ExtendedJob, rng: random.Random) -> ExtendedJob:
        """With keys or an expiry."""
        kind, key = rng.choice(("dedupe", "chain", "both", "expiry")), rng.randrange(KEYS)
        if kind == "expiry":
            job.expires_at_ms = now_ms() + rng.randint(5_000, 10_000)
        if kind in ("dedupe", "both"):
            job.priority, job.dedupe_key = 1 + key % 2, f"key-{key}"
            job.on_duplicate = rng.choice((OnDuplicate.KEEP, OnDuplicate.REPLACE))
        if kind in ("chain", "both"):
            job.serialize_key = f"groups-{key % 3}"
        return job

    async def _operate(self, caller: Caller, rng: random.Random) -> None:
        """Cancels, reschedules and retries a few jobs."""
        client = caller.client
        while True:
            await self.rest(rng)
            names, choice = self.some_known(rng, 3), rng.random()
            if choice < 0.3:
                await self.call("cancel", client.cancel(names))
            elif choice < 0.6:
                changes = [RescheduleJob(name, run_after_ms=self.run_after_ms(rng, 1.0)) for name in names]
                await self.call("reschedule", client.reschedule(QUEUE, changes))
            elif choice < 0.65:
                await self.call("retry_failed", client.retry_failed(QUEUE, priority=rng.randint(1, 2), limit=3))
            elif names:
                await self.call("lookup", client.lookup(names))
