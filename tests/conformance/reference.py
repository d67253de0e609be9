"""What a shard means, as plain as it can be said: the executable form of docs/semantics.md.

One dictionary per queue and no indexes, no batching, no bounds but `limit`. The state machine in test_model.py compares
every store with it, step by step. Ids of new jobs are the store's, and told to the reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pinlater.backends.base import DeadLetterTarget, EndRules, ExpiryCounts, JobKey, LevelCounts, PerQueue, Retention
from pinlater.backends.status_lines import dead_letter_status, expired_status
from pinlater.model import JobState, parse_descriptor
from tests.conformance.reference_job import RefJob, new_job
from tests.conformance.reference_keys import Stays
from tests.conformance.reference_life import RefLife


class Reference(RefLife):
    # -- looking -----------------------------------------------------------------------------------------------------

    def count(self, queue: str, state: JobState, priorities: Iterable[int], future: bool, now_ms: int) -> int:
        return len(self.scan(queue, state, priorities, future, now_ms))

    def scan(self, queue: str, state: JobState, priorities: Iterable[int], future: bool, now_ms: int) -> list[RefJob]:
        """All of them, in the order of a scan."""
        found = self.in_state(queue, state, tuple(priorities))
        return sorted(
            [job for job in found if (job.run_after_ms > now_ms) is future], key=lambda job: (-job.run_after_ms, job.id)
        )

    def tagged(self, queue: str, tag: str, state: JobState, priorities: Iterable[int], now_ms: int) -> list[int]:
        """The ids of the jobs that a scan by tag has, of those that are current."""
        found = self.scan(queue, state, priorities, False, now_ms)
        return sorted((job.id for job in found if tag in job.tags), reverse=True)

    def level(self, queue: str, priority: int, now_ms: int) -> LevelCounts:
        """The statistics of one priority."""
        eligible, in_turn = self.eligible(queue, (priority,), now_ms), self.in_turn(queue, (priority,))
        cancelled = sum(job.cancelled for job in self.known(queue).values() if job.priority == priority)
        replayed = sum(job.replayed_to is not None for job in self.known(queue).values() if job.priority == priority)
        by_state = Counter(job.state for job in self.known(queue).values() if job.priority == priority)
        return LevelCounts(
            len(eligible),
            len(in_turn) - len(eligible),
            by_state[JobState.IN_PROGRESS],
            by_state[JobState.SUCCEEDED],
            by_state[JobState.FAILED] - cancelled - replayed,
            min((job.run_after_ms for job in eligible), default=None),
            by_state[JobState.PENDING] - len(in_turn),
            cancelled,
            replayed,
        )

    # -- operators ---------------------------------------------------------------------------------------------------

    def retry_failed(
        self, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int, now_ms: int
    ) -> int:
        failed = self.in_state(queue, JobState.FAILED, (priority,))
        retried = 0
        for job in sorted(failed, key=lambda job: (job.run_after_ms, job.id)):
            if retried < limit and not job.cancelled:
                retried += self._retry(queue, job, attempts, run_after_ms, now_ms)
        return retried

    def _retry(self, queue: str, job: RefJob, attempts: int, run_after_ms: int | None, now_ms: int) -> bool:
        if job.replayed_to is not None or (not job.is_letter and self.taken_by(queue, job) is not None):
            return False
        ref = parse_descriptor(job.moved_to or "")
        letter = None if ref is None or ref.queue not in self.queues else self.find(ref.queue, ref.priority, ref.id)
        if ref is not None and letter is not None:
            if not can_go(letter):
                return False
            self.remove(ref.queue, letter, now_ms)
        job.retry(attempts, now_ms if run_after_ms is None else run_after_ms, now_ms)
        self.come_alive(queue, job, now_ms)
        return True

    def retry_listed(
        self, queue: str, keys: Iterable[JobKey], attempts: int | None, run_after_ms: int | None, now_ms: int
    ) -> int:
        retried = 0
        self.known(queue)
        for key in keys:
            job = self.find(queue, *key)
            if job is not None and job.state is JobState.FAILED:
                retried += self._retry(queue, job, attempts or job.attempts_allowed, run_after_ms, now_ms)
        return retried

    def delete_all(self, queue: str, state: JobState, priority: int, now_ms: int) -> int:
        doomed = self.in_state(queue, state, (priority,))
        for job in doomed:
            self.remove(queue, job, now_ms)
        return len(doomed)

    def delete_listed(self, queue: str, state: JobState, keys: Iterable[JobKey], now_ms: int) -> int:
        self.known(queue)
        doomed = {job.id for key in keys if (job := self.find(queue, *key)) is not None and job.state is state}
        for job_id in doomed:
            self.remove(queue, self.queues[queue][job_id], now_ms)
        return len(doomed)

    def replay(
        self, queue: str, keys: Sequence[JobKey], new_ids: Sequence[int | None], now_ms: int, attempts: int | None
    ) -> list[bool]:
        """Which of them went back, under these ids."""
        self.known(queue)
        return [
            self._replay_one(queue, key, new_id, now_ms, attempts) for key, new_id in zip(keys, new_ids, strict=True)
        ]

    def _replay_one(self, queue: str, key: JobKey, new_id: int | None, now_ms: int, attempts: int | None) -> bool:
        letter = self.find(queue, *key)
        if letter is None or letter.state not in (JobState.PENDING, JobState.FAILED):
            return False
        if letter.attempts_of_origin is None or letter.replayed_to is not None:
            return False
        origin = parse_descriptor(letter.origin or "")
        assert origin is not None
        if origin.queue not in self.queues or self.taken_by(queue, letter) is not None:
            return False
        if new_id is not None:
            allowed = attempts or letter.attempts_of_origin
            job = new_job(new_id, letter.body, letter.priority, now_ms, allowed, letter.custom_status, now_ms)
            job.origin = self.descriptor(queue, letter)
            show_keys(job, letter)
            self.queues[origin.queue][new_id] = job
            self.remove(queue, letter, now_ms)
            self.come_alive(origin.queue, job, now_ms)
            original = self.find(origin.queue, origin.priority, origin.id)
            if original is not None and original.state is JobState.FAILED and original.moved_to == job.origin:
                original.moved_to, original.replayed_to = None, self.descriptor(origin.queue, job)
                original.updated_at_ms = now_ms
        return True

    # -- maintenance -------------------------------------------------------------------------------------------------

    def expire_all(self, now_ms: int, rules: PerQueue[EndRules]) -> dict[str, ExpiryCounts]:
        counts: dict[str, ExpiryCounts] = {}
        for queue, jobs in self.queues.items():
            expired = [
                self.expire_job(queue, job, now_ms, rules.get(queue), expired_status)
                for job in jobs.values()
                if job.expires_at_ms is not None and job.expires_at_ms < now_ms
                if not rules.get(queue).lists_expired
            ]
            if expired:
                counts[queue] = ExpiryCounts(*map(sum, zip(*expired, strict=True)))
        return counts

    def expire_jobs(self, now_ms: int, rules: PerQueue[EndRules]) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for queue, jobs in self.queues.items():
            for job in jobs.values():
                if job.state is JobState.PENDING and job.is_over(now_ms):
                    self.expire_pending(queue, job, now_ms, rules.get(queue))
                    counts[queue] += 1
        return dict(counts)

    def dead_letters_due(self, targets: Mapping[str, DeadLetterTarget]) -> list[tuple[str, RefJob, DeadLetterTarget]]:
        """The marked jobs whose letters can go now."""
        return [
            (queue, job, target)
            for queue, target in targets.items()
            if target.queue in self.queues
            for job in self.queues.get(queue, {}).values()
            if job.is_dead_letter_pending
        ]

    def dead_letter(self, queue: str, job: RefJob, target: DeadLetterTarget, letter_id: int, now_ms: int) -> None:
        """The copy of one of them, under this id."""
        origin = self.descriptor(queue, job)
        line = dead_letter_status(origin, job.created_at_ms, job.attempts_allowed, job.crashes, now_ms)
        status, attempts = line + job.custom_status, target.attempts_allowed
        letter = new_job(letter_id, job.body, job.priority, now_ms, attempts, status, now_ms)
        letter.origin, letter.attempts_of_origin = origin, job.attempts_allowed
        show_keys(letter, job)
        self.queues[target.queue][letter_id] = letter
        job.is_dead_letter_pending, job.updated_at_ms, job.moved_to = (
            False,
            now_ms,
            self.descriptor(target.queue, letter),
        )

    def collect_all(self, now_ms: int, retention: PerQueue[Retention]) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for queue, jobs in self.queues.items():
            kept = retention.get(queue)
            ttl_ms = {JobState.SUCCEEDED: kept.succeeded_ms, JobState.FAILED: kept.failed_ms}
            for job in list(jobs.values()):
                if job.finished_at_ms is None or job.is_dead_letter_pending:
                    continue
                if job.finished_at_ms + ttl_ms[job.state] < now_ms:
                    self.leave(queue, job, now_ms, Stays.WINDOWS)
                    del jobs[job.id]
                    counts[queue] += 1
        return dict(counts)


def can_go(letter: RefJob) -> bool:
    """Whether this dead letter goes with a retry of its job."""
    is_over = letter.moved_to is not None or letter.replayed_to is not None
    return letter.state in (JobState.PENDING, JobState.FAILED) and not is_over


def show_keys(copy: RefJob, job: RefJob) -> None:
    """A copy has the keys of the job, and its tags."""
    copy.tags = job.tags
    copy.dedupe_key, copy.serialize_key, copy.slot = job.dedupe_key, job.serialize_key, job.slot
    copy.dedupe_for_ms = job.dedupe_for_ms
