"""Claims over several shards: count what is ready everywhere, plan, and claim everywhere at once.

An empty queue costs one round trip per shard, a full one two. What is planned can be gone when it is claimed; when all
of it was, the round is tried again, a bounded number of times. A shard that takes longer than half its deadline is left
out: a slow one delays nobody, and breaks the order of priorities only by what it keeps to itself.

While one dequeue of a queue counts and claims, later ones wait and are then served by one joint round: a count costs a
call of every shard, however many it is for. They may not use counts taken before they came: there must be a moment
during each dequeue at which no shard had a job of a higher priority. No priority is higher than the first one, so jobs
of that are claimed where the last counts have seen some: a backlog of one priority is counted now and then.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from heapq import merge
from typing import Any, NamedTuple, TypeVar

from pinlater.backends.aged_levels import Level, order_by
from pinlater.backends.base import ClaimRequest
from pinlater.errors import PinLaterError
from pinlater.model import DequeuedJob
from pinlater.shards.batching import Batcher, BatchLimits, measure_claims
from pinlater.shards.bulkhead import ShardSlow
from pinlater.shards.claim_plan import ClaimPlan, Giving, in_their_order, plan_claims
from pinlater.shards.compensation import Compensator
from pinlater.shards.group_spreads import GroupSpreads
from pinlater.shards.handle import ShardHandle, answers
from pinlater.shards.shard_turns import ShardTurns, have_groups

_ROUNDS = 3

TRUSTED_S = 2.0
"""Counts of jobs of the first priority are claimed by for so long: then what other shards got is to have its turn."""

COUNTED, ROUNDS_COUNTED = 100, 4
"""So many jobs of each priority are counted on a shard at least, and as many as so many rounds like this one may take:
later claims know of them.
"""

COMPETED_S = 10.0
"""Where others took what was left by a look, for so long only shards with as many as are counted are claimed from."""

_MOST_LOOKS = 1_000
"""Queues of which the last counts, or the turns of shards, are kept."""

_Claims = list[list[DequeuedJob]]
_Key = tuple[str, tuple[Level, ...]]
"""A queue and the priorities that are claimed."""

_Kept = TypeVar("_Kept")
_Part = list[tuple[int, ClaimRequest]]
"""Requests to one shard, each with its place among the caller's."""


class _Alike(NamedTuple):
    """The likeness of claims that are carried out together."""

    queue: str
    priorities: tuple[Level, ...]
    coverage: float
    enforce_quota: bool


class Look:
    """What a count over all shards has found. `number`: looks are numbered as they begin. `left`: jobs of the first
    priority that no claim has been made for, by shard id; `shard_ids`: the shards that had jobs, or did not answer.
    """

    __slots__ = ("at_s", "left", "number", "shard_ids", "short_s")

    def __init__(self, number: int, at_s: float, short_s: float = -math.inf) -> None:
        self.number = number
        self.at_s = at_s
        self.short_s = short_s
        """When others last had taken what was left by a look."""
        self.left: dict[str, int] = {}
        self.shard_ids: set[str] = set()

    def note(
        self,
        handles: Sequence[ShardHandle],
        outcomes: Sequence[Sequence[int] | PinLaterError],
        plan: ClaimPlan,
        counted: int,
    ) -> None:
        """`plan` is for those that have answered, in their order; so many jobs of a priority were counted at most."""
        least: float = counted if self.at_s - self.short_s < COMPETED_S else 0
        if have_groups(outcome for outcome in outcomes if not isinstance(outcome, PinLaterError)):
            least = math.inf  # the next job may be one of a group that was not there yet
        self.left.clear()
        self.shard_ids.clear()
        shares = iter(plan.shares)
        for handle, outcome in zip(handles, outcomes, strict=True):
            shard_id = handle.shard.shard_id
            if isinstance(outcome, PinLaterError):
                self.shard_ids.add(shard_id)
            elif any(outcome):
                self.shard_ids.add(shard_id)
                left = outcome[0] - sum(next(shares))
                if left > 0 and outcome[0] >= least:
                    self.left[shard_id] = left
            else:
                next(shares)


def _keep(by_queue: OrderedDict[_Key, _Kept], key: _Key, value: _Kept) -> None:
    """As the newest of up to _MOST_LOOKS."""
    by_queue[key] = value
    by_queue.move_to_end(key)
    if len(by_queue) > _MOST_LOOKS:
        by_queue.popitem(last=False)


