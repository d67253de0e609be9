"""One simulated store: what it keeps is kept by the reference of the conformance suite, with which every real store is
compared.

It takes the calls that a cluster makes for plain jobs, and beside them: config entries, leases, tokens, quotas,
statistics. Jobs with keys, bodies in tiers and queries of operators are not simulated; nobody calls for them here.
Every call is carried out at one moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from pinlater.backends.base import (
    NO_RULES,
    AckRequest,
    ClaimKey,
    ClaimRequest,
    ConfigEntry,
    ConfigPage,
    DeadLetterTarget,
    EndRules,
    ExpiryCounts,
    KvEntry,
    LevelCounts,
    Notification,
    PerQueue,
    Quota,
    ReferencesPage,
    Retention,
    StatsPage,
    StatsPosition,
    StoredState,
    StoreStatus,
    Tokens,
    UnrenewedClaim,
)
from pinlater.backends.token_bucket import BucketLevel, take
from pinlater.model import AckOutcome, DequeuedJob, Job, JobState
from tests.conformance.reference import Reference
from tests.conformance.reference_job import RefJob
from tests.simulation.virtual_time import MachineClock

Publish = Callable[[str, Notification, str], None]
"""Told the queue, what became pending, and the process whose enqueue brought it, or ""."""


class SimulatedStore:
    """The calls are those of `Shard`, but for `me`, the process that makes an enqueue. `notifies`: as Redis does."""

    def __init__(self, shard_id: str, *, notifies: bool, ahead_ms: int = 0) -> None:
        self.shard_id = shard_id
        self.store_id = f"store-{shard_id}"
        self.notifies = notifies
        self.publish: Publish = lambda queue, notification, by: None
        self.clock = MachineClock(ahead_ms)
        self.jobs = Reference(shard_id)
        self.kv_bytes = 0
        """How much `kv_list` has answered with."""
        self._kv: dict[str, dict[str, KvEntry]] = {}
        self._buckets: dict[str, BucketLevel] = {}
        self._last_id = 0

    # -- what servers agree on ---------------------------------------------------------------------------------------

    def open(self) -> str:
        return self.store_id

    def ping(self) -> StoreStatus:
        return StoreStatus(self.store_id, self.clock.now_ms(), newest_ms=self._last_id // 1000)

    def put_config(self, entries: Sequence[ConfigEntry], now_ms: int) -> list[bool]:
        return [self.jobs.put_record(entry) for entry in entries]

    def list_config(self, since: int, limit: int) -> ConfigPage:
        if since == len(self.jobs.came):
            return ConfigPage(since, [])
        return ConfigPage(len(self.jobs.came), self.jobs.came_since(since))

    def kv_put(
        self,
        namespace: str,
        name: str,
        body: bytes,
        expires_at_ms: int,
        now_ms: int,
        *,
        expected_version: int | None = None,
        keep: int = 100_000,
    ) -> int:
        entries = self._kv.setdefault(namespace, {})
        known = entries.get(name)
        version = 0 if known is None or known.expires_at_ms <= now_ms else known.version
        if expected_version not in (None, version):
            return 0
        if expires_at_ms > now_ms:
            entries[name] = KvEntry(body, version + 1, expires_at_ms)
        else:
            entries.pop(name, None)
        return version + 1

    def kv_list(self, namespace: str, now_ms: int) -> dict[str, KvEntry]:
        found = {name: entry for name, entry in self._kv.get(namespace, {}).items() if entry.expires_at_ms > now_ms}
        self.kv_bytes += sum(len(entry.body) for entry in found.values())
        return found

    def take_tokens(self, queue: str, wanted: int, per_second: float, capacity: float, now_ms: int) -> Tokens:
        taken = take(self._buckets.get(queue), wanted, per_second, capacity, now_ms)
        self._buckets[queue] = taken.level
        return Tokens(taken.granted, taken.retry_after_ms)

    def set_quota(self, queue: str, quota: int, version: int, now_ms: int) -> Quota:
        return self.jobs.set_quota(queue, quota, version)

    def stats(
        self,
        queue: str,
        priorities: Sequence[int],
        now_ms: int,
        after: StatsPosition | None,
        limit: int,
        states: Collection[StoredState] = tuple(StoredState),
    ) -> StatsPage:
        self.jobs.known(queue)
        levels: dict[int, LevelCounts] = {
            each: self.jobs.level(queue, each, now_ms).only(states) for each in priorities
        }
        return StatsPage(levels, None)

    def blocked_chains(self, limit: int, now_ms: int) -> list[object]:
        return []

    def list_references(self, after: str, limit: int) -> ReferencesPage:
        return ReferencesPage([], "")

    # -- the life of a job -------------------------------------------------------------------------------------------

    def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int, *, me: str = "") -> list[str]:
        self.jobs.known(queue)
        first = max(self._last_id + 1, now_ms * 1000)
        ids = range(first, first + len(jobs))
        self.jobs.enqueue(queue, jobs, ids, now_ms)
        self._last_id = ids[-1]
        self._tell(queue, [now_ms if job.run_after_ms is None else job.run_after_ms for job in jobs], now_ms, me)
        return [self.jobs.descriptor(queue, self.jobs.queues[queue][each]) for each in ids]

    def count_ready(self, queue: str, priorities: Sequence[int], limit: int, now_ms: int) -> list[int]:
        found = Counter(job.priority for job in self.jobs.eligible(queue, priorities, now_ms))
        return [min(found[each], limit) for each in priorities]

    def next_due(self, queues: Sequence[str], priorities: Sequence[int]) -> dict[str, int | None]:
        return {
            queue: min((job.run_after_ms for job in self.jobs.in_turn(queue, priorities)), default=None)
            for queue in queues
            if queue in self.jobs.queues
        }

    def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> list[list[DequeuedJob]]:
        self.jobs.known(queue)
        claims = []
        for request in requests:
            timeout_ms = request.claim_timeout_ms + request.spare_ms
            taken = self.jobs.claim(
                queue, replace(request, claim_timeout_ms=timeout_ms), now_ms, enforce_quota=enforce_quota
            )
            claims.append([self._handed_out(queue, job) for job in taken])
        return claims

    def ack(self, queue: str, acks: Sequence[AckRequest], now_ms: int, rules: EndRules = NO_RULES) -> list[AckOutcome]:
        if queue not in self.jobs.queues:
            return [AckOutcome.IGNORED] * len(acks)
        outcomes = [self.jobs.ack(queue, each, now_ms, rules) for each in acks]
        retried = [
            now_ms + each.retry_delay_ms
            for each, outcome in zip(acks, outcomes, strict=True)
            if outcome is AckOutcome.RETRIED
        ]
        self._tell(queue, retried, now_ms)
        return outcomes

    def ack_and_claim(
        self,
        queue: str,
        acks: Sequence[AckRequest],
        requests: Sequence[ClaimRequest],
        now_ms: int,
        rules: EndRules = NO_RULES,
        *,
        enforce_quota: bool = False,
    ) -> tuple[list[AckOutcome], list[list[DequeuedJob]]]:
        outcomes = self.ack(queue, acks, now_ms, rules)
        return outcomes, self.claim(queue, requests, now_ms, enforce_quota=enforce_quota)

    def requeue(self, queue: str, claims: Sequence[ClaimKey], now_ms: int) -> int:
        return self._requeued(queue, (self.jobs.requeue(queue, each, now_ms) for each in claims), now_ms)

    def requeue_undelivered(self, queue: str, claims: Sequence[UnrenewedClaim], now_ms: int) -> int:
        return self._requeued(queue, (self.jobs.requeue_undelivered(queue, each, now_ms) for each in claims), now_ms)

    def count(self, queue: str, state: JobState, priorities: Sequence[int], future: bool, now_ms: int) -> int:
        return self.jobs.count(queue, state, priorities, future, now_ms)

    # -- maintenance -------------------------------------------------------------------------------------------------

    def expire_claims(self, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, ExpiryCounts]:
        counts = self.jobs.expire_all(now_ms, rules)
        for queue, expired in counts.items():
            self._tell(queue, [now_ms] * expired.retried, now_ms)
        return counts

    def expire_jobs(self, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, int]:
        return self.jobs.expire_jobs(now_ms, rules)

    def dead_letter(self, limit: int, now_ms: int, targets: Mapping[str, DeadLetterTarget]) -> Mapping[str, int]:
        assert not targets, "no queue of a simulation has a dead-letter queue"
        return {}

    def prune(
        self, limit: int, now_ms: int, retention: PerQueue[Retention], *, tombstones_before: str = ""
    ) -> Mapping[str, int]:
        return self.jobs.collect_all(now_ms, retention)

    # -- parts -------------------------------------------------------------------------------------------------------

    def _requeued(self, queue: str, went: Iterable[int], now_ms: int) -> int:
        count = sum(went)
        self._tell(queue, [now_ms] * count, now_ms)
        return count

    def _tell(self, queue: str, run_afters_ms: Sequence[int], now_ms: int, by: str = "") -> None:
        if self.notifies and run_afters_ms:
            later = [each for each in run_afters_ms if each > now_ms]
            event = Notification(len(run_afters_ms) - len(later), min(later, default=None))
            self.publish(queue, event, by)

    def _handed_out(self, queue: str, job: RefJob) -> DequeuedJob:
        return DequeuedJob(
            self.jobs.descriptor(queue, job),
            job.body,
            job.priority,
            job.attempts_allowed,
            job.attempts_remaining,
            job.run_after_ms,
            job.created_at_ms,
            job.claim or "",
            job.expires_at_ms or 0,
        )
