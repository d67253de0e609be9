"""Dequeues over several shards that come while others of their queue look and claim, look and claim together.

A look costs a call of every shard, whoever it is for. One that has begun is not shared with who comes later: there must
be a moment during each dequeue at which no shard had a job of a higher priority.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pinlater.backends.base import ClaimRequest
from pinlater.model import DequeuedJob
from pinlater.shards.claiming import claim_over
from pinlater.shards.coalesce import weigh_claims
from pinlater.shards.joining import JoinBounds, Joiner
from pinlater.shards.member import Member
from pinlater.shards.undo import GivingBack

_Claims = list[list[DequeuedJob]]


class _Alike(NamedTuple):
    """What dequeues that look together have in common."""

    queue: str
    priorities: tuple[int, ...]
    coverage: float
    enforce_quota: bool


class Dequeues:
    """`members` gives the shards to look at, `requeue` takes jobs whose caller is gone."""

    def __init__(
        self,
        members: Callable[[float], list[Member]],
        deadline_ms: int,
        giving_back: GivingBack,
        requeue: Callable[[str, Sequence[DequeuedJob], int], Coroutine[Any, Any, object]],
    ) -> None:
        self._members = members
        self._giving_back = giving_back
        self._give_back = requeue
        bounds = JoinBounds(max_wait_ms=2 * deadline_ms)  # a look, and what it leads to
        self._joiner: Joiner[_Alike, ClaimRequest, list[DequeuedJob]] = Joiner(
            self._claim,
            weigh_claims,
            replace(bounds, alone_jobs=bounds.max_jobs, max_bytes=bounds.max_claim_bytes),
            undo=self._undo,
        )

    def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, coverage: float, enforce_quota: bool
    ) -> Coroutine[Any, Any, _Claims]:
        """As claim_over."""
        alike = _Alike(queue, tuple(requests[0].priorities), coverage, enforce_quota)
        return self._joiner.call(alike, requests, now_ms)

    def _claim(self, alike: _Alike, requests: Sequence[ClaimRequest], now_ms: int) -> Coroutine[Any, Any, _Claims]:
        members = self._members(alike.coverage)
        return claim_over(members, alike.queue, requests, now_ms, self._giving_back, enforce_quota=alike.enforce_quota)

    async def _undo(self, alike: _Alike, claimed: _Claims, now_ms: int) -> None:
        await self._give_back(alike.queue, [job for jobs in claimed for job in jobs], now_ms)

    async def drain(self) -> None:
        """Until every dequeue is answered."""
        await self._joiner.drain()