class CrossShardClaims:
    """Claims of one router. `handles` gives the shards to ask, `requeue` takes jobs whose caller is gone."""

    def __init__(
        self,
        handles: Callable[[float], list[ShardHandle]],
        deadline_ms: int,
        compensator: Compensator,
        requeue: Callable[[str, Sequence[DequeuedJob], int], Coroutine[Any, Any, object]],
    ) -> None:
        self._members = handles
        self._compensator = compensator
        self._requeue = requeue
        self.unsure = 0
        """How many rounds gave a request no job although there may be some: others took what was planned."""
        self.looks = 0
        """How many looks at all shards have begun."""
        self._last_looks: OrderedDict[_Key, Look] = OrderedDict()
        self._turns: OrderedDict[_Key, ShardTurns] = OrderedDict()
        """Of queues with groups."""
        self._spreads = GroupSpreads()
        limits = BatchLimits(max_wait_ms=2 * deadline_ms)  # a count, and the claims that it leads to
        self._batcher: Batcher[_Alike, ClaimRequest, list[DequeuedJob]] = Batcher(
            self._claim,
            measure_claims,
            replace(limits, bypass_jobs=limits.max_jobs, max_bytes=limits.max_claim_bytes),
            compensate=self._compensate,
        )

    def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, coverage: float, enforce_quota: bool
    ) -> Coroutine[Any, Any, _Claims]:
        """As `claim_over`, joined with other claims of the same queue, priorities and coverage."""
        alike = _Alike(queue, tuple(requests[0].priorities), coverage, enforce_quota)
        return self._batcher.call(alike, requests, now_ms)

    def last_look(self, queue: str, priorities: Sequence[Level]) -> Look | None:
        """The last at all shards for these priorities, if it is known."""
        return self._last_looks.get((queue, tuple(priorities)))

    async def _claim(self, alike: _Alike, requests: Sequence[ClaimRequest], now_ms: int) -> _Claims:
        handles = self._members(alike.coverage)
        if alike.coverage < 1 or alike.enforce_quota:
            return await self.claim_over(handles, alike.queue, requests, now_ms, enforce_quota=alike.enforce_quota)
        claims: _Claims = [[] for _ in requests]
        try:
            await self._claim_known(handles, alike, requests, now_ms, claims)
            places = [place for place, jobs in enumerate(claims) if not jobs]
            if places:
                found = await self._claim_by_look(handles, alike, [requests[place] for place in places], now_ms)
                for place, jobs in zip(places, found, strict=True):
                    claims[place] = jobs
        except PinLaterError:
            if not any(claims):
                raise
            self.unsure += 1  # the others have theirs
        except BaseException:  # the callers get nothing
            self._batcher.give_up(alike, claims, now_ms)
            raise
        return claims

    async def _claim_by_look(
        self, handles: Sequence[ShardHandle], alike: _Alike, requests: Sequence[ClaimRequest], now_ms: int
    ) -> _Claims:
        """As `claim_over`; what is counted is kept."""
        self.looks += 1
        last = self.last_look(alike.queue, alike.priorities)
        now_s = asyncio.get_running_loop().time()
        look = Look(self.looks, now_s) if last is None else Look(self.looks, now_s, last.short_s)
        claims = await self.claim_over(handles, alike.queue, requests, now_ms, look=look)
        _keep(self._last_looks, (alike.queue, alike.priorities), look)
        return claims

    async def _claim_known(
        self,
        handles: Sequence[ShardHandle],
        alike: _Alike,
        requests: Sequence[ClaimRequest],
        now_ms: int,
        claims: _Claims,
    ) -> None:
        """Adds jobs of the first priority to these claims, from shards that the last look has found to have enough."""
        look = self.last_look(alike.queue, alike.priorities)
        if look is None or asyncio.get_running_loop().time() - look.at_s > TRUSTED_S:
            return
        for _ in range(_ROUNDS):
            places = [place for place, jobs in enumerate(claims) if not jobs]
            known = [handle for handle in handles if look.left.get(handle.shard.shard_id)]
            shuffled = random.sample(known, len(known))
            without = [requests[place] for place in places]
            limits = [request.limit for request in without]
            plan = plan_claims([(look.left[handle.shard.shard_id],) for handle in shuffled], limits)
            planned = sum(map(sum, plan.shares))
            if not planned or planned < sum(limits):
                return
            takes = [(handle.shard.shard_id, sum(share)) for handle, share in zip(shuffled, plan.shares, strict=True)]
            for shard_id, amount in takes:
                look.left[shard_id] -= amount
            found: _Claims | None = None
            try:
                found = await _claim_planned(
                    shuffled, plan, alike.queue, without, now_ms, self._compensator, enforce_quota=False
                )
            finally:
                if found is None or sum(map(len, found)) < planned:  # others took some, or a shard failed
                    look.left |= {shard_id: 0 for shard_id, amount in takes if amount}
                    look.short_s = asyncio.get_running_loop().time()
            for place, jobs in zip(places, found or (), strict=False):
                claims[place] = jobs

    async def claim_over(
        self,
        handles: Sequence[ShardHandle],
        queue: str,
        requests: Sequence[ClaimRequest],
        now_ms: int,
        *,
        enforce_quota: bool = False,
        look: Look | None = None,
    ) -> _Claims:
        """A round of its own over these shards. `look` gets what was counted. QueueNotFound if none has the queue."""
        claims = await self._round(handles, queue, requests, now_ms, enforce_quota=enforce_quota, look=look)
        if claims is None or (any(claims) and not all(claims)):
            self.unsure += 1
        return [[] for _ in requests] if claims is None else claims

    async def claim_of_first(
        self, handles: Sequence[ShardHandle], queue: str, requests: Sequence[ClaimRequest], now_ms: int
    ) -> _Claims | None:
        """Jobs of the first priority from these shards; none for anybody where they have no job at all. None: they have
        others, one did not answer, or others took what was planned.
        """
        priorities, limits = requests[0].priorities, [request.limit for request in requests]
        outcomes = await gather_until_slow(
            handles,
            lambda handle: handle.shard.count_ready(queue, priorities, sum(limits), now_ms),
            self._compensator,
        )
        ready = answers(outcomes)
        if len(ready) < len(handles):
            return None
        requests, giving = self._by_turns(handles, queue, requests, ready)
        plan = plan_claims([counts[:1] for counts in ready], [request.limit for request in requests], giving)
        if not plan.levels:
            return None if any(map(any, ready)) else [[] for _ in requests]
        return await _claim_planned(handles, plan, queue, requests, now_ms, self._compensator, enforce_quota=False)

    async def _round(
        self,
        handles: Sequence[ShardHandle],
        queue: str,
        requests: Sequence[ClaimRequest],
        now_ms: int,
        *,
        enforce_quota: bool,
        look: Look | None,
    ) -> _Claims | None:
        """Jobs for each request, highest priority first over these shards; None where there were some, and others took
        all that was planned. `look` gets what the last round has counted.
        """
        priorities = requests[0].priorities
        limits = [request.limit for request in requests]
        counted = max(ROUNDS_COUNTED * sum(limits), COUNTED) if look is not None else sum(limits)
        shuffled = random.sample(list(handles), len(handles))
        # with quotas a round may rule out no more than one shard, so there may be as many rounds as shards
        for _ in range(max(_ROUNDS, len(shuffled)) if enforce_quota else _ROUNDS):
            outcomes = await gather_until_slow(
                shuffled, lambda handle: handle.shard.count_ready(queue, priorities, counted, now_ms), self._compensator
            )
            if len(shuffled) < len(handles) and all(isinstance(outcome, PinLaterError) for outcome in outcomes):
                break  # those left out did answer
            ready = answers(outcomes)
            answering = [
                handle
                for handle, outcome in zip(shuffled, outcomes, strict=True)
                if not isinstance(outcome, PinLaterError)
            ]
            allowed, giving = self._by_turns(answering, queue, requests, ready)
            plan = plan_claims(ready, [request.limit for request in allowed], giving)
            if look is not None:
                look.note(shuffled, outcomes, plan, counted)
            if plan.levels == 0:
                break
            claims = await _claim_planned(
                answering, plan, queue, allowed, now_ms, self._compensator, enforce_quota=enforce_quota
            )
            if claims is not None:
                return claims
            if enforce_quota:  # these may be at their shares, and would be planned for again
                tried = {handle for handle, share in zip(answering, plan.shares, strict=True) if any(share)}
                shuffled = [handle for handle in shuffled if handle not in tried]
                if not shuffled:
                    break
        else:
            return None
        return [[] for _ in requests]

    def _by_turns(
        self,
        handles: Sequence[ShardHandle],
        queue: str,
        requests: Sequence[ClaimRequest],
        ready: Sequence[Sequence[int]],
    ) -> tuple[Sequence[ClaimRequest], Giving]:
        """In which order these shards give, by their counts. Where the jobs of the queue have groups, requests prefetch
        nothing, and say on how many shards groups wait.
        """
        if not have_groups(ready):
            return requests, in_their_order
        priorities = requests[0].priorities
        key = queue, tuple(priorities)
        turns = self._turns.get(key) or ShardTurns()
        _keep(self._turns, key, turns)
        seen = self._spreads.of(handles, queue, priorities)
        allowed = [
            replace(request, limit=request.limit - request.prefetch, prefetch=0, spread=seen.spread)
            for request in requests
        ]
        return allowed, turns.giving([handle.shard.shard_id for handle in handles], ready, priorities, seen)

    async def _compensate(self, alike: _Alike, claimed: _Claims, now_ms: int) -> None:
        await self._requeue(alike.queue, [job for jobs in claimed for job in jobs], now_ms)

    async def drain(self) -> None:
        """Wait until every dequeue is answered."""
        await self._batcher.drain()
        await self._spreads.tasks.drain()


