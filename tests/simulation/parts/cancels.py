"""Jobs that are cancelled, stopped or given another time before they end; some are then retried."""

from __future__ import annotations

import random
from collections.abc import Iterable

from pinlater.model import ExtendedJob, Job, JobAction, KeyRef, RescheduleJob
from pinlater.model.job_selection import FoundJobsChange, JobSelection
from tests.simulation.callers import Caller
from tests.simulation.parts.part import Part, Program
from tests.simulation.parts.worker import Habits, Worker
from tests.simulation.virtual_time import now_ms

QUEUE = "cancels"
KEYS = 20


class Cancels(Part):
    NAME = "cancels"

    async def set_up(self) -> None:
        await self.set_up_queue(QUEUE, succeeded_ttl="1h", failed_ttl=self.rng.choice(("0s", "1h")))

    def programs(self) -> Iterable[Program]:
        return (
            *self.producers(self._produce),
            *self.workers(self._work),
            Program("canceller", self._cancel_some, is_producer=True),
            Program("rescheduler", self._reschedule, is_producer=True),
            Program("retrier", self._retry_some, is_producer=True),
        )

    async def _work(self, caller: Caller, rng: random.Random) -> None:
        await Worker(self, caller, rng, [QUEUE], Habits(renews=0.7, snoozes=0.15)).run()

    async def _produce(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            keyed = rng.random() < 0.3
            jobs = [self._job(caller, rng, keyed) for _ in range(rng.randint(1, self.settings.burst))]
            self.accepted(await self.call("enqueue", caller.client.enqueue(QUEUE, jobs)))

    def _job(self, caller: Caller, rng: random.Random, keyed: bool) -> Job:
        planned = (self.body(caller), rng.randint(1, 3), self.run_after_ms(rng, 0.7), rng.randint(1, 3))
        return ExtendedJob(*planned, dedupe_key=self._key(rng)) if keyed else Job(*planned)

    def _key(self, rng: random.Random) -> str:
        return f"key-{rng.randrange(KEYS)}"

    async def _cancel_some(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            names, running = self.some_known(rng, 4), rng.random() < 0.5
            if rng.random() < 0.2:
                cancelled = caller.client.cancel(QUEUE, keys=[KeyRef(self._key(rng))], running=running)
                await self.call("cancel", cancelled)
            elif names:
                await self.call("cancel", caller.client.cancel(names, running=running))

    async def _retry_some(self, caller: Caller, rng: random.Random) -> None:
        """What was cancelled while it ran is retried where it is named."""
        while True:
            await self.rest(rng)
            names = self.some_known(rng, 20)
            change = FoundJobsChange(JobSelection(QUEUE, descriptors=names), JobAction.RETRY)
            if names and await self.call("change_found_jobs", caller.client.change_found_jobs(change)) is not None:
                self.open.update(dict.fromkeys(names))

    async def _reschedule(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            changes = [self._change(caller, rng, name) for name in self.some_known(rng, 3)]
            if changes and rng.random() < 0.3:
                found = await self.call("lookup", caller.client.lookup([changes[0].descriptor]))
                info = (found or {}).get(changes[0].descriptor)
                if info is not None:
                    changes[0].only_if_updated_at_ms = info.updated_at_ms
            if rng.random() < 0.2:
                changes.append(RescheduleJob(key=KeyRef(self._key(rng)), run_after_ms=now_ms()))
            for _ in range(2 if changes and changes[0].only_if_updated_at_ms is not None else 1):
                if changes:
                    await self.call("reschedule", caller.client.reschedule(QUEUE, changes))

    def _change(self, caller: Caller, rng: random.Random, descriptor: str) -> RescheduleJob:
        return RescheduleJob(
            descriptor,
            run_after_ms=self.run_after_ms(rng, 0.8),
            body=rng.choice((None, self.body(caller))),
            attempts_allowed=rng.choice((None, rng.randint(1, 5))),
        )
