"""The calls of a job's life beside the dequeue: enqueue, ack, checkpoint.

A job's end by an ack is known in `JobLifecycle.settle`, right behind the store's answer: whatever has to know of ends
is told there. (Claims that expire end jobs in `maintenance`, broken connections in `connection_claims`.)
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, NamedTuple, NoReturn, TypeVar, overload

from pinlater.backends.acks import Acks
from pinlater.backends.base import AckRequest, CheckpointRequest, EndRules, Shard
from pinlater.bodies.tiers import with_caller
from pinlater.errors import (
    INVALID,
    BodyTooLarge,
    EnqueueRejected,
    FlowsUnavailable,
    NoHealthyShards,
    NothingStored,
    PinLaterError,
    PriorityNotSupported,
    RequestInvalid,
    ShardConnectionFailed,
)
from pinlater.extended_limits import extended_jobs
from pinlater.metrics import Metrics
from pinlater.model import (
    Ack,
    AckOutcome,
    BoundClaim,
    Checkpoint,
    ConnectionRef,
    Job,
    RequestContext,
    any_reporting,
    parse_descriptor,
)
from pinlater.service.connection_claims import ConnectionClaims
from pinlater.service.descriptors import with_result_too_large
from pinlater.service.end_waits import EndWaits
from pinlater.service.extended_enqueue import ExtendedEnqueue, due_by_group
from pinlater.service.heartbeats import ClaimHeartbeats
from pinlater.service.longpoll import LongPolls
from pinlater.service.overflow_calls import NamesOverflow, OverflowCalls
from pinlater.service.rights import owner
from pinlater.service.service_context import ServiceContext
from pinlater.service.validation import EntryErrors
from pinlater.shards.router import all_answered, combine_errors

T = TypeVar("T")
O = TypeVar("O")  # noqa: E741


class Acked(NamedTuple):
    """What became of the acks of a call: of each, in their order; whether every one had an effect; and the error for
    those that were not carried out, None where there are none.
    """

    outcomes: Sequence[AckOutcome]
    had_effect: bool
    error: PinLaterError | None


class PreparedAcks(NamedTuple):
    """The acks of one call as the shards are told them. `errors`: the entries that are not carried out; `bound`: the
    bound claims that end with them; `now_ms`: the time that the shards are told.
    """

    queue: str
    succeeded: Sequence[Ack]
    failed: Sequence[Ack]
    by_shard: dict[str, Acks]
    errors: EntryErrors
    bound: list[BoundClaim]
    now_ms: int


class JobLifecycle:
    """Enqueues, acks and checkpoints of one service."""

    def __init__(
        self, context: ServiceContext, long_polls: LongPolls, connection_claims: ConnectionClaims, end_waits: EndWaits
    ) -> None:
        self._router = context.router
        self._clock = context.clock
        self._validator = context.validator
        self._parser = context.parser
        self._queues = context.queues
        self._probes, self._group_limits = context.limits.probes, context.limits.groups
        self._pending = context.pending
        self._metrics = context.metrics
        self._long_polls = long_polls
        self._events = context.events
        self._connection_claims = connection_claims
        self._end_waits = end_waits
        self.heartbeats = ClaimHeartbeats(context, connection_claims)
        self._extended = ExtendedEnqueue(context, long_polls)
        self.overflow: OverflowCalls | None = None
        """Takes what no shard takes, and what names jobs of overflow shards."""
        self._flows = context.features.flows
        bodies = context.features.bodies
        self._callers_from_bytes = 0 if bodies is None else bodies.callers_from_bytes
        self._acking: set[asyncio.Task[Any]] = set()

    # -- enqueue -----------------------------------------------------------------------------------------------------

    async def enqueue(self, queue: str, jobs: Sequence[Job], context: RequestContext | None) -> list[str]:
        """All jobs or none. EnqueueRejected; QueueNotFound; what the validator and the router raise.

        A job's body is whatever its caller sent: the one place to make something else of it is here, before it is
        stored (and `checkpoint`, which may replace it).
        """
        now_ms = self._clock.now_ms()
        settings = self._queues.settings(queue)
        max_pending = settings.max_pending
        try:
            checked, later_ms = self._validator.enqueue(queue, jobs, now_ms, settings)
            if not checked:
                return []
            if self._callers_from_bytes:
                checked = with_caller(checked, context, self._callers_from_bytes)
            extended = None
            if type(checked[0]) is not Job or (
                len(checked) > 1 and [type(job) for job in checked].count(Job) != len(checked)
            ):
                extended = extended_jobs(checked, self._validator.max_claim_timeout_ms)
                if settings.group_max_pending is not None:
                    due = due_by_group(extended, now_ms)
                    self._pending.groups.check(queue, due, settings.group_max_pending)
            if settings.draining:
                raise EnqueueRejected(f"queue {queue!r} is draining: it takes no new jobs", reason="QUEUE_DRAINING")
            if max_pending is not None:
                self._pending.check(queue, len(checked))
        except PinLaterError as error:
            self._reject(queue, error)
        ready = len(checked) - len(later_ms)
        if extended is not None:
            try:
                return await self._extended.store(queue, extended, ready, now_ms, settings, context)
            except (NoHealthyShards, ShardConnectionFailed) as refusal:
                if self.overflow is None:
                    raise
                return await self.overflow.enqueue_extended(queue, extended, context, refusal)
        try:
            handles = self._router.taking_jobs()
            storing = self._router.enqueue(queue, checked, now_ms, handles)
            shard_id = handles[0].shard.shard_id
            descriptors = await self._long_polls.claim_behind(queue, ready, settings, storing, shard_id)
        except (NoHealthyShards, NothingStored) as refusal:
            if self.overflow is None:
                raise
            return await self.overflow.enqueue(queue, jobs, context, refusal)
        first = checked[0].priority
        if len(checked) == 1 or [job.priority for job in checked].count(first) == len(checked):
            self._metrics.add(len(checked), "jobs_enqueued", queue, first)
        else:
            for priority, amount in Counter([job.priority for job in checked]).items():
                self._metrics.add(amount, "jobs_enqueued", queue, priority)
        if max_pending is not None:
            self._pending.added(queue, len(checked))
        if len(handles) > 1 and self._long_polls.poller(queue) is not None:  # the first may have stored nothing
            ref = parse_descriptor(descriptors[0])
            shard_id = "" if ref is None else ref.shard
        self._long_polls.jobs_ready(queue, ready, later_ms, shard_id)
        return descriptors

    def _reject(self, queue: str, error: PinLaterError) -> NoReturn:
        if self._queues.has(queue):  # a name that is none would be a label of its own
            self._metrics.add(1, "enqueues_rejected", queue, _rejection_reason(error))
        raise error

    # -- ack ---------------------------------------------------------------------------------------------------------

    async def finish_even_if_cancelled(
        self, acking: Coroutine[Any, Any, T], nobody_got: Callable[[T], object] | None = None
    ) -> T:
        """Acks are carried out although the caller goes meanwhile; then `nobody_got` is told what they came to."""
        task = asyncio.get_running_loop().create_task(acking)
        self._acking.add(task)
        task.add_done_callback(self._acked)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if nobody_got is not None:
                task.add_done_callback(partial(_report, nobody_got))
            raise

    def _acked(self, task: asyncio.Task[Any]) -> None:
        self._acking.discard(task)
        if not task.cancelled():
            task.exception()  # the caller was told, or is gone

    async def drain(self) -> None:
        """Wait until no ack is under way whose caller has gone."""
        while self._acking:
            await asyncio.wait(self._acking)

    def ack(
        self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack], context: RequestContext | None
    ) -> Coroutine[Any, Any, Acked]:
        """Carries out what is valid, in slices of `max_jobs`. ShardConnectionFailed and others of the router, after all
        that could be done was done.
        """
        if len(succeeded) + len(failed) <= self._validator.max_jobs:
            return self._ack(queue, succeeded, failed, EntryErrors(), context)
        return self._ack_in_slices(queue, succeeded, failed, context)

    async def _ack(
        self,
        queue: str,
        succeeded: Sequence[Ack],
        failed: Sequence[Ack],
        errors: EntryErrors,
        context: RequestContext | None,
    ) -> Acked:
        """Adds to `errors` what is not carried out."""
        if any_reporting(succeeded) or any_reporting(failed):
            await self.heartbeats.report(queue, chain(succeeded, failed))
        try:
            prepared = self.prepare(queue, succeeded, failed, errors)
        except NamesOverflow:
            return await self._ack_overflow(queue, succeeded, failed, context)
        if queue in self._queues.flow_queues:
            prepared = await self._recorded(prepared, context)
        return await self.carry_out(prepared)

    async def carry_out(self, prepared: PreparedAcks) -> Acked:
        """One call to each shard; what a store cannot keep is an error of its entry, and keeps no other back. A result
        that is too large for the store fails its attempt, as one above the bound of its queue: sent again, it would be
        so again.
        """
        send = partial(_ack_on, prepared.queue, prepared.now_ms, self._queues.end_rules().get(prepared.queue))
        calls = [(shard_id, partial(send, acks)) for shard_id, acks in prepared.by_shard.items()]
        outcomes = await self._router.ask_by_shard(calls)
        before = prepared.errors.count
        for place, (shard_id, acks) in enumerate(list(prepared.by_shard.items())):
            refused = outcomes[place]
            if isinstance(refused, INVALID):
                call = partial(self._on, shard_id, send)
                without: dict[int, AckRequest] = {}
                instead = partial(_without_result, without, -self._clock.uncertainty_ms)
                outcomes[place] = await apart(call, acks, refused, prepared.errors, AckOutcome.IGNORED, instead)
                if without:
                    sent = Acks.of([without.get(id(ack), ack) for ack in acks])
                    prepared = prepared._replace(by_shard={**prepared.by_shard, shard_id: sent})
        return self.settle(prepared, all_answered(outcomes), refused=prepared.errors.count - before)

    async def _on(
        self, shard_id: str, send: Callable[..., Coroutine[Any, Any, list[O]]], entries: Sequence[Any]
    ) -> list[O] | PinLaterError | None:
        (outcome,) = await self._router.ask_by_shard([(shard_id, partial(send, entries))])
        return outcome

    async def _recorded(self, prepared: PreparedAcks, context: RequestContext | None) -> PreparedAcks:
        """The acks to send to the stores, once the database of flows has recorded those of items. FlowsUnavailable."""
        if self._flows is None:
            raise FlowsUnavailable(f"queue {prepared.queue!r} has items of flows, and this server has no flows")
        record = self._flows.ends.record_acks
        by_shard = await record(prepared.queue, prepared.by_shard, prepared.now_ms, owner(context))
        return prepared._replace(by_shard=by_shard)

    def prepare(self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack], errors: EntryErrors) -> PreparedAcks:
        """The acks to send to each shard; what is invalid is an error of its entry."""
        now_ms = from_ms = self._clock.now_ms()
        bound = self._connection_claims.ended_by(succeeded, failed)
        by_shard = self._parser.acks(queue, succeeded, failed, now_ms, errors, self._queues.settings)
        spare_ms = self._clock.uncertainty_ms
        if spare_ms and by_shard:  # delays begin at the latest time that it may be; at once is at once
            from_ms += spare_ms
            for acks in by_shard.values():
                acks.retry_at_once_from(spare_ms)
        return PreparedAcks(queue, succeeded, failed, by_shard, errors, bound, from_ms)

    def settle(self, prepared: PreparedAcks, outcomes: Sequence[list[AckOutcome] | None], *, refused: int = 0) -> Acked:
        """What the acks came to. Metrics, bound claims and callers that wait for jobs learn of it, shard by shard.
        `refused`: so many of those that are IGNORED are among the errors.
        """
        queue, by_shard, queues = prepared.queue, prepared.by_shard, self._queues
        carried_out, ignored = -refused, 0
        for (shard_id, acks), results in zip(by_shard.items(), outcomes, strict=True):
            if not results:
                continue
            carried_out += len(results)
            if queues.has(queue) or any(results):  # any name can stand in an ack: no label for it
                ignored += _count_acked(self._metrics, queue, acks, results)
            else:
                ignored += len(results)
            if self._end_waits.waiters:
                self._end_waits.acked(queue, shard_id, acks, results)
            if queue in queues.acks_watched:
                if queue in queues.open_breakers:
                    self._probes.acked(queue, shard_id, acks, results)
                if queue in queues.group_limited:
                    self._group_limits.acked(queue, shard_id, acks, results)
            if acks.has_failures:
                self._long_polls.jobs_ready(queue, *requeue_times(acks, results, prepared.now_ms), shard_id)
        if carried_out:
            if prepared.bound and not prepared.errors.count:
                self._connection_claims.drop(prepared.bound)
            self._long_polls.capacity_freed(queue)
        total = len(prepared.succeeded) + len(prepared.failed)
        if carried_out == total and len(by_shard) == 1:  # as most often: the store's own list is in order
            return Acked(outcomes[0] or (), not ignored, None)
        return self._settle_some(prepared, outcomes, carried_out, had_effect=not ignored and carried_out == total)

    def _settle_some(
        self,
        prepared: PreparedAcks,
        outcomes: Sequence[list[AckOutcome] | None],
        carried_out: int,
        *,
        had_effect: bool,
    ) -> Acked:
        """The outcome when some acks went to other shards, to unknown shards, or were invalid."""
        queue, succeeded, failed, by_shard, errors, _, _ = prepared
        total = len(succeeded) + len(failed)
        elsewhere = total - carried_out - errors.count
        if elsewhere and self._queues.has(queue):
            self._metrics.add(elsewhere, "acks_without_effect", queue, "not_here")
        answered = {shard_id: results for shard_id, results in zip(by_shard, outcomes, strict=True) if results}
        in_order = OrderedOutcomes(total, lambda: self._parser.outcomes(queue, chain(succeeded, failed), answered))
        return Acked(in_order, had_effect, _summary(errors, total))

    async def _ack_overflow(
        self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack], context: RequestContext | None
    ) -> Acked:
        assert self.overflow is not None
        outcomes = await self.overflow.ack(queue, succeeded, failed, context)
        return Acked(outcomes, outcomes.count(AckOutcome.IGNORED) + outcomes.count(AckOutcome.UNKNOWN) == 0, None)

    async def _ack_in_slices(
        self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack], context: RequestContext | None
    ) -> Acked:
        """Successes first, as in one step."""
        try:
            self._parser.require_shards(ack.descriptor for ack in chain(succeeded, failed))
        except NamesOverflow:
            return await self._ack_overflow(queue, succeeded, failed, context)
        errors = EntryErrors()
        failures: list[PinLaterError] = []
        outcomes: list[AckOutcome] = []
        had_effect = True
        most = self._validator.max_jobs
        slices = [(some, ()) for some in sliced(succeeded, most)] + [((), some) for some in sliced(failed, most)]
        for goods, bads in slices:
            own = EntryErrors()
            try:
                acked = await self._ack(queue, goods, bads, own, context)
            except PinLaterError as error:
                failures.append(error.with_traceback(None))
                continue
            errors.extend(own)
            outcomes += acked.outcomes
            had_effect = had_effect and acked.had_effect
        if failures:
            raise combine_errors(failures)
        return Acked(outcomes, had_effect, _summary(errors, len(succeeded) + len(failed)))

    # -- checkpoint --------------------------------------------------------------------------------------------------

    async def checkpoint(
        self, queue: str, source: str, checkpoints: Sequence[Checkpoint], connection: ConnectionRef | None = None
    ) -> None:
        """Carries out what is valid, in slices of `max_jobs`; then RequestInvalid or BodyTooLarge for what was not.
        `connection`: the one by which they come.
        """
        settings = self._queues.settings(queue)
        errors = EntryErrors()
        valid: list[Checkpoint] = []
        for each in checkpoints:
            try:
                valid.append(self._validator.checkpoint(each, settings))
            except PinLaterError as error:
                errors.add(error.with_traceback(None))
        most = self._validator.max_jobs
        if len(valid) <= most:
            await self._checkpoint(queue, source, valid, connection, errors)
        else:
            self._parser.require_shards(each.descriptor for each in valid)
            await one_by_one(self._checkpoint(queue, source, some, connection, errors) for some in sliced(valid, most))
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
        latest_ms = self._validator.latest_expiry_ms(from_ms)
        groups = self._parser.checkpoints(queue, source, checkpoints, errors, latest_ms)
        if not groups:
            return
        if spare_ms:  # what is due at once is so by the earliest time that it may be
            for request in (each for some in groups.values() for each in some):
                request.run_after_ms = now_ms if request.run_after_ms is None else request.run_after_ms
        send = partial(_checkpoint_on, queue, from_ms)
        calls = [(shard_id, partial(send, each)) for shard_id, each in groups.items()]
        outcomes = await self._router.ask_by_shard(calls)
        for place, (shard_id, requests) in enumerate(groups.items()):
            refused = outcomes[place]
            if isinstance(refused, INVALID):
                call = partial(self._on, shard_id, send)
                outcomes[place] = await apart(call, requests, refused, errors, False)
        for (shard_id, requests), results in zip(groups.items(), all_answered(outcomes), strict=True):
            self._connection_claims.on_checkpoints(connection, queue, shard_id, requests, results or (), from_ms)
            moved = [
                request.run_after_ms or now_ms
                for request, was_done in zip(requests, results or (), strict=False)
                if was_done and request.move_to_pending
            ]
            if moved:
                self._events.ready_at(queue, moved, now_ms)
                self._events.freed(queue)
                self._group_limits.may_have_ended(queue, shard_id, [each.id for each in requests])


async def apart(
    call: Callable[[Sequence[T]], Awaitable[list[O] | PinLaterError | None]],
    entries: Sequence[T],
    refused: PinLaterError,
    errors: EntryErrors,
    nothing: O,
    instead: Callable[[T, PinLaterError], T | None] | None = None,
) -> list[O] | PinLaterError | None:
    """The outcomes of entries of which a store cannot keep one at least: again in halves, down to that one, which is
    an error of its own, with `nothing` as its outcome, unless `instead` gives what to send in its place. A store has
    done all of a call, or nothing of it.
    """
    if len(entries) == 1:
        other = None if instead is None else instead(entries[0], refused)
        if other is None:
            errors.add(refused)
            return [nothing]
        outcomes = await call([other])
        return await apart(call, [other], outcomes, errors, nothing) if isinstance(outcomes, INVALID) else outcomes
    found: list[O] = []
    middle = len(entries) // 2
    for some in (entries[:middle], entries[middle:]):
        outcomes = await call(some)
        if isinstance(outcomes, INVALID):
            outcomes = await apart(call, some, outcomes, errors, nothing, instead)
        if outcomes is None or isinstance(outcomes, PinLaterError):
            return outcomes
        found += outcomes
    return found


def _without_result(
    replaced: dict[int, AckRequest], at_once_ms: int, ack: AckRequest, refused: PinLaterError
) -> AckRequest | None:
    """The failure that stands for a success whose result the store cannot keep, noted in `replaced` by the ack's id."""
    if ack.result is None or not isinstance(refused, BodyTooLarge):
        return None
    status = with_result_too_large(ack.append_status, len(ack.result), refused.message)
    failure = replaced[id(ack)] = replace(
        ack, succeeded=False, result=None, append_status=status, retry_delay_ms=ack.retry_delay_ms or at_once_ms
    )
    return failure