# -- one round ---------------------------------------------------------------------------------------------------------


async def _claim_planned(
    handles: Sequence[ShardHandle],
    plan: ClaimPlan,
    queue: str,
    requests: Sequence[ClaimRequest],
    now_ms: int,
    compensator: Compensator,
    *,
    enforce_quota: bool,
) -> _Claims | None:
    """What the plan says of these shards; None: others took all of it."""
    planned = _split(requests, plan.shares, requests[0].priorities[: plan.levels])
    parts = [(handle, part) for handle, part in zip(handles, planned, strict=True) if part]
    claims = await _claim(parts, queue, now_ms, compensator, enforce_quota)
    if any(jobs for claimed in claims for jobs in claimed):
        return _merge(parts, claims, requests, queue, now_ms, compensator)
    return None


def _split(requests: Sequence[ClaimRequest], shares: list[list[int]], priorities: Sequence[Level]) -> list[_Part]:
    """Per shard, its part of each request; bytes and the prefetch are shared out like the jobs."""
    totals = [sum(share[index] for share in shares) for index in range(len(requests))]
    return [
        [
            (
                index,
                replace(
                    request,
                    limit=share[index],
                    priorities=priorities,
                    max_bytes=request.max_bytes * share[index] // totals[index],
                    prefetch=request.prefetch * share[index] // request.limit,
                ),
            )
            for index, request in enumerate(requests)
            if share[index]
        ]
        for share in shares
    ]


