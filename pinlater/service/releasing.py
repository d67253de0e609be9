"""Claims whose connection broke, released: as if they had expired now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

import structlog

from pinlater.backends.base import ExpiryCounts, SilentClaim
from pinlater.clock import Clock
from pinlater.errors import PinLaterError
from pinlater.metrics import Metrics
from pinlater.model import BoundClaim, Unreceived
from pinlater.queues.registry import Queues
from pinlater.service.handing_out import CLAIMS_PER_CALL
from pinlater.service.refs import References
from pinlater.shards.router import Router

_log = structlog.get_logger("pinlater.service")

TRIES = 6
FIRST_PAUSE_S = 0.5
"""Doubled from try to try."""


class Releasing:
    """For one service. `has_room` is told the queues with fewer jobs in progress, `wake` how many became eligible."""

    def __init__(
        self,
        router: Router,
        clock: Clock,
        refs: References,
        queues: Queues,
        metrics: Metrics,
        wake: Callable[[str, int], None],
        has_room: Callable[[str], None],
        requeue_undelivered: Callable[[Sequence[Unreceived]], Awaitable[None]],
    ) -> None:
        self._router = router
        self._clock = clock
        self._refs = refs
        self._queues = queues
        self._metrics = metrics
        self._wake = wake
        self._has_room = has_room
        self._requeue_undelivered = requeue_undelivered

    async def release(self, ties: Sequence[BoundClaim]) -> None:
        """Those that still stand, and of which no server heard since. Raises nothing: a shard that cannot be reached
        after some tries leaves its claims to their time-outs. What nobody received goes back first, without an attempt.
        """
        lost = [
            Unreceived(tie.descriptor, tie.claim_descriptor, tie.expires_at_ms) for tie in ties if tie.is_undelivered
        ]
        if lost:
            await self._requeue_undelivered(lost)
        groups: dict[tuple[str, str], list[SilentClaim]] = {}
        for tie in ties:
            ref = self._refs.parse(tie.descriptor)
            if ref is not None:
                claim = SilentClaim(ref.priority, ref.id, tie.claim_descriptor, tie.last_seen_ms)
                groups.setdefault((ref.queue, ref.shard), []).append(claim)
        await asyncio.gather(*[self._release_some(*place, part) for place in groups for part in _parts(groups[place])])

    async def _release_some(self, queue: str, shard_id: str, claims: Sequence[SilentClaim]) -> None:
        for attempt in range(TRIES):
            try:
                released = await self._ask(queue, shard_id, claims)
            except PinLaterError as error:
                told = error.message
            else:
                self._released(queue, shard_id, released)
                return
            if attempt < TRIES - 1:
                await asyncio.sleep(FIRST_PAUSE_S * 2**attempt)
        _log.warning("claims_not_released", queue=queue, shard=shard_id, claims=len(claims), error=told)

    async def _ask(self, queue: str, shard_id: str, claims: Sequence[SilentClaim]) -> ExpiryCounts:
        rules = self._queues.end_rules().get(queue)
        now_ms = self._clock.now_ms()
        (released,) = await self._router.named(
            [(shard_id, lambda shard: shard.expire_disconnected(queue, claims, now_ms, rules))]
        )
        return released or ExpiryCounts(0, 0)

    def _released(self, queue: str, shard_id: str, released: ExpiryCounts) -> None:
        if not any(released):
            return
        for outcome, jobs in (("retried", released.retried), ("failed", released.failed)):
            if jobs:
                self._metrics.add(jobs, "claims_released", queue, outcome)
        _log.info("claims_released", queue=queue, shard=shard_id, retried=released.retried, failed=released.failed)
        self._wake(queue, released.retried)
        self._has_room(queue)


def _parts(claims: Sequence[SilentClaim]) -> Iterator[Sequence[SilentClaim]]:
    """What one call may name."""
    for start in range(0, len(claims), CLAIMS_PER_CALL):
        yield claims[start : start + CLAIMS_PER_CALL]
