"""A shard under test, the clock it is told, and short ways to ask it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from pinlater.backends.aged_levels import Level
from pinlater.backends.base import (
    NO_RULES,
    STORED_STATES,
    AckOutcome,
    AckRequest,
    CheckpointRequest,
    ClaimKey,
    ClaimRequest,
    DeadLetterTarget,
    EndRules,
    ExpiryCounts,
    JobKey,
    PerQueue,
    Quota,
    Retention,
    ScanPosition,
    ScanRequest,
    Shard,
    SilentClaim,
    StoredState,
    UnrenewedClaim,
)
from pinlater.backends.requests import GroupSpread
from pinlater.model import CancelOutcome, DequeuedJob, Job, JobInfo, JobState, parse_descriptor
from tests.queues import make_queue

START_MS = 1_790_000_000_123
TIMEOUT_MS = 60_000
DAY_MS = 24 * 3_600_000
ALL = (1, 2, 3)
NO_BOUND = 2**30
NONE_EXPIRED = ExpiryCounts(0, 0)
_claims = count(1)
_names = count(1)


def key_of(descriptor: str) -> JobKey:
    """What names a job on its shard."""
    ref = parse_descriptor(descriptor)
    assert ref is not None, f"{descriptor!r} is no descriptor"
    return JobKey(ref.priority, ref.id)


def claim_key_of(job: DequeuedJob) -> ClaimKey:
    """A job that was handed out, under the claim it was handed out with."""
    return ClaimKey(*key_of(job.descriptor), job.claim_descriptor)


def new_claim(source: str = "worker") -> str:
    """A claim descriptor that was never used."""
    return f"host:4711:{START_MS}:{next(_claims)}:{source}"


def new_name(begin: str = "name") -> str:
    """A name that no test used before, for what stays in a store from test to test."""
    return f"{begin}_{next(_names)}"


@dataclass
class Clock:
    """What a shard is told; queues beside each other go by the same."""

    now_ms: int = START_MS


class Subject:
    """One queue of one shard at one moment; `tick` lets time pass."""

    def __init__(self, shard: Shard, queue: str = "mail", clock: Clock | None = None) -> None:
        self.shard = shard
        self.queue = queue
        self._clock = clock or Clock()
        self.counts_at_once = True
        """Whether a count of what others change meanwhile is that of one moment."""

        self._timeouts_ms: dict[str, int] = {}

    @property
    def now_ms(self) -> int:
        return self._clock.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self._clock.now_ms = now_ms

    async def beside(self, queue: str, text: str = "{}") -> Subject:
        """Another queue of the shard, made now, under the same clock."""
        await make_queue(self.shard, queue, self.now_ms, text)
        return Subject(self.shard, queue, self._clock)

    def tick(self, ms: int) -> int:
        self.now_ms += ms
        return self.now_ms

    # -- the life of a job -------------------------------------------------------------------------------------------

    async def enqueue(self, *jobs: Job) -> list[str]:
        return await self.shard.enqueue(self.queue, jobs, self.now_ms)

    async def job(self, body: bytes = b"body", **fields: Any) -> str:
        """Enqueue one job."""
        (descriptor,) = await self.enqueue(Job(body, **fields))
        return descriptor

    def request(
        self,
        limit: int = 1,
        *,
        priorities: Sequence[Level] = ALL,
        source: str = "worker",
        timeout_ms: int = TIMEOUT_MS,
        max_bytes: int = NO_BOUND,
        spare_ms: int = 0,
        most_of_group: int = 0,
        prefetch: int = 0,
        spread: GroupSpread | None = None,
    ) -> ClaimRequest:
        claim_descriptor = new_claim(source)
        self._timeouts_ms[claim_descriptor] = timeout_ms
        bounds = (limit, priorities, timeout_ms, max_bytes, spare_ms, False, most_of_group, prefetch, spread)
        return ClaimRequest(claim_descriptor, *bounds)

    async def claim(self, limit: int = 1, **fields: Any) -> list[DequeuedJob]:
        (jobs,) = await self.shard.claim(self.queue, [self.request(limit, **fields)], self.now_ms)
        return jobs

    async def claim_within_quota(self, limit: int = 1, **fields: Any) -> list[DequeuedJob]:
        """As `claim`, within the queue's quota."""
        (jobs,) = await self.shard.claim(self.queue, [self.request(limit, **fields)], self.now_ms, enforce_quota=True)
        return jobs

    async def claimed(self, **fields: Any) -> DequeuedJob:
        """Claim one job, which must be there."""
        (job,) = await self.claim(**fields)
        return job

    async def job_in(self, state: JobState, body: bytes = b"body", **fields: Any) -> str:
        """Enqueue one job and bring it into a state, by the way that jobs go."""
        descriptor = await self.job(body, **fields)
        if state is not JobState.PENDING:
            taken = await self.claimed()
            assert taken.descriptor == descriptor
        if state is JobState.SUCCEEDED:
            assert await self.succeed(descriptor) is AckOutcome.SUCCEEDED
        if state is JobState.FAILED:
            assert await self.fail(descriptor, permanent=True) is AckOutcome.FAILED
        return descriptor

    async def succeed(self, descriptor: str, **fields: Any) -> AckOutcome:
        return await self.ack_one(descriptor, True, **fields)

    async def fail(self, descriptor: str, **fields: Any) -> AckOutcome:
        return await self.ack_one(descriptor, False, **fields)

    async def ack_one(self, descriptor: str, succeeded: bool, **fields: Any) -> AckOutcome:
        (outcome,) = await self.ack(AckRequest(*key_of(descriptor), succeeded, **fields))
        return outcome

    async def ack(self, *acks: AckRequest, rules: EndRules = NO_RULES) -> list[AckOutcome]:
        return await self.shard.ack(self.queue, acks, self.now_ms, rules)

    async def ack_with(self, descriptor: str, succeeded: bool, *, permanent: bool = False, **rules: bool) -> AckOutcome:
        """Ack one job under rules of its queue."""
        acks = [AckRequest(*key_of(descriptor), succeeded, permanent=permanent)]
        (outcome,) = await self.ack(*acks, rules=EndRules(**rules))
        return outcome

    async def ack_all(self, descriptors: Sequence[str]) -> int:
        """Successes of many jobs in one call; how many were taken."""
        outcomes = await self.ack(*[AckRequest(*key_of(each), True) for each in descriptors])
        return outcomes.count(AckOutcome.SUCCEEDED)

    async def checkpoint(self, descriptor: str, source: str = "worker", **fields: Any) -> bool:
        requests = [CheckpointRequest(*key_of(descriptor), source, **fields)]
        (matched,) = await self.shard.checkpoint(self.queue, requests, self.now_ms)
        return matched

    async def requeue(self, *jobs: DequeuedJob) -> int:
        return await self.shard.requeue(self.queue, [claim_key_of(job) for job in jobs], self.now_ms)

    def silent(self, job: DequeuedJob, last_seen_ms: int | None = None) -> SilentClaim:
        """A claim that was not renewed since that time; None: since it was made."""
        if last_seen_ms is None:
            last_seen_ms = job.claim_expires_at_ms - self._timeouts_ms[job.claim_descriptor]
        return SilentClaim(*claim_key_of(job), last_seen_ms)

    async def expire_disconnected(
        self, *jobs: DequeuedJob, last_seen_ms: int | None = None, budget: int = 0, **rules: bool
    ) -> ExpiryCounts:
        claims = [self.silent(job, last_seen_ms) for job in jobs]
        return await self.shard.expire_disconnected(self.queue, claims, self.now_ms, EndRules(budget, **rules))

    def fresh(self, job: DequeuedJob) -> UnrenewedClaim:
        """The claim that a job was handed out with."""
        return UnrenewedClaim(*claim_key_of(job), job.claim_expires_at_ms)

    async def requeue_undelivered(self, *jobs: DequeuedJob) -> int:
        """Say that nobody received these."""
        return await self.shard.requeue_undelivered(self.queue, [self.fresh(job) for job in jobs], self.now_ms)

    async def move(self, job: DequeuedJob, moved_to: str) -> bool:
        """Say that a job which was handed out is on another shard now."""
        (was_moved,) = await self.shard.mark_moved(self.queue, [(claim_key_of(job), moved_to)], self.now_ms)
        return was_moved

    async def cancel(self, *descriptors: str) -> list[CancelOutcome]:
        return await self.shard.cancel(self.queue, [key_of(each) for each in descriptors], self.now_ms)

    # -- looking -----------------------------------------------------------------------------------------------------

    async def find(self, descriptor: str) -> JobInfo | None:
        (info,) = await self.shard.lookup(self.queue, [key_of(descriptor)], with_body=True, max_bytes=NO_BOUND)
        return info

    async def info(self, descriptor: str) -> JobInfo:
        """The job, which must be there."""
        info = await self.find(descriptor)
        assert info is not None, f"{descriptor} is gone"
        return info

    async def count(self, state: JobState, *, future: bool = False, priorities: Sequence[int] = ALL) -> int:
        return await self.shard.count(self.queue, state, priorities, future, self.now_ms)

    async def scan(
        self,
        state: JobState = JobState.PENDING,
        *,
        stored: Sequence[StoredState] = (),
        future: bool = False,
        after: ScanPosition | None = None,
        limit: int = 100,
        priorities: Sequence[int] = ALL,
        with_body: bool = False,
        max_bytes: int = NO_BOUND,
    ) -> list[JobInfo]:
        states = stored or STORED_STATES[state]
        request = ScanRequest(states, priorities, future, limit, after, with_body, max_bytes)
        return await self.shard.scan(self.queue, request, self.now_ms)

    # -- operators and maintenance -----------------------------------------------------------------------------------

    async def retry_failed(
        self, attempts: int = 1, *, priority: int = 1, run_after_ms: int | None = None, limit: int = 100
    ) -> int:
        return await self.shard.retry_failed(self.queue, priority, attempts, run_after_ms, limit, self.now_ms)

    async def delete(self, state: JobState, *, priority: int = 1, limit: int = 100) -> int:
        return await self.shard.delete_jobs(self.queue, state, priority, limit, self.now_ms)

    async def delete_listed(self, state: JobState, *descriptors: str) -> int:
        return await self.shard.delete_listed(self.queue, state, [key_of(each) for each in descriptors], self.now_ms)

    async def retry_listed(
        self,
        *descriptors: str,
        attempts: int | None = None,
        run_after_ms: int | None = None,
        homes_version: str = "",
    ) -> int:
        keys = [key_of(each) for each in descriptors]
        return await self.shard.retry_listed(self.queue, keys, attempts, run_after_ms, self.now_ms, homes_version)

    async def expire(
        self, *, limit: int = 100, budget: int = 0, of: Mapping[str, EndRules] | None = None, **rules: bool
    ) -> Mapping[str, ExpiryCounts]:
        """Under these rules; `of`: those of single queues."""
        return await self.shard.expire_claims(limit, self.now_ms, PerQueue(EndRules(budget, **rules), of or {}))

    async def dead_letter(self, targets: Mapping[str, DeadLetterTarget], *, limit: int = 100) -> Mapping[str, int]:
        return await self.shard.dead_letter(limit, self.now_ms, targets)

    async def replay(
        self, *descriptors: str, attempts: int | None = None, homes_version: str = "", marks_originals: bool = True
    ) -> list[str | None]:
        keys = [key_of(each) for each in descriptors]
        return await self.shard.replay(self.queue, keys, self.now_ms, attempts, homes_version, marks_originals)

    async def prune(
        self,
        *,
        limit: int = 100,
        succeeded_ttl_ms: int = DAY_MS,
        failed_ttl_ms: int = 7 * DAY_MS,
        of: Mapping[str, Retention] | None = None,
        tombstones_before: str = "",
    ) -> Mapping[str, int]:
        """With these times to live; `of`: those of single queues."""
        retention = PerQueue(Retention(succeeded_ttl_ms, failed_ttl_ms), of or {})
        return await self.shard.prune(limit, self.now_ms, retention, tombstones_before=tombstones_before)

    async def quota(self, quota: int = 0, version: int = 0) -> Quota:
        """Set the queue's quota; without a version only look."""
        return await self.shard.set_quota(self.queue, quota, version, self.now_ms)
