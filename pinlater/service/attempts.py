"""What ends or prolongs attempts, and what else names jobs: acks, checkpoints, cancels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from pinlater.backends.acks import Acks
from pinlater.backends.base import EndRules, Shard
from pinlater.clock import Clock
from pinlater.errors import PinLaterError
from pinlater.metrics import Metrics
from pinlater.model import Ack, AckOutcome, CancelOutcome, Checkpoint, ConnectionRef
from pinlater.queues.registry import Queues
from pinlater.service.checks import Checks, EntryErrors
from pinlater.service.counting import count_acked
from pinlater.service.outcomes import OrderedOutcomes, retries
from pinlater.service.refs import References
from pinlater.service.ties import Ties
from pinlater.shards.router import Router, together

BecamePending = Callable[[str, int, Sequence[int]], None]
"""Told of a queue how many jobs are eligible again, and when others will be."""


T = TypeVar("T")


class Acked(NamedTuple):
    """What became of the acks of a call: of each, in their order; whether every one had an effect; and the error for
    those that were not carried out, None where there are none.
    """

    outcomes: Sequence[AckOutcome]
    had_effect: bool
    error: PinLaterError | None


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
        self._acking: set[asyncio.Task[Acked]] = set()
        self._queues = queues
        self._metrics = metrics
        self._has_room = has_room
        self._ties = ties

    async def ack_to_the_end(self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack]) -> Acked:
        """As `ack`, and carried out to the end although the caller goes meanwhile."""
        task = asyncio.get_running_loop().create_task(self.ack(queue, succeeded, failed))
        self._acking.add(task)
        task.add_done_callback(self._acking.discard)
        return await asyncio.shield(task)

    async def drain(self) -> None:
        """Until no ack is under way whose caller has gone."""
        while self._acking:
            await asyncio.wait(self._acking)

    def ack(self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack]) -> Coroutine[Any, Any, Acked]:
        """Carries out what is valid, in slices of `max_jobs`. ShardConnectionFailed and others of the router, after all
        that could be done was done.
        """
        if len(succeeded) + len(failed) <= self._checks.max_jobs:
            return self._ack(queue, succeeded, failed, EntryErrors())
        return self._ack_in_slices(queue, succeeded, failed)

    async def _ack(self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack], errors: EntryErrors) -> Acked:
        """Adds to `errors` what is not carried out."""
        now_ms = from_ms = self._clock.now_ms()
        ending = self._ties.named(succeeded, failed)
        groups = self._refs.acks(queue, succeeded, failed, now_ms, errors)
        outcomes: Sequence[list[AckOutcome] | None] = ()
        carried_out = ignored = 0
        if groups:
            spare_ms = self._clock.uncertainty_ms
            if spare_ms:  # delays begin at the latest time that it may be; what is due at once is so by the earliest
                from_ms += spare_ms
                for acks in groups.values():
                    acks.retry_at_once_from(spare_ms)
            send = partial(self._ack_on, queue, from_ms, self._queues.end_rules().get(queue))
            calls = [(shard_id, partial(send, acks)) for shard_id, acks in groups.items()]
            outcomes = await self._router.named(calls)
            for acks, results in zip(groups.values(), outcomes, strict=True):
                if not results:
                    continue
                carried_out += len(results)
                if self._queues.has(queue) or any(results):  # any name can stand in an ack: no label for it
                    ignored += count_acked(self._metrics, queue, acks, results)
                else:
                    ignored += len(results)
                if acks.has_failures:
                    self._became_pending(queue, *retries(acks, results, from_ms))
            if carried_out:
                if ending and not errors.count:
                    self._ties.drop(ending)
                self._has_room(queue)
        total = len(succeeded) + len(failed)
        if carried_out == total and len(groups) == 1:  # as most often: the store's own list is in order
            return Acked(outcomes[0] or (), not ignored, None)
        by_shard = {shard_id: results for shard_id, results in zip(groups, outcomes, strict=True) if results}
        had_effect = not ignored and carried_out == total
        return self._acked(queue, (succeeded, failed), total - carried_out, by_shard, had_effect, errors)

    def _acked(
        self,
        queue: str,
        acks: tuple[Sequence[Ack], Sequence[Ack]],
        left_out: int,
        by_shard: dict[str, list[AckOutcome]],
        had_effect: bool,
        errors: EntryErrors,
    ) -> Acked:
        """Of acks of which not all were for one shard, or were for none here, or were invalid."""
        total = len(acks[0]) + len(acks[1])
        elsewhere = left_out - errors.count
        if elsewhere and self._queues.has(queue):
            self._metrics.add(elsewhere, "acks_without_effect", queue, "not_here")
        outcomes = OrderedOutcomes(total, lambda: self._refs.outcomes(queue, chain(*acks), by_shard))
        error = errors.summary("acks", total, acks_applied=True) if errors.count else None
        return Acked(outcomes, had_effect, error)

    async def _ack_in_slices(self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack]) -> Acked:
        """Successes first, as in one step."""
        errors = EntryErrors()
        failures: list[PinLaterError] = []
        outcomes: list[AckOutcome] = []
        had_effect = True
        most = self._checks.max_jobs
        slices = [(some, ()) for some in _sliced(succeeded, most)] + [((), some) for some in _sliced(failed, most)]
        for goods, bads in slices:
            own = EntryErrors()
            try:
                acked = await self._ack(queue, goods, bads, own)
            except PinLaterError as error:
                failures.append(error.with_traceback(None))
                continue
            errors.extend(own)
            outcomes += acked.outcomes
            had_effect = had_effect and acked.had_effect
        if failures:
            raise together(failures)
        total = len(succeeded) + len(failed)
        return Acked(outcomes, had_effect, errors.summary("acks", total, acks_applied=True) if errors.count else None)

    def _ack_on(
        self, queue: str, now_ms: int, rules: EndRules, acks: Acks, shard: Shard
    ) -> Coroutine[Any, Any, list[AckOutcome]]:
        return shard.ack(queue, acks, now_ms, rules)

    async def checkpoint(
        self, queue: str, source: str, checkpoints: Sequence[Checkpoint], connection: ConnectionRef | None = None
    ) -> None:
        """Carries out what is valid, in slices of `max_jobs`; then RequestInvalid or BodyTooLarge for what was not.
        `connection`: the connection by which they come.
        """
        settings = self._queues.settings(queue)
        errors = EntryErrors()
        valid: list[Checkpoint] = []
        for each in checkpoints:
            try:
                valid.append(self._checks.checkpoint(each, settings))
            except PinLaterError as error:
                errors.add(error.with_traceback(None))
        most = self._checks.max_jobs
        if len(valid) <= most:
            await self._checkpoint(queue, source, valid, connection, errors)
        else:
            await one_by_one(self._checkpoint(queue, source, some, connection, errors) for some in _sliced(valid, most))
        if errors.count:
            raise errors.summary("checkpoints", len(checkpoints))

    async def _checkpoint(
        self,
        queue: str,
        source: str,
        checkpoints: Sequence[Checkpoint],
        connection: ConnectionRef | None,
        errors: EntryErrors,
    ) -> None:
        now_ms, spare_ms = self._clock.now_ms(), self._clock.uncertainty_ms
        from_ms = now_ms + spare_ms
        latest_ms = self._checks.latest_expiry_ms(from_ms)
        groups = self._refs.checkpoints(queue, source, checkpoints, errors, latest_ms)
        if not groups:
            return
        if spare_ms:  # what is due at once is so by the earliest time that it may be
            for request in (each for some in groups.values() for each in some):
                request.run_after_ms = now_ms if request.run_after_ms is None else request.run_after_ms
        calls = [
            (shard_id, lambda shard, each=each: shard.checkpoint(queue, each, from_ms))
            for shard_id, each in groups.items()
        ]
        for (shard_id, requests), results in zip(groups.items(), await self._router.named(calls), strict=True):
            self._ties.heard(connection, queue, shard_id, requests, results or (), from_ms)
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
        """In slices of `max_jobs`."""
        outcomes = dict.fromkeys(descriptors, CancelOutcome.NOT_FOUND)
        most = self._checks.max_jobs
        if len(outcomes) <= most:
            await self._cancel(queue, list(outcomes), outcomes)
        else:
            await one_by_one(self._cancel(queue, some, outcomes) for some in _sliced(list(outcomes), most))
        return outcomes

    async def _cancel(self, queue: str, descriptors: Sequence[str], outcomes: dict[str, CancelOutcome]) -> None:
        """Notes what became of these."""
        groups = self._refs.keys(queue, descriptors)
        if not groups:
            return
        now_ms = self._clock.now_ms()
        calls = [
            (shard_id, lambda shard, named=named: shard.cancel(queue, [key for _, key in named], now_ms))
            for shard_id, named in groups.items()
        ]
        for named, results in zip(groups.values(), await self._router.named(calls), strict=True):
            for (descriptor, _), outcome in zip(named, results or (), strict=False):
                outcomes[descriptor] = outcome


async def one_by_one(steps: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All of them in turn. What some of them raised is one error, when all were done."""
    failures: list[PinLaterError] = []
    for step in steps:
        try:
            await step
        except PinLaterError as error:
            failures.append(error.with_traceback(None))
    if failures:
        raise together(failures)


def _sliced(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
