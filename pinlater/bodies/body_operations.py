"""The operations of operators on tiers: their state, and runs that sweep, verify and move bodies, step by step."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from pinlater.backends.base import STORED_STATES, ScanPosition, ScanRequest
from pinlater.backends.extended import RescheduleRequest
from pinlater.bodies.sweep import NAMESPACE, Sweeper, TierCounts
from pinlater.bodies.tiered_shard import TieredShard
from pinlater.bodies.tiers import Tiers
from pinlater.clock import Clock
from pinlater.errors import BodyGone, ContinuationInvalid, PinLaterError, QueueNotFound, RequestInvalid, TierUnavailable
from pinlater.metrics import Metrics
from pinlater.model import CONTINUATION_END, CONTINUATION_START, JobInfo, JobState, RescheduleOutcome, parse_descriptor
from pinlater.model.body_reference import BodyReference, BodyRule, body_length
from pinlater.model.body_words import BodiesAction, BodiesChange, BodiesStep, BodyTier, BodyTiers
from pinlater.shards.shard_set import ShardSet
from pinlater.stored_json import read_stored

R = TypeVar("R")
COUNT_S = 1.0
"""How long `status` counts objects itself; with more of them than that it tells what the last sweep has found."""

PROGRESS_S = 0.5
"""How long a step of a sweep waits for its run."""

PARALLEL = 16
"""Bodies that one step reads or moves at a time."""

_STORE_ID = re.compile(r"[0-9a-f]{1,64}", re.ASCII)
_SCAN_BYTES = 4 * 2**20
_MOST_PROBLEMS = 10
_END = BodiesStep(CONTINUATION_END)


@dataclass(slots=True)
class _Place:
    """Where a run over jobs stands: the shard, the queue, due or for later, and behind which job."""

    shard: str
    queue: str
    future: bool
    after: ScanPosition | None

    def text(self) -> str:
        after = "" if self.after is None else f"{self.after.run_after_ms}.{self.after.id}"
        return f"{self.shard}/{self.queue}/{int(self.future)}/{after}"

    @classmethod
    def of(cls, text: str) -> _Place:
        """ContinuationInvalid."""
        try:
            shard, queue, future, after = text.split("/")
            run_after_ms, _, job_id = after.partition(".")
            place = ScanPosition(int(run_after_ms), int(job_id)) if after else None
            return cls(shard, queue, future == "1", place)
        except ValueError as error:
            raise ContinuationInvalid("this is no continuation of a run over bodies") from error


class TierOperations:
    """Of one process. `queues` gives the names of all queues, `priorities` those that jobs have."""

    def __init__(
        self,
        tiers: Tiers,
        sweeper: Sweeper,
        members: ShardSet,
        clock: Clock,
        metrics: Metrics,
        queues: Callable[[], Sequence[str]],
        priorities: Sequence[int],
    ) -> None:
        self.callers_from_bytes = tiers.least_bytes if tiers.rules.names_callers else 0
        """Bodies from this size on name their caller, for the rules of tiers; 0: none ask for it."""
        self._tiers = tiers
        self._sweeper = sweeper
        self._members = members
        self._clock = clock
        self._metrics = metrics
        self._queues = queues
        self._priorities = priorities

    # -- the state -----------------------------------------------------------------------------------------------------

    async def status(self) -> BodyTiers:
        """See Api.get_body_tiers."""
        views = [self._view(name) for name in self._tiers.all]
        counted_at_ms, counts = await self._counts()
        for view in views:
            if view.name in counts:
                each = counts[view.name]
                view.bodies, view.bytes, view.orphans = each.bodies, each.bytes, each.orphans
                view.counted_at_ms = counted_at_ms
        to_delete = 0
        for handle in self._members.healthy():
            with suppress(PinLaterError):
                to_delete += len(await handle.shard.dropped_references(10_000))
        lacking = {name for tier in self._tiers.all for name in self._tiers.lacking(tier)}
        strangers: list[str] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(COUNT_S):
                strangers = await self._sweeper.strangers()
        return BodyTiers(views, self._tiers.rules.texts, sorted(lacking), to_delete, strangers)

    def _view(self, name: str) -> BodyTier:
        tier, counters = self._tiers.all[name], self._metrics.counters
        view = BodyTier(name, tier.url, tier.error)
        view.fallbacks = int(counters.get(("body_fallbacks", name), 0))
        view.read_failures = int(counters.get(("body_failures", name, "get"), 0))
        put, get = (self._metrics.histogram("body_seconds", name, call) for call in ("put", "get"))
        view.put_p50_ms, view.put_p99_ms = put.quantile_ms(0.5), put.quantile_ms(0.99)
        view.get_p50_ms, view.get_p99_ms = get.quantile_ms(0.5), get.quantile_ms(0.99)
        return view

    async def _counts(self) -> tuple[int, dict[str, TierCounts]]:
        """Counted now, where that is quick; else as the last sweep of each shard found it. With the time of that."""
        try:
            async with asyncio.timeout(COUNT_S):
                return self._clock.now_ms(), await self._counted_now()
        except (TimeoutError, TierUnavailable):
            pass
        at_ms, counts = self._clock.now_ms(), dict[str, TierCounts]()
        for handle in self._members.healthy():
            with suppress(PinLaterError):
                swept = (await handle.shard.kv_list(NAMESPACE, self._clock.now_ms())).get("swept")
                if swept is not None:
                    kept = read_stored(swept.body)
                    at_ms = min(at_ms, kept["at_ms"])
                    for name, each in kept["tiers"].items():
                        _add(counts.setdefault(name, TierCounts()), TierCounts(**each))
        return at_ms, counts

    async def _counted_now(self) -> dict[str, TierCounts]:
        counts: dict[str, TierCounts] = {}
        for handle in self._members.healthy():
            if isinstance(handle.shard, TieredShard):
                for name, each in (await self._sweeper.count(handle.shard)).items():
                    _add(counts.setdefault(name, TierCounts()), each)
        return counts

    # -- runs ----------------------------------------------------------------------------------------------------------

    async def step(self, change: BodiesChange) -> BodiesStep:
        """See Api.change_bodies."""
        if change.tier and change.tier not in self._tiers.all:
            raise RequestInvalid.of("tier", change.tier, f"one of {', '.join(self._tiers.all)}")
        if change.action is BodiesAction.SWEEP:
            return await self._sweep(change)
        if change.action is BodiesAction.VERIFY:
            return await self._verify(change)
        return await self._move(change)

    async def _sweep(self, change: BodiesChange) -> BodiesStep:
        """The run goes on by itself; a step tells what it did since the step before."""
        if change.continuation == CONTINUATION_START:
            if change.store and not _STORE_ID.fullmatch(change.store):
                raise RequestInvalid.of("store", change.store, "a store id, as the status of bodies names it")
            if change.store in self._members.store_ids().values():
                raise RequestInvalid.of("store", change.store, "the id of no shard here: those are swept without it")
            run = self._sweeper.begin(only_tier=change.tier, dry_run=change.dry_run, store=change.store)
            reported = [0, 0, 0, 0]
        else:
            run, *numbers = change.continuation.split(":")
            if len(numbers) != 4 or not all(each.isdecimal() for each in numbers):
                raise ContinuationInvalid("this is no continuation of a sweep")
            reported = [int(each) for each in numbers]
        await asyncio.sleep(PROGRESS_S if change.continuation != CONTINUATION_START else 0.05)
        progress = await self._sweeper.progress(run)
        now = [progress.looked_at, progress.found, progress.done, progress.bytes]
        examined, found, done, size = (new - old for new, old in zip(now, reported, strict=True))
        step = BodiesStep(f"{run}:{':'.join(map(str, now))}", examined, found, done, size)
        if progress.has_ended:
            step.continuation, step.troubles = CONTINUATION_END, progress.troubles
        return step

    async def _verify(self, change: BodiesChange) -> BodiesStep:
        """Reference by reference, shard by shard."""
        shards = self._shards()
        shard_id, _, after = change.continuation.partition("/")
        if change.continuation == CONTINUATION_START:
            shard_id = shards[0].shard_id if shards else ""
        shard = next((each for each in shards if each.shard_id == shard_id), None)
        if shard is None:
            raise ContinuationInvalid("the shard of this run is not there any more: begin it again")
        page = await shard.list_references(after, change.limit)
        step = BodiesStep(CONTINUATION_END)
        wanted = [
            each
            for each in page.references
            if change.tier in ("", each.parts.tier) and change.queue in ("", each.parts.queue)
        ]
        step.looked_at = len(wanted)
        why = await _in_parallel([self._unreadable(shard, each) for each in wanted])
        bad = {each: text for each, text in zip(wanted, why, strict=True) if text}
        if bad:
            dropped = set(await shard.dropped_references(10_000))  # their objects may be gone already
            for reference, text in bad.items():
                if reference not in dropped:
                    step.found += 1
                    step.bytes += reference.length
                    _add_problem(step, f"{reference.text}: {text}")
        if page.continuation:
            step.continuation = f"{shard_id}/{page.continuation}"
        elif (place := shards.index(shard) + 1) < len(shards):
            step.continuation = f"{shards[place].shard_id}/"
        else:
            self._name_those_out(step)
        return step

    async def _unreadable(self, shard: TieredShard, reference: BodyReference) -> str:
        try:
            await self._tiers.read(shard.store_id, reference.parts.queue, reference)
        except (BodyGone, TierUnavailable) as error:
            return error.message
        return ""

    async def _move(self, change: BodiesChange) -> BodiesStep:
        """Pending jobs alone: those in progress belong to their workers, and what has ended goes by itself."""
        shards, queues = self._shards(), [change.queue] if change.queue else sorted(self._queues())
        if change.continuation != CONTINUATION_START:
            place = _Place.of(change.continuation)
        elif shards and queues:
            place = _Place(shards[0].shard_id, queues[0], False, None)
        else:
            return _END
        shard = next((each for each in shards if each.shard_id == place.shard), None)
        if shard is None:
            raise ContinuationInvalid("the shard of this run is not there any more: begin it again")
        step, now_ms = BodiesStep(CONTINUATION_END), self._clock.now_ms()
        request = ScanRequest(
            STORED_STATES[JobState.PENDING],
            self._priorities,
            place.future,
            change.limit,
            place.after,
            with_body=True,
            max_bytes=_SCAN_BYTES,
        )
        try:
            infos = await shard.inner.scan(place.queue, request, now_ms)
        except QueueNotFound:
            infos = []
        step.looked_at = len(infos)
        await _in_parallel([self._move_one(shard, place.queue, info, change, step) for info in infos])
        if infos:
            ref = parse_descriptor(infos[-1].descriptor)
            assert ref is not None
            place.after = ScanPosition(infos[-1].run_after_ms, ref.id)
            step.continuation = place.text()
        elif not place.future:
            step.continuation = _Place(place.shard, place.queue, True, None).text()
        elif later := [each for each in queues if each > place.queue]:
            step.continuation = _Place(place.shard, later[0], False, None).text()
        elif (number := shards.index(shard) + 1) < len(shards):
            step.continuation = _Place(shards[number].shard_id, queues[0], False, None).text()
        else:
            self._name_those_out(step)
        return step

    async def _move_one(
        self, shard: TieredShard, queue: str, info: JobInfo, change: BodiesChange, step: BodiesStep
    ) -> None:
        """A body that lies in a tier is judged by the delay that it had when it came there."""
        body, now_ms = info.body, self._clock.now_ms()
        if body is None:
            return
        is_here = not isinstance(body, BodyReference)
        since_ms = body.parts.stored_at_ms if isinstance(body, BodyReference) else now_ms
        placed = self._tiers.place(queue, body_length(body), max(0, info.run_after_ms - since_ms), "")
        at = body.parts.tier if isinstance(body, BodyReference) else ""
        to = "" if placed is None else placed.tier
        if at == to or (change.tier and change.tier not in (at, to)):
            return
        if isinstance(body, BodyReference) and BodyRule.CALLER in body.parts.rule:
            return  # who sent it is not known any more
        step.found += 1
        step.bytes += body_length(body)
        if change.dry_run:
            return
        try:
            whole = body if is_here else await self._tiers.read(shard.store_id, queue, BodyReference(body))
            new = whole
            if placed is not None:
                placed = placed._replace(rule=placed.rule | BodyRule.MOVED)
                new = await self._tiers.put_to(placed, shard.store_id, queue, whole)
            ref = parse_descriptor(info.descriptor)
            assert ref is not None
            request = RescheduleRequest(ref.priority, ref.id, body=new, only_if_updated_at_ms=info.updated_at_ms)
            (outcome,) = await shard.inner.reschedule(queue, [request], now_ms)
        except (BodyGone, TierUnavailable) as error:
            _add_problem(step, f"{info.descriptor}: {error.message}")
            return
        if outcome is RescheduleOutcome.RESCHEDULED:
            step.done += 1
        elif isinstance(new, BodyReference):  # it was taken or changed meanwhile
            await self._tiers.discard(shard.store_id, [new])

    def _shards(self) -> list[TieredShard]:
        return [handle.shard for handle in self._members.healthy() if isinstance(handle.shard, TieredShard)]

    def _name_those_out(self, step: BodiesStep) -> None:
        for handle in self._members.all:
            if not handle.is_healthy:
                _add_problem(step, f"shard {handle.shard.shard_id} is out: none of its jobs was examined")


def _add(to: TierCounts, more: TierCounts) -> None:
    to.bodies += more.bodies
    to.bytes += more.bytes
    to.orphans += more.orphans


def _add_problem(step: BodiesStep, text: str) -> None:
    if len(step.troubles) < _MOST_PROBLEMS:
        step.troubles.append(text)


async def _in_parallel(calls: Sequence[Coroutine[Any, Any, R]]) -> list[R]:
    """PARALLEL of them at a time."""
    turns = asyncio.Semaphore(PARALLEL)

    async def in_turn(call: Coroutine[Any, Any, R]) -> R:
        async with turns:
            return await call

    return list(await asyncio.gather(*[in_turn(call) for call in calls]))
