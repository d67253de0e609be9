"""The router over the shards: random placement, strict priority, and descriptors that find their shard.

A shard that is out is absent for enqueue and dequeue; what names a job on it fails, after all the others were done.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from heapq import merge
from typing import Any, TypeVar

from pinlater.backends.aged_levels import Level, order_by
from pinlater.backends.base import AckOutcome, AckRequest, ClaimRequest, EndRules, Shard
from pinlater.backends.extended import KeyHolder, Offered
from pinlater.errors import (
    INVALID,
    NoHealthyShards,
    NothingStored,
    OutcomeUnknown,
    PinLaterError,
    QueueNotFound,
    ShardConnectionFailed,
    ShardsFull,
    StoreFull,
)
from pinlater.model import DequeuedJob, ExtendedJob, Job, JobState, KeyRef, parse_descriptor
from pinlater.shards.compensation import Compensator, requeue
from pinlater.shards.cross_shard import CrossShardClaims, fitting
from pinlater.shards.handle import ShardHandle, answers, ask_all, missing
from pinlater.shards.keys.homes_record import SCHEDULE_KEY, slot_of
from pinlater.shards.keys.key_router import FixedHomes, Homes, KeyRouter
from pinlater.shards.scan import Place, Scanned, ScanQuery, scan_over
from pinlater.shards.shard_set import ShardSet

R = TypeVar("R")
FULL_RETRY_MS = 1_000
"""The wait that callers are told when no shard has room: about as long as it takes to see that one has it again."""

ELSEWHERE_RETRY_MS = 500
"""The wait that callers are told who name a job on a shard of other servers: their next try may come to one of these.
"""

ShardCall = Callable[[Shard], Coroutine[Any, Any, R]]


class Router:
    """The shards as one. Errors are those of the shards, NoHealthyShards where none is left."""

    def __init__(
        self,
        handles: ShardSet,
        homes: Homes | None = None,
        others_may_use: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        """`homes`: where keys live, where other servers use these shards too; `others_may_use`: whether these may use a
        shard with which this server is not configured.
        """
        self.members = handles
        self._others_may_use = others_may_use
        self.keys = KeyRouter(handles, homes or FixedHomes(handles))
        self.compensator = Compensator()
        deadline_ms = max(handle.deadline_ms for handle in handles.all)
        self.claims = CrossShardClaims(self._sample_shards, deadline_ms, self.compensator, self._requeue_all)

    async def open(self) -> None:
        """See ShardSet.open."""
        await self.members.open()

    async def drain(self) -> None:
        """Wait until every claim is answered, and jobs that came too late are back in their queues."""
        await self.claims.drain()
        await self.compensator.drain()

    async def close(self) -> None:
        await self.drain()
        await self.members.close()

    def _healthy(self) -> list[ShardHandle]:
        handles = self.members.healthy()
        if not handles:
            self.members.require_any()
        return handles

    # -- the life of a job -------------------------------------------------------------------------------------------

    def taking_jobs(self) -> list[ShardHandle]:
        """The shards that take jobs now, in a random order. NoHealthyShards."""
        handles = self.members.healthy()
        if len(handles) != 1 or not handles[0].takes_jobs:
            handles = [handle for handle in self._healthy() if handle.takes_jobs]
            if not handles:
                raise self._none_takes_jobs()
            random.shuffle(handles)
        return handles

    async def enqueue(
        self, queue: str, jobs: Sequence[Job], now_ms: int, handles: Sequence[ShardHandle] = ()
    ) -> list[str]:
        """All the jobs on one shard, the first of `handles` or of `taking_jobs`; another one only where those before it
        surely stored nothing.
        """
        failures: list[PinLaterError] = []
        for handle in handles or self.taking_jobs():
            try:
                return await handle.shard.enqueue(queue, jobs, now_ms)
            except (NothingStored, QueueNotFound) as error:
                failures.append(error.with_traceback(None))
        if all(isinstance(failure, StoreFull) for failure in failures):
            raise self._none_takes_jobs()
        answers(failures)
        raise AssertionError("answers() raises where there is none")

    def enqueue_extended(
        self, queue: str, jobs: Sequence[Job], now_ms: int, by: str = ""
    ) -> Coroutine[Any, Any, list[Offered]]:
        """Jobs that have keys, and what else few jobs have; see KeyRouter.enqueue."""
        return self.keys.enqueue(queue, jobs, now_ms, by=by)

    async def fire(self, queue: str, job: ExtendedJob, schedule: str, mark: str, now_ms: int) -> Offered:
        """The firing of a schedule, at the home of its name; KEPT, with no descriptor, where one with that mark or a
        higher one came before.
        """
        (offered,) = await self.keys.enqueue(queue, [job], now_ms, schedule=schedule, mark=mark)
        return offered

    def home_of_schedule(self, schedule: str, serialize_key: str) -> str | None:
        """The shard where its firings live; None: no home of keys is known here yet."""
        table = self.keys.homes.table
        if table is None:
            return None
        return table.places(slot_of("", f"{SCHEDULE_KEY}{schedule}/", serialize_key)).home

    async def last_firings(
        self, schedules: Sequence[str], homes: Sequence[str | None] = (), marks: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """The mark of each schedule that has one, as far as the shards know that answer. `homes`: where each schedule
        is at home now; a home learns of a mark that only another shard has, since that one may be removed, and of one
        that the caller knows (`marks`), since that one may be lost.
        """
        found = dict(marks or {})
        if not schedules:
            return found
        by_shard = await self.marks_by_shard(schedules)
        for found_there in by_shard.values():
            for name, mark in zip(schedules, found_there, strict=True):
                if mark is not None:
                    found[name] = max(mark, found.get(name, ""))
        for shard_id, found_there in by_shard.items() if homes else ():
            about = zip(schedules, homes, found_there, strict=True)
            at_home = [(name, mark) for name, home, mark in about if home == shard_id]
            lacking = {name: found[name] for name, mark in at_home if found.get(name) != mark}
            handle = self.members.by_id(shard_id)
            if lacking and handle is not None:
                await handle.shard.raise_marks(lacking)
        return found

    async def marks_by_shard(self, schedules: Sequence[str]) -> dict[str, Sequence[str | None]]:
        """The marks that each shard has of these schedules, by the shard's id; without the shards that do not answer.
        NoHealthyShards, ShardConnectionFailed: none does.
        """
        handles = self._healthy()
        outcomes = await ask_all(handles, lambda shard: shard.last_firings(schedules))
        answers(outcomes)
        return {
            handle.shard.shard_id: outcome
            for handle, outcome in zip(handles, outcomes, strict=True)
            if not isinstance(outcome, PinLaterError)
        }

    def homes_version(self) -> str:
        """Another one: schedules may be at home elsewhere."""
        return self.keys.homes_version

    def has_lost_homes(self) -> bool:
        """Whether a shard was given up where schedules were at home, of late."""
        table = self.keys.homes.table
        return table is not None and bool(table.record.gone)

    def find_keys(self, queue: str, keys: Sequence[KeyRef]) -> Coroutine[Any, Any, list[KeyHolder | None]]:
        """The jobs that have these keys; see KeyRouter.find_keys."""
        return self.keys.find_keys(queue, keys)

    def _none_takes_jobs(self) -> NoHealthyShards:
        full = [handle for handle in self.members.full() if not handle.dequeue_only]
        if not full:
            return NoHealthyShards("no shard that takes new jobs can be used now", retry_after_ms=1_000)
        reasons = "; ".join(f"shard {handle.shard.shard_id}: {handle.full}" for handle in full)
        return ShardsFull(f"no shard has room for new jobs: {reasons}", retry_after_ms=FULL_RETRY_MS)

    def claim(
        self,
        queue: str,
        requests: Sequence[ClaimRequest],
        now_ms: int,
        *,
        coverage: float = 1.0,
        enforce_quota: bool = False,
    ) -> Coroutine[Any, Any, list[list[DequeuedJob]]]:
        """Jobs for each request in turn, highest priority first over the shards looked at. QueueNotFound.

        `enforce_quota`: on each shard no more than its quota of the queue's claims leaves free.
        """
        handles = self.members.healthy()
        if len(handles) != 1:
            handles = self._sample_shards(coverage)
        if len(handles) == 1:
            return handles[0].shard.claim(queue, requests, now_ms, enforce_quota=enforce_quota)
        return self.claims.claim(queue, requests, now_ms, coverage=coverage, enforce_quota=enforce_quota)

    def claim_at(
        self, shard_ids: Collection[str], queue: str, requests: Sequence[ClaimRequest], now_ms: int
    ) -> Coroutine[Any, Any, list[list[DequeuedJob]]]:
        """As `claim`, for a caller who knows that only these shards have jobs; from all shards where none of them can
        be used.
        """
        usable = [handle for handle in self.members.healthy() if handle.shard.shard_id in shard_ids]
        if len(usable) == 1:
            return usable[0].shard.claim(queue, requests, now_ms)
        if not usable:
            return self.claim(queue, requests, now_ms)
        return self.claims.claim_over(usable, queue, requests, now_ms)

    async def claim_of_first(
        self, shard_ids: Collection[str], queue: str, requests: Sequence[ClaimRequest], now_ms: int
    ) -> list[list[DequeuedJob]] | None:
        """Jobs of the first priority from these shards; none where they have no job at all. None: neither is sure."""
        usable = [handle for handle in self.members.healthy() if handle.shard.shard_id in shard_ids]
        if len(usable) < len(shard_ids):
            return None
        return await self.claims.claim_of_first(usable, queue, requests, now_ms)

    def has_several_shards(self) -> bool:
        """Whether more than one is in use."""
        return len(self.members.healthy()) > 1

    def sole_shard(self) -> str | None:
        """The id of the shard from which every claim comes now; None where there are several, or none."""
        handles = self.members.healthy()
        return handles[0].shard.shard_id if len(handles) == 1 else None

    def ack_and_claim(
        self,
        queue: str,
        acks: Sequence[AckRequest],
        requests: Sequence[ClaimRequest],
        now_ms: int,
        rules: EndRules,
        *,
        enforce_quota: bool = False,
    ) -> Coroutine[Any, Any, tuple[list[AckOutcome], list[list[DequeuedJob]]]]:
        """Acks of jobs on the sole shard, and then a claim, in one call of the store; see Shard.ack_and_claim.

        For a caller of `sole_shard` only, with nothing awaited in between. Each request is looked at, whatever the
        bodies come to. NoHealthyShards.
        """
        return self._healthy()[0].shard.ack_and_claim(queue, acks, requests, now_ms, rules, enforce_quota=enforce_quota)

    async def peek(
        self, queue: str, priorities: Sequence[Level], limit: int, max_bytes: int, now_ms: int, *, coverage: float = 1.0
    ) -> list[DequeuedJob]:
        """The jobs that a claim would hand out, the most urgent first. QueueNotFound."""
        found = answers(
            await ask_all(
                self._sample_shards(coverage), lambda shard: shard.peek(queue, priorities, limit, max_bytes, now_ms)
            )
        )
        order = order_by(priorities, now_ms)
        jobs = list(merge(*found, key=lambda job: order(job.priority, job.run_after_ms)))
        return jobs[: min(limit, fitting(jobs, max_bytes))]

    async def count_ready(self, queue: str, priorities: Sequence[Level], limit: int, now_ms: int) -> int:
        """How many jobs are eligible, each priority and shard counted up to `limit`. QueueNotFound."""
        found = answers(
            await ask_all(self._healthy(), lambda shard: shard.count_ready(queue, priorities, limit, now_ms))
        )
        return sum(sum(counts) for counts in found)

    def _sample_shards(self, coverage: float) -> list[ShardHandle]:
        handles = self._healthy()
        if coverage >= 1 or len(handles) == 1:
            return handles
        return random.sample(handles, max(1, math.ceil(len(handles) * coverage)))

    async def requeue(self, queue: str, shard_id: str, jobs: Sequence[DequeuedJob], now_ms: int) -> int:
        """Back to PENDING, with a few tries, errors logged only. How many went back."""
        handle = self.members.by_id(shard_id)
        return 0 if handle is None else await requeue(handle.shard, queue, jobs, now_ms)

    async def _requeue_all(self, queue: str, jobs: Sequence[DequeuedJob], now_ms: int) -> None:
        by_shard: dict[str, list[DequeuedJob]] = {}
        for job in jobs:
            ref = parse_descriptor(job.descriptor)
            if ref is not None:
                by_shard.setdefault(ref.shard, []).append(job)
        await asyncio.gather(*[self.requeue(queue, shard, part, now_ms) for shard, part in by_shard.items()])

    # -- calls that name jobs ----------------------------------------------------------------------------------------

    async def call_by_shard(self, calls: Sequence[tuple[str, ShardCall[R]]]) -> list[R | None]:
        """Each call on the shard with that id, all at once; None where no server is configured with such a shard.

        ShardConnectionFailed, after all the others were done, where one that is needed cannot be reached.
        """
        return all_answered(await self.ask_by_shard(calls))

    async def ask_by_shard(self, calls: Sequence[tuple[str, ShardCall[R]]]) -> list[R | PinLaterError | None]:
        """As `call_by_shard`, with an answer or an error for each; one that cannot be reached keeps no other back."""
        if len(calls) == 1:
            return [await self._call_on(*calls[0])]
        return await asyncio.gather(*[self._call_on(*each) for each in calls])

    async def _call_on(self, shard_id: str, call: ShardCall[R]) -> R | PinLaterError | None:
        handle = self.members.by_id(shard_id)
        if handle is None:
            if self.members.has_unknown_ids():
                return ShardConnectionFailed(f"shard {shard_id} may be one that could not be reached yet")
            if self._others_may_use is not None and await self._others_may_use(shard_id):
                text = f"shard {shard_id} may be in use by other servers, and this one was started without it"
                return ShardConnectionFailed(text, retry_after_ms=ELSEWHERE_RETRY_MS)
            return None
        if not handle.is_healthy:
            return missing([handle]) if self.members.healthy() else self.members.none_left()
        try:
            return await call(handle.shard)
        except PinLaterError as error:
            return error.with_traceback(None)

    # -- all shards --------------------------------------------------------------------------------------------------

    async def count(self, query: ScanQuery, state: JobState, *, allow_partial: bool) -> int:
        """Jobs in a state that match. QueueNotFound; ShardConnectionFailed with a shard missing, unless allowed."""
        healthy = self._healthy()
        outcomes = await ask_all(
            healthy,
            lambda shard: shard.count(query.queue, state, query.priorities, query.future, query.now_ms),
        )
        counts = answers(outcomes)
        lost = [
            handle
            for handle, outcome in zip(healthy, outcomes, strict=True)
            if isinstance(outcome, PinLaterError) and not isinstance(outcome, QueueNotFound)
        ]
        lost += [handle for handle in self.members.all if handle not in healthy]
        if lost and not allow_partial:
            raise missing(lost)
        return sum(counts)

    async def scan(self, query: ScanQuery, after: Place | None, limit: int) -> Scanned:
        """Up to `limit` jobs behind `after`, and the shards that are missing. QueueNotFound."""
        healthy = self._healthy()
        scanned = await scan_over(healthy, query, after, limit)
        scanned.missing += [handle for handle in self.members.all if handle not in healthy]
        return scanned


def all_answered(outcomes: Sequence[R | PinLaterError | None]) -> list[R | None]:
    """The answers, where no shard failed; else one error for those that did."""
    if len(outcomes) == 1:
        (only,) = outcomes
        if isinstance(only, PinLaterError):
            raise only
        return [only]
    failures = [outcome for outcome in outcomes if isinstance(outcome, PinLaterError)]
    if failures:
        raise combine_errors(failures)
    return [outcome for outcome in outcomes if not isinstance(outcome, PinLaterError)]


def combine_errors(failures: Sequence[PinLaterError]) -> PinLaterError:
    """One error for several shards: what failed, and whether it may have happened anyway."""
    text = "; ".join(failure.message for failure in failures)
    if any(isinstance(failure, OutcomeUnknown) for failure in failures):
        return OutcomeUnknown(text)
    if all(isinstance(failure, NoHealthyShards) for failure in failures):
        return NoHealthyShards(text)
    if all(isinstance(failure, INVALID) for failure in failures):  # no other try ends otherwise
        return type(failures[0])(text)
    return ShardConnectionFailed(text)
