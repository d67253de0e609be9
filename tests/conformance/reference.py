"""What a shard means, as plain as it can be said: the executable form of docs/semantics.md.

One dictionary per queue and no indexes, no batching, no bounds but `limit`. The state machine in test_model.py compares
every store with it, step by step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pinlater.backends.base import (
    AckOutcome,
    AckRequest,
    CheckpointRequest,
    ClaimKey,
    ClaimRequest,
    JobKey,
    LapsedCounts,
    crash_budget_status,
    expired_status,
    released_status,
)
from pinlater.errors import QueueNotFound
from pinlater.model import MAX_STATUS_CHARS, CancelOutcome, Job, JobState, claim_source


@dataclass(slots=True)
class RefJob:
    id: int
    body: bytes
    priority: int
    run_after_ms: int
    attempts_allowed: int
    attempts_remaining: int
    custom_status: str
    created_at_ms: int
    updated_at_ms: int
    state: JobState = JobState.PENDING
    claim: str | None = None
    claimed_at_ms: int | None = None
    timeout_ms: int = 0
    expires_at_ms: int | None = None
    finished_at_ms: int | None = None
    crashes: int = 0

    def unclaim(self) -> None:
        self.state = JobState.PENDING
        self.claim = self.claimed_at_ms = self.expires_at_ms = None

    def finish(self, state: JobState, now_ms: int) -> None:
        self.state, self.finished_at_ms, self.expires_at_ms = state, now_ms, None

    def held_by(self, claim: str) -> bool:
        return self.state is JobState.IN_PROGRESS and self.claim == claim


def cut(status: str) -> str:
    """Python counts whole characters, as the wire contract does."""
    return status[:MAX_STATUS_CHARS]


class Reference:
    def __init__(self) -> None:
        self.queues: dict[str, dict[int, RefJob]] = {}

    # -- queues ------------------------------------------------------------------------------------------------------

    def create_queue(self, queue: str) -> bool:
        new = queue not in self.queues
        self.queues.setdefault(queue, {})
        return new

    def delete_queue(self, queue: str) -> bool:
        return self.queues.pop(queue, None) is not None

    def known(self, queue: str) -> dict[int, RefJob]:
        if queue not in self.queues:
            raise QueueNotFound.of(queue)
        return self.queues[queue]

    def find(self, queue: str, priority: int, job_id: int) -> RefJob | None:
        job = self.queues.get(queue, {}).get(job_id)
        return job if job is not None and job.priority == priority else None

    # -- the life of a job -------------------------------------------------------------------------------------------

    def enqueue(self, queue: str, jobs: Sequence[Job], ids: Sequence[int], now_ms: int) -> None:
        stored = self.known(queue)
        for job, job_id in zip(jobs, ids, strict=True):
            run_after_ms = now_ms if job.run_after_ms is None else job.run_after_ms
            attempts, status = job.attempts_allowed, cut(job.custom_status)
            stored[job_id] = RefJob(
                job_id, job.body, job.priority, run_after_ms, attempts, attempts, status, now_ms, now_ms
            )

    def eligible(self, queue: str, priorities: Iterable[int], now_ms: int) -> list[RefJob]:
        """In the order in which they are handed out."""
        wanted = set(priorities)
        jobs = [
            job
            for job in self.known(queue).values()
            if job.state is JobState.PENDING and job.run_after_ms <= now_ms and job.priority in wanted
        ]
        return sorted(jobs, key=lambda job: (job.priority, job.run_after_ms, job.id))

    def claim(self, queue: str, request: ClaimRequest, now_ms: int) -> list[RefJob]:
        taken = fitting(self.eligible(queue, request.priorities, now_ms)[: request.limit], request.max_bytes)
        for job in taken:
            job.state, job.claim, job.updated_at_ms = JobState.IN_PROGRESS, request.claim_descriptor, now_ms
            job.claimed_at_ms, job.timeout_ms = now_ms, request.claim_timeout_ms
            job.expires_at_ms = now_ms + request.claim_timeout_ms
        return taken

    def ack(self, queue: str, ack: AckRequest, now_ms: int, *, keep_succeeded: bool, keep_failed: bool) -> AckOutcome:
        job = self.find(queue, ack.priority, ack.id)
        if job is None or job.state is not JobState.IN_PROGRESS:
            return AckOutcome.IGNORED
        if ack.claim_descriptor and job.claim != ack.claim_descriptor:
            return AckOutcome.IGNORED
        job.updated_at_ms, job.custom_status = now_ms, cut(job.custom_status + ack.append_status)
        if ack.succeeded:
            job.finish(JobState.SUCCEEDED, now_ms)
            self._drop_unless(keep_succeeded, queue, job)
            return AckOutcome.SUCCEEDED
        job.attempts_remaining = 0 if ack.permanent else job.attempts_remaining - 1
        if job.attempts_remaining > 0:
            job.unclaim()
            job.run_after_ms = now_ms + ack.retry_delay_ms
            return AckOutcome.RETRIED
        job.finish(JobState.FAILED, now_ms)
        self._drop_unless(keep_failed, queue, job)
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
        job.updated_at_ms, job.expires_at_ms = now_ms, now_ms + job.timeout_ms
        job.run_after_ms = now_ms if beat.run_after_ms is None else beat.run_after_ms
        job.custom_status = cut(beat.prepend_status + job.custom_status)
        if beat.new_body is not None:
            job.body = beat.new_body
        if beat.attempts_allowed is not None:
            job.attempts_allowed = job.attempts_remaining = beat.attempts_allowed
        if beat.move_to_pending:
            job.unclaim()
        return True

    def give_back(self, queue: str, key: ClaimKey, now_ms: int) -> int:
        job = self.find(queue, key.priority, key.id)
        if job is None or not job.held_by(key.claim_descriptor):
            return 0
        job.unclaim()
        job.updated_at_ms = now_ms
        return 1

    def release(self, queue: str, key: ClaimKey, now_ms: int, *, crash_budget: int) -> LapsedCounts:
        job = self.find(queue, key.priority, key.id)
        if job is None or not job.held_by(key.claim_descriptor):
            return LapsedCounts(0, 0)
        return self._lapse(job, now_ms, crash_budget, released_status)

    def _lapse(self, job: RefJob, now_ms: int, crash_budget: int, line: Callable[[int, int], str]) -> LapsedCounts:
        job.crashes += 1
        used_up = 0 < crash_budget <= job.crashes
        remaining = 0 if used_up else job.attempts_remaining - 1
        status = line(now_ms, remaining) + (crash_budget_status(job.crashes) if used_up else "")
        job.attempts_remaining, job.updated_at_ms = remaining, now_ms
        job.custom_status = cut(job.custom_status + status)
        if remaining > 0:
            job.unclaim()
            job.run_after_ms = now_ms
            return LapsedCounts(1, 0)
        job.finish(JobState.FAILED, now_ms)
        return LapsedCounts(0, 1)

    def cancel(self, queue: str, key: JobKey) -> CancelOutcome:
        job = self.find(queue, *key)
        if job is None:
            return CancelOutcome.NOT_FOUND
        if job.state is JobState.PENDING:
            del self.queues[queue][job.id]
            return CancelOutcome.CANCELLED
        return CancelOutcome.IN_PROGRESS if job.state is JobState.IN_PROGRESS else CancelOutcome.ENDED

    # -- looking -----------------------------------------------------------------------------------------------------

    def count(self, queue: str, state: JobState, priorities: Iterable[int], future: bool, now_ms: int) -> int:
        return len(self.scan(queue, state, priorities, future, now_ms))

    def scan(self, queue: str, state: JobState, priorities: Iterable[int], future: bool, now_ms: int) -> list[RefJob]:
        """All of them, in the order of a scan."""
        wanted = set(priorities)
        found = [job for job in self.known(queue).values() if job.state is state and job.priority in wanted]
        found = [job for job in found if (job.run_after_ms > now_ms) is future]
        return sorted(found, key=lambda job: (-job.run_after_ms, job.id))

    # -- operators and maintenance -----------------------------------------------------------------------------------

    def retry_failed(
        self, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int, now_ms: int
    ) -> int:
        failed = self._in_state(queue, JobState.FAILED, priority)
        chosen = sorted(failed, key=lambda job: (job.run_after_ms, job.id))[:limit]
        for job in chosen:
            job.unclaim()
            job.attempts_remaining, job.crashes, job.finished_at_ms = attempts, 0, None
            job.run_after_ms = now_ms if run_after_ms is None else run_after_ms
            job.updated_at_ms = now_ms
        return len(chosen)

    def _in_state(self, queue: str, state: JobState, priority: int) -> list[RefJob]:
        return [job for job in self.known(queue).values() if job.state is state and job.priority == priority]

    def delete_all(self, queue: str, state: JobState, priority: int) -> int:
        doomed = self._in_state(queue, state, priority)
        for job in doomed:
            del self.queues[queue][job.id]
        return len(doomed)

    def delete_listed(self, queue: str, state: JobState, keys: Iterable[JobKey]) -> int:
        self.known(queue)
        doomed = {job.id for key in keys if (job := self.find(queue, *key)) is not None and job.state is state}
        for job_id in doomed:
            del self.queues[queue][job_id]
        return len(doomed)

    def expire_all(self, now_ms: int, *, crash_budget: int) -> dict[str, LapsedCounts]:
        counts: dict[str, LapsedCounts] = {}
        for queue, jobs in self.queues.items():
            lapsed = [
                self._lapse(job, now_ms, crash_budget, expired_status)
                for job in jobs.values()
                if job.expires_at_ms is not None and job.expires_at_ms < now_ms
            ]
            if lapsed:
                counts[queue] = LapsedCounts(sum(each.retried for each in lapsed), sum(each.failed for each in lapsed))
        return counts

    def collect_all(self, now_ms: int, *, succeeded_ttl_ms: int, failed_ttl_ms: int) -> dict[str, int]:
        ttl_ms = {JobState.SUCCEEDED: succeeded_ttl_ms, JobState.FAILED: failed_ttl_ms}
        counts: Counter[str] = Counter()
        for queue, jobs in self.queues.items():
            for job in list(jobs.values()):
                if job.finished_at_ms is not None and job.finished_at_ms + ttl_ms[job.state] < now_ms:
                    del jobs[job.id]
                    counts[queue] += 1
        return dict(counts)


def fitting(jobs: Sequence[RefJob], max_bytes: int) -> list[RefJob]:
    """The first jobs whose bodies fit together, and always the very first."""
    taken: list[RefJob] = []
    room = max_bytes
    for job in jobs:
        room -= len(job.body)
        if room < 0 and taken:
            break
        taken.append(job)
    return taken
