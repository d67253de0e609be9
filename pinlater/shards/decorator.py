"""A wrapper of a shard that changes nothing: what the other wrappers start from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pinlater.backends.base import (
    NO_RULES,
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
    FreshClaim,
    JobKey,
    KvEntry,
    Listener,
    PerQueue,
    Quota,
    Retention,
    ScanRequest,
    Shard,
    SilentClaim,
    StatsPage,
    StatsPosition,
    StoreStatus,
    Tokens,
)
from pinlater.model import CancelOutcome, DequeuedJob, Job, JobInfo, JobState

if TYPE_CHECKING:
    from pinlater.shards.resilience import Bulkhead


class ShardDecorator:
    """Hands every call of the protocol on to the shard inside."""

    def __init__(self, inner: Shard) -> None:
        self.inner = inner
        self._innermost: Shard = inner._innermost if isinstance(inner, ShardDecorator) else inner

    @property
    def shard_id(self) -> str:
        return self._innermost.shard_id

    @shard_id.setter
    def shard_id(self, shard_id: str) -> None:
        self._innermost.shard_id = shard_id

    @property
    def keeps_order(self) -> bool:
        return self._innermost.keeps_order

    @property
    def has_own_clock(self) -> bool:
        return self.inner.has_own_clock

    @property
    def bulkhead(self) -> Bulkhead | None:
        """The guard's calls to the store, where there is a guard inside: how they go, and what bounds them."""
        return self.inner.bulkhead if isinstance(self.inner, ShardDecorator) else None

    async def open(self) -> str:
        return await self.inner.open()

    async def close(self) -> None:
        await self.inner.close()

    async def ping(self) -> StoreStatus:
        return await self.inner.ping()

    async def put_config(self, entries: Sequence[ConfigEntry], now_ms: int) -> list[bool]:
        return await self.inner.put_config(entries, now_ms)

    async def list_config(self, since: int, limit: int) -> ConfigPage:
        return await self.inner.list_config(since, limit)

    async def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> list[str]:
        return await self.inner.enqueue(queue, jobs, now_ms)

    async def count_ready(self, queue: str, priorities: Sequence[int], limit: int, now_ms: int) -> list[int]:
        return await self.inner.count_ready(queue, priorities, limit, now_ms)

    async def next_due(self, queues: Sequence[str], priorities: Sequence[int]) -> dict[str, int | None]:
        return await self.inner.next_due(queues, priorities)

    async def subscribe(self, queue: str, on_event: Listener | None) -> bool:
        return await self.inner.subscribe(queue, on_event)

    async def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> list[list[DequeuedJob]]:
        return await self.inner.claim(queue, requests, now_ms, enforce_quota=enforce_quota)

    async def peek(
        self, queue: str, priorities: Sequence[int], limit: int, max_bytes: int, now_ms: int
    ) -> list[DequeuedJob]:
        return await self.inner.peek(queue, priorities, limit, max_bytes, now_ms)

    async def ack(
        self, queue: str, acks: Sequence[AckRequest], now_ms: int, rules: EndRules = NO_RULES
    ) -> list[AckOutcome]:
        return await self.inner.ack(queue, acks, now_ms, rules)

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
        return await self.inner.ack_and_claim(queue, acks, requests, now_ms, rules, enforce_quota=enforce_quota)

    async def checkpoint(self, queue: str, checkpoints: Sequence[CheckpointRequest], now_ms: int) -> list[bool]:
        return await self.inner.checkpoint(queue, checkpoints, now_ms)

    async def requeue(self, queue: str, claims: Sequence[ClaimKey], now_ms: int) -> int:
        return await self.inner.requeue(queue, claims, now_ms)

    async def expire_disconnected(
        self, queue: str, claims: Sequence[SilentClaim], now_ms: int, rules: EndRules = NO_RULES
    ) -> ExpiryCounts:
        return await self.inner.expire_disconnected(queue, claims, now_ms, rules)

    async def requeue_undelivered(self, queue: str, claims: Sequence[FreshClaim], now_ms: int) -> int:
        return await self.inner.requeue_undelivered(queue, claims, now_ms)

    async def cancel(self, queue: str, jobs: Sequence[JobKey], now_ms: int) -> list[CancelOutcome]:
        return await self.inner.cancel(queue, jobs, now_ms)

    async def lookup(
        self, queue: str, jobs: Sequence[JobKey], *, with_body: bool, max_bytes: int
    ) -> list[JobInfo | None]:
        return await self.inner.lookup(queue, jobs, with_body=with_body, max_bytes=max_bytes)

    async def count(self, queue: str, state: JobState, priorities: Sequence[int], future: bool, now_ms: int) -> int:
        return await self.inner.count(queue, state, priorities, future, now_ms)

    async def scan(self, queue: str, request: ScanRequest, now_ms: int) -> list[JobInfo]:
        return await self.inner.scan(queue, request, now_ms)

    async def retry_failed(
        self, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int, now_ms: int
    ) -> int:
        return await self.inner.retry_failed(queue, priority, attempts, run_after_ms, limit, now_ms)

    async def retry_listed(
        self, queue: str, jobs: Sequence[JobKey], attempts: int | None, run_after_ms: int | None, now_ms: int
    ) -> int:
        return await self.inner.retry_listed(queue, jobs, attempts, run_after_ms, now_ms)

    async def delete_jobs(self, queue: str, state: JobState, priority: int, limit: int, now_ms: int) -> int:
        return await self.inner.delete_jobs(queue, state, priority, limit, now_ms)

    async def delete_listed(self, queue: str, state: JobState, jobs: Sequence[JobKey], now_ms: int) -> int:
        return await self.inner.delete_listed(queue, state, jobs, now_ms)

    async def replay(self, queue: str, jobs: Sequence[JobKey], now_ms: int, attempts: int | None) -> list[str | None]:
        return await self.inner.replay(queue, jobs, now_ms, attempts)

    async def mark_moved(self, queue: str, moved: Sequence[tuple[ClaimKey, str]], now_ms: int) -> list[bool]:
        return await self.inner.mark_moved(queue, moved, now_ms)

    async def expire_claims(self, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, ExpiryCounts]:
        return await self.inner.expire_claims(limit, now_ms, rules)

    async def dead_letter(self, limit: int, now_ms: int, targets: Mapping[str, DeadLetterTarget]) -> Mapping[str, int]:
        return await self.inner.dead_letter(limit, now_ms, targets)

    async def prune(
        self, limit: int, now_ms: int, retention: PerQueue[Retention], *, tombstones_before: str = ""
    ) -> Mapping[str, int]:
        return await self.inner.prune(limit, now_ms, retention, tombstones_before=tombstones_before)

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
        return await self.inner.kv_put(
            namespace, name, body, expires_at_ms, now_ms, expected_version=expected_version, keep=keep
        )

    async def kv_list(self, namespace: str, now_ms: int) -> dict[str, KvEntry]:
        return await self.inner.kv_list(namespace, now_ms)

    async def take_tokens(self, queue: str, wanted: int, per_second: float, capacity: float, now_ms: int) -> Tokens:
        return await self.inner.take_tokens(queue, wanted, per_second, capacity, now_ms)

    async def set_quota(self, queue: str, share: int, version: int, now_ms: int) -> Quota:
        return await self.inner.set_quota(queue, share, version, now_ms)

    async def stats(
        self, queue: str, priorities: Sequence[int], now_ms: int, after: StatsPosition | None, limit: int
    ) -> StatsPage:
        return await self.inner.stats(queue, priorities, now_ms, after, limit)