def _checkpoint_on(
    queue: str, now_ms: int, requests: Sequence[CheckpointRequest], shard: Shard
) -> Coroutine[Any, Any, list[bool]]:
    return shard.checkpoint(queue, requests, now_ms)


def _ack_on(
    queue: str, now_ms: int, rules: EndRules, acks: Sequence[AckRequest], shard: Shard
) -> Coroutine[Any, Any, list[AckOutcome]]:
    return shard.ack(queue, acks, now_ms, rules)


def _summary(errors: EntryErrors, total: int) -> PinLaterError | None:
    return errors.summary("acks", total, acks_applied=True) if errors.count else None


def _report(nobody_got: Callable[[T], object], task: asyncio.Task[T]) -> None:
    if not task.cancelled() and task.exception() is None:
        nobody_got(task.result())


async def one_by_one(steps: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all steps in turn, whatever some of them raise; then raise what they raised, as one error."""
    failures: list[PinLaterError] = []
    for step in steps:
        try:
            await step
        except PinLaterError as error:
            failures.append(error.with_traceback(None))
    if failures:
        raise combine_errors(failures)


def sliced(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def requeue_times(acks: Acks, outcomes: Sequence[AckOutcome], now_ms: int) -> tuple[int, list[int]]:
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


def _rejection_reason(error: PinLaterError) -> str:
    """The word for why an enqueue was refused."""
    if isinstance(error, EnqueueRejected):
        return "draining" if error.reason == "QUEUE_DRAINING" else "pending"
    if isinstance(error, BodyTooLarge):
        return "body"
    if isinstance(error, PriorityNotSupported):
        return "priority"
    return "attempts" if isinstance(error, RequestInvalid) and error.field == "numAttemptsAllowed" else "invalid"


def _count_acked(metrics: Metrics, queue: str, acks: Acks, outcomes: Sequence[AckOutcome]) -> int:
    """Count the acks by their outcomes; how many of them had no effect."""
    start = ignored = 0
    for kind, ids in acks.runs:
        own = outcomes[start : start + len(ids)]
        start += len(ids)
        for outcome in own[:1] if own.count(own[0]) == len(own) else AckOutcome:
            amount = own.count(outcome)
            if amount:
                metrics.add(amount, "jobs_acked", queue, kind.priority, _WORDS[outcome])
                if outcome is AckOutcome.SUCCEEDED:
                    if kind.result is not None:
                        metrics.add(amount, "results_kept", queue)
                elif outcome is AckOutcome.CANCELLED:
                    metrics.add(amount, "jobs_cancelled", queue)
                elif outcome is AckOutcome.IGNORED:
                    ignored += amount
                    metrics.add(amount, "acks_without_effect", queue, "claim" if kind.claim_descriptor else "job")
    return ignored
