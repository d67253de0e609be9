"""A wrapper of a shard that changes nothing: what the other wrappers start from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pinlater.backends.base import (
    AckOutcome,
    AckRequest,
    CheckpointRequest,
    ClaimKey,
    ClaimRequest,
    JobKey,
    LapsedCounts,
    ScanRequest,
    Shard,
    StoreStatus,
)
from pinlater.model import CancelOutcome, DequeuedJob, Job, JobInfo, JobState


class Passing:
    """Hands every call of the protocol on to the shard inside."""

    def __init__(self, inner: Shard) -> None:
        self._inner = inner

    @property
    def shard_id(self) -> str:
        return self._inner.shard_id

    @shard_id.setter
    def shard_id(self, shard_id: str) -> None:
        self._inner.shard_id = shard_id

    async def open(self) -> str:
        return await self._inner.open()

    async def close(self) -> None:
        await self._inner.close()

    async def ping(self) -> StoreStatus:
        return await self._inner.ping()

    async def create_queue(self, queue: str, now_ms: int) -> bool:
        return await self._inner.create_queue(queue, now_ms)

    async def delete_queue(self, queue: str, now_ms: int) -> bool:
        return await self._inner.delete_queue(queue, now_ms)

    async def queue_names(self) -> set[str]:
        return await self._inner.queue_names()

    async def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> list[str]:
        return await self._inner.enqueue(queue, jobs, now_ms)

    async def ready(self, queue: str, priorities: Sequence[int], limit: int, now_ms: int) -> list[int]:
        return await self._inner.ready(queue, priorities, limit, now_ms)

    async def claim(self, queue: str, requests: Sequence[ClaimRequest], now_ms: int) -> list[list[DequeuedJob]]:
        return await self._inner.claim(queue, requests, now_ms)

    async def peek(
        self, queue: str, priorities: Sequence[int], limit: int, max_bytes: int, now_ms: int
    ) -> list[DequeuedJob]:
        return await self._inner.peek(queue, priorities, limit, max_bytes, now_ms)

    async def ack(
        self,
        queue: str,
        acks: Sequence[AckRequest],
        now_ms: int,
        *,
        keep_succeeded: bool = True,
        keep_failed: bool = True,
    ) -> list[AckOutcome]:
        return await self._inner.ack(queue, acks, now_ms, keep_succeeded=keep_succeeded, keep_failed=keep_failed)

    async def checkpoint(self, queue: str, checkpoints: Sequence[CheckpointRequest], now_ms: int) -> list[bool]:
        return await self._inner.checkpoint(queue, checkpoints, now_ms)

    async def give_back(self, queue: str, claims: Sequence[ClaimKey], now_ms: int) -> int:
        return await self._inner.give_back(queue, claims, now_ms)

    async def release(self, queue: str, claims: Sequence[ClaimKey], now_ms: int, *, crash_budget: int) -> LapsedCounts:
        return await self._inner.release(queue, claims, now_ms, crash_budget=crash_budget)

    async def cancel(self, queue: str, jobs: Sequence[JobKey], now_ms: int) -> list[CancelOutcome]:
        return await self._inner.cancel(queue, jobs, now_ms)

    async def lookup(
        self, queue: str, jobs: Sequence[JobKey], *, with_body: bool, max_bytes: int
    ) -> list[JobInfo | None]:
        return await self._inner.lookup(queue, jobs, with_body=with_body, max_bytes=max_bytes)

    async def count(self, queue: str, state: JobState, priorities: Sequence[int], future: bool, now_ms: int) -> int:
        return await self._inner.count(queue, state, priorities, future, now_ms)

    async def scan(self, queue: str, request: ScanRequest, now_ms: int) -> list[JobInfo]:
        return await self._inner.scan(queue, request, now_ms)

    async def retry_failed(
        self, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int, now_ms: int
    ) -> int:
        return await self._inner.retry_failed(queue, priority, attempts, run_after_ms, limit, now_ms)

    async def delete_jobs(self, queue: str, state: JobState, priority: int, limit: int, now_ms: int) -> int:
        return await self._inner.delete_jobs(queue, state, priority, limit, now_ms)

    async def delete_listed(self, queue: str, state: JobState, jobs: Sequence[JobKey], now_ms: int) -> int:
        return await self._inner.delete_listed(queue, state, jobs, now_ms)

    async def expire_claims(self, limit: int, now_ms: int, *, crash_budget: int) -> Mapping[str, LapsedCounts]:
        return await self._inner.expire_claims(limit, now_ms, crash_budget=crash_budget)

    async def collect(self, limit: int, now_ms: int, *, succeeded_ttl_ms: int, failed_ttl_ms: int) -> Mapping[str, int]:
        return await self._inner.collect(limit, now_ms, succeeded_ttl_ms=succeeded_ttl_ms, failed_ttl_ms=failed_ttl_ms)
