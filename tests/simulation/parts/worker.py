"""A worker: it dequeues jobs of its queues, and ends, keeps, forgets or returns each of them as its habits say."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pinlater.errors import PinLaterError
from pinlater.model import (
    Ack,
    AckOutcome,
    Checkpoint,
    DequeuedJob,
    DequeueFromQueuesRequest,
    DequeueRequest,
    Heartbeat,
    HeartbeatOutcome,
    JobProgress,
    LogLine,
    QueueAcks,
    QueueShare,
    ReportingAck,
)
from tests.simulation.callers import Caller
from tests.simulation.parts.part import MOST_S, Died, Part
from tests.simulation.virtual_time import now_ms

OVER = (AckOutcome.SUCCEEDED, AckOutcome.FAILED, AckOutcome.CANCELLED)
ACK_AGAIN_S = 0.5
SHORT_WAIT_MS, FINISHING_WAIT_MS = 1_000, 2_000


@dataclass(frozen=True)
class Habits:
    """How often a worker does what it may do, each as a part of 1; jobs that are left succeed."""

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

    is_unfenced: float = 0.03
    """The ack does not name the claim."""

    dies: float = 0.005
    rides: float = 0.5
    """The ack goes with the next dequeue."""

    renews: float = 0.2
    """The claim is renewed in the middle of the work."""

    renews_late: float = 0.0
    """The claim is renewed when its time is over, before or after somebody has ended it."""

    changes: float = 0.05
    """The job gets another body and status by a checkpoint in the middle of the work."""

    binds: float = 0.3
    """The claims end with the connection."""

    confirms: float = 0.5
    """The receipt of jobs is confirmed."""

    own_timeout: float = 0.1
    """The dequeue names a claim time-out of its own."""

    prefetches: float = 0.1
    """The dequeue takes more jobs than its limit, where they are there at once."""

    covers_less: float = 0.05
    """The dequeue looks at a part of the shards."""

    reports: float = 0.0
    """A success brings a result, the last progress and a line for the log."""

    looks: float = 0.02
    """The dequeue claims nothing."""

    stops: float = 0.8
    """The job ends as soon as a heartbeat says that it is to stop."""


DILIGENT = Habits(
    limit=20,
    fails=0.0,
    fails_for_good=0.0,
    snoozes=0.0,
    forgets=0.0,
    is_late=0.0,
    is_unfenced=0.0,
    dies=0.0,
    rides=0.0,
    renews=0.0,
    renews_late=0.0,
    changes=0.0,
    prefetches=0.0,
    covers_less=0.0,
    looks=0.0,
)
"""Those of all workers when everything is to end."""


class Worker:
    """One life of a worker. `queues`: those that it works for, with their weights."""

    def __init__(
        self, part: Part, caller: Caller, rng: random.Random, queues: Sequence[str | QueueShare], habits: Habits
    ) -> None:
        self.part = part
        self.caller = caller
        self.rng = rng
        self._shares = [QueueShare(each) if isinstance(each, str) else each for each in queues]
        self._habits = habits
        self._riding: list[tuple[Ack, bool]] = []
        """Acks that go with the next dequeue, and whether each is a success."""

    @property
    def habits(self) -> Habits:
        return replace(DILIGENT, reports=self._habits.reports) if self.part.is_finishing else self._habits

    def happens(self, chance: float) -> bool:
        return chance > 0 and self.rng.random() < chance

    async def run(self) -> None:
        while True:
            for job in await self.dequeue():
                await self.work(job)

    # -- dequeues ----------------------------------------------------------------------------------------------------

    async def dequeue(self) -> Sequence[DequeuedJob]:
        """The jobs that came. Acks that were to go with it and could not are sent by themselves."""
        habits, rng, part = self.habits, self.rng, self.part
        riding, self._riding = self._riding, []
        (wait_ms,) = rng.choices((0, SHORT_WAIT_MS, part.settings.wait_ms), (1, 1, 4))
        if part.is_finishing:
            wait_ms = FINISHING_WAIT_MS
        limit = rng.randint(1, habits.limit)
        timeout_ms = rng.randint(2_000, 20_000) if self.happens(habits.own_timeout) else None
        binds, confirms = self.happens(habits.binds), self.happens(habits.confirms)
        try:
            if len(self._shares) == 1:
                jobs = await self._dequeue_one(
                    DequeueRequest(
                        self._shares[0].queue,
                        limit,
                        wait_ms=wait_ms,
                        claim_timeout_ms=timeout_ms,
                        release_on_disconnect=binds,
                        confirms_receipt=confirms,
                        coverage=0.5 if self.happens(habits.covers_less) else 1.0,
                        prefetch=rng.randint(1, 3) if self.happens(habits.prefetches) else 0,
                    ),
                    riding,
                )
            else:
                jobs = await self._dequeue_many(
                    DequeueFromQueuesRequest(
                        self._shares,
                        limit,
                        wait_ms=wait_ms,
                        claim_timeout_ms=timeout_ms,
                        release_on_disconnect=binds,
                        confirms_receipt=confirms,
                    ),
                    riding,
                )
        except PinLaterError as error:
            part.callers.failed(error, "dequeue")
            if not error.acks_applied:
                await self.ack(riding)
            longest_s = 1.0 if part.is_finishing else max(1.0, min(part.settings.pause_s / 4, MOST_S))
            await asyncio.sleep(rng.uniform(0.1, longest_s))
            return ()
        part.handed_out(job.descriptor for job in jobs)
        if not jobs and wait_ms <= SHORT_WAIT_MS:
            await asyncio.sleep(min(rng.expovariate(1 / part.settings.pause_s), MOST_S))
        return jobs

    async def _dequeue_one(self, request: DequeueRequest, riding: Sequence[tuple[Ack, bool]]) -> Sequence[DequeuedJob]:
        if self.happens(self.habits.looks):
            await self.part.call("dequeue", self.caller.client.dequeue(replace(request, dry_run=True, wait_ms=0)))
        request.succeeded, request.failed = _sorted(riding)
        request.ack_queue = _queue(riding[0][0]) if riding else ""
        jobs = await self.caller.client.dequeue(request)
        self._rode([*request.succeeded, *request.failed], len(request.succeeded), jobs.ack_outcomes)
        return jobs

    async def _dequeue_many(
        self, request: DequeueFromQueuesRequest, riding: Sequence[tuple[Ack, bool]]
    ) -> Sequence[DequeuedJob]:
        request.acks = [QueueAcks(queue, *_sorted(acks)) for queue, acks in _by_queue(riding).items()]
        jobs = await self.caller.client.dequeue_from_queues(request)
        for error in jobs.queue_errors.values():
            self.part.callers.failed(error, "dequeue of a queue")
        for place, acks in enumerate(request.acks):
            outcomes = jobs.ack_outcomes[place] if jobs.ack_outcomes else ()
            self._rode([*acks.succeeded, *acks.failed], len(acks.succeeded), outcomes)
        return jobs

    def _rode(self, acks: Sequence[Ack], succeeded: int, outcomes: Sequence[AckOutcome]) -> None:
        """Without outcomes each had its effect, of which that of a failure is not known."""
        usual = [AckOutcome.SUCCEEDED if place < succeeded else AckOutcome.UNKNOWN for place in range(len(acks))]
        self._acked(acks, outcomes or usual)

    # -- one job -----------------------------------------------------------------------------------------------------

    async def work(self, job: DequeuedJob) -> None:
        """From its receipt to its ack, if there is one."""
        habits, rng = self.habits, self.rng
        if self.happens(habits.dies):
            raise Died
        await self.spend()
        if self.happens(habits.renews) and not await self.renew(job):
            return
        if self.happens(habits.renews_late):
            late_ms = job.claim_expires_at_ms - now_ms() + rng.randint(0, 1_500)
            await asyncio.sleep(max(0, late_ms) / 1000)
            if not await self.renew(job):
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
        claim = "" if self.happens(habits.is_unfenced) else job.claim_descriptor
        if self.happens(habits.fails_for_good):
            await self.end(Ack(job.descriptor, "for good", claim_descriptor=claim, permanent=True), False)
        elif self.happens(habits.fails):
            delay_ms = rng.choice((0, rng.randint(1, round(habits.retry_delay_s * 1000))))
            await self.end(Ack(job.descriptor, "failed", delay_ms, claim), False)
        elif self.happens(habits.reports):
            line = LogLine("done", now_ms())
            progress = JobProgress(1.0, "done")
            result = self.result(job)
            ack = ReportingAck(
                job.descriptor, claim_descriptor=claim, result=result, progress=progress, log_lines=[line]
            )
            await self.end(ack, True)
        else:
            await self.end(Ack(job.descriptor, claim_descriptor=claim), True)

    async def spend(self) -> None:
        """The time of the work."""
        quicker = 0.1 if self.part.is_finishing else 1.0
        await asyncio.sleep(self.part.settings.work_s * self.rng.uniform(0.2, 1.8) * quicker)

    def result(self, job: DequeuedJob) -> bytes:
        return b"result of " + job.body

    async def renew(self, job: DequeuedJob) -> bool:
        """Whether the job is still this worker's, and has not stopped."""
        queue = _queue(job)
        if self.happens(0.6):
            beat = Heartbeat(
                job.descriptor, job.claim_descriptor, round(self.rng.random(), 2), "half", [LogLine("half", now_ms())]
            )
            answers = await self.part.call("heartbeat", self.caller.client.heartbeat(queue, [beat]))
            outcome = HeartbeatOutcome.OK if answers is None else answers[0].outcome
            if outcome is HeartbeatOutcome.LOST:
                return False
            if outcome is HeartbeatOutcome.CANCEL and self.happens(self.habits.stops):
                await self.end(Ack(job.descriptor, "stopped", claim_descriptor=job.claim_descriptor), False)
                return False
        else:
            kept = Checkpoint(job.descriptor, run_after_ms=job.run_after_ms, claim_descriptor=job.claim_descriptor)
            await self.part.call("checkpoint", self.caller.client.checkpoint(queue, [kept]))
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
        await self.part.call("checkpoint", self.caller.client.checkpoint(_queue(job), [changed]))

    async def snooze(self, job: DequeuedJob) -> None:
        later_ms = now_ms() + self.rng.randint(1, 3_000)
        snoozed = Checkpoint(
            job.descriptor, move_to_pending=True, run_after_ms=later_ms, claim_descriptor=job.claim_descriptor
        )
        await self.part.call("checkpoint", self.caller.client.checkpoint(_queue(job), [snoozed]))

    # -- acks --------------------------------------------------------------------------------------------------------

    async def end(self, ack: Ack, is_success: bool) -> None:
        """By an ack of its own, or by one that goes with the next dequeue."""
        if self.happens(self.habits.rides):
            self._riding.append((ack, is_success))
        else:
            await self.ack([(ack, is_success)])

    async def ack(self, acks: Sequence[tuple[Ack, bool]]) -> None:
        """Tries again a few times those that may come twice."""
        for queue, some in _by_queue(acks).items():
            succeeded, failed = _sorted(some)
            for _ in range(4):
                outcomes = await self.part.call("ack", self.caller.client.ack(queue, succeeded, failed))
                if outcomes is not None:
                    self._acked([*succeeded, *failed], outcomes)
                    break
                succeeded, failed = ([each for each in part if each.claim_descriptor] for part in (succeeded, failed))
                if not succeeded and not failed:
                    break
                await asyncio.sleep(ACK_AGAIN_S)

    def _acked(self, acks: Sequence[Ack], outcomes: Sequence[AckOutcome]) -> None:
        for ack, outcome in zip(acks, outcomes, strict=True):
            if outcome in OVER:
                self.part.ended(ack.descriptor)


def _queue(named: DequeuedJob | Ack) -> str:
    return named.descriptor.partition(":")[0]


def _by_queue(acks: Sequence[tuple[Ack, bool]]) -> dict[str, list[tuple[Ack, bool]]]:
    found: dict[str, list[tuple[Ack, bool]]] = {}
    for each in acks:
        found.setdefault(_queue(each[0]), []).append(each)
    return found


def _sorted(acks: Sequence[tuple[Ack, bool]]) -> tuple[list[Ack], list[Ack]]:
    """Successes and failures."""
    return [ack for ack, is_success in acks if is_success], [ack for ack, is_success in acks if not is_success]


class SlowWorker(Worker):
    """Its jobs take three times as long, while more of them come."""

    async def spend(self) -> None:
        for _ in range(1 if self.part.is_finishing else 3):
            await super().spend()
