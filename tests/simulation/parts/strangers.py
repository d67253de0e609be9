"""Callers who name jobs wrongly, or queues that are not there, send what cannot be taken, or come when all is over."""

from __future__ import annotations

import random
from collections.abc import Iterable

from pinlater.model import Ack, Checkpoint, DequeuedJob, Heartbeat, Job, JobFilter, JobState, RescheduleJob
from tests.simulation.callers import Caller
from tests.simulation.parts.part import Part, Program
from tests.simulation.parts.worker import Habits, Worker
from tests.simulation.virtual_time import EPOCH_MS, now_ms

QUEUE, OTHER, MISSING = "strangers", "strangers-other", "strangers-missing"
MOST_BYTES = 1_000


class _Straggler(Worker):
    """A worker with a thread that goes on when a job was given back or has ended."""

    async def work(self, job: DequeuedJob) -> None:
        await super().work(job)
        if self.part.is_finishing or not self.happens(0.3):
            return
        named, claim, client = job.descriptor, self.rng.choice((job.claim_descriptor, "")), self.caller.client
        match self.rng.randrange(3):
            case 0:
                await self.part.call("ack", client.ack(QUEUE, [Ack(named, claim_descriptor=job.claim_descriptor)], []))
            case 1:
                back = self.happens(0.5)
                late = Checkpoint(
                    named, new_body=self.part.body(self.caller), move_to_pending=back, claim_descriptor=claim
                )
                await self.part.call("checkpoint", client.checkpoint(QUEUE, [late]))
            case _:
                await self.part.call("heartbeat", client.heartbeat(QUEUE, [Heartbeat(named, job.claim_descriptor)]))


class Strangers(Part):
    NAME = "strangers"

    async def set_up(self) -> None:
        await self.set_up_queue(OTHER)
        await self.set_up_queue(QUEUE, max_body=f"{MOST_BYTES}", max_attempts="3")

    def programs(self) -> Iterable[Program]:
        return (
            *self.producers(self._produce),
            *self.workers(self._work),
            Program("stranger", self._err, is_producer=True),
            Program("muddler", self._muddle, is_producer=True),
        )

    async def _work(self, caller: Caller, rng: random.Random) -> None:
        await _Straggler(self, caller, rng, [QUEUE], Habits()).run()

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
            match rng.randrange(9):
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
                case 7:
                    theirs = [Checkpoint(each, move_to_pending=True, claim_descriptor=claim) for each in self.known]
                    await self.call("checkpoint", client.checkpoint(QUEUE, theirs[-5:]))
                case _:
                    await self.call("dequeue", client.dequeue(MISSING, 2, wait=rng.choice((None, 2.0))))
                    await self.call("count", client.count(JobFilter(MISSING, JobState.PENDING)))

    async def _muddle(self, caller: Caller, rng: random.Random) -> None:
        """Names jobs of which all is right, also the claim, but for the queue or the priority."""
        client = caller.client
        while True:
            await self.rest(rng)
            infos = list((await self.call("lookup", client.lookup(self.some_known(rng, 20))) or {}).values())
            infos.sort(key=lambda each: each.state is not JobState.IN_PROGRESS)
            for info in infos[:3]:
                queue, name = self._wrong_name(rng, info.descriptor)
                claim = info.claim_descriptor or ""
                match rng.randrange(6):
                    case 0:
                        await self.call("ack", client.ack(queue, [Ack(name, claim_descriptor=claim)], []))
                    case 1:
                        back = Checkpoint(name, move_to_pending=True, claim_descriptor=claim)
                        await self.call("checkpoint", client.checkpoint(queue, [back]))
                    case 2:
                        await self.call("heartbeat", client.heartbeat(queue, [Heartbeat(name, claim)]))
                    case 3:
                        await self.call("lookup", client.lookup([name]))
                    case 4:
                        await self.call("cancel", client.cancel([name]))
                    case _:
                        change = RescheduleJob(name, run_after_ms=now_ms())
                        await self.call("reschedule", client.reschedule(queue, [change]))

    def _wrong_name(self, rng: random.Random, descriptor: str) -> tuple[str, str]:
        """The queue that it names, and the name."""
        queue, shard, priority, number = descriptor.split(":")
        if rng.random() < 0.5:
            return OTHER, f"{OTHER}:{shard}:{priority}:{number}"
        return queue, f"{queue}:{shard}:p{int(priority[1:]) % 3 + 1}:{number}"

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