async def _claim(
    parts: list[tuple[ShardHandle, _Part]], queue: str, now_ms: int, compensator: Compensator, enforce_quota: bool
) -> list[_Claims]:
    """The jobs for each shard's part of the requests; none where it failed or was slow. An error where all failed."""
    part_of = dict(parts)

    async def claim(handle: ShardHandle) -> _Claims:
        """This shard's jobs for each request, in as many calls as its large bodies take."""
        requests = [request for _, request in part_of[handle]]
        claims = await handle.shard.claim(queue, requests, now_ms, enforce_quota=enforce_quota)
        while claims and len(claims) < len(requests):
            try:
                claims += await handle.shard.claim(queue, requests[len(claims) :], now_ms, enforce_quota=enforce_quota)
            except PinLaterError:
                break
            except BaseException:  # the callers get nothing
                compensate(handle, claims)
                raise
        return claims

    def compensate(handle: ShardHandle, claims: _Claims) -> None:
        compensator.later(handle.shard, queue, [job for jobs in claims for job in jobs], now_ms)

    outcomes = await gather_until_slow(list(part_of), claim, compensator, compensate)
    answers(outcomes)
    return [[] if isinstance(outcome, PinLaterError) else outcome for outcome in outcomes]


def _merge(
    parts: list[tuple[ShardHandle, _Part]],
    claims: list[_Claims],
    requests: Sequence[ClaimRequest],
    queue: str,
    now_ms: int,
    compensator: Compensator,
) -> _Claims:
    """Each request's jobs from all shards, in order; what passes its bytes goes back, the least urgent first. Those of
    one shard stay in its order, which may be that of turns.
    """
    of_shards: list[list[list[tuple[DequeuedJob, ShardHandle]]]] = [[] for _ in requests]
    for (handle, part), claimed in zip(parts, claims, strict=True):
        for (index, _), jobs in zip(part, claimed, strict=False):
            of_shards[index].append([(job, handle) for job in jobs])
    answer: _Claims = []
    surplus: dict[ShardHandle, list[DequeuedJob]] = {}
    order = order_by(requests[0].priorities, now_ms)
    for lists, request in zip(of_shards, requests, strict=True):
        pairs = list(merge(*lists, key=lambda pair: order(pair[0].priority, pair[0].run_after_ms)))
        kept = fitting([pair[0] for pair in pairs], request.max_bytes)
        for job, handle in pairs[kept:]:
            surplus.setdefault(handle, []).append(job)
        answer.append([pair[0] for pair in pairs[:kept]])
    for handle, jobs in surplus.items():
        compensator.later(handle.shard, queue, jobs, now_ms)
    return answer


