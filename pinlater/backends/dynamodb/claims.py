"""Claims: what is eligible, in order, and the conditional write that hands a job out.

The jobs of a priority lie in several partitions. A claim reads the first eligible ones of each, merges them, and
writes the claims of all that it takes at once. One that somebody else was quicker with is passed over; then the claim
looks again, LOOKS times at most.

Within a quota the claims are one step with the item of the quota, which each such step changes: so of two that count
at once what is in progress, one counts again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import merge
from itertools import chain

from pinlater.backends.aged_levels import JobPlace, Level, by_level, count_levels, order_by, split_levels
from pinlater.backends.base import SLICE_BYTES, ClaimRequest, JobKey
from pinlater.backends.dynamodb.agenda import CLAIMS, mark_of
from pinlater.backends.dynamodb.client import ConditionFailed, TransactionCanceled
from pinlater.backends.dynamodb.items import (
    LAST,
    MARK,
    ORDER,
    ORDER_KEY,
    Item,
    ItemKey,
    at,
    read_item,
    write_key,
    write_value,
)
from pinlater.backends.dynamodb.queue_records import quota_key
from pinlater.backends.dynamodb.steps import Lost, Step
from pinlater.backends.dynamodb.store_parts import Store
from pinlater.backends.dynamodb.stored_job import (
    CANCELLED,
    FAILED,
    IN_PROGRESS,
    PENDING,
    REPLAYED,
    SUCCEEDED,
    WAITING,
    StoredJob,
)
from pinlater.errors import OutcomeUnknown, PinLaterError
from pinlater.model import MAX_TIME_MS, ClaimAnswer, ClaimOutcome, DequeuedJob
from pinlater.model.body_reference import body_length

LOOKS = 6
JOBS_PER_QUOTA_STEP = 60
PAGE, PAGES_OF_EXPIRED = 500, 20
"""So many pages of jobs whose time is over are passed over; maintenance ends them."""


@dataclass(order=True, slots=True)
class Candidate:
    """A job that is eligible, as an index has it."""

    run_after_ms: int
    id: int
    priority: int = field(compare=False)
    key: ItemKey = field(compare=False)
    bytes: int = field(compare=False)
    own_timeout_ms: int | None = field(compare=False)

    @classmethod
    def of(cls, entry: Item, priority: int) -> Candidate:
        order = entry[ORDER_KEY]
        return cls(
            int(order[1:17]), int(order[17:]), priority, ItemKey(entry["pk"], entry["sk"]), entry["n"], entry.get("to")
        )

    def timeout_ms(self, request: ClaimRequest) -> int:
        own_ms = self.own_timeout_ms if request.is_default_timeout else None
        return request.claim_timeout_ms if own_ms is None else own_ms


async def eligible(
    store: Store, qid: str, priority: int, limit: int, now_ms: int, without: Collection[int] = ()
) -> list[Candidate]:
    """The first of a priority, in order."""
    found = await asyncio.gather(
        *[_eligible_in(store, pk, priority, limit, now_ms, without) for pk in store.places.partitions(qid, priority)]
    )
    return list(merge(*found))[:limit]


async def _eligible_in(
    store: Store, pk: str, priority: int, limit: int, now_ms: int, without: Collection[int]
) -> list[Candidate]:
    found: list[Candidate] = []
    size, after = max(1, limit) + len(without), None
    for _ in range(PAGES_OF_EXPIRED):
        page = await store.table.query(
            pk, str(PENDING), f"{PENDING}{at(now_ms)}{LAST}", index=ORDER, limit=size, after=after
        )
        found += [
            candidate
            for entry in page.items
            if entry.get("x", MAX_TIME_MS + 1) > now_ms
            and (candidate := Candidate.of(entry, priority)).id not in without
        ]
        size, after = PAGE, page.after
        if len(found) >= limit or after is None:
            break
    return found[:limit]


async def of_priorities(
    store: Store, qid: str, priorities: Iterable[int], limit: int, now_ms: int, without: Collection[int] = ()
) -> dict[int, list[Candidate]]:
    wanted = list(dict.fromkeys(priorities))
    found = await asyncio.gather(*[eligible(store, qid, each, limit, now_ms, without) for each in wanted])
    return dict(zip(wanted, found, strict=True))


def select(
    requests: Sequence[ClaimRequest],
    ready: dict[int, list[Candidate]],
    limits: Sequence[int],
    now_ms: int,
    taken_bytes: int = 0,
) -> list[list[Candidate]]:
    """What each request gets of the jobs that are eligible; shorter where the bodies fill a slice."""
    selected: list[list[Candidate]] = []
    taken: set[int] = set()
    levels, left = None, deque[Candidate]()
    for place, (request, limit) in enumerate(zip(requests, limits, strict=True)):
        if place and taken_bytes >= SLICE_BYTES:
            break
        if request.priorities != levels:
            levels = request.priorities
            left = deque(each for each in _ordered(levels, ready, now_ms) if each.id not in taken)
        mine: list[Candidate] = []
        room = request.max_bytes
        while left and len(mine) < limit:
            room -= left[0].bytes
            if room < 0 and mine:
                break
            candidate = left.popleft()
            mine.append(candidate)
            taken.add(candidate.id)
            taken_bytes += candidate.bytes
        selected.append(mine)
    return selected


def _ordered(levels: Sequence[Level], ready: dict[int, list[Candidate]], now_ms: int) -> Iterator[Candidate]:
    """The jobs that a claim of these levels hands out, in order."""
    priorities, last = split_levels(levels)
    if last is None:
        yield from chain.from_iterable([ready[priority] for priority in priorities])
    else:
        places = [
            [(JobPlace(priority, each.run_after_ms, each.id), each) for each in ready[priority]]
            for priority in priorities
        ]
        for _, candidate in by_level(last, places, now_ms):
            yield candidate


def _priorities_of(requests: Iterable[ClaimRequest]) -> list[int]:
    return list(dict.fromkeys(priority for each in requests for priority in split_levels(each.priorities)[0]))


async def claim(
    store: Store, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
) -> list[list[DequeuedJob]]:
    if enforce_quota:
        return await _claim_within_quota(store, queue, requests, now_ms)
    return await _Claim(store, queue, requests, now_ms).carry_out()


class _Claim:
    """One call. `_taken`: by request, the jobs that it has."""

    def __init__(self, store: Store, queue: str, requests: Sequence[ClaimRequest], now_ms: int) -> None:
        self._store, self._queue, self._requests, self._now_ms = store, queue, requests, now_ms
        self._taken: list[list[StoredJob]] = [[] for _ in requests]
        self._priorities = _priorities_of(requests)

    async def carry_out(self) -> list[list[DequeuedJob]]:
        served = len(self._requests)
        qid = await self._store.queues.known(self._queue)
        for _ in range(LOOKS):
            limits = [request.limit - len(taken) for request, taken in zip(self._requests, self._taken, strict=True)]
            ready = await of_priorities(self._store, qid, self._priorities, max(0, sum(limits)), self._now_ms)
            selected = select(self._requests, ready, limits, self._now_ms)
            served = len(selected)
            lost = await self._take(selected)
            if not lost:
                break
        return [
            [
                job.dequeued(self._store.of(self._queue, job))
                for job in _in_order(self._requests[place], taken, self._now_ms)
            ]
            for place, taken in enumerate(self._taken[:served])
        ]

    async def _take(self, selected: Sequence[Sequence[Candidate]]) -> int:
        """Write all the claims; how many somebody else was quicker with."""
        wanted = [(place, each) for place, candidates in enumerate(selected) for each in candidates]
        expiries = {
            (each.key.pk, self._now_ms + self._requests[place].spare_ms + each.timeout_ms(self._requests[place]))
            for place, each in wanted
        }
        await self._store.agenda.note(mark_of(CLAIMS, pk, expires_at_ms) for pk, expires_at_ms in expiries)
        answers = await asyncio.gather(
            *[self._write(each, self._requests[place]) for place, each in wanted], return_exceptions=True
        )
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        lost = 0
        for (place, _), answer in zip(wanted, answers, strict=True):
            if isinstance(answer, StoredJob):
                self._taken[place].append(answer)
            elif answer is None:
                lost += 1
        if errors and not any(self._taken):
            raise next((each for each in errors if isinstance(each, OutcomeUnknown)), errors[0])
        foreseen = all(isinstance(each, PinLaterError) for each in errors)
        if errors and not foreseen:
            raise errors[0]
        return 0 if errors else lost  # what was claimed goes to its callers, whatever became of the others

    async def _write(self, candidate: Candidate, request: ClaimRequest) -> StoredJob | None:
        """The claim of one job; None where it is not as the index had it any more."""
        table, now_ms = self._store.table, self._now_ms
        job = StoredJob("", candidate.priority, candidate.id)
        job.hold(request.claim_descriptor, now_ms + request.spare_ms, candidate.timeout_ms(request))
        values = {
            **{"st": IN_PROGRESS, "cl": job.claim, "ct": job.claimed_at_ms, "ls": job.last_seen_ms},
            **{"tm": job.timeout_ms, "ce": job.expires_at_ms, "ua": job.updated_at_ms},
            **{ORDER_KEY: f"{IN_PROGRESS}{at(job.expires_at_ms or 0)}{candidate.id}", MARK: table.new_mark()},
        }
        order = f"{PENDING}{at(candidate.run_after_ms)}{candidate.id}"
        names = {f"#{place}": name for place, name in enumerate(values)}
        written = {f":{place}": write_value(value) for place, value in enumerate(values.values())}
        settings = ", ".join(f"#{place} = :{place}" for place in range(len(values)))
        request_body = {
            "TableName": table.name,
            "Key": write_key(candidate.key),
            "UpdateExpression": f"SET {settings}",
            "ConditionExpression": "#o = :o AND (attribute_not_exists(#x) OR #x > :x)",
            "ExpressionAttributeNames": {**names, "#o": ORDER_KEY, "#x": "x"},
            "ExpressionAttributeValues": {**written, ":o": write_value(order), ":x": write_value(now_ms)},
            "ReturnValues": "ALL_NEW",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        try:
            item = read_item((await table.client.call("UpdateItem", request_body, writes=True))["Attributes"])
        except ConditionFailed as failed:
            item = read_item(failed.item or {})
            if not failed.was_unknown or item.get(MARK) != values[MARK]:
                return None
        except TransactionCanceled:
            return None
        return StoredJob.of_item(item)


def _in_order(request: ClaimRequest, jobs: Iterable[StoredJob], now_ms: int) -> list[StoredJob]:
    order = order_by(request.priorities, now_ms)
    return sorted(jobs, key=lambda job: (*order(job.priority, job.run_after_ms), job.id))


# -- within a step: with a quota, with acks, and of jobs that are named ------------------------------------------------


async def _claim_within_quota(
    store: Store, queue: str, requests: Sequence[ClaimRequest], now_ms: int
) -> list[list[DequeuedJob]]:
    """The jobs of each request, in as many steps as it takes. Where one fails, what those before it brought is the
    answer.
    """

    async def take(left: Sequence[ClaimRequest], step: Step) -> list[list[DequeuedJob]]:
        qid = await store.queues.known(queue)
        room = await room_within_quota(step, store, qid)
        taken = await claim_in_step(step, store, queue, qid, left, now_ms, min(room, JOBS_PER_QUOTA_STEP))
        if any(taken):
            spend_quota(step, qid)
        return taken

    answers: list[list[DequeuedJob]] = [[] for _ in requests]
    while True:
        left = [_rest(request, jobs) for request, jobs in zip(requests, answers, strict=True)]
        try:
            more = await store.run(partial(take, left), tries=30)
        except PinLaterError:
            if any(answers):
                return answers
            raise
        for jobs, new in zip(answers, more, strict=False):
            jobs += new
        if sum(map(len, more)) < JOBS_PER_QUOTA_STEP:
            served = max((place for place, jobs in enumerate(answers, 1) if jobs), default=0)
            return answers[: max(served, len(more))]


def _rest(request: ClaimRequest, jobs: Sequence[DequeuedJob]) -> ClaimRequest:
    if not jobs:
        return request
    room = request.max_bytes - sum(body_length(job.body) for job in jobs)
    return replace(request, limit=request.limit - len(jobs) if room > 0 else 0, max_bytes=room)


async def room_within_quota(step: Step, store: Store, qid: str) -> int:
    """How many jobs more may be in progress. A step that then hands one out has to call `spend_quota`."""
    item = await step.item(quota_key(qid))
    quota = 0 if item is None else int(item["quota"])
    if not quota:
        return 0
    ended = step.claims_ended()
    return max(0, quota - await in_progress(store, qid, quota + ended) + ended)


def spend_quota(step: Step, qid: str) -> None:
    """Of two steps that have counted the same room at once and use it, make one fail and count anew."""
    step.touch(quota_key(qid))


async def in_progress(store: Store, qid: str, at_most: int = 0) -> int:
    """How many jobs of a queue are; up to `at_most`, where it is not 0."""

    async def count(pk: str) -> int:
        found = 0
        low, high = str(IN_PROGRESS), f"{IN_PROGRESS}{LAST}"
        async for entries in store.table.pages(pk, low, high, index=ORDER, limit=at_most, attributes=("sk",)):
            found += len(entries)
            if at_most and found >= at_most:
                break
        return found

    priorities = await store.queues.priorities(qid)
    partitions = [pk for priority in priorities for pk in store.places.partitions(qid, priority)]
    found = sum(await asyncio.gather(*map(count, partitions)))
    return min(found, at_most) if at_most else found


async def claim_in_step(
    step: Step, store: Store, queue: str, qid: str, requests: Sequence[ClaimRequest], now_ms: int, room: int
) -> list[list[DequeuedJob]]:
    """The jobs of each request, `room` in all at most. Jobs that the step has changed count as they are now."""
    changed = {job.id: job for job in step.changed_jobs if job.qid == qid}
    priorities = _priorities_of(requests)
    wanted = min(room, sum(request.limit for request in requests))
    ready = await of_priorities(store, qid, priorities, wanted, now_ms, set(changed)) if wanted else {}
    for priority in priorities:
        back = [
            Candidate(
                job.run_after_ms,
                job.id,
                priority,
                step.places.job(qid, priority, job.id),
                body_length(job.body),
                job.own_timeout_ms,
            )
            for job in changed.values()
            if job.priority == priority and job.is_claimable(now_ms)
        ]
        ready[priority] = sorted([*ready.get(priority, []), *back])
    limits = []
    for request in requests:
        limits.append(min(request.limit, room))
        room -= limits[-1]
        room = max(0, room)
    selected = _within(requests, ready, limits, now_ms, wanted)
    await step.read([each.key for candidates in selected for each in candidates])
    answers: list[list[DequeuedJob]] = []
    for request, candidates in zip(requests, selected, strict=False):
        mine = []
        for each in candidates:
            job = step.known_job(each.key)
            if job is None or not job.is_claimable(now_ms):
                raise Lost  # somebody was quicker, since the index was read: there may be others
            job.hold(request.claim_descriptor, now_ms + request.spare_ms, each.timeout_ms(request))
            mine.append(job.dequeued(store.of(queue, job)))
        answers.append(mine)
    return answers


def _within(
    requests: Sequence[ClaimRequest], ready: dict[int, list[Candidate]], limits: Sequence[int], now_ms: int, room: int
) -> list[list[Candidate]]:
    """A request that finds fewer jobs than its limit leaves the rest of the room to the next one."""
    selected: list[list[Candidate]] = []
    left = dict(ready)
    size = 0
    for place, request in enumerate(requests):
        if place and size >= SLICE_BYTES:
            break
        (mine,) = select([request], left, [min(request.limit, room)], now_ms)
        taken = {each.id for each in mine}
        left = {priority: [each for each in found if each.id not in taken] for priority, found in left.items()}
        room -= len(mine)
        size += sum(each.bytes for each in mine)
        selected.append(mine)
    return selected


async def claim_listed(
    store: Store, queue: str, jobs: Sequence[JobKey], request: ClaimRequest, now_ms: int, *, enforce_quota: bool = False
) -> list[ClaimAnswer]:
    """So many at a time as a step holds; where the bytes are used up, or a step was not carried out, it ends."""
    answers: list[ClaimAnswer] = []
    left = min(request.max_bytes, SLICE_BYTES)
    await store.queues.known(queue)
    for start in range(0, len(jobs), JOBS_PER_QUOTA_STEP):
        some = jobs[start : start + JOBS_PER_QUOTA_STEP]

        async def take(
            step: Step, some: Sequence[JobKey] = some, left: int = left, first: bool = not answers
        ) -> list[ClaimAnswer]:
            return await _claim_listed(step, store, queue, some, request, now_ms, enforce_quota, left, first)

        try:
            more = await store.run(take, tries=20)
        except PinLaterError:
            if any(answer.job is not None for answer in answers):
                return answers
            raise
        answers += more
        left -= sum(body_length(answer.job.body) for answer in more if answer.job is not None)
        if len(more) < len(some):
            break
    return answers


_NOT_CLAIMABLE = {
    IN_PROGRESS: ClaimOutcome.IN_PROGRESS,
    SUCCEEDED: ClaimOutcome.ENDED,
    FAILED: ClaimOutcome.ENDED,
    CANCELLED: ClaimOutcome.ENDED,
    REPLAYED: ClaimOutcome.ENDED,
}


async def _claim_listed(
    step: Step,
    store: Store,
    queue: str,
    jobs: Sequence[JobKey],
    request: ClaimRequest,
    now_ms: int,
    enforce_quota: bool,
    left: int,
    nothing_yet: bool,
) -> list[ClaimAnswer]:
    qid = await store.queues.known(queue)
    room = await room_within_quota(step, store, qid) if enforce_quota else len(jobs)
    keys = [step.places.job(qid, *job) for job in jobs]
    await step.read(keys)
    answers: list[ClaimAnswer] = []
    for key in keys:
        job = step.known_job(key)
        outcome = _outcome(job, now_ms)
        if job is None or outcome is not ClaimOutcome.CLAIMED:
            answers.append(ClaimAnswer(outcome))
            continue
        if room <= 0:
            answers.append(ClaimAnswer(ClaimOutcome.LIMITED))
            continue
        size = body_length(job.body)
        if size > left and not nothing_yet:
            break
        nothing_yet, left, room = False, left - size, room - 1
        own_ms = job.own_timeout_ms if request.is_default_timeout else None
        timeout_ms = request.claim_timeout_ms if own_ms is None else own_ms
        job.hold(request.claim_descriptor, now_ms + request.spare_ms, timeout_ms)
        answers.append(ClaimAnswer(outcome, job.dequeued(store.of(queue, job))))
        if enforce_quota:
            spend_quota(step, qid)
    return answers


def _outcome(job: StoredJob | None, now_ms: int) -> ClaimOutcome:
    if job is None:
        return ClaimOutcome.NOT_FOUND
    if job.state in _NOT_CLAIMABLE:
        return _NOT_CLAIMABLE[job.state]
    if job.is_over(now_ms):
        return ClaimOutcome.ENDED
    if job.state == WAITING:
        return ClaimOutcome.BEHIND
    return ClaimOutcome.CLAIMED if job.run_after_ms <= now_ms else ClaimOutcome.NOT_DUE


# -- queries -----------------------------------------------------------------------------------------------------------


async def peek(
    store: Store, queue: str, priorities: Sequence[Level], limit: int, max_bytes: int, now_ms: int
) -> list[DequeuedJob]:
    qid = await store.queues.known(queue)
    request = ClaimRequest("", limit, priorities, 0, max_bytes)
    ready = await of_priorities(store, qid, _priorities_of([request]), limit, now_ms)
    (selected,) = select([request], ready, [limit], now_ms)
    found = await store.table.read_all([each.key for each in selected])
    jobs = [StoredJob.of_item(found[each.key]) for each in selected if each.key in found]
    return [job.dequeued(store.of(queue, job)) for job in jobs]


async def count_ready(store: Store, queue: str, priorities: Sequence[Level], limit: int, now_ms: int) -> list[int]:
    qid = await store.queues.known(queue)
    wanted, last = split_levels(priorities)
    ready = await of_priorities(store, qid, wanted, limit, now_ms)
    if last is None:
        return [len(found) for found in ready.values()]
    times = {priority: [each.run_after_ms for each in found] for priority, found in ready.items()}
    return count_levels(priorities, times, limit, now_ms)


async def next_due(store: Store, queues: Sequence[str], priorities: Sequence[int]) -> dict[str, int | None]:
    async def of_queue(qid: str) -> int | None:
        first = await asyncio.gather(
            *[
                store.table.query(pk, str(PENDING), f"{PENDING}{LAST}", index=ORDER, limit=1)
                for priority in priorities
                for pk in store.places.partitions(qid, priority)
            ]
        )
        return min((int(page.items[0][ORDER_KEY][1:17]) for page in first if page.items), default=None)

    qids = await store.queues.find_all(queues)
    found = await asyncio.gather(*map(of_queue, qids.values()))
    return dict(zip(qids, found, strict=True))
