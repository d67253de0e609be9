"""One slice of a change to many jobs: jobs are read in pages, newest run_after first, and changed page by page.

It is meant for the jobs that were there when the change began: one made since, or that ended since (it was retried, and
failed again), is left alone, so that a change ends however fast jobs come.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from pinlater.backends.base import JobKey, Shard
from pinlater.cluster.lease import REPLAYED_JOBS
from pinlater.errors import HomesChanged, PinLaterError, QueueNotFound
from pinlater.flows.item_jobs import item_number
from pinlater.model import (
    CancelOutcome,
    JobAction,
    JobInfo,
    JobsChanged,
    JobState,
    descriptor_prefix,
    parse_descriptor,
)
from pinlater.service.overflow_calls import NamesOverflow
from pinlater.service.searches import Mark, Walk
from pinlater.service.selection import Conditions, SearchPart
from pinlater.service.service_context import ServiceContext
from pinlater.shards.handle import ShardHandle, ask_all
from pinlater.shards.keys.key_router import TRIES

_SAMPLES = 10
_REFUSALS = 1_000
"""Told in one answer; the next slice has the others."""

Pending = Counter[str]
"""How many jobs of each queue became pending."""

_Act = Callable[[Shard, Sequence[JobKey]], Coroutine[Any, Any, Pending | int]]
"""Changes jobs on one shard; how many, or how many became pending, by queue."""


@dataclass(frozen=True, slots=True)
class SliceOrder:
    """What is to be done, to which jobs, in one call.

    `spares_new`: jobs that are new since the change began are left alone. `stop_by`: who asks the workers of jobs in
    progress to stop; "": nobody does.
    """

    queue: str
    action: JobAction
    parts: Sequence[SearchPart]
    priorities: Sequence[int]
    conditions: Conditions | None
    limit: int
    attempts: int | None = None
    run_after_ms: int | None = None
    dry_run: bool = False
    spares_new: bool = True
    reports_refusals: bool = True
    stop_by: str = ""


_MAX_NAMED_CHARS = 1_200
MOST_NAMED = 20
"""So many jobs an entry of the audit names."""


def named_text(descriptors: Sequence[str], total: int) -> str:
    """Jobs by their descriptors, by which the page of a job finds who changed it; of many the first, within a bound.

    >>> named_text(["mail:s1:p1:1", "mail:s1:p1:2"], 2), named_text(["mail:s1:p1:1"], 8), named_text([], 8)
    ('of mail:s1:p1:1 mail:s1:p1:2', 'of mail:s1:p1:1 and 7 more', 'of 8 that were named')
    """
    named: list[str] = []
    chars = 0
    for each in descriptors[:MOST_NAMED]:
        chars += len(each) + 1
        if chars > _MAX_NAMED_CHARS:
            break
        named.append(each)
    if not named:
        return f"of {total} that were named"
    return f"of {' '.join(named)}" + (f" and {total - len(named)} more" if total > len(named) else "")


class BulkSlices:
    """Slices of changes, for one service."""

    def __init__(self, context: ServiceContext) -> None:
        self._router = context.router
        self._settings = context.settings
        self._clock = context.clock
        self._parser = context.parser
        self._events = context.events
        self._unaware_of = context.features.unaware_of

    def begins_ms(self) -> int:
        """The time that a change begins with: jobs that end now end at the latest then."""
        return self._clock.now_ms() + self._clock.uncertainty_ms

    def ends_at(self, max_ms: int | None = None) -> float:
        """The loop's time at which a call that begins now is to end: in `long_call_ms`, or `max_ms` if that is less."""
        most_ms = self._settings.long_call_ms
        return asyncio.get_running_loop().time() + min(most_ms, most_ms if max_ms is None else max_ms) / 1000

    async def run(self, slice_: Slice, mark: Mark) -> Mark | None:
        """Carry out one slice; the mark where the next one begins, None at the end of all."""
        order = slice_.order
        walk = Walk(
            self._router,
            self._settings,
            order.queue,
            order.parts,
            order.priorities,
            order.conditions,
            mark,
            slice_.ends_at,
        )
        while walk.mark is not None and not slice_.is_full():
            found = [job for job in await walk.page() if not order.spares_new or _is_meant(job, order, mark.began_ms)]
            slice_.miss(walk.missing)
            last: JobInfo | None = None
            while found and not slice_.is_full():
                taken = found[: slice_.remaining()]
                found = found[len(taken) :]
                await self.apply(taken, slice_)
                last = taken[-1]
            behind = walk.turn_back(last) if found and last is not None else walk.mark
            slice_.examined = walk.examined
            if found:
                return behind
            if walk.is_over():
                break
        return walk.mark

    def changeable(self, jobs: Sequence[JobInfo], slice_: Slice) -> list[JobInfo]:
        """The jobs that the call's action is for. Those in an overflow shard are refused by name, others left out."""
        meant = [job for job in jobs if _is_meant(job, slice_.order, self.begins_ms())]
        found = []
        for job in meant:
            try:
                self._parser.parse(job.descriptor)
            except NamesOverflow:
                slice_.refuse(job.descriptor, "it lies in an overflow shard, until a shard can take it")
            else:
                found.append(job)
        return found

    async def apply(self, jobs: Sequence[JobInfo], slice_: Slice) -> None:
        """Change these; their pages were read a moment ago."""
        if slice_.order.dry_run:
            slice_.sample(jobs)
            return
        by_state = attrgetter("state")
        for state, some in groupby(sorted(jobs, key=by_state), by_state):
            left = list(some)
            unaware: list[ShardHandle] = []
            for _ in range(TRIES):
                left, unaware = await self._try_apply(left, state, slice_)
                if not left:
                    break
            slice_.miss(unaware)

    async def _try_apply(
        self, jobs: list[JobInfo], state: JobState, slice_: Slice
    ) -> tuple[list[JobInfo], list[ShardHandle]]:
        """The jobs for which it is to be decided anew, and their shards: these know newer homes of keys."""
        act = self._act(slice_, state, self._router.keys.homes_version)
        if slice_.order.action in (JobAction.RETRY, JobAction.REPLAY):
            jobs = self._at_home(jobs, slice_)
        groups = self._parser.keys(slice_.order.queue, [job.descriptor for job in jobs])
        named = [member for member in self._router.members.all if member.shard.shard_id in groups]
        members = [member for member in named if member.is_healthy]
        slice_.miss([member for member in named if not member.is_healthy])
        outcomes = await ask_all(members, lambda shard: act(shard, [key for _, key in groups[shard.shard_id]]))
        pending: Pending = Counter()
        unaware: list[ShardHandle] = []
        for member, outcome in zip(members, outcomes, strict=True):
            if isinstance(outcome, QueueNotFound):
                continue  # it went meanwhile
            if isinstance(outcome, HomesChanged):
                await self._router.keys.homes.catch_up(member)
                unaware.append(member)
            elif isinstance(outcome, PinLaterError):
                slice_.miss([member])
            else:
                changed = outcome if isinstance(outcome, int) else outcome.total()
                slice_.changed += changed
                if changed == len(group := groups[member.shard.shard_id]):  # else nobody says which
                    slice_.name_changed([descriptor for descriptor, _ in group])
                if not isinstance(outcome, int):
                    pending += outcome
        now_ms = self._clock.now_ms()
        at_ms = slice_.order.run_after_ms or now_ms
        for queue, amount in pending.items():
            self._events.ready_at(queue, [at_ms] * amount, now_ms)
        names = {descriptor for member in unaware for descriptor, _ in groups[member.shard.shard_id]}
        return [job for job in jobs if job.descriptor in names], unaware

    def _at_home(self, jobs: list[JobInfo], slice_: Slice) -> list[JobInfo]:
        """The jobs whose keys live on the shard where they would become pending. The others are refused: their shard
        alone does not know whether a key is taken, nor what is before a job.
        """
        allowed = []
        for job in jobs:
            ref = self._parser.parse(job.descriptor)
            why = None if ref is None else self._router.keys.why_not_here(ref.shard, _queue_of(job, ref.queue), job)
            if why is None:
                allowed.append(job)
            else:
                slice_.refuse(job.descriptor, why)
        return allowed

    def _act(self, slice_: Slice, state: JobState, homes_version: str) -> _Act:
        """The function that carries out the order on jobs of one shard, which were all in this state."""
        order, now_ms = slice_.order, self._clock.now_ms()
        queue = order.queue

        async def retry(shard: Shard, jobs: Sequence[JobKey]) -> Pending:
            retried = await shard.retry_listed(queue, jobs, order.attempts, order.run_after_ms, now_ms, homes_version)
            if retried < len(jobs):
                await slice_.report_refusals(shard, jobs)
                await slice_.report_letters(shard, jobs)
            return Counter({queue: retried})

        async def delete(shard: Shard, jobs: Sequence[JobKey]) -> int:
            deleted = await shard.delete_listed(queue, state, jobs, now_ms)
            self._events.ended(shard.shard_id, queue, [job.id for job in jobs])
            return deleted

        async def cancel(shard: Shard, jobs: Sequence[JobKey]) -> int:
            outcomes = await shard.cancel(queue, jobs, now_ms, order.stop_by)
            slice_.stop_requests += outcomes.count(CancelOutcome.REQUESTED)
            self._events.ended(shard.shard_id, queue, [job.id for job in jobs])
            return outcomes.count(CancelOutcome.CANCELLED)

        async def replay(shard: Shard, jobs: Sequence[JobKey]) -> Pending:
            marks = not self._unaware_of(REPLAYED_JOBS)
            descriptors = await shard.replay(queue, jobs, now_ms, order.attempts, homes_version, marks)
            left = [job for job, descriptor in zip(jobs, descriptors, strict=True) if descriptor is None]
            if left:
                await slice_.report_refusals(shard, left)
            return Counter(descriptor.partition(":")[0] for descriptor in descriptors if descriptor)

        acts: dict[JobAction, _Act] = {
            JobAction.RETRY: retry,
            JobAction.DELETE: delete,
            JobAction.CANCEL: cancel,
            JobAction.REPLAY: replay,
        }
        return acts[order.action]


