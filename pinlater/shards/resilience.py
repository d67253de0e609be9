"""A shard whose every call is bounded and counted, and whose claims use the time at which they leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pinlater.backends.aged_levels import Level
from pinlater.backends.base import (
    NO_RULES,
    OPERATIONS,
    AckOutcome,
    AckRequest,
    ClaimRequest,
    EndRules,
    JobKey,
    OnNotification,
    Shard,
    StoreStatus,
)
from pinlater.backends.operations import Operation
from pinlater.clock import Clock
from pinlater.errors import PinLaterError
from pinlater.metrics import Metrics
from pinlater.model import MAX_TIME_MS, ClaimAnswer, DequeuedJob, JobInfo
from pinlater.shards.bulkhead import Bulkhead, BulkheadSettings, StoreCall, claimed_jobs
from pinlater.shards.compensation import requeue
from pinlater.shards.decorator import ShardDecorator

_CLAIM, _CLAIM_LISTED = OPERATIONS["claim"], OPERATIONS["claim_listed"]
_ACK_AND_CLAIM = OPERATIONS["ack_and_claim"]


class ResilientShard(ShardDecorator):
    """Conflicts are retried for every call, a store that could not be reached only for reads.

    Calls that may bring many bodies have permits of their own, with those over many jobs.

    With a `clock` a claim goes by the time at which it leaves for the store, and not by the time at which it was asked
    for: its time-out counts from then, and nothing that was thought of the time before counts any more.
    """

    def __init__(
        self,
        inner: Shard,
        settings: BulkheadSettings | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        super().__init__(inner)
        settings = settings or BulkheadSettings()
        self._clock = clock
        self._metrics = metrics
        self._calls = Bulkhead(inner, settings, metrics=metrics, compensate=self._requeue_claims, is_pinged=True)
        self._bulk_calls = Bulkhead(inner, replace(settings, max_running=settings.max_bulk), metrics=metrics)
        self._bulk_calls.report = self._report_bulk
        self._opening: asyncio.Task[str] | None = None
        by_own_time: dict[Operation, Callable[..., Any]] = {
            _CLAIM: self._send_claim,
            _CLAIM_LISTED: self._send_claim_listed,
        }
        for name, operation in OPERATIONS.items():
            if name not in vars(ResilientShard):
                calls = self._bulk_calls if operation.bulk else self._calls
                method = by_own_time.get(operation) or getattr(inner, name)
                setattr(self, name, partial(calls.call, operation, method))

    @property
    def bulkhead(self) -> Bulkhead:
        return self._calls

    def _report_bulk(self, name: str, is_late: bool, error: BaseException | None) -> None:
        if self._calls.report is not None:
            self._calls.report(name, is_late, error)

    async def open(self) -> str:
        store_id: str = await self._calls.call(OPERATIONS["open"], self._open_once)
        return store_id

    async def _open_once(self) -> str:
        """A second open, after a first that was given up waiting for, joins it."""
        if self._opening is None or self._opening.done():
            self._opening = asyncio.get_running_loop().create_task(self.inner.open())
        return await asyncio.shield(self._opening)

    async def ping(self) -> StoreStatus:
        status: StoreStatus = await self._calls.call(OPERATIONS["ping"], self.inner.ping)
        return status

    async def drain(self) -> None:
        """Wait until no call is under way, nor compensated for."""
        await asyncio.gather(self._calls.drain(), self._bulk_calls.drain())

    async def close(self) -> None:
        await self.drain()
        await self.inner.close()

    async def subscribe(self, queue: str, on_event: OnNotification | None) -> bool:
        """Counted only: it raises nothing, and the store bounds it."""
        began_s = asyncio.get_running_loop().time()
        try:
            return await self.inner.subscribe(queue, on_event)
        finally:
            if self._metrics is not None:
                took_s = asyncio.get_running_loop().time() - began_s
                self._metrics.observe(took_s, "shard_call_seconds", self.shard_id, "follow")

    # -- claims ------------------------------------------------------------------------------------------------------

    def _send_claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> Coroutine[Any, Any, list[list[DequeuedJob]]]:
        clock = self._clock
        if clock is not None and now_ms < MAX_TIME_MS:  # as seen from the end of time it stays, whatever it is now
            now_ms = clock.now_ms()
            if clock.uncertainty_ms:
                requests = [replace(each, spare_ms=clock.uncertainty_ms) for each in requests]
        return self.inner.claim(queue, requests, now_ms, enforce_quota=enforce_quota)

    def _send_claim_listed(
        self, queue: str, jobs: Sequence[JobKey], request: ClaimRequest, now_ms: int, *, enforce_quota: bool = False
    ) -> Coroutine[Any, Any, list[ClaimAnswer]]:
        clock = self._clock
        if clock is not None and now_ms < MAX_TIME_MS:
            now_ms = clock.now_ms()
            if clock.uncertainty_ms:
                request = replace(request, spare_ms=clock.uncertainty_ms)
        return self.inner.claim_listed(queue, jobs, request, now_ms, enforce_quota=enforce_quota)

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
        """The outcomes of the acks, and the jobs of each request. Where the time is uncertain, acks and claims go by
        different times: then these are two calls of the store.
        """
        clock = self._clock
        if clock is not None and clock.uncertainty_ms and now_ms < MAX_TIME_MS:
            return self._ack_then_claim(queue, acks, requests, now_ms, rules, enforce_quota)
        return self._calls.call(
            _ACK_AND_CLAIM, self._send_ack_and_claim, queue, acks, requests, now_ms, rules, enforce_quota=enforce_quota
        )

    def _send_ack_and_claim(
        self,
        queue: str,
        acks: Sequence[AckRequest],
        requests: Sequence[ClaimRequest],
        now_ms: int,
        rules: EndRules,
        *,
        enforce_quota: bool,
    ) -> Coroutine[Any, Any, tuple[list[AckOutcome], list[list[DequeuedJob]]]]:
        if self._clock is not None and now_ms < MAX_TIME_MS:
            now_ms = self._clock.now_ms()
        return self.inner.ack_and_claim(queue, acks, requests, now_ms, rules, enforce_quota=enforce_quota)

    async def _ack_then_claim(
        self,
        queue: str,
        acks: Sequence[AckRequest],
        requests: Sequence[ClaimRequest],
        now_ms: int,
        rules: EndRules,
        enforce_quota: bool,
    ) -> tuple[list[AckOutcome], list[list[DequeuedJob]]]:
        """A claim that fails hands out nothing: the acks stay done, and their outcomes are told."""
        assert self._clock is not None
        outcomes = await self.ack(queue, acks, self._clock.now_ms() + self._clock.uncertainty_ms, rules)
        try:
            return outcomes, await self.claim(queue, requests, now_ms, enforce_quota=enforce_quota)
        except PinLaterError:
            if not any(outcome is not AckOutcome.IGNORED for outcome in outcomes):
                raise
            return outcomes, [[] for _ in requests]

    async def _requeue_claims(self, call: StoreCall, answer: Any) -> None:
        """Requeue the jobs of a claim whose caller is gone."""
        queue, now_ms = call.args[0], call.args[2 if call.operation is _CLAIM else 3]
        await requeue(self.inner, queue, claimed_jobs(call, answer), now_ms)

    # -- calls that may bring many bodies ----------------------------------------------------------------------------

    def peek(
        self, queue: str, priorities: Sequence[Level], limit: int, max_bytes: int, now_ms: int
    ) -> Coroutine[Any, Any, list[DequeuedJob]]:
        calls = self._bulk_calls if limit > 1 else self._calls
        return calls.call(OPERATIONS["peek"], self.inner.peek, queue, priorities, limit, max_bytes, now_ms)

    def lookup(
        self, queue: str, jobs: Sequence[JobKey], *, with_body: bool, max_bytes: int, with_result: bool = False
    ) -> Coroutine[Any, Any, list[JobInfo | None]]:
        calls = self._bulk_calls if (with_body or with_result) and len(jobs) > 1 else self._calls
        return calls.call(
            OPERATIONS["lookup"],
            self.inner.lookup,
            queue,
            jobs,
            with_body=with_body,
            max_bytes=max_bytes,
            with_result=with_result,
        )
