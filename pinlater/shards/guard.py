"""A shard whose every call has a deadline, a bounded wait for its turn, and the retries that are safe."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

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
from pinlater.clock import Clock
from pinlater.model import MAX_TIME_MS, CancelOutcome, DequeuedJob, Job, JobInfo, JobState
from pinlater.shards.calls import Calls, GuardSettings
from pinlater.shards.passing import Passing
from pinlater.shards.undo import requeue


class Guarded(Passing):
    """Conflicts are retried for every call, a store that could not be reached only for reads.

    Calls that may bring many bodies take turns of their own, with those over many jobs.

    With a `clock` a claim goes by the time at which it leaves for the store, and not by the time at which it was asked
    for: its time-out counts from then, and nothing that was thought of the time before counts any more.
    """

    def __init__(self, inner: Shard, settings: GuardSettings | None = None, clock: Clock | None = None) -> None:
        super().__init__(inner)
        self._clock = clock
        settings = settings or GuardSettings()
        self._calls = Calls(lambda: inner.shard_id, settings, is_pinged=True)
        self._bulk = Calls(lambda: inner.shard_id, replace(settings, max_running=settings.max_bulk))
        self._bulk.report = self._report_bulk
        self._opening: asyncio.Task[str] | None = None

    @property
    def calls(self) -> Calls:
        return self._calls

    def _report_bulk(self, name: str, is_late: bool, error: BaseException | None) -> None:
        """That a call over many jobs takes long says nothing of the store."""
        if self._calls.report is not None and not (is_late and error is not None):
            self._calls.report(name, False, error)

    async def open(self) -> str:
        return await self._calls.make("open", self._open_once, is_urgent=True)

    async def _open_once(self) -> str:
        """A second open, after a first that was given up waiting for, joins it."""
        if self._opening is None or self._opening.done():
            self._opening = asyncio.get_running_loop().create_task(self._inner.open())
        return await asyncio.shield(self._opening)

    async def close(self) -> None:
        await asyncio.gather(self._calls.drain(), self._bulk.drain())
        await self._inner.close()

    async def ping(self) -> StoreStatus:
        return await self._calls.make("ping", self._inner.ping, is_urgent=True)

    async def put_config(self, entries: Sequence[ConfigEntry], now_ms: int) -> list[bool]:
        return await self._calls.make("put_records", lambda: self._inner.put_config(entries, now_ms))

    async def list_config(self, since: int, limit: int) -> ConfigPage:
        return await self._calls.make("records", lambda: self._inner.list_config(since, limit), read=True)

    def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> Coroutine[Any, Any, list[str]]:
        return self._calls.make("enqueue", lambda: self._inner.enqueue(queue, jobs, now_ms))

    def count_ready(
        self, queue: str, priorities: Sequence[int], limit: int, now_ms: int
    ) -> Coroutine[Any, Any, list[int]]:
        return self._calls.make("ready", lambda: self._inner.count_ready(queue, priorities, limit, now_ms), read=True)

    def next_due(self, queues: Sequence[str], priorities: Sequence[int]) -> Coroutine[Any, Any, dict[str, int | None]]:
        return self._calls.make("next_due", lambda: self._inner.next_due(queues, priorities), read=True)

    def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> Coroutine[Any, Any, list[list[DequeuedJob]]]:
        clock = None if now_ms >= MAX_TIME_MS else self._clock  # as seen from the end of time, whatever it is now

        def call() -> Coroutine[Any, Any, list[list[DequeuedJob]]]:
            if clock is None:
                return self._inner.claim(queue, requests, now_ms, enforce_quota=enforce_quota)
            spare_ms = clock.uncertainty_ms
            renewed = [replace(each, spare_ms=spare_ms) for each in requests] if spare_ms else requests
            return self._inner.claim(queue, renewed, clock.now_ms(), enforce_quota=enforce_quota)

        async def undo(claimed: list[list[DequeuedJob]]) -> None:
            await requeue(self._inner, queue, [job for jobs in claimed for job in jobs], now_ms)

        return self._calls.make("claim", call, undo=undo)

    async def peek(
        self, queue: str, priorities: Sequence[int], limit: int, max_bytes: int, now_ms: int
    ) -> list[DequeuedJob]:
        return await (self._bulk if limit > 1 else self._calls).make(
            "peek", lambda: self._inner.peek(queue, priorities, limit, max_bytes, now_ms), read=True
        )

    def ack(
        self, queue: str, acks: Sequence[AckRequest], now_ms: int, rules: EndRules = NO_RULES
    ) -> Coroutine[Any, Any, list[AckOutcome]]:
        return self._calls.make("ack", lambda: self._inner.ack(queue, acks, now_ms, rules))

    def ack_and_claim(
        self,
        queue: str,
        acks: Sequence[AckRequest],
        requests: Sequence[ClaimRequest],
        now_ms: int,
        rules: EndRules = NO_RULES,
        *,
        enforce_quota: bool = False,
    ) -> Coroutine[Any, Any, tuple[list[AckOutcome], list[list[DequeuedJob]]]]:
        """Where the time is uncertain, acks and claims go by different ones: then these are two calls of the store."""
        clock = None if now_ms >= MAX_TIME_MS else self._clock

        async def call() -> tuple[list[AckOutcome], list[list[DequeuedJob]]]:
            spare_ms = 0 if clock is None else clock.uncertainty_ms
            at_ms = now_ms if clock is None else clock.now_ms()
            if not spare_ms:
                return await self._inner.ack_and_claim(queue, acks, requests, at_ms, rules, enforce_quota=enforce_quota)
            outcomes = await self._inner.ack(queue, acks, at_ms + spare_ms, rules)
            renewed = [replace(each, spare_ms=spare_ms) for each in requests]
            return outcomes, await self._inner.claim(queue, renewed, at_ms, enforce_quota=enforce_quota)

        async def undo(answer: tuple[list[AckOutcome], list[list[DequeuedJob]]]) -> None:
            await requeue(self._inner, queue, [job for jobs in answer[1] for job in jobs], now_ms)

        return self._calls.make("ack_and_claim", call, undo=undo)

    def checkpoint(
        self, queue: str, checkpoints: Sequence[CheckpointRequest], now_ms: int
    ) -> Coroutine[Any, Any, list[bool]]:
        return self._calls.make("checkpoint", lambda: self._inner.checkpoint(queue, checkpoints, now_ms))

    async def requeue(self, queue: str, claims: Sequence[ClaimKey], now_ms: int) -> int:
        return await self._calls.make("give_back", lambda: self._inner.requeue(queue, claims, now_ms))

    async def expire_disconnected(
        self, queue: str, claims: Sequence[SilentClaim], now_ms: int, rules: EndRules = NO_RULES
    ) -> ExpiryCounts:
        return await self._calls.make("release", lambda: self._inner.expire_disconnected(queue, claims, now_ms, rules))

    async def requeue_undelivered(self, queue: str, claims: Sequence[FreshClaim], now_ms: int) -> int:
        return await self._calls.make(
            "requeue_undelivered", lambda: self._inner.requeue_undelivered(queue, claims, now_ms)
        )

    async def cancel(self, queue: str, jobs: Sequence[JobKey], now_ms: int) -> list[CancelOutcome]:
        return await self._calls.make("cancel", lambda: self._inner.cancel(queue, jobs, now_ms))

    async def lookup(
        self, queue: str, jobs: Sequence[JobKey], *, with_body: bool, max_bytes: int
    ) -> list[JobInfo | None]:
        calls = self._bulk if with_body and len(jobs) > 1 else self._calls
        return await calls.make(
            "lookup", lambda: self._inner.lookup(queue, jobs, with_body=with_body, max_bytes=max_bytes), read=True
        )

    async def count(self, queue: str, state: JobState, priorities: Sequence[int], future: bool, now_ms: int) -> int:
        return await self._bulk.make(
            "count", lambda: self._inner.count(queue, state, priorities, future, now_ms), read=True
        )

    async def scan(self, queue: str, request: ScanRequest, now_ms: int) -> list[JobInfo]:
        return await self._bulk.make("scan", lambda: self._inner.scan(queue, request, now_ms), read=True)

    async def retry_failed(
        self, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int, now_ms: int
    ) -> int:
        return await self._bulk.make(
            "retry_failed", lambda: self._inner.retry_failed(queue, priority, attempts, run_after_ms, limit, now_ms)
        )

    async def retry_listed(
        self, queue: str, jobs: Sequence[JobKey], attempts: int | None, run_after_ms: int | None, now_ms: int
    ) -> int:
        return await self._bulk.make(
            "retry_listed", lambda: self._inner.retry_listed(queue, jobs, attempts, run_after_ms, now_ms)
        )

    async def delete_jobs(self, queue: str, state: JobState, priority: int, limit: int, now_ms: int) -> int:
        return await self._bulk.make(
            "delete_jobs", lambda: self._inner.delete_jobs(queue, state, priority, limit, now_ms)
        )

    async def delete_listed(self, queue: str, state: JobState, jobs: Sequence[JobKey], now_ms: int) -> int:
        return await self._bulk.make("delete_listed", lambda: self._inner.delete_listed(queue, state, jobs, now_ms))

    async def replay(self, queue: str, jobs: Sequence[JobKey], now_ms: int, attempts: int | None) -> list[str | None]:
        return await self._bulk.make("replay", lambda: self._inner.replay(queue, jobs, now_ms, attempts))

    async def mark_moved(self, queue: str, moved: Sequence[tuple[ClaimKey, str]], now_ms: int) -> list[bool]:
        return await self._calls.make("mark_moved", lambda: self._inner.mark_moved(queue, moved, now_ms))

    async def expire_claims(self, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, ExpiryCounts]:
        return await self._calls.make("expire_claims", lambda: self._inner.expire_claims(limit, now_ms, rules))

    async def dead_letter(self, limit: int, now_ms: int, targets: Mapping[str, DeadLetterTarget]) -> Mapping[str, int]:
        return await self._calls.make("bury", lambda: self._inner.dead_letter(limit, now_ms, targets))

    async def prune(
        self, limit: int, now_ms: int, retention: PerQueue[Retention], *, tombstones_before: str = ""
    ) -> Mapping[str, int]:
        return await self._calls.make(
            "collect", lambda: self._inner.prune(limit, now_ms, retention, tombstones_before=tombstones_before)
        )

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
        return await self._calls.make(
            "put_note",
            lambda: self._inner.kv_put(
                namespace, name, body, expires_at_ms, now_ms, expected_version=expected_version, keep=keep
            ),
        )

    async def kv_list(self, namespace: str, now_ms: int) -> dict[str, KvEntry]:
        return await self._calls.make("notes", lambda: self._inner.kv_list(namespace, now_ms), read=True)

    async def take_tokens(self, queue: str, wanted: int, per_second: float, capacity: float, now_ms: int) -> Tokens:
        return await self._calls.make(
            "take_tokens", lambda: self._inner.take_tokens(queue, wanted, per_second, capacity, now_ms)
        )

    async def set_quota(self, queue: str, share: int, version: int, now_ms: int) -> Quota:
        return await self._calls.make("set_share", lambda: self._inner.set_quota(queue, share, version, now_ms))

    async def stats(
        self, queue: str, priorities: Sequence[int], now_ms: int, after: StatsPosition | None, limit: int
    ) -> StatsPage:
        return await self._bulk.make(
            "census", lambda: self._inner.stats(queue, priorities, now_ms, after, limit), read=True
        )
