"""A shard in SQL. Each call runs as one transaction, on a thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from pinlater.backends.base import (
    NO_RULES,
    SLICE_BYTES,
    AckOutcome,
    AckRequest,
    CheckpointRequest,
    ClaimKey,
    ClaimRequest,
    ConfigEntry,
    ConfigPage,
    DeadLetterTarget,
    EndRules,
    ExpiryCounts,
    JobKey,
    KvEntry,
    OnNotification,
    PerQueue,
    Quota,
    Retention,
    ScanRequest,
    SilentClaim,
    StatsPage,
    StatsPosition,
    StoreStatus,
    Tokens,
    UnrenewedClaim,
)
from pinlater.backends.sql import admin, attempts, coordination, queries, ready_jobs
from pinlater.backends.sql.coordination import Identity, ping
from pinlater.backends.unfinished import Unfinished
from pinlater.model import CancelOutcome, DequeuedJob, Job, JobInfo, JobState

Result = TypeVar("Result")
_JOBS_PER_SLICE = 64


class SqlShard(Unfinished, ABC):
    """A shard in an SQL database; a subclass per dialect says how a transaction is run."""

    keeps_order = False
    has_own_clock = True

    def __init__(self, shard_id: str) -> None:
        self.shard_id = shard_id
        self._identity = Identity(shard_id, "")

    @abstractmethod
    def write(self, transaction: Callable[..., Result], *arguments: Any) -> Awaitable[Result]:
        """Run a transaction that may change something."""

    @abstractmethod
    def read(self, transaction: Callable[..., Result], *arguments: Any) -> Awaitable[Result]:
        """Run a transaction that changes and locks nothing; it may take long without holding up the others."""

    async def ping(self) -> StoreStatus:
        return await self.write(ping, self._identity)

    # -- config entries ----------------------------------------------------------------------------------------------

    async def put_config(self, entries: Sequence[ConfigEntry], now_ms: int) -> list[bool]:
        return await self.write(coordination.put_config, entries, now_ms)

    async def list_config(self, since: int, limit: int) -> ConfigPage:
        return await self.read(coordination.list_config, self._identity.store_id, since, limit)

    # -- the life of a job -------------------------------------------------------------------------------------------

    async def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> list[str]:
        return await self.write(ready_jobs.enqueue, queue, jobs, now_ms)

    async def count_ready(self, queue: str, priorities: Sequence[int], limit: int, now_ms: int) -> list[int]:
        return await self.read(ready_jobs.count_ready, queue, priorities, limit, now_ms)

    async def next_due(self, queues: Sequence[str], priorities: Sequence[int]) -> dict[str, int | None]:
        return await self.read(ready_jobs.next_due, queues, priorities)

    async def subscribe(self, queue: str, on_event: OnNotification | None) -> bool:
        """SQL tells nobody anything."""
        return False

    async def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> list[list[DequeuedJob]]:
        return await self.write(ready_jobs.claim, queue, requests, now_ms, enforce_quota)

    async def peek(
        self, queue: str, priorities: Sequence[int], limit: int, max_bytes: int, now_ms: int
    ) -> list[DequeuedJob]:
        return await self.read(ready_jobs.peek, queue, priorities, limit, max_bytes, now_ms)

    async def ack(
        self, queue: str, acks: Sequence[AckRequest], now_ms: int, rules: EndRules = NO_RULES
    ) -> list[AckOutcome]:
        return await self.write(attempts.ack, queue, acks, now_ms, rules)

    async def ack_and_claim(
        self,
        queue: str,
        acks: Sequence[AckRequest],
        requests: Sequence[ClaimRequest],
        now_ms: int,
        rules: EndRules = NO_RULES,
        *,
        enforce_quota: bool = False,
    ) -> tuple[list[AckOutcome], list[list[DequeuedJob]]]:
        return await self.write(ready_jobs.ack_and_claim, queue, acks, requests, now_ms, rules, enforce_quota)

    async def checkpoint(self, queue: str, checkpoints: Sequence[CheckpointRequest], now_ms: int) -> list[bool]:
        return await self.write(attempts.checkpoint, queue, checkpoints, now_ms)

    async def requeue(self, queue: str, claims: Sequence[ClaimKey], now_ms: int) -> int:
        return await self.write(ready_jobs.requeue, queue, claims, now_ms)

    async def expire_disconnected(
        self, queue: str, claims: Sequence[SilentClaim], now_ms: int, rules: EndRules = NO_RULES
    ) -> ExpiryCounts:
        return await self.write(attempts.expire_disconnected, queue, claims, now_ms, rules)

    async def requeue_undelivered(self, queue: str, claims: Sequence[UnrenewedClaim], now_ms: int) -> int:
        return await self.write(ready_jobs.requeue_undelivered, queue, claims, now_ms)

    async def cancel(self, queue: str, jobs: Sequence[JobKey], now_ms: int, by: str = "") -> list[CancelOutcome]:
        return await self.write(admin.cancel, queue, jobs)

    # -- looking -----------------------------------------------------------------------------------------------------

    async def lookup(
        self, queue: str, jobs: Sequence[JobKey], *, with_body: bool, max_bytes: int, with_result: bool = False
    ) -> list[JobInfo | None]:
        """What is known of all in one transaction; bodies beyond the first slice in further ones."""
        found = await self.read(queries.lookup, queue, jobs, with_body, min(max_bytes, SLICE_BYTES))
        room = max_bytes - _body_bytes(found)
        rest = [at for at, info in enumerate(found) if info is not None and info.body is None] if with_body else []
        while rest and room > 0:
            some = rest[:_JOBS_PER_SLICE]
            keys = [jobs[at] for at in some]
            infos = await self.read(queries.lookup, queue, keys, True, min(room, SLICE_BYTES), room)
            for at, info in zip(some, infos, strict=True):
                found[at] = info
            read = next((n for n, info in enumerate(infos) if info is not None and info.body is None), len(some))
            if read == 0:
                break
            room -= _body_bytes(infos)
            del rest[:read]
        return found

    async def count(self, queue: str, state: JobState, priorities: Sequence[int], future: bool, now_ms: int) -> int:
        return await self.read(queries.count, queue, state, priorities, future, now_ms)

    async def scan(self, queue: str, request: ScanRequest, now_ms: int) -> list[JobInfo]:
        return await self.read(queries.scan, queue, request, now_ms)

    # -- operators ---------------------------------------------------------------------------------------------------

    async def retry_failed(
        self, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int, now_ms: int
    ) -> int:
        return await self.write(admin.retry_failed, queue, priority, attempts, run_after_ms, limit, now_ms)

    async def retry_listed(
        self, queue: str, jobs: Sequence[JobKey], attempts: int | None, run_after_ms: int | None, now_ms: int
    ) -> int:
        return await self.write(admin.retry_listed, queue, jobs, attempts, run_after_ms, now_ms)

    async def delete_jobs(self, queue: str, state: JobState, priority: int, limit: int, now_ms: int) -> int:
        return await self.write(admin.delete_jobs, queue, state, priority, limit)

    async def delete_listed(self, queue: str, state: JobState, jobs: Sequence[JobKey], now_ms: int) -> int:
        return await self.write(admin.delete_listed, queue, state, jobs)

    async def replay(self, queue: str, jobs: Sequence[JobKey], now_ms: int, attempts: int | None) -> list[str | None]:
        return await self.write(admin.replay, queue, jobs, now_ms, attempts)

    async def mark_moved(self, queue: str, moved: Sequence[tuple[ClaimKey, str]], now_ms: int) -> list[bool]:
        return await self.write(admin.mark_moved, queue, moved, now_ms)

    # -- maintenance -------------------------------------------------------------------------------------------------

    async def expire_claims(self, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, ExpiryCounts]:
        return await self.write(attempts.expire_claims, limit, now_ms, rules)

    async def dead_letter(self, limit: int, now_ms: int, targets: Mapping[str, DeadLetterTarget]) -> Mapping[str, int]:
        return await self.write(admin.dead_letter, limit, now_ms, targets)

    async def prune(
        self, limit: int, now_ms: int, retention: PerQueue[Retention], *, tombstones_before: str = ""
    ) -> Mapping[str, int]:
        return await self.write(admin.prune, limit, now_ms, retention, tombstones_before)

    # -- what the servers of a cluster tell each other ---------------------------------------------------------------

    async def kv_put(
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
        return await self.write(
            coordination.kv_put, namespace, name, body, expires_at_ms, now_ms, expected_version, keep
        )

    async def kv_list(self, namespace: str, now_ms: int) -> dict[str, KvEntry]:
        return await self.read(coordination.kv_list, namespace, now_ms)

    async def take_tokens(self, queue: str, wanted: int, per_second: float, capacity: float, now_ms: int) -> Tokens:
        return await self.write(coordination.take_tokens, queue, wanted, per_second, capacity, now_ms)

    async def set_quota(self, queue: str, quota: int, version: int, now_ms: int) -> Quota:
        return await self.write(coordination.set_quota, queue, quota, version)

    async def stats(
        self, queue: str, priorities: Sequence[int], now_ms: int, after: StatsPosition | None, limit: int
    ) -> StatsPage:
        return await self.read(queries.stats, queue, priorities, now_ms, after, limit)


def _body_bytes(infos: Sequence[JobInfo | None]) -> int:
    return sum([len(info.body) for info in infos if info is not None and info.body is not None])
