"""A shard in SQL: every call of the protocol is one step, in one transaction, on a thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from pinlater.backends.base import (
    AckOutcome,
    AckRequest,
    CheckpointRequest,
    ClaimKey,
    ClaimRequest,
    JobKey,
    LapsedCounts,
    ScanRequest,
    StoreStatus,
)
from pinlater.backends.sql import acking, checkpointing, claiming, collecting, lapsing, looking, operating, storing
from pinlater.backends.sql.identity import Identity, ping
from pinlater.model import CancelOutcome, DequeuedJob, Job, JobInfo, JobState

Result = TypeVar("Result")


class SqlShard(ABC):
    """What is the same on every SQL database; a dialect says how a step is run."""

    def __init__(self, shard_id: str) -> None:
        self.shard_id = shard_id
        self._identity = Identity(shard_id, "")

    @abstractmethod
    def _write(self, step: Callable[..., Result], *arguments: Any) -> Awaitable[Result]:
        """Run a step that may change something."""

    @abstractmethod
    def _read(self, step: Callable[..., Result], *arguments: Any) -> Awaitable[Result]:
        """Run a step that changes and locks nothing, and may take long without being in the way of the others."""

    async def ping(self) -> StoreStatus:
        return await self._write(ping, self._identity)

    # -- queues ------------------------------------------------------------------------------------------------------

    async def create_queue(self, queue: str, now_ms: int) -> bool:
        return await self._write(storing.create_queue, queue, now_ms)

    async def delete_queue(self, queue: str, now_ms: int) -> bool:
        return await self._write(storing.delete_queue, queue)

    async def queue_names(self) -> set[str]:
        return await self._read(storing.queue_names)

    # -- the life of a job -------------------------------------------------------------------------------------------

    async def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> list[str]:
        return await self._write(storing.enqueue, queue, jobs, now_ms)

    async def ready(self, queue: str, priorities: Sequence[int], limit: int, now_ms: int) -> list[int]:
        return await self._read(claiming.ready, queue, priorities, limit, now_ms)

    async def claim(self, queue: str, requests: Sequence[ClaimRequest], now_ms: int) -> list[list[DequeuedJob]]:
        return await self._write(claiming.claim, queue, requests, now_ms)

    async def peek(
        self, queue: str, priorities: Sequence[int], limit: int, max_bytes: int, now_ms: int
    ) -> list[DequeuedJob]:
        return await self._read(claiming.peek, queue, priorities, limit, max_bytes, now_ms)

    async def ack(
        self,
        queue: str,
        acks: Sequence[AckRequest],
        now_ms: int,
        *,
        keep_succeeded: bool = True,
        keep_failed: bool = True,
    ) -> list[AckOutcome]:
        return await self._write(acking.ack, queue, acks, now_ms, keep_succeeded, keep_failed)

    async def checkpoint(self, queue: str, checkpoints: Sequence[CheckpointRequest], now_ms: int) -> list[bool]:
        return await self._write(checkpointing.checkpoint, queue, checkpoints, now_ms)

    async def give_back(self, queue: str, claims: Sequence[ClaimKey], now_ms: int) -> int:
        return await self._write(claiming.give_back, queue, claims, now_ms)

    async def release(self, queue: str, claims: Sequence[ClaimKey], now_ms: int, *, crash_budget: int) -> LapsedCounts:
        return await self._write(lapsing.release, queue, claims, now_ms, crash_budget)

    async def cancel(self, queue: str, jobs: Sequence[JobKey], now_ms: int) -> list[CancelOutcome]:
        return await self._write(operating.cancel, queue, jobs)

    # -- looking -----------------------------------------------------------------------------------------------------

    async def lookup(
        self, queue: str, jobs: Sequence[JobKey], *, with_body: bool, max_bytes: int
    ) -> list[JobInfo | None]:
        return await self._read(looking.lookup, queue, jobs, with_body, max_bytes)

    async def count(self, queue: str, state: JobState, priorities: Sequence[int], future: bool, now_ms: int) -> int:
        return await self._read(looking.count, queue, state, priorities, future, now_ms)

    async def scan(self, queue: str, request: ScanRequest, now_ms: int) -> list[JobInfo]:
        return await self._read(looking.scan, queue, request, now_ms)

    # -- operators ---------------------------------------------------------------------------------------------------

    async def retry_failed(
        self, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int, now_ms: int
    ) -> int:
        return await self._write(operating.retry_failed, queue, priority, attempts, run_after_ms, limit, now_ms)

    async def delete_jobs(self, queue: str, state: JobState, priority: int, limit: int, now_ms: int) -> int:
        return await self._write(operating.delete_jobs, queue, state, priority, limit)

    async def delete_listed(self, queue: str, state: JobState, jobs: Sequence[JobKey], now_ms: int) -> int:
        return await self._write(operating.delete_listed, queue, state, jobs)

    # -- maintenance -------------------------------------------------------------------------------------------------

    async def expire_claims(self, limit: int, now_ms: int, *, crash_budget: int) -> Mapping[str, LapsedCounts]:
        return await self._write(lapsing.expire_claims, limit, now_ms, crash_budget)

    async def collect(self, limit: int, now_ms: int, *, succeeded_ttl_ms: int, failed_ttl_ms: int) -> Mapping[str, int]:
        return await self._write(collecting.collect, limit, now_ms, succeeded_ttl_ms, failed_ttl_ms)