def _queue_of(job: JobInfo, queue: str) -> str:
    """The queue that a dedupe key belongs to: of a dead letter that of its origin."""
    origin = None if job.origin is None else parse_descriptor(job.origin)
    return queue if origin is None else origin.queue


def _is_meant(job: JobInfo, order: SliceOrder, began_ms: int) -> bool:
    if job.created_at_ms > began_ms or (job.finished_at_ms or 0) > began_ms:
        return False
    if order.action is JobAction.RETRY:  # the end of an item is not taken back
        return not item_number(job.dedupe_key)
    return order.action is not JobAction.REPLAY or job.origin is not None


class Slice:
    """What one call has done so far."""

    def __init__(self, order: SliceOrder, ends_at: float) -> None:
        self.order = order
        self.ends_at = ends_at
        self.changed = 0
        self.stop_requests = 0
        self.examined = 0
        self.changed_jobs: list[str] = []
        """The first of them, for the audit, as far as it is known which they are."""
        self._samples: list[JobInfo] = []
        self.missing: list[ShardHandle] = []
        self._refusals: dict[str, str] = {}

    def remaining(self) -> int:
        return self.order.limit - self.changed - self.stop_requests

    def is_full(self) -> bool:
        return self.remaining() <= 0 or len(self._refusals) >= _REFUSALS

    def miss(self, members: Sequence[ShardHandle]) -> None:
        self.missing += [member for member in members if member not in self.missing]

    def name_changed(self, descriptors: Sequence[str]) -> None:
        self.changed_jobs += descriptors[: MOST_NAMED - len(self.changed_jobs)]

    def sample(self, jobs: Sequence[JobInfo]) -> None:
        self.changed += len(jobs)
        for job in jobs[: _SAMPLES - len(self._samples)]:
            job.body = None
            self._samples.append(job)

    def refuse(self, descriptor: str, why: str) -> None:
        if self.order.reports_refusals:
            self._refusals[descriptor] = why

    async def report_refusals(self, shard: Shard, jobs: Sequence[JobKey]) -> None:
        """Name as refused those of these jobs whose dedupe key has another live job. Raises nothing."""
        queue = self.order.queue
        if not self.order.reports_refusals:
            return
        try:
            taken = await shard.taken_keys(queue, jobs)
        except PinLaterError:
            return  # the others are done, and that counts
        for job, live in zip(jobs, taken, strict=True):
            if live is not None:
                descriptor = f"{descriptor_prefix(queue, shard.shard_id, job.priority)}{job.id}"
                self._refusals[descriptor] = f"its dedupeKey has another live job, {live}"

    async def report_letters(self, shard: Shard, jobs: Sequence[JobKey]) -> None:
        """Name as refused those of these jobs that stayed for their dead letters. Raises nothing."""
        if not self.order.reports_refusals:
            return
        try:
            found = await shard.lookup(self.order.queue, jobs, with_body=False, max_bytes=0)
            held = [info for info in found if info is not None and info.state is JobState.FAILED and info.moved_to]
            for info in held:
                why = await _why_held(shard, info.moved_to or "")
                if why:
                    self._refusals.setdefault(info.descriptor, why)
        except PinLaterError:
            return  # the others are done, and that counts

    def answer(self, continuation: str) -> JobsChanged:
        shard_ids = [member.shard.shard_id or "?" for member in self.missing]
        return JobsChanged(
            self.changed, self.examined, self._samples, continuation, shard_ids, self._refusals, self.stop_requests
        )


async def _why_held(shard: Shard, descriptor: str) -> str:
    """Why a job with this dead letter is not retried; "": it is not for its letter."""
    ref = parse_descriptor(descriptor)
    if ref is None or ref.shard != shard.shard_id:
        return f"its dead letter lies on another shard, as {descriptor}: see what became of that"
    (letter,) = await shard.lookup(ref.queue, [JobKey(ref.priority, ref.id)], with_body=False, max_bytes=0)
    if letter is None:
        return ""
    if letter.state is JobState.IN_PROGRESS:
        return f"its dead letter runs now, {descriptor}"
    if letter.state is JobState.SUCCEEDED:
        return f"its dead letter has succeeded, {descriptor}"
    copy = letter.replayed_to or letter.moved_to
    return f"its dead letter went on as {copy}" if copy else ""
