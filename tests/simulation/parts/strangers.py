"""Callers who name jobs wrongly, or queues that are not there, and send what cannot be taken."""

from __future__ import annotations

import random
from collections.abc import Iterable

from pinlater.model import Ack, Checkpoint, Heartbeat, Job, JobFilter, JobState, RescheduleJob
from tests.simulation.callers import Caller
from tests.simulation.parts.part import Part, Program
from tests.simulation.parts.worker import Habits, Worker
from tests.simulation.virtual_time import EPOCH_MS, now_ms

QUEUE, MISSING = "strangers", "strangers-missing"
MOST_BYTES = 1_000


class Strangers(Part):
    NAME = "strangers"

    async def set_up(self) -> None:
        await self.set_up_queue(QUEUE, max_body=f"{MOST_BYTES}", max_attempts="3")

    def programs(self) -> Iterable[Program]:
        return (
            *self.producers(self._produce),
            *self.workers(self._work),
            Program("stranger", self._err, is_producer=True),
        )

    async def _work(self, caller: Caller, rng: random.Random) -> None:
        await Worker(self, caller, rng, [QUEUE], Habits()).run()

    async def _produce(self, caller: Caller, rng: random.Random) -> None:
        """One job in a list that cannot be taken is the end of the list."""
        while True:
            await self.rest(rng)
            jobs = [self._job(caller, rng) for _ in range(rng.randint(1, self.settings.burst))]
            queue = MISSING if rng.random() < 0.1 else QUEUE
            self.accepted(await self.call("enqueue", caller.client.enqueue(queue, jobs)))

    def _job(self, caller: Caller, rng: random.Random) -> Job:
        job = Job(self.body(caller), rng.randint(1, 3), self.run_after_ms(rng), rng.randint(1, 3))
        wrong = rng.random()
        if wrong < 0.05:
            job.body = job.body.ljust(MOST_BYTES + 1, b".")
        elif wrong < 0.1:
            job.priority = rng.choice((0, 9))
        elif wrong < 0.15:
            job.attempts_allowed = 4
        return job

    async def _err(self, caller: Caller, rng: random.Random) -> None:
        client = caller.client
        while True:
            await self.rest(rng)
            name, claim = self._name(rng), f"q1:1:{EPOCH_MS}:{rng.randint(1, 50)}:{caller.name}"
            match rng.randrange(8):
                case 0:
                    await self.call("ack", client.ack(QUEUE, [Ack(name, claim_descriptor=claim)], []))
                case 1:
                    await self.call("ack", client.ack(MISSING, [], [Ack(name, claim_descriptor=claim)]))
                case 2:
                    await self.call("checkpoint", client.checkpoint(QUEUE, [Checkpoint(name, run_after_ms=now_ms())]))
                case 3:
                    await self.call("heartbeat", client.heartbeat(QUEUE, [Heartbeat(name, claim)]))
                case 4:
                    await self.call("lookup", client.lookup([name, *self.some_known(rng, 2)]))
                case 5:
                    await self.call("cancel", client.cancel([name]))
                case 6:
                    changes = [RescheduleJob(name, run_after_ms=now_ms())]
                    await self.call("reschedule", client.reschedule(QUEUE, changes))
                case _:
                    await self.call("dequeue", client.dequeue(MISSING, 2, wait=rng.choice((None, 2.0))))
                    await self.call("count", client.count(JobFilter(MISSING, JobState.PENDING)))

    def _name(self, rng: random.Random) -> str:
        """Of a job that is not there, or lies on no shard, or in another queue; or of one whose claim is another's."""
        number = EPOCH_MS * 1_000 + rng.randrange(1_000_000)
        return rng.choice(
            (
                f"{QUEUE}:s1:p1:{number}",
                f"{QUEUE}:s999:p1:{number}",
                f"{MISSING}:s1:p2:{number}",
                *self.some_known(rng, 2),
            )
        )
