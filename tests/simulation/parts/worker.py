"""A worker: it dequeues jobs of one queue, and ends, keeps, forgets or gives back each of them as its habits say."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from pinlater.errors import PinLaterError
from pinlater.model import Ack, AckOutcome, Checkpoint, DequeuedJob, DequeueRequest, Heartbeat, HeartbeatOutcome
from tests.simulation.callers import Caller
from tests.simulation.parts.part import Died, Part
from tests.simulation.virtual_time import now_ms

OVER = (AckOutcome.SUCCEEDED, AckOutcome.FAILED, AckOutcome.CANCELLED)
ACK_AGAIN_S = 0.5
FINISHING_WAIT_MS = 2_000


@dataclass(frozen=True)
class Habits:
    """How often a worker does what it may do, each as a part of 1; what is left are jobs that succeed."""

    limit: int = 5
    """The most jobs of one dequeue."""

    fails: float = 0.15
    retry_delay_s: float = 3.0
    """The longest delay of a retry."""

    fails_for_good: float = 0.02
    snoozes: float = 0.03
    """The job comes back later by a checkpoint."""

    forgets: float = 0.01
    """The job is never acked."""

    is_late: float = 0.02
    """The ack comes when the claim is over."""

    dies: float = 0.005
    rides: float = 0.5
    """The ack goes with the next dequeue."""

    renews: float = 0.2
    """The claim is renewed in the middle of the work."""

    changes: float = 0.05
    """The job gets another body and status by a checkpoint in the middle of the work."""

    binds: float = 0.3
    """The claims end with the connection."""

    confirms: float = 0.5
    """The receipt of jobs is confirmed."""

    own_timeout: float = 0.1
    """The dequeue names a claim time-out of its own."""

    reports: float = 0.0
    """A success brings a result."""

    looks: float = 0.02
    """The dequeue claims nothing."""


FINISHING = Habits(limit=20, **dict.fromkeys((each.name for each in fields(Habits) if each.type == "float"), 0.0))
"""Of all workers when everything is to end."""


class Worker:
    """One life of a worker."""

    def __init__(self, part: Part, caller: Caller, rng: random.Random, queue: str, habits: Habits) -> None:
        self.part = part
        self.caller = caller
        self.rng = rng
        self.queue = queue
        self._habits = habits
        self._succeeded: list[Ack] = []
        self._failed: list[Ack] = []
        """Acks that go with the next dequeue."""

    @property
    def habits(self) -> Habits:
        if not self.part.is_finishing:
            return self._habits
        return replace(FINISHING, reports=self._habits.reports)

    def happens(self, chance: float) -> bool:
        return chance > 0 and self.rng.random() < chance

    async def run(self) -> None:
        while True:
            for job in await self.dequeue():
                await self.work(job)

    # -- dequeues ----------------------------------------------------------------------------------------------------

    def request(self) -> DequeueRequest:
        habits, rng, part = self.habits, self.rng, self.part
        wait_ms = FINISHING_WAIT_MS if part.is_finishing else rng.choice((0, 1_000, part.settings.wait_ms))
        return DequeueRequest(
            self.queue,
            rng.randint(1, habits.limit),
            wait_ms=wait_ms,
            claim_timeout_ms=rng.randint(2_000, 20_000) if self.happens(habits.own_timeout) else None,
            release_on_disconnect=self.happens(habits.binds),
            confirms_receipt=self.happens(habits.confirms),
        )

    async def dequeue(self) -> Sequence[DequeuedJob]:
        """The jobs that came. Acks that were to go with it and could not are sent by themselves."""
        request = self.request()
        if self.happens(self.habits.looks):
            await self.part.call("dequeue", self.caller.client.dequeue(replace(request, dry_run=True, wait_ms=0)))
        request.succeeded, self._succeeded = self._succeeded, []
        request.failed, self._failed = self._failed, []
        try:
            jobs = await self.caller.client.dequeue(request)
        except PinLaterError as error:
            self.part.callers.failed(error, "dequeue")
            if not error.acks_applied:
                await self.ack(request.succeeded, request.failed)
            await asyncio.sleep(self.rng.uniform(0.1, 1.0))
            return ()
        acks = [*request.succeeded, *request.failed]
        usual = [AckOutcome.SUCCEEDED] * len(request.succeeded) + [AckOutcome.UNKNOWN] * len(request.failed)
        self._acked(acks, jobs.ack_outcomes or usual)
        if not jobs and not request.wait_ms:
            await asyncio.sleep(self.rng.expovariate(1 / self.part.settings.pause_s))
        return jobs

    # -- one job -----------------------------------------------------------------------------------------------------

    async def work(self, job: DequeuedJob) -> None:
        """From its receipt to its ack, if there is one."""
        habits, rng = self.habits, self.rng
        if self.happens(habits.dies):
            raise Died
        await self.spend()
        if self.happens(habits.renews) and not await self.renew(job):
            return
        if self.happens(habits.changes):
            await self.change(job)
        if self.happens(habits.forgets):
            return
        if self.happens(habits.snoozes):
            await self.snooze(job)
            return
        if self.happens(habits.is_late):
            late_ms = job.claim_expires_at_ms - now_ms() + rng.randint(-500, 5_000)
            await asyncio.sleep(max(0, late_ms) / 1000)
        ack = Ack(job.descriptor, claim_descriptor=job.claim_descriptor)
        if self.happens(habits.fails_for_good):
            await self.end((), (replace(ack, permanent=True, append_status="for good"),))
        elif self.happens(habits.fails):
            delay_ms = rng.choice((0, rng.randint(1, round(habits.retry_delay_s * 1000))))
            await self.end((), (replace(ack, retry_delay_ms=delay_ms, append_status="failed"),))
        else:
            await self.end((replace(ack, result=self.result(job)),), ())

    async def spend(self) -> None:
        """The time of the work."""
        await asyncio.sleep(self.part.settings.work_s * self.rng.uniform(0.2, 1.8))

    def result(self, job: DequeuedJob) -> bytes | None:
        return b"result of " + job.body if self.happens(self.habits.reports) else None

    async def renew(self, job: DequeuedJob) -> bool:
        """Whether the job is still this worker's, and is not to stop."""
        if self.happens(0.5):
            beat = Heartbeat(job.descriptor, job.claim_descriptor, round(self.rng.random(), 2))
            answers = await self.part.call("heartbeat", self.caller.client.heartbeat(self.queue, [beat]))
            if answers is not None and answers[0].outcome is HeartbeatOutcome.LOST:
                return False
            if answers is not None and answers[0].outcome is HeartbeatOutcome.CANCEL and self.happens(0.8):
                await self.end((), (Ack(job.descriptor, claim_descriptor=job.claim_descriptor),))
                return False
        else:
            kept = Checkpoint(job.descriptor, run_after_ms=job.run_after_ms, claim_descriptor=job.claim_descriptor)
            await self.part.call("checkpoint", self.caller.client.checkpoint(self.queue, [kept]))
        await self.spend()
        return True

    async def change(self, job: DequeuedJob) -> None:
        changed = Checkpoint(
            job.descriptor,
            new_body=self.part.body(self.caller),
            run_after_ms=job.run_after_ms,
            attempts_allowed=self.rng.choice((None, job.attempts_allowed + 1)),
            prepend_status="changed",
            claim_descriptor=job.claim_descriptor,
        )
        await self.part.call("checkpoint", self.caller.client.checkpoint(self.queue, [changed]))

    async def snooze(self, job: DequeuedJob) -> None:
        later = now_ms() + self.rng.randint(1, 3_000)
        snoozed = Checkpoint(
            job.descriptor, move_to_pending=True, run_after_ms=later, claim_descriptor=job.claim_descriptor
        )
        await self.part.call("checkpoint", self.caller.client.checkpoint(self.queue, [snoozed]))

    # -- acks --------------------------------------------------------------------------------------------------------

    async def end(self, succeeded: Sequence[Ack], failed: Sequence[Ack]) -> None:
        """By an ack of its own, or one that goes with the next dequeue."""
        if self.happens(self.habits.rides):
            self._succeeded += succeeded
            self._failed += failed
        else:
            await self.ack(succeeded, failed)

    async def ack(self, succeeded: Sequence[Ack], failed: Sequence[Ack]) -> None:
        """Tries again a few times: an ack under a claim may come twice."""
        if not succeeded and not failed:
            return
        for _ in range(4):
            acked = self.caller.client.ack(self.queue, succeeded, failed)
            outcomes = await self.part.call("ack", acked)
            if outcomes is not None:
                self._acked([*succeeded, *failed], outcomes)
                return
            await asyncio.sleep(ACK_AGAIN_S)

    def _acked(self, acks: Sequence[Ack], outcomes: Sequence[AckOutcome]) -> None:
        for ack, outcome in zip(acks, outcomes, strict=True):
            if outcome in OVER:
                self.part.ended(ack.descriptor)
