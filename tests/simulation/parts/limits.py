"""Queues with a maximum in progress, a rate and a bound of pending jobs, which operators change, pause and resume."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from pinlater.model import Ack, DequeuedJob, Heartbeat, Job, JobFilter
from tests.simulation.callers import Caller
from tests.simulation.cluster import PASSWORD
from tests.simulation.parts.part import LIVE, Part, Program, Run
from tests.simulation.parts.worker import Habits, Worker
from tests.simulation.virtual_time import now_ms

NARROW, PACED, BOUNDED, HELD = "narrow", "paced", "bounded", "held"
MOST, MOST_HELD = 8, 12
"""In progress of the narrow queue, and of the one whose jobs are held meanwhile."""

HOLD_S = 1.0
LONG_PAUSE_S = (30.0, 60.0)
OPEN = {"paused": "false", "draining": "false"}


class Limits(Part):
    NAME = "limits"

    async def set_up(self) -> None:
        await self.set_up_queue(HELD)
        await self.set_up_queue(NARROW, max_in_progress="3", succeeded_ttl="1m")
        await self.set_up_queue(PACED, max_jobs_per_second="5/s", succeeded_ttl="1m")
        await self.set_up_queue(BOUNDED, max_pending="10", max_attempts="4", succeeded_ttl="1m")

    def programs(self) -> Iterable[Program]:
        for queue in (NARROW, PACED, BOUNDED):
            yield from self.producers(self._producer_of(queue), f"producer-{queue}")
            yield from self.workers(self._worker_of(queue), f"worker-{queue}")
        yield Program("operator", self._operate, is_producer=True)
        yield Program("holder", self._hold)

    def _worker_of(self, queue: str) -> Run:
        async def work(caller: Caller, rng: random.Random) -> None:
            await Worker(self, caller, rng, [queue], Habits()).run()

        return work

    def _producer_of(self, queue: str) -> Run:
        async def produce(caller: Caller, rng: random.Random) -> None:
            while True:
                await self.rest(rng)
                jobs = [
                    Job(
                        self.body(caller),
                        rng.randint(1, 3),
                        self.run_after_ms(rng),
                        rng.choice((1, 2, 2, 3, 3, 4, 4, 5)),
                    )
                    for _ in range(rng.randint(1, self.settings.burst))
                ]
                self.accepted(await self.call("enqueue", caller.client.enqueue(queue, jobs)))

        return produce

    async def _hold(self, caller: Caller, rng: random.Random) -> None:
        """Holds more jobs than the narrow queue may have in progress, where they do not count, until that is empty."""
        client = caller.client
        held: list[DequeuedJob] = []
        for _ in range(MOST_HELD):
            descriptor = await self.call("enqueue", client.enqueue(HELD, Job(self.body(caller))))
            self.accepted([descriptor] if descriptor is not None else ())
        while True:
            held += await self.call("dequeue", client.dequeue(HELD, MOST_HELD)) or ()
            await asyncio.sleep(HOLD_S)
            beats = [Heartbeat(job.descriptor, job.claim_descriptor) for job in held]
            await self.call("heartbeat", client.heartbeat(HELD, beats))
            if self.is_finishing and await self._is_narrow_done(caller):
                acks = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in held]
                await self.call("ack", client.ack(HELD, acks, []))
                held = []

    async def _is_narrow_done(self, caller: Caller) -> bool:
        counted = [caller.client.count(JobFilter(NARROW, state, future=later)) for state, later in LIVE]
        return all([await self.call("count", each) == 0 for each in counted])

    async def _operate(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            queue = rng.choice((NARROW, PACED, BOUNDED))
            until_ms = now_ms() + rng.randint(1_000, 10_000)
            change = rng.choice(
                (
                    {"paused": "true"},
                    {"paused": "true", "paused_until": str(until_ms)},
                    {"paused": "false"},
                    {"draining": "true"},
                    {"draining": "false"},
                    {"max_in_progress": str(rng.randint(0, MOST))} if queue == NARROW else OPEN,
                    {"max_jobs_per_second": f"{rng.randint(1, 20)}/s"} if queue == PACED else OPEN,
                    {"max_pending": str(rng.randint(0, 20))} if queue == BOUNDED else OPEN,
                )
            )
            await self.call("update_queue", caller.client.update_queue(queue, PASSWORD, set=change))
            if change == {"paused": "true"} and rng.random() < 0.3:
                await asyncio.sleep(rng.uniform(*LONG_PAUSE_S))
            if rng.random() < 0.3:
                await self.call("get_queues", caller.client.get_queues([queue]))

    async def open_up(self, caller: Caller) -> None:
        await self.set_queue(caller, NARROW, max_in_progress=f"{MOST}", **OPEN)
        await self.set_queue(caller, PACED, max_jobs_per_second="50/s", **OPEN)
        await self.set_queue(caller, BOUNDED, max_pending="none", **OPEN)
