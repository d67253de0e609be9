"""Dead letters, and operators who retry, replay, cancel and delete jobs by what they select."""

from __future__ import annotations

import random
from collections.abc import Iterable

from pinlater.model import ExtendedJob, Job, JobAction, JobChange, JobFilter, JobState
from pinlater.model.job_selection import FoundJobsChange, JobPhase, JobSelection
from tests.simulation.callers import Caller
from tests.simulation.parts.part import MOST_S, Part, Program
from tests.simulation.parts.worker import Habits, Worker
from tests.simulation.virtual_time import now_ms

QUEUE, LETTERS = "letters", "letters-dead"


class DeadLetters(Part):
    NAME = "dead_letters"

    async def set_up(self) -> None:
        await self.set_up_queue(LETTERS, succeeded_ttl="1m")
        await self.set_up_queue(QUEUE, dead_letter_queue=LETTERS, succeeded_ttl="1m", failed_ttl="1h")

    def programs(self) -> Iterable[Program]:
        return (
            *self.producers(self._produce),
            *self.workers(self._work),
            Program("reader", self._read),
            *self.producers(self._operate, "operator"),
        )

    async def _work(self, caller: Caller, rng: random.Random) -> None:
        await Worker(self, caller, rng, [QUEUE], Habits(fails=0.4, fails_for_good=0.15, retry_delay_s=1.0)).run()

    async def _read(self, caller: Caller, rng: random.Random) -> None:
        """Somebody who works on a dead letter now and then."""
        worker = Worker(self, caller, rng, [LETTERS], Habits(limit=2, fails=0.3))
        while True:
            await self.rest(rng, MOST_S)
            for job in await worker.dequeue():
                await worker.work(job)

    async def _produce(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            keyed = rng.random() < 0.2
            jobs = [self._job(caller, rng, keyed) for _ in range(rng.randint(1, self.settings.burst))]
            self.accepted(await self.call("enqueue", caller.client.enqueue(QUEUE, jobs)))

    def _job(self, caller: Caller, rng: random.Random, keyed: bool) -> Job:
        planned = (self.body(caller), rng.randint(1, 3), self.run_after_ms(rng, 0.2), rng.randint(1, 2))
        return ExtendedJob(*planned, dedupe_key=f"key-{rng.randrange(30)}") if keyed else Job(*planned)

    async def _operate(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            deed = rng.choice((self._replay, self._retry, self._retry_failed, self._change_found, self._delete))
            await deed(caller, rng)
            self.open.update(dict.fromkeys(self.known))  # those that had ended may run again

    async def _replay(self, caller: Caller, rng: random.Random) -> None:
        change = JobChange(LETTERS, JobAction.REPLAY, limit=rng.randint(1, 5), attempts=rng.choice((None, 2)))
        await self.call("change_jobs", caller.client.change_jobs(change))

    async def _retry(self, caller: Caller, rng: random.Random) -> None:
        action = rng.choice((JobAction.RETRY, JobAction.RETRY, JobAction.CANCEL))
        change = JobChange(QUEUE, action, limit=rng.randint(1, 3), dry_run=rng.random() < 0.1)
        await self.call("change_jobs", caller.client.change_jobs(change))

    async def _retry_failed(self, caller: Caller, rng: random.Random) -> None:
        retried = caller.client.retry_failed(QUEUE, priority=rng.randint(1, 3), attempts=2, limit=rng.randint(1, 5))
        await self.call("retry_failed", retried)

    async def _change_found(self, caller: Caller, rng: random.Random) -> None:
        action = rng.choice((JobAction.RETRY, JobAction.RETRY, JobAction.CANCEL, JobAction.REPLAY, JobAction.DELETE))
        if action is JobAction.REPLAY and rng.random() < 0.5:
            selection = JobSelection(LETTERS, descriptors=await self._some_letters(caller, rng))
        elif action is JobAction.REPLAY:
            selection = JobSelection(LETTERS, origin_queue=QUEUE, created_before_ms=now_ms() - 5_000)
        elif action is JobAction.DELETE and rng.random() < 0.5:
            names = self.some_known(rng, 20)  # workers may take them before they are deleted
            selection = JobSelection(QUEUE, [JobPhase.SCHEDULED, JobPhase.READY], descriptors=names)
        elif action is JobAction.DELETE:
            selection = JobSelection(QUEUE, [JobPhase.FAILED], [rng.randint(1, 3)], created_before_ms=now_ms() - 20_000)
        else:
            selection = JobSelection(QUEUE, descriptors=self.some_known(rng, 5))
        stops_running = action is JobAction.CANCEL and rng.random() < 0.5
        change = FoundJobsChange(selection, action, rng.randint(1, 5), stops_running=stops_running)
        await self.call("change_found_jobs", caller.client.change_found_jobs(change))

    async def _some_letters(self, caller: Caller, rng: random.Random) -> list[str]:
        found = await self.call("lookup", caller.client.lookup(self.some_known(rng, 20)))
        return [info.moved_to for info in (found or {}).values() if info.moved_to]

    async def _delete(self, caller: Caller, rng: random.Random) -> None:
        queue, state = rng.choice(((QUEUE, JobState.FAILED), (LETTERS, JobState.PENDING), (LETTERS, JobState.FAILED)))
        chosen = JobFilter(queue, state, rng.randint(1, 3))
        await self.call("delete_jobs", caller.client.delete_jobs(chosen, limit=rng.randint(1, 2)))
