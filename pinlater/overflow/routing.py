"""The calls that concern overflow shards: jobs that no shard takes or hands out, and calls that name jobs in one.

What the shards do not take goes to this server's overflow shard; what names a job in an overflow shard goes to that
one's owner, wherever it is. The service hands such calls over and no others (service/overflow_calls.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from operator import attrgetter
from time import monotonic
from typing import Any, TypeVar

import structlog

from pinlater.api import Api
from pinlater.errors import (
    INVALID,
    HomeOut,
    NoHealthyShards,
    NothingStored,
    Overloaded,
    PinLaterError,
    ShardConnectionFailed,
)
from pinlater.model import (
    Ack,
    AckOutcome,
    Cancelled,
    CancelOutcome,
    Checkpoint,
    DequeuedFromQueues,
    DequeuedJob,
    DequeueFromQueuesRequest,
    DequeueRequest,
    EnqueuedJobs,
    EnqueueOutcome,
    ExtendedJob,
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatOutcome,
    Job,
    JobInfo,
    OnDuplicate,
    RequestContext,
    RescheduleJob,
    RescheduleOutcome,
)
from pinlater.overflow.descriptors import MARK, by_overflow, elsewhere, overflow_of
from pinlater.overflow.overflow import Overflow
from pinlater.overflow.store import holds_jobs_back
from pinlater.service.job_queries import fit_values
from pinlater.shards.router import combine_errors

T = TypeVar("T")
OwnerCall = Callable[[Api], Coroutine[Any, Any, T]]

_log = structlog.get_logger("pinlater.overflow")
_descriptor = attrgetter("descriptor")
_OF_SHARDS = (ShardConnectionFailed, NoHealthyShards, Overloaded)

_UNREACHABLE = HeartbeatAnswer(HeartbeatOutcome.UNREACHABLE)

LOOK_BACK_S = 1.0
"""A long poll at the overflow shard looks so often whether shards are back."""


class RoutedCalls:
    """Satisfies the service's OverflowCalls. A call for shards and owners goes to all of them; what cannot be reached,
    or has invalid entries, is an error after the others were done.
    """

    def __init__(self, overflow: Overflow) -> None:
        self._overflow = overflow
        self._service = overflow.context.service
        self._members = overflow.context.router.members

    def start_draining(self) -> None:
        self._overflow.start_leaving()

    # -- jobs that no shard takes or hands out -----------------------------------------------------------------------

    async def enqueue(
        self,
        queue: str,
        jobs: Sequence[Job],
        context: RequestContext | None,
        refusal: NoHealthyShards | NothingStored,
    ) -> list[str]:
        return await self._overflow.enqueue(queue, jobs, context, refusal)

    async def enqueue_extended(
        self, queue: str, jobs: Sequence[ExtendedJob], context: RequestContext | None, refusal: PinLaterError
    ) -> list[str]:
        stored = list(refusal.job_descriptors or [""] * len(jobs))
        left = [number for number, descriptor in enumerate(stored) if not descriptor]
        is_out = refusal.reason == HomeOut.reason or isinstance(refusal, NoHealthyShards)
        if not is_out or not all(_may_be_kept(jobs[number]) for number in left):
            raise refusal
        ours = [replace(jobs[number], send_id="") for number in left]  # its dedupe key says as much
        kept = await self._overflow.enqueue(queue, ours, context, refusal)
        outcomes = [EnqueueOutcome(outcome or 0) for outcome in refusal.job_outcomes or [0] * len(jobs)]
        kept_outcomes = getattr(kept, "outcomes", None) or [EnqueueOutcome.STORED] * len(left)
        for number, descriptor, outcome in zip(left, kept, kept_outcomes, strict=True):
            stored[number], outcomes[number] = descriptor, outcome
        is_plain = all(outcome is EnqueueOutcome.STORED for outcome in outcomes)
        return EnqueuedJobs(stored, () if is_plain else outcomes)

    async def dequeue(
        self, request: DequeueRequest, context: RequestContext | None, began_s: float, refusal: NoHealthyShards
    ) -> list[DequeuedJob]:
        acks_applied = refusal.acks_applied
        try:
            return await self._dequeue(replace(request, succeeded=(), failed=()), context, began_s, refusal)
        except PinLaterError as error:
            error.acks_applied = acks_applied or error.acks_applied
            raise

    async def _dequeue(
        self, request: DequeueRequest, context: RequestContext | None, began_s: float, refusal: NoHealthyShards
    ) -> list[DequeuedJob]:
        """From the overflow shard, as long as no shard is back. With nothing there, the shards' refusal.

        Its claims are bound to no connection: their owner may be another process, and moves jobs away all the time.
        """
        if holds_jobs_back(self._overflow.context.queues, request.queue):  # nothing will come from there
            raise refusal
        ours = replace(request, release_on_disconnect=False, confirms_receipt=False)
        return await self._until_shards_are_back(
            request.wait_ms,
            began_s,
            refusal,
            lambda wait_ms: self._overflow.dequeue(replace(ours, wait_ms=wait_ms), context),
            lambda wait_ms: self._service.dequeue(replace(request, wait_ms=wait_ms), context=context),
        )

    async def dequeue_from_queues(
        self,
        request: DequeueFromQueuesRequest,
        context: RequestContext | None,
        began_s: float,
        refusal: NoHealthyShards,
    ) -> DequeuedFromQueues:
        queues = self._overflow.context.queues
        free = [share for share in request.queues if not holds_jobs_back(queues, share.queue)]
        if not free:
            raise refusal
        request = replace(request, acks=())
        ours = replace(request, queues=free, release_on_disconnect=False, confirms_receipt=False)
        dequeued = await self._until_shards_are_back(
            request.wait_ms,
            began_s,
            refusal,
            lambda wait_ms: self._overflow.dequeue_from_queues(replace(ours, wait_ms=wait_ms), context),
            lambda wait_ms: self._service.dequeue_from_queues(replace(request, wait_ms=wait_ms), context=context),
        )
        return dequeued if isinstance(dequeued, DequeuedFromQueues) else DequeuedFromQueues(dequeued)

    async def _until_shards_are_back(
        self,
        wait_ms: int,
        began_s: float,
        refusal: NoHealthyShards,
        ours: Callable[[int], Coroutine[Any, Any, list[DequeuedJob] | None]],
        theirs: Callable[[int], Coroutine[Any, Any, list[DequeuedJob]]],
    ) -> list[DequeuedJob]:
        """Both dequeue for so many milliseconds: from the overflow shard, and from the shards when one can be used."""
        ends_s = began_s + min(wait_ms, self._service.settings.max_wait_ms) / 1000
        while True:
            look_s = min(monotonic() + LOOK_BACK_S, ends_s)
            jobs = await ours(max(0, round((look_s - monotonic()) * 1000)))
            if jobs or self._overflow.is_leaving:
                return jobs or []
            if jobs is None or monotonic() >= ends_s:
                raise refusal
            await asyncio.sleep(look_s - monotonic())  # an owner that ends lets nobody wait
            if self._members.healthy():
                return await theirs(max(0, round((ends_s - monotonic()) * 1000)))

    # -- calls that name jobs ----------------------------------------------------------------------------------------

    async def ack(
        self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack], context: RequestContext | None
    ) -> Sequence[AckOutcome]:
        task = asyncio.get_running_loop().create_task(self._ack(queue, succeeded, failed, context))
        self._overflow.under_way.add(task)
        task.add_done_callback(self._acked)
        return await asyncio.shield(task)

    async def _ack(
        self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack], context: RequestContext | None
    ) -> Sequence[AckOutcome]:
        good, bad = by_overflow(succeeded, _descriptor), by_overflow(failed, _descriptor)

        def call(shard_id: str) -> OwnerCall[Sequence[AckOutcome]]:
            mine = good.get(shard_id, []), bad.get(shard_id, [])
            return lambda owner: owner.ack(queue, *mine, context=context)

        others = elsewhere(succeeded, _descriptor), elsewhere(failed, _descriptor)
        calls = {shard_id: call(shard_id) for shard_id in {**good, **bad}}
        outcomes = await self._everywhere(self._service.ack(queue, *others, context=context), calls)
        parts = dict(zip((None, *calls), map(iter, outcomes), strict=True))
        return [next(parts[overflow_of(ack.descriptor)]) for acks in (succeeded, failed) for ack in acks]

    def _acked(self, task: asyncio.Task[Sequence[AckOutcome]]) -> None:
        self._overflow.under_way.discard(task)
        error = None if task.cancelled() else task.exception()  # the caller was told, or is gone
        if error is not None and not isinstance(error, PinLaterError):
            _log.error("riding_acks_failed", exc_info=error)

    async def checkpoint(self, queue: str, checkpoints: Sequence[Checkpoint], context: RequestContext | None) -> None:
        def call(mine: Sequence[Checkpoint]) -> OwnerCall[None]:
            return lambda owner: owner.checkpoint(queue, mine, context=context)

        others = self._service.checkpoint(queue, elsewhere(checkpoints, _descriptor), context=context)
        groups = by_overflow(checkpoints, _descriptor)
        await self._everywhere(others, {shard_id: call(mine) for shard_id, mine in groups.items()})

    async def heartbeat(
        self, queue: str, heartbeats: Sequence[Heartbeat], context: RequestContext | None
    ) -> list[HeartbeatAnswer]:
        def call(mine: Sequence[Heartbeat]) -> OwnerCall[list[HeartbeatAnswer]]:
            return lambda owner: owner.heartbeat(queue, mine, context=context)

        others = self._service.heartbeat(queue, elsewhere(heartbeats, _descriptor), context=context)
        groups = by_overflow(heartbeats, _descriptor)
        ours = [_outcome(self._overflow.at(shard_id, call(mine))) for shard_id, mine in groups.items()]
        outcomes = await asyncio.gather(_outcome(others), *ours)
        by_shard = {
            shard_id: repeat(_UNREACHABLE) if isinstance(outcome, PinLaterError) else iter(outcome)
            for shard_id, outcome in zip((None, *groups), outcomes, strict=True)
        }
        return [next(by_shard[overflow_of(each.descriptor)]) for each in heartbeats]

    async def lookup(
        self,
        descriptors: Sequence[str],
        include_body: bool,
        include_result: bool,
        include_trail: bool,
        context: RequestContext | None,
    ) -> dict[str, JobInfo]:
        def call(mine: Sequence[str]) -> OwnerCall[dict[str, JobInfo]]:
            return lambda owner: owner.lookup(
                mine,
                include_body=include_body,
                include_result=include_result,
                include_trail=include_trail,
                context=context,
            )

        others = self._service.lookup(
            elsewhere(descriptors, str),
            include_body=include_body,
            include_result=include_result,
            include_trail=include_trail,
            context=context,
        )
        groups = by_overflow(descriptors, str)
        found: dict[str, JobInfo] = {}
        for part in await self._everywhere(others, {shard_id: call(mine) for shard_id, mine in groups.items()}):
            found |= part
        fit_values(found.values(), self._service.settings.max_answer_bytes)
        return found

    async def cancel(
        self, queue: str, descriptors: Sequence[str], running: bool, context: RequestContext | None
    ) -> Mapping[str, CancelOutcome]:
        def call(mine: Sequence[str]) -> OwnerCall[Cancelled]:
            return lambda owner: owner.cancel(queue, mine, running=running, context=context)

        others = self._service.cancel(queue, elsewhere(descriptors, str), running=running, context=context)
        groups = by_overflow(descriptors, str)
        outcomes = dict.fromkeys(descriptors, CancelOutcome.NOT_FOUND)
        for part in await self._everywhere(others, {shard_id: call(mine) for shard_id, mine in groups.items()}):
            outcomes |= part
        return outcomes

    async def reschedule(
        self, queue: str, changes: Sequence[RescheduleJob], audited: bool, context: RequestContext | None
    ) -> list[RescheduleOutcome]:
        def call(mine: Sequence[RescheduleJob]) -> OwnerCall[list[RescheduleOutcome]]:
            return lambda owner: owner.reschedule(queue, mine, audited=audited, context=context)

        groups = by_overflow(changes, _descriptor)
        others = self._service.reschedule(queue, elsewhere(changes, _descriptor), audited=audited, context=context)
        calls = {shard_id: call(mine) for shard_id, mine in groups.items()}
        parts = dict(zip((None, *calls), map(iter, await self._everywhere(others, calls)), strict=True))
        return [next(parts[overflow_of(each.descriptor)]) for each in changes]

    async def requeue(self, jobs: Sequence[DequeuedJob]) -> Sequence[DequeuedJob]:
        if not any(MARK in job.descriptor for job in jobs):
            return jobs
        for shard_id, ours in by_overflow(jobs, _descriptor).items():
            try:
                await self._overflow.at(shard_id, lambda owner, ours=ours: _requeue(owner, ours))  # type: ignore[misc]
            except PinLaterError as error:
                _log.warning("jobs_not_requeued", shard=shard_id, jobs=len(ours), error=error.message)
        return elsewhere(jobs, _descriptor)

    async def _everywhere(self, others: Coroutine[Any, Any, T], calls: Mapping[str, OwnerCall[T]]) -> list[T]:
        """The results, the shards' part first, then those of all overflow shards at once."""
        outcomes = [await _outcome(others)]
        outcomes += await asyncio.gather(*[_outcome(self._overflow.at(*each)) for each in calls.items()])
        failures = [outcome for outcome in outcomes if isinstance(outcome, PinLaterError)]
        if failures:
            raise _combined(failures)
        return [outcome for outcome in outcomes if not isinstance(outcome, PinLaterError)]


