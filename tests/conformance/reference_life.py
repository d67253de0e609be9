"""The life of a job, as the reference sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from pinlater.backends.aged_levels import Level
from pinlater.backends.base import (
    UNDELIVERED_IN_A_ROW,
    AckOutcome,
    AckRequest,
    CheckpointRequest,
    ClaimKey,
    ClaimRequest,
    EndRules,
    ExpiredClaim,
    ExpiryCounts,
    ExpiryRequest,
    JobKey,
    SilentClaim,
    UnrenewedClaim,
)
from pinlater.backends.status_lines import crash_budget_status, expired_status, released_status
from pinlater.model import MAX_TIME_MS, CancelOutcome, ClaimOutcome, Job, JobState, claim_source
from pinlater.model.status_text import job_expired_status
from tests.conformance.reference_job import RefJob, appended, cut, fitting, new_job
from tests.conformance.reference_keys import RefKeys, Stays

ALL = (1, 2, 3)
Place = Callable[[int, int], tuple[int, int] | None]


def place_by(levels: Sequence[Level], now_ms: int) -> Place:
    """A function of a job's priority and run_after: the level at which it is handed out, and its run_after; None: it is
    at none of these.
    """

    def place(priority: int, run_after_ms: int) -> tuple[int, int] | None:
        for level in levels if run_after_ms <= now_ms else ():
            if isinstance(level, int):
                if priority == level:
                    return priority, run_after_ms
            elif priority in level.priorities:
                counts_as = priority
                while counts_as > 1 and run_after_ms + (priority - counts_as + 1) * level.aging_ms <= now_ms:
                    counts_as -= 1
                if counts_as == level.number:
                    return counts_as, run_after_ms
        return None

    return place


class RefLife(RefKeys):
    def enqueue(self, queue: str, jobs: Sequence[Job], ids: Sequence[int], now_ms: int) -> None:
        stored = self.known(queue)
        for job, job_id in zip(jobs, ids, strict=True):
            run_after_ms = now_ms if job.run_after_ms is None else job.run_after_ms
            stored[job_id] = new_job(
                job_id, job.body, job.priority, run_after_ms, job.attempts_allowed, job.custom_status, now_ms
            )

    def eligible(self, queue: str, levels: Sequence[Level], now_ms: int) -> list[RefJob]:
        """In the order in which they are handed out."""
        place = place_by(levels, now_ms)
        ready = [
            (at, job.id, job)
            for job in self.in_turn(queue, ALL)
            if (at := place(job.priority, job.run_after_ms)) is not None and not job.is_over(now_ms)
        ]
        return [job for _, _, job in sorted(ready, key=lambda each: each[:2])]

    def count_ready(self, queue: str, levels: Sequence[Level], limit: int, now_ms: int) -> list[int]:
        """Of each priority the first `limit` count."""
        self.known(queue)
        place, counts = place_by(levels, now_ms), Counter[int]()
        for priority in ALL:
            first = [job for job in self.eligible(queue, levels, now_ms) if job.priority == priority][:limit]
            counts.update(at[0] for job in first if (at := place(priority, job.run_after_ms)) is not None)
        numbers = [each if isinstance(each, int) else each.number for each in levels]
        return [min(limit, counts[number]) for number in numbers]

    def in_turn(self, queue: str, priorities: Iterable[int]) -> list[RefJob]:
        """Those PENDING that wait for no other job."""
        return [job for job in self.in_state(queue, JobState.PENDING, tuple(priorities)) if self.is_first(queue, job)]

    def claim(self, queue: str, request: ClaimRequest, now_ms: int, *, enforce_quota: bool) -> list[RefJob]:
        limit = min(request.limit, self.room(queue)) if enforce_quota else request.limit
        taken = fitting(self.eligible(queue, request.priorities, now_ms)[:limit], request.max_bytes)
        for job in taken:
            self._put_under(job, request, now_ms)
        return taken

    def _put_under(self, job: RefJob, request: ClaimRequest, now_ms: int) -> None:
        job.state, job.claim, job.updated_at_ms = JobState.IN_PROGRESS, request.claim_descriptor, now_ms
        job.claimed_at_ms = job.last_seen_ms = now_ms
        own_ms = job.claim_timeout_ms if request.is_default_timeout else None
        job.timeout_ms = request.claim_timeout_ms if own_ms is None else own_ms
        job.expires_at_ms = now_ms + job.timeout_ms

    def claim_listed(
        self, queue: str, keys: Sequence[JobKey], request: ClaimRequest, now_ms: int, *, enforce_quota: bool
    ) -> list[tuple[ClaimOutcome, RefJob | None]]:
        self.known(queue)
        answers: list[tuple[ClaimOutcome, RefJob | None]] = []
        taken: list[RefJob] = []
        for key in keys:
            job = self.find(queue, *key)
            outcome = self._claimable(queue, job, now_ms)
            if job is None or outcome is not ClaimOutcome.CLAIMED:
                answers.append((outcome, None))
                continue
            if enforce_quota and self.room(queue) <= 0:
                answers.append((ClaimOutcome.LIMITED, None))
                continue
            if fitting([*taken, job], request.max_bytes) == taken:
                break
            taken.append(job)
            self._put_under(job, request, now_ms)
            answers.append((outcome, job))
        return answers

    def _claimable(self, queue: str, job: RefJob | None, now_ms: int) -> ClaimOutcome:
        if job is None:
            return ClaimOutcome.NOT_FOUND
        if job.state is JobState.IN_PROGRESS:
            return ClaimOutcome.IN_PROGRESS
        if job.state is not JobState.PENDING or job.is_over(now_ms):
            return ClaimOutcome.ENDED
        if not self.is_first(queue, job):
            return ClaimOutcome.BEHIND
        return ClaimOutcome.CLAIMED if job.run_after_ms <= now_ms else ClaimOutcome.NOT_DUE

    def ack(self, queue: str, ack: AckRequest, now_ms: int, rules: EndRules) -> AckOutcome:
        job = self.find(queue, ack.priority, ack.id)
        if job is None or job.state is not JobState.IN_PROGRESS:
            return AckOutcome.IGNORED
        if ack.claim_descriptor and job.claim != ack.claim_descriptor:
            return AckOutcome.IGNORED
        job.updated_at_ms, job.custom_status = now_ms, appended(job.custom_status, ack.append_status)
        if ack.succeeded:
            self._end(queue, job, JobState.SUCCEEDED, now_ms, rules.keep_succeeded)
            if ack.result is not None:
                self.results[queue, job.id] = job.priority, ack.result
            return AckOutcome.SUCCEEDED
        remaining = 0 if ack.permanent else job.attempts_remaining - 1
        if self.stopped(queue, job, now_ms, rules.keep_failed, goes_on=remaining > 0):
            return AckOutcome.CANCELLED
        job.attempts_remaining = remaining
        if job.attempts_remaining > 0:
            job.unclaim()
            job.run_after_ms = min(MAX_TIME_MS, now_ms + ack.retry_delay_ms)
            return AckOutcome.RETRIED
        job.is_dead_letter_pending = rules.dead_letters
        self._end(queue, job, JobState.FAILED, now_ms, rules.keep_failed or rules.dead_letters)
        return AckOutcome.FAILED

    def _end(self, queue: str, job: RefJob, state: JobState, now_ms: int, keep: bool = True) -> None:
        self.leave(queue, job, now_ms, Stays.ALL if keep else Stays.WINDOWS)
        job.finish(state, now_ms)
        if not keep:
            del self.queues[queue][job.id]

    def stopped(self, queue: str, job: RefJob, now_ms: int, keep: bool = True, *, goes_on: bool = True) -> bool:
        """Where it was to stop, or would be PENDING again while its successor waits, it ends instead."""
        if job.stop_by is None and not (goes_on and self.successor(queue, job)):
            return False
        job.cancelled, job.attempts_remaining = True, 0
        self._end(queue, job, JobState.FAILED, now_ms, keep)
        return True

    def checkpoint(self, queue: str, beat: CheckpointRequest, now_ms: int) -> bool:
        job = self.find(queue, beat.priority, beat.id)
        if job is None or job.claim is None or job.state is not JobState.IN_PROGRESS:
            return False
        if (beat.claim_descriptor or beat.source) != (job.claim if beat.claim_descriptor else claim_source(job.claim)):
            return False
        job.run_after_ms = now_ms if beat.run_after_ms is None else beat.run_after_ms
        expires_at_ms = now_ms + job.timeout_ms
        if job.run_after_ms > now_ms:
            expires_at_ms = max(expires_at_ms, min(job.run_after_ms + job.timeout_ms, beat.latest_expiry_ms))
        job.renew(now_ms, expires_at_ms)
        job.custom_status = cut(beat.prepend_status + job.custom_status)
        if beat.new_body is not None:
            job.body = beat.new_body
        if beat.attempts_allowed is not None:
            job.attempts_allowed = job.attempts_remaining = beat.attempts_allowed
        if beat.move_to_pending:
            job.updated_at_ms = now_ms
            if not self.stopped(queue, job, now_ms):
                job.unclaim()
        return True

    def requeue(self, queue: str, key: ClaimKey, now_ms: int) -> int:
        job = self.find(queue, key.priority, key.id)
        if job is None or not job.held_by(key.claim_descriptor):
            return 0
        job.updated_at_ms = now_ms
        if not self.stopped(queue, job, now_ms):
            job.unclaim()
        return 1

    def requeue_undelivered(self, queue: str, key: UnrenewedClaim, now_ms: int) -> int:
        job = self.find(queue, key.priority, key.id)
        if job is None or not job.held_by(key.claim_descriptor) or job.expires_at_ms != key.expires_at_ms:
            return 0
        times, *meanwhile = job.undelivered
        times = times + 1 if meanwhile == [job.attempts_remaining, job.run_after_ms] else 1
        if times > UNDELIVERED_IN_A_ROW:
            return 0
        job.undelivered = (times, job.attempts_remaining, job.run_after_ms)
        return self.requeue(queue, ClaimKey(*key[:3]), now_ms)

    def expire_disconnected(self, queue: str, key: SilentClaim, now_ms: int, rules: EndRules) -> ExpiryCounts:
        job = self.find(queue, key.priority, key.id)
        if job is None or not job.held_by(key.claim_descriptor):
            return ExpiryCounts(0, 0)
        if key.last_seen_ms != self.last_seen_ms(queue, key):
            return ExpiryCounts(0, 0)
        return self.expire_job(queue, job, now_ms, rules, released_status)

    def expired_claims(self, queues: Sequence[str], now_ms: int) -> dict[str, list[ExpiredClaim]]:
        """All of them; those that expire at one time are in no order."""
        found = {
            queue: [
                ExpiredClaim(
                    *(job.priority, job.id, job.claim or "", job.expires_at_ms),
                    *(job.attempts_allowed, job.attempts_remaining, job.crashes, job.stop_by is not None),
                )
                for job in self.queues.get(queue, {}).values()
                if job.expires_at_ms is not None and job.expires_at_ms < now_ms
            ]
            for queue in queues
        }
        return {queue: claims for queue, claims in found.items() if claims}

    def expire_listed(self, queue: str, claim: ExpiryRequest, now_ms: int, rules: EndRules) -> AckOutcome:
        job = self.find(queue, claim.priority, claim.id)
        if job is None or not job.held_by(claim.claim_descriptor) or job.expires_at_ms != claim.expires_at_ms:
            return AckOutcome.IGNORED
        retried, failed, _ = self.expire_job(queue, job, now_ms, rules, expired_status)
        if retried:
            job.run_after_ms = min(MAX_TIME_MS, now_ms + claim.retry_delay_ms)
        return AckOutcome.RETRIED if retried else AckOutcome.FAILED if failed else AckOutcome.CANCELLED

    def last_seen_ms(self, queue: str, key: ClaimKey | SilentClaim) -> int:
        """When the claim that the job is under now was made, or last renewed; 0 where it is under none."""
        job = self.find(queue, key.priority, key.id)
        return 0 if job is None or job.expires_at_ms is None else job.last_seen_ms

    def expires_at_ms(self, queue: str, key: ClaimKey) -> int:
        """When the claim expires that the job is under now; 0 where it is under none."""
        job = self.find(queue, key.priority, key.id)
        return 0 if job is None or job.expires_at_ms is None else job.expires_at_ms

    def mark_moved(self, queue: str, key: ClaimKey, moved_to: str, now_ms: int) -> bool:
        job = self.find(queue, key.priority, key.id)
        if job is None or not job.held_by(key.claim_descriptor):
            return False
        self._end(queue, job, JobState.SUCCEEDED, now_ms)
        job.updated_at_ms, job.moved_to = now_ms, moved_to
        return True

    def cancel(self, queue: str, key: JobKey, now_ms: int, by: str = "") -> CancelOutcome:
        job = self.find(queue, *key)
        if job is None:
            return CancelOutcome.NOT_FOUND
        if job.state is JobState.PENDING:
            self.remove(queue, job, now_ms)
            return CancelOutcome.CANCELLED
        if job.state is not JobState.IN_PROGRESS:
            return CancelOutcome.ENDED
        if not by:
            return CancelOutcome.IN_PROGRESS
        job.stop_by = job.stop_by or by
        return CancelOutcome.REQUESTED

    def expire_job(
        self, queue: str, job: RefJob, now_ms: int, rules: EndRules, line: Callable[[int, int], str]
    ) -> ExpiryCounts:
        """What becomes of a claim that expired or was released."""
        job.crashes += 1
        used_up = 0 < rules.crash_budget <= job.crashes
        remaining = 0 if used_up else job.attempts_remaining - 1
        status = line(now_ms, remaining) + (crash_budget_status(job.crashes) if used_up else "")
        job.updated_at_ms, job.custom_status = now_ms, appended(job.custom_status, status)
        if self.stopped(queue, job, now_ms, goes_on=remaining > 0):
            return ExpiryCounts(0, 0, 1)
        job.attempts_remaining = remaining
        if remaining > 0:
            job.unclaim()
            job.run_after_ms = now_ms
            return ExpiryCounts(1, 0)
        job.is_dead_letter_pending = rules.dead_letters
        self._end(queue, job, JobState.FAILED, now_ms)
        return ExpiryCounts(0, 1)

    def expire_pending(self, queue: str, job: RefJob, now_ms: int, rules: EndRules) -> None:
        """What becomes of a job whose time is over."""
        job.custom_status = appended(job.custom_status, job_expired_status(now_ms, job.over_at_ms or 0))
        job.updated_at_ms, job.attempts_remaining = now_ms, 0
        job.is_dead_letter_pending = rules.dead_letters
        self._end(queue, job, JobState.FAILED, now_ms)