def fitting(jobs: Sequence[DequeuedJob], max_bytes: int) -> int:
    """How many of the first jobs have bodies that fit into `max_bytes`; at least one."""
    size = 0
    for index, job in enumerate(jobs):
        size += len(job.body)
        if size > max_bytes and index:
            return index
    return len(jobs)


R = TypeVar("R")


# -- the same question to several shards, none of which may delay the others -----------------------------------------


async def gather_until_slow(
    handles: Sequence[ShardHandle],
    call: Callable[[ShardHandle], Coroutine[Any, Any, R]],
    compensator: Compensator,
    compensate: Callable[[ShardHandle, R], None] | None = None,
) -> list[R | PinLaterError]:
    """An answer or an error for each, in their order; ShardSlow for one that takes longer than half its deadline, where
    another has answered by then.

    `compensate` gets what such a shard brings later, and all that comes if the caller goes, or if a shard fails in a
    way that no store should; that failure is raised.
    """
    if len(handles) == 1:  # nobody to delay, and the shard itself requeues what its caller leaves behind
        return [await _outcome(call(handles[0]))]
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(_outcome(call(handle))) for handle in handles]
    try:
        late = await _in_time(tasks, max(handle.deadline_ms for handle in handles) / 2000)
    except asyncio.CancelledError:
        _leave(zip(handles, tasks, strict=True), compensator, compensate)
        raise
    failed = next((task for task in tasks if task not in late and task.exception() is not None), None)
    if failed is not None:
        _leave(zip(handles, tasks, strict=True), compensator, compensate)
        return [failed.result()]
    if not late:
        return [task.result() for task in tasks]
    _leave([pair for pair in zip(handles, tasks, strict=True) if pair[1] in late], compensator, compensate)
    return [
        ShardSlow(f"shard {handle.shard.shard_id}: others answered long before it") if task in late else task.result()
        for handle, task in zip(handles, tasks, strict=True)
    ]


async def _outcome(call: Coroutine[Any, Any, R]) -> R | PinLaterError:
    try:
        return await call
    except PinLaterError as error:
        return error.with_traceback(None)  # else an error that is kept keeps the frames of its call


async def _in_time(tasks: Sequence[asyncio.Task[Any]], patience_s: float) -> set[asyncio.Task[Any]]:
    """Wait for all; when the patience is over, only until one has answered. Those still under way then."""
    done, late = await asyncio.wait(tasks, timeout=patience_s)
    while late and not any(task.exception() or not isinstance(task.result(), PinLaterError) for task in done):
        more, late = await asyncio.wait(late, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    return late


def _leave(
    calls: Iterable[tuple[ShardHandle, asyncio.Task[Any]]],
    compensator: Compensator,
    compensate: Callable[[ShardHandle, Any], None] | None,
) -> None:
    """Nobody waits for these any more."""
    for handle, task in calls:
        if compensate is None:
            task.cancel()
        else:
            compensator.after(task, _compensating(handle, compensate))


def _compensating(
    handle: ShardHandle, compensate: Callable[[ShardHandle, Any], None]
) -> Callable[[asyncio.Task[Any]], None]:
    def ended(task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is None and not isinstance(task.result(), PinLaterError):
            compensate(handle, task.result())

    return ended