def _may_be_kept(job: ExtendedJob) -> bool:
    """A copy in an overflow shard keeps no order, replaces and refuses no job elsewhere, and knows no resend."""
    if job.dedupe_key:
        return not job.serialize_key and job.on_duplicate is OnDuplicate.KEEP
    return not job.is_keyed


async def _outcome(call: Coroutine[Any, Any, T]) -> T | PinLaterError:
    try:
        return await call
    except PinLaterError as error:
        return error.with_traceback(None)


def _combined(failures: Sequence[PinLaterError]) -> PinLaterError:
    """One error for all parts of a call: that some could not be reached or carried out counts before invalid entries,
    and never reads as if surely nothing was changed.
    """
    serious = [failure for failure in failures if not isinstance(failure, INVALID)]
    if not serious:
        text = "; ".join(failure.message for failure in failures)
        applied = None if failures[0].acks_applied is None else all(failure.acks_applied for failure in failures)
        return type(failures[0])(text, acks_applied=applied)
    of_shards = [failure for failure in serious if isinstance(failure, _OF_SHARDS)]
    return combine_errors(of_shards) if of_shards else serious[0]


async def _requeue(owner: Api, jobs: Sequence[DequeuedJob]) -> None:
    """As the interface can say it: moved to pending, with the time that each had."""
    queues: dict[str, list[Checkpoint]] = {}
    for job in jobs:
        queues.setdefault(job.descriptor.partition(":")[0], []).append(
            Checkpoint(
                job.descriptor,
                move_to_pending=True,
                run_after_ms=job.run_after_ms,
                claim_descriptor=job.claim_descriptor,
            )
        )
    for queue, checkpoints in queues.items():
        await owner.checkpoint(queue, checkpoints)
