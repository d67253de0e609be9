"""What ends or prolongs attempts, and what else names jobs: acks, checkpoints, cancels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from pinlater.backends.acks import Acks
from pinlater.backends.base import AckOutcome, EndRules, Shard
from pinlater.clock import Clock
from pinlater.metrics import Metrics
from pinlater.model import Ack, CancelOutcome, Checkpoint, Holder, Tie
from pinlater.queues.registry import Queues
from pinlater.service.checks import Checks
from pinlater.service.counting import count_acked
from pinlater.service.outcomes import retries
from pinlater.service.refs import References
from pinlater.service.ties import Ties
from pinlater.shards.router import Router

BecamePending = Callable[[str, int, Sequence[int]], None]
"""Told of a queue how many jobs are eligible again, and when others will be."""


class Attempts:
    """Calls that name jobs, for one service."""

    def __init__(
        self,
        router: Router,
        clock: Clock,
        bounds: Checks,
        refs: References,
        queues: Queues,
        metrics: Metrics,
        became_pending: BecamePending,
        has_room: Callable[[str], None],
        ties: Ties,
    ) -> None:
        """`has_room` is told the queues with fewer jobs in progress than before."""
        self._router = router
        self._clock = clock
        self._checks = bounds
        self._refs = refs
        self._became_pending = became_pending
        self._acking: set[asyncio.Task[None]] = set()
        self._queues = queues
        self._metrics = metrics
        self._has_room = has_room
        self._ties = ties

    def read_acks(self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack]) -> dict[str, Acks]:
        self._checks.amount("jobsSucceeded and jobsFailed", succeeded, failed)
        return self._refs.acks(queue, succeeded, failed, self._clock.now_ms())

    async def ack_whole(self, queue: str, groups: Mapping[str, Acks], ending: Sequence[Tie] = ()) -> None:
        """As `ack`, and carried out to the end although the caller goes meanwhile."""
        if groups:
            task = asyncio.get_running_loop().create_task(self.ack(queue, groups, ending))
            self._acking.add(task)
            task.add_done_callback(self._acking.discard)
            await asyncio.shield(task)

    async def drain(self) -> None:
        """Until no ack is under way whose caller has gone."""
        while self._acking:
            await asyncio.wait(self._acking)

    async def ack(self, queue: str, groups: Mapping[str, Acks], ending: Sequence[Tie] = ()) -> None:
        """`ending`: the ties that end with it."""
        if not groups:
            return
        now_ms = self._clock.now_ms()
        send = partial(self._ack_on, queue, now_ms, self._queues.end_rules().get(queue))
        calls = [(shard_id, partial(send, acks)) for shard_id, acks in groups.items()]
        outcomes = await self._router.named(calls)
        for acks, results in zip(groups.values(), outcomes, strict=True):
            if results and (self._queues.has(queue) or any(results)):  # any name can stand in an ack: no label for it
                count_acked(self._metrics, queue, acks, results)
            if results and acks.has_failures:
                self._became_pending(queue, *retries(acks, results, now_ms))
        if ending:
            self._ties.drop(ending)
        self._has_room(queue)

    def _ack_on(
        self, queue: str, now_ms: int, rules: EndRules, acks: Acks, shard: Shard
    ) -> Coroutine[Any, Any, list[AckOutcome]]:
        return shard.ack(queue, acks, now_ms, rules)

    async def checkpoint(
        self, queue: str, source: str, checkpoints: Sequence[Checkpoint], holder: Holder | None = None
    ) -> None:
        """`holder`: the connection by which they come."""
        self._checks.amount("requests", checkpoints)
        settings = self._queues.settings(queue)
        checkpoints = [self._checks.checkpoint(each, settings) for each in checkpoints]
        now_ms = self._clock.now_ms()
        groups = self._refs.checkpoints(queue, source, checkpoints, self._checks.latest_expiry_ms(now_ms))
        if not groups:
            return
        calls = [
            (shard_id, lambda shard, each=each: shard.checkpoint(queue, each, now_ms))
            for shard_id, each in groups.items()
        ]
        for (shard_id, requests), results in zip(groups.items(), await self._router.named(calls), strict=True):
            self._ties.heard(holder, queue, shard_id, requests, results or (), now_ms)
            moved = [
                request.run_after_ms or now_ms
                for request, was_done in zip(requests, results or (), strict=False)
                if was_done and request.move_to_pending
            ]
            later = [time_ms for time_ms in moved if time_ms > now_ms]
            self._became_pending(queue, len(moved) - len(later), later)
            if moved:
                self._has_room(queue)

    async def cancel(self, queue: str, descriptors: Sequence[str]) -> Mapping[str, CancelOutcome]:
        self._checks.amount("jobDescriptors", descriptors)
        outcomes = dict.fromkeys(descriptors, CancelOutcome.NOT_FOUND)
        groups = self._refs.keys(queue, outcomes)
        if not groups:
            return outcomes
        now_ms = self._clock.now_ms()
        calls = [
            (shard_id, lambda shard, named=named: shard.cancel(queue, [key for _, key in named], now_ms))
            for shard_id, named in groups.items()
        ]
        for named, results in zip(groups.values(), await self._router.named(calls), strict=True):
            for (descriptor, _), outcome in zip(named, results or (), strict=False):
                outcomes[descriptor] = outcome
        return outcomes
