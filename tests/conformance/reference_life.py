"""The life of a job, as the reference sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pinlater.backends.base import (
    UNDELIVERED_IN_A_ROW,
    AckOutcome,
    AckRequest,
    CheckpointRequest,
    ClaimKey,
    ClaimRequest,
    EndRules,
    ExpiryCounts,
    JobKey,
    SilentClaim,
    UnrenewedClaim,
)
from pinlater.backends.status_lines import crash_budget_status, released_status
from pinlater.model import MAX_TIME_MS, CancelOutcome, Job, JobState, claim_source
from tests.conformance.reference_job import RefJob, appended, cut, fitting, new_job
from tests.conformance.reference_queues import RefQueues


class RefLife(RefQueues):
    def enqueue(self, queue: str, jobs: Sequence[Job], ids: Sequence[int], now_ms: int) -> None:
        stored = self.known(queue)
        for job, job_id in zip(jobs, ids, strict=True):
            run_after_ms = now_ms if job.run_after_ms is None else job.run_after_ms
            stored[job_id] = new_job(
                job_id, job.body, job.priority, run_after_ms, job.attempts_allowed, job.custom_status, now_ms
            )

    def eligible(self, queue: str, priorities: Iterable[int], now_ms: int) -> list[RefJob]:
        """In the order in which they are handed out."""
        jobs = [job for job in self.in_state(queue, JobState.PENDING, tuple(priorities)) if job.run_after_ms <= now_ms]
        return sorted(jobs, key=lambda job: (job.priority, job.run_after_ms, job.id))

    def claim(self, queue: str, request: ClaimRequest, now_ms: int, *, enforce_quota: bool) -> list[RefJob]:
        limit = min(request.limit, self.room(queue)) if enforce_quota else request.limit
        taken = fitting(self.eligible(queue, request.priorities, now_ms)[:limit], request.max_bytes)
        for job in taken:
            job.state, job.claim, job.updated_at_ms = JobState.IN_PROGRESS, request.claim_descriptor, now_ms
            job.claimed_at_ms = job.last_seen_ms = now_ms
            job.timeout_ms = request.claim_timeout_ms
            job.expires_at_ms = now_ms + request.claim_timeout_ms
        return taken

    def ack(self, queue: str, ack: AckRequest, now_ms: int, rules: EndRules) -> AckOutcome:
        job = self.find(queue, ack.priority, ack.id)
        if job is None or job.state is not JobState.IN_PROGRESS:
            return AckOutcome.IGNORED
        if ack.claim_descriptor and job.claim != ack.claim_descriptor:
            return AckOutcome.IGNORED
        job.updated_at_ms, job.custom_status = now_ms, appended(job.custom_status, ack.append_status)
        if ack.succeeded:
            job.finish(JobState.SUCCEEDED, now_ms)
            self._drop_unless(rules.keep_succeeded, queue, job)
            return AckOutcome.SUCCEEDED
        job.attempts_remaining = 0 if ack.permanent else job.attempts_remaining - 1
        if job.attempts_remaining > 0:
            job.unclaim()
            job.run_after_ms = min(MAX_TIME_MS, now_ms + ack.retry_delay_ms)
            return AckOutcome.RETRIED
        job.finish(JobState.FAILED, now_ms)
        job.is_dead_letter_pending = rules.dead_letters
        self._drop_unless(rules.keep_failed or rules.dead_letters, queue, job)
        return AckOutcome.FAILED

    def _drop_unless(self, keep: bool, queue: str, job: RefJob) -> None:
        if not keep:
            del self.queues[queue][job.id]

    def checkpoint(self, queue: str, beat: CheckpointRequest, now_ms: int) -> bool:
        job = self.find(queue, beat.priority, beat.id)
        if job is None or job.claim is None or job.state is not JobState.IN_PROGRESS:
            return False
        if (beat.claim_descriptor or beat.source) != (job.claim if beat.claim_descriptor else claim_source(job.claim)):
            return False
        job.updated_at_ms = job.last_seen_ms = now_ms
        job.run_after_ms = now_ms if beat.run_after_ms is None else beat.run_after_ms
        job.expires_at_ms = now_ms + job.timeout_ms
        if job.run_after_ms > now_ms:
            later_ms = min(job.run_after_ms + job.timeout_ms, beat.latest_expiry_ms)
            job.expires_at_ms = max(job.expires_at_ms, later_ms)
        job.custom_status = cut(beat.prepend_status + job.custom_status)
        if beat.new_body is not None:
            job.body = beat.new_body
        if beat.attempts_allowed is not None:
            job.attempts_allowed = job.attempts_remaining = beat.attempts_allowed
        if beat.move_to_pending:
            job.unclaim()
        return True

    def requeue(self, queue: str, key: ClaimKey, now_ms: int) -> int:
        job = self.find(queue, key.priority, key.id)
        if job is None or not job.held_by(key.claim_descriptor):
            return 0
        job.unclaim()
        job.updated_at_ms = now_ms
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
        return expire_job(job, now_ms, rules, released_status)

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
        job.finish(JobState.SUCCEEDED, now_ms)
        job.updated_at_ms, job.moved_to = now_ms, moved_to
        return True

    def cancel(self, queue: str, key: JobKey) -> CancelOutcome:
        job = self.find(queue, *key)
        if job is None:
            return CancelOutcome.NOT_FOUND
        if job.state is JobState.PENDING:
            del self.queues[queue][job.id]
            return CancelOutcome.CANCELLED
        return CancelOutcome.IN_PROGRESS if job.state is JobState.IN_PROGRESS else CancelOutcome.ENDED


def expire_job(job: RefJob, now_ms: int, rules: EndRules, line: Callable[[int, int], str]) -> ExpiryCounts:
    """What becomes of a claim that expired or was released."""
    job.crashes += 1
    used_up = 0 < rules.crash_budget <= job.crashes
    remaining = 0 if used_up else job.attempts_remaining - 1
    status = line(now_ms, remaining) + (crash_budget_status(job.crashes) if used_up else "")
    job.attempts_remaining, job.updated_at_ms = remaining, now_ms
    job.custom_status = appended(job.custom_status, status)
    if remaining > 0:
        job.unclaim()
        job.run_after_ms = now_ms
        return ExpiryCounts(1, 0)
    job.finish(JobState.FAILED, now_ms)
    job.is_dead_letter_pending = rules.dead_letters
    return ExpiryCounts(0, 1)
