"""A shard whose small enqueues, claims and acks are joined, per queue, into fewer calls of the store.

Every caller keeps its own answer and its own claim. After an unknown outcome nothing is sent again.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

from pinlater.backends.acks import Acks
from pinlater.backends.base import NO_RULES, AckOutcome, AckRequest, ClaimRequest, EndRules, Shard
from pinlater.errors import PinLaterError
from pinlater.model import DequeuedJob, Job
from pinlater.shards.joining import JoinBounds, Joiner
from pinlater.shards.passing import Passing
from pinlater.shards.undo import requeue

_ClaimKey = tuple[str, bool]
_AckKey = tuple[str, EndRules]


class Coalescing(Passing):
    """Joins what arrives while a call of the same kind and queue is under way; see joining.py."""

    def __init__(self, inner: Shard, bounds: JoinBounds | None = None) -> None:
        super().__init__(inner)
        calls = self.calls
        bounds = bounds or (JoinBounds() if calls is None else JoinBounds(max_wait_ms=calls.deadline_ms))
        held_up = None if calls is None else calls.held_up
        self._enqueues: Joiner[str, Job, str] = Joiner(inner.enqueue, _weigh_jobs, bounds, held_up=held_up)
        self._claims: Joiner[_ClaimKey, ClaimRequest, list[DequeuedJob]] = Joiner(
            self._send_claims,
            weigh_claims,
            replace(bounds, max_bytes=bounds.max_claim_bytes),
            undo=self._undo_claim,
            held_up=held_up,
        )
        self._acks: Joiner[_AckKey, AckRequest, AckOutcome] = Joiner(
            self._send_acks, _weigh_acks, bounds, send_for_gone=True, held_up=held_up, join=Acks.joined
        )
        if calls is not None:
            calls.on_slow = self._refuse_waiting

    def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> Coroutine[Any, Any, list[str]]:
        return self._enqueues.call(queue, jobs, now_ms)

    def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> Coroutine[Any, Any, list[list[DequeuedJob]]]:
        return self._claims.call((queue, enforce_quota), requests, now_ms)

    def ack(
        self, queue: str, acks: Sequence[AckRequest], now_ms: int, rules: EndRules = NO_RULES
    ) -> Coroutine[Any, Any, list[AckOutcome]]:
        return self._acks.call((queue, rules), acks, now_ms)

    def _refuse_waiting(self, error: PinLaterError) -> None:
        self._enqueues.refuse_waiting(error)
        self._claims.refuse_waiting(error)
        self._acks.refuse_waiting(error)

    async def close(self) -> None:
        await self._enqueues.drain()
        await self._claims.drain()
        await self._acks.drain()
        await self._inner.close()

    def _send_acks(
        self, key: _AckKey, acks: Sequence[AckRequest], now_ms: int
    ) -> Coroutine[Any, Any, list[AckOutcome]]:
        return self._inner.ack(key[0], acks, now_ms, key[1])

    def _send_claims(
        self, key: _ClaimKey, requests: Sequence[ClaimRequest], now_ms: int
    ) -> Coroutine[Any, Any, list[list[DequeuedJob]]]:
        return self._inner.claim(key[0], requests, now_ms, enforce_quota=key[1])

    async def _undo_claim(self, key: _ClaimKey, claimed: list[list[DequeuedJob]], now_ms: int) -> None:
        await requeue(self._inner, key[0], [job for jobs in claimed for job in jobs], now_ms)


def _weigh_jobs(jobs: Sequence[Job]) -> tuple[int, int]:
    return len(jobs), sum([len(job.body) for job in jobs])


def weigh_claims(requests: Sequence[ClaimRequest]) -> tuple[int, int]:
    """What a claim brings is held in memory until its caller has it."""
    return sum([request.limit for request in requests]), sum([request.max_bytes for request in requests])


def _weigh_acks(acks: Sequence[AckRequest]) -> tuple[int, int]:
    acks = Acks.of(acks)
    return len(acks), sum([len(kind.append_status) * len(ids) for kind, ids in acks.runs])
