"""The calls that name jobs: acks, checkpoints, cancels.

The end of a job by an ack is known in `JobCommands._ack`, right behind the store's answer: what is to be told of ends
is told there. (Claims that expire end jobs in `maintenance`, broken connections in `connection_claims`.)
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar, overload

from pinlater.backends.acks import Acks
from pinlater.backends.base import EndRules, Shard
from pinlater.clock import Clock
from pinlater.errors import BodyTooLarge, EnqueueRejected, PinLaterError, PriorityNotSupported, RequestInvalid
from pinlater.metrics import Metrics
from pinlater.model import Ack, AckOutcome, CancelOutcome, Checkpoint, ConnectionRef, Job
from pinlater.queues.directory import QueueDirectory
from pinlater.service.connection_claims import ConnectionClaims
from pinlater.service.descriptors import DescriptorParser
from pinlater.service.validation import EntryErrors, Validator
from pinlater.shards.router import Router, combine_errors

JobsReady = Callable[[str, int, Sequence[int]], None]
"""Told of a queue how many jobs are eligible again, and when others will be."""


T = TypeVar("T")


class Acked(NamedTuple):
    """What became of the acks of a call: of each, in their order; whether every one had an effect; and the error for
    those that were not carried out, None where there are none.
    """

    outcomes: Sequence[AckOutcome]
    had_effect: bool
    error: PinLaterError | None


class JobCommands:
    """Calls that name jobs, for one service."""

    def __init__(
        self,
        router: Router,
        clock: Clock,
        bounds: Validator,
        refs: DescriptorParser,
        queues: QueueDirectory,
        metrics: Metrics,
        jobs_ready: JobsReady,
        capacity_freed: Callable[[str], None],
        ties: ConnectionClaims,
    ) -> None:
        """`has_room` is told the queues with fewer jobs in progress than before."""
        self._router = router
        self._clock = clock
        self._checks = bounds
        self._refs = refs
        self._became_pending = jobs_ready
        self._acking: set[asyncio.Task[Acked]] = set()
        self._queues = queues
        self._metrics = metrics
        self._has_room = capacity_freed
        self._ties = ties

    async def to_the_end(self, acking: Coroutine[Any, Any, Acked]) -> Acked:
        """Acks are carried out although the caller goes meanwhile."""
        task = asyncio.get_running_loop().create_task(acking)
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
            outcomes = await self._router.call_by_shard(calls)
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
        self._refs.require_shards(ack.descriptor for ack in chain(succeeded, failed))
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
            raise combine_errors(failures)
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
            self._refs.require_shards(each.descriptor for each in valid)
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
        for (shard_id, requests), results in zip(groups.items(), await self._router.call_by_shard(calls), strict=True):
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
            self._refs.require_shards(outcomes)
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
        for named, results in zip(groups.values(), await self._router.call_by_shard(calls), strict=True):
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
        raise combine_errors(failures)


def _sliced(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def retries(acks: Acks, outcomes: Sequence[AckOutcome], now_ms: int) -> tuple[int, list[int]]:
    """How many jobs went back to PENDING without delay, and the times of those that did with one."""
    now = start = 0
    later: list[int] = []
    for kind, ids in acks.runs:
        amount = outcomes[start : start + len(ids)].count(AckOutcome.RETRIED)
        start += len(ids)
        if kind.retry_delay_ms > 0:
            later += [now_ms + kind.retry_delay_ms] * amount
        else:
            now += amount
    return now, later


class OrderedOutcomes(Sequence[AckOutcome]):
    """Put in the order of their acks when somebody looks at them, which most callers do not."""

    def __init__(self, count: int, in_order: Callable[[], list[AckOutcome]]) -> None:
        self._count = count
        self._in_order = in_order

    @cached_property
    def _outcomes(self) -> list[AckOutcome]:
        return self._in_order()

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> AckOutcome: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[AckOutcome]: ...
    def __getitem__(self, index: int | slice) -> AckOutcome | Sequence[AckOutcome]:
        return self._outcomes[index]

    def __eq__(self, other: object) -> bool:
        return self._outcomes == other

    __hash__ = None  # type: ignore[assignment]


_WORDS = {outcome: outcome.name.lower() for outcome in AckOutcome}


def rejection(error: PinLaterError) -> str:
    """The word for why an enqueue was refused."""
    if isinstance(error, EnqueueRejected):
        return "draining" if error.reason == "QUEUE_DRAINING" else "pending"
    if isinstance(error, BodyTooLarge):
        return "body"
    if isinstance(error, PriorityNotSupported):
        return "priority"
    return "attempts" if isinstance(error, RequestInvalid) and error.field == "numAttemptsAllowed" else "invalid"


def count_enqueued(metrics: Metrics, queue: str, jobs: Sequence[Job]) -> None:
    priorities = [job.priority for job in jobs]
    if priorities.count(priorities[0]) == len(priorities):  # as most often, and a third of a Counter's work
        metrics.add(len(priorities), "jobs_enqueued", queue, priorities[0])
        return
    for priority, amount in Counter(priorities).items():
        metrics.add(amount, "jobs_enqueued", queue, priority)


def count_acked(metrics: Metrics, queue: str, acks: Acks, outcomes: Sequence[AckOutcome]) -> int:
    """How many of them had no effect."""
    start = ignored = 0
    for kind, ids in acks.runs:
        own = outcomes[start : start + len(ids)]
        start += len(ids)
        for outcome in own[:1] if own.count(own[0]) == len(own) else AckOutcome:
            amount = own.count(outcome)
            if amount:
                metrics.add(amount, "jobs_acked", queue, kind.priority, _WORDS[outcome])
                if outcome is AckOutcome.IGNORED:
                    ignored += amount
                    metrics.add(amount, "acks_without_effect", queue, "claim" if kind.claim_descriptor else "job")
    return ignored
