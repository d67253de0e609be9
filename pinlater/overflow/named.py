"""Calls that name jobs, some of which are in overflow shards: the shards' part, and every owner's part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from pinlater.api import Api
from pinlater.errors import INVALID, NoHealthyShards, Overloaded, PinLaterError, ShardConnectionFailed
from pinlater.model import Ack, AckOutcome, CancelOutcome, Checkpoint, JobInfo, RequestContext
from pinlater.overflow.descriptors import MARK, by_overflow, elsewhere, fit, overflow_of
from pinlater.overflow.overflow import Overflow
from pinlater.overflow.service import Delegate
from pinlater.shards.router import combine_errors

T = TypeVar("T")
Call = Callable[[Api], Coroutine[Any, Any, T]]
_descriptor = attrgetter("descriptor")
_OF_SHARDS = (ShardConnectionFailed, NoHealthyShards, Overloaded)


class RoutedCalls(Delegate):
    """Ordinary ones pass at the price of a look at their descriptors."""

    def __init__(self, overflow: Overflow) -> None:
        self._inner = overflow.around.service
        super().__init__(self._inner)
        self._overflow = overflow

    def ack(
        self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack], *, context: RequestContext | None = None
    ) -> Coroutine[Any, Any, Sequence[AckOutcome]]:
        for acks in (succeeded, failed):
            for ack in acks:
                if MARK in ack.descriptor:
                    return self._ack(queue, succeeded, failed, context)
        return self._inner.ack(queue, succeeded, failed, context=context)

    async def _ack(
        self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack], context: RequestContext | None
    ) -> Sequence[AckOutcome]:
        good, bad = by_overflow(succeeded, _descriptor), by_overflow(failed, _descriptor)

        def call(shard_id: str) -> Call[Sequence[AckOutcome]]:
            mine = good.get(shard_id, []), bad.get(shard_id, [])
            return lambda owner: owner.ack(queue, *mine, context=context)

        others = elsewhere(succeeded, _descriptor), elsewhere(failed, _descriptor)
        inner = self._inner.ack(queue, *others, context=context)
        calls = {shard_id: call(shard_id) for shard_id in {**good, **bad}}
        parts = dict(zip((None, *calls), map(iter, await self._everywhere(inner, calls)), strict=True))
        return [next(parts[overflow_of(ack.descriptor)]) for acks in (succeeded, failed) for ack in acks]

    def checkpoint(
        self, queue: str, checkpoints: Sequence[Checkpoint], *, context: RequestContext | None = None
    ) -> Coroutine[Any, Any, None]:
        for each in checkpoints:
            if MARK in each.descriptor:
                return self._checkpoint(queue, checkpoints, context)
        return self._inner.checkpoint(queue, checkpoints, context=context)

    async def _checkpoint(self, queue: str, checkpoints: Sequence[Checkpoint], context: RequestContext | None) -> None:
        def call(mine: Sequence[Checkpoint]) -> Call[None]:
            return lambda owner: owner.checkpoint(queue, mine, context=context)

        inner = self._inner.checkpoint(queue, elsewhere(checkpoints, _descriptor), context=context)
        groups = by_overflow(checkpoints, _descriptor)
        await self._everywhere(inner, {shard_id: call(mine) for shard_id, mine in groups.items()})

    async def lookup(
        self, descriptors: Sequence[str], *, include_body: bool = False, context: RequestContext | None = None
    ) -> dict[str, JobInfo]:
        for descriptor in descriptors:
            if MARK in descriptor:
                return await self._lookup(descriptors, include_body, context)
        return await self._inner.lookup(descriptors, include_body=include_body, context=context)

    async def _lookup(
        self, descriptors: Sequence[str], include_body: bool, context: RequestContext | None
    ) -> dict[str, JobInfo]:
        def call(mine: Sequence[str]) -> Call[dict[str, JobInfo]]:
            return lambda owner: owner.lookup(mine, include_body=include_body, context=context)

        inner = self._inner.lookup(elsewhere(descriptors, str), include_body=include_body, context=context)
        groups = by_overflow(descriptors, str)
        found: dict[str, JobInfo] = {}
        for part in await self._everywhere(inner, {shard_id: call(mine) for shard_id, mine in groups.items()}):
            found |= part
        fit(found, self._inner.settings.max_answer_bytes)
        return found

    async def cancel(
        self, queue: str, descriptors: Sequence[str], *, context: RequestContext | None = None
    ) -> Mapping[str, CancelOutcome]:
        groups = by_overflow(descriptors, str)
        if not groups:
            return await self._inner.cancel(queue, descriptors, context=context)

        def call(mine: Sequence[str]) -> Call[Mapping[str, CancelOutcome]]:
            return lambda owner: owner.cancel(queue, mine, context=context)

        inner = self._inner.cancel(queue, elsewhere(descriptors, str), context=context)
        outcomes = dict.fromkeys(descriptors, CancelOutcome.NOT_FOUND)
        for part in await self._everywhere(inner, {shard_id: call(mine) for shard_id, mine in groups.items()}):
            outcomes |= part
        return outcomes

    async def _everywhere(self, inner: Coroutine[Any, Any, T], calls: Mapping[str, Call[T]]) -> list[T]:
        """What each answers: the shards' part first, then all overflow shards at once. What cannot be reached, or has
        invalid entries, is an error after the others were done.
        """
        outcomes = [await _outcome(inner)]
        outcomes += await asyncio.gather(*[_outcome(self._overflow.at(*each)) for each in calls.items()])
        failures = [outcome for outcome in outcomes if isinstance(outcome, PinLaterError)]
        if failures:
            raise _one_of(failures)
        return [outcome for outcome in outcomes if not isinstance(outcome, PinLaterError)]


async def _outcome(call: Coroutine[Any, Any, T]) -> T | PinLaterError:
    try:
        return await call
    except PinLaterError as error:
        return error.with_traceback(None)


def _one_of(failures: Sequence[PinLaterError]) -> PinLaterError:
    """One error for all parts of a call: that some could not be reached or carried out counts before invalid entries,
    and never reads as if surely nothing was changed.
    """
    grave = [failure for failure in failures if not isinstance(failure, INVALID)]
    if not grave:
        text = "; ".join(failure.message for failure in failures)
        applied = None if failures[0].acks_applied is None else all(failure.acks_applied for failure in failures)
        return type(failures[0])(text, acks_applied=applied)
    of_shards = [failure for failure in grave if isinstance(failure, _OF_SHARDS)]
    return combine_errors(of_shards) if of_shards else grave[0]
