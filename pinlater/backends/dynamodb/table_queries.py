"""Queries that change nothing: lookup, count, scan, and the counts of a whole queue, a bounded page at a time.

The indexes have jobs in progress by the expiry of their claims. What asks for these by run_after reads all of them,
page by page: as many as workers hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import NamedTuple

from pinlater.backends.base import SLICE_BYTES, JobKey, LevelCounts, ScanPosition, ScanRequest, StatsPage, StatsPosition
from pinlater.backends.dynamodb.items import LAST, ORDER, ORDER_KEY, Item, ItemKey, at
from pinlater.backends.dynamodb.key_items import (
    chains,
    entry_descriptor,
    first_of,
    is_next,
    names,
    successor_descriptor,
)
from pinlater.backends.dynamodb.store_parts import Store
from pinlater.backends.dynamodb.stored_job import (
    ALL_BUT_THE_BODY,
    CANCELLED,
    FAILED,
    IN_PROGRESS,
    PENDING,
    REPLAYED,
    STATES_OF,
    SUCCEEDED,
    WAITING,
    StoredJob,
)
from pinlater.model import MAX_TIME_MS, JobInfo, JobState, JobTrail
from pinlater.model.body_reference import BodyReference


class FoundJob(NamedTuple):
    """A job without its body, and how long that is."""

    info: JobInfo
    bytes: int


async def lookup(
    store: Store, queue: str, jobs: Sequence[JobKey], *, with_body: bool, max_bytes: int, with_result: bool = False
) -> list[JobInfo | None]:
    """First what is known of all; then the bodies that fit, in slices; then the results."""
    qid = await store.queues.find(queue)
    if qid is None:
        return [None] * len(jobs)
    keys = [store.places.job(qid, *job) for job in jobs]
    found = await _found(store, queue, keys)
    left = max_bytes
    if with_body:
        if max_bytes:
            left -= await _add_bodies(store, {key: found[key] for key in keys if key in found}, max_bytes)
        for info, _ in found.values():
            info.body_left_out = True if info.body is None else None
    infos = [found[key].info if key in found else None for key in keys]
    if with_result:
        await _add_results(store, queue, qid, jobs, infos, left, left == max_bytes > 0)
    return infos


async def read_trails(store: Store, queue: str, jobs: Sequence[JobKey]) -> list[JobTrail | None]:
    qid = await store.queues.find(queue)
    if qid is None:
        return [None] * len(jobs)
    keys = [store.places.job(qid, *job) for job in jobs]
    items = await store.table.read_all(keys, ALL_BUT_THE_BODY)
    return [StoredJob.of_item({**items[key], "t": False}).trail if key in items else None for key in keys]


async def _found(store: Store, queue: str, keys: Iterable[ItemKey]) -> dict[ItemKey, FoundJob]:
    """The jobs of these keys that are there, without bodies; where a body lies in a tier, its reference is read too."""
    items = await store.table.read_all(keys, ALL_BUT_THE_BODY)
    references = await store.table.read_all([key for key, item in items.items() if item.get("t")], ("pk", "sk", "b"))
    found: dict[ItemKey, FoundJob] = {}
    waiting: dict[ItemKey, str] = {}
    paired: dict[ItemKey, StoredJob] = {}
    for key, item in items.items():
        job = StoredJob.of_item({**item, "t": False})
        info = job.info(store.of(queue, job))
        if key in references:
            info.body_stored_at = BodyReference(references[key]["b"]).described
        if job.state == WAITING and job.serialize_key:
            waiting[key] = job.serialize_key
        elif job.state == WAITING or (job.state == IN_PROGRESS and job.stop_by is not None and job.dedupe_key):
            paired[key] = job
        found[key] = FoundJob(info, item["n"])
    heads = await chains(store, list(waiting.values()))
    for key, serialize_key in waiting.items():
        found[key].info.waits_for = first_of(store, heads.get(serialize_key))
    if paired:
        await _add_successors(store, queue, paired, found)
    return found


async def _add_successors(
    store: Store, queue: str, jobs: Mapping[ItemKey, StoredJob], found: Mapping[ItemKey, FoundJob]
) -> None:
    """Those of running jobs, and the running jobs of successors that are in no chain."""
    places = {key: store.places.dedupe(job.qid, job.dedupe_key, job.serialize_key) for key, job in jobs.items()}
    entries = await store.table.read_all(places.values())
    for key, job in jobs.items():
        entry = entries.get(places[key])
        if entry is not None and names(entry, job):
            found[key].info.successor = successor_descriptor(store, entry)
        elif entry is not None and is_next(entry, job):
            found[key].info.waits_for = entry_descriptor(store, queue, entry)


async def _add_bodies(store: Store, found: dict[ItemKey, FoundJob], max_bytes: int) -> int:
    """Add the bodies that fit into `max_bytes`, and the first in any case; how many bytes they have."""
    taken = 0
    some: list[ItemKey] = []
    size = 0
    for place, (key, (_, length)) in enumerate(found.items()):
        if place and taken + length > max_bytes:
            break
        taken += length
        if some and size + length > SLICE_BYTES:
            await _read_bodies(store, found, some)
            some, size = [], 0
        some.append(key)
        size += length
    await _read_bodies(store, found, some)
    return taken


async def _read_bodies(store: Store, found: dict[ItemKey, FoundJob], keys: Sequence[ItemKey]) -> None:
    for key, item in (await store.table.read_all(keys, ("pk", "sk", "b", "t"))).items():
        found[key].info.body = BodyReference(item["b"]) if item.get("t") else item.get("b", b"")


async def _add_results(
    store: Store,
    queue: str,
    qid: str,
    jobs: Sequence[JobKey],
    infos: list[JobInfo | None],
    room: int,
    nothing_yet: bool,
) -> None:
    """Add the results that fit into `room` bytes. A job that is gone is described by the item of its result."""
    keys = {job: store.places.result(qid, job.id) for job in jobs}
    items = await store.table.read_all(keys.values())
    is_full = False
    for place, job in enumerate(jobs):
        item = items.get(keys[job])
        if item is None or item["pri"] != job.priority:
            continue
        info = infos[place]
        if info is None:
            info = infos[place] = JobInfo(
                *(store.descriptor(queue, *job), JobState.SUCCEEDED, job.priority, item["ar"], item["ar"], ""),
                *(item["ca"], item["ca"], item["fa"]),
                finished_at_ms=item["fa"],
            )
        room -= item["n"]
        is_full = is_full or (room < 0 and not nothing_yet)
        if not is_full:
            info.result = BodyReference(item["b"]) if item.get("t") else item["b"]
        else:
            info.result_left_out = True
        nothing_yet = False


# -- by run_after ------------------------------------------------------------------------------------------------------


def _bounds(future: bool, now_ms: int) -> tuple[int, int]:
    """The run_after of what counts: exactly now is current."""
    return (now_ms + 1, MAX_TIME_MS) if future else (0, now_ms)


def _between(state: int, low_ms: int, high_ms: int) -> tuple[str, str]:
    return f"{state}{at(low_ms)}", f"{state}{at(high_ms)}{LAST}"


async def count(store: Store, queue: str, state: JobState, priorities: Sequence[int], future: bool, now_ms: int) -> int:
    qid = await store.queues.known(queue)
    low_ms, high_ms = _bounds(future, now_ms)

    async def in_partition(pk: str, each: int) -> int:
        if each == IN_PROGRESS:
            return len(await _in_progress(store, pk, low_ms, high_ms))
        found = 0
        async for entries in store.table.pages(pk, *_between(each, low_ms, high_ms), index=ORDER, attributes=("sk",)):
            found += len(entries)
        return found

    cells = [
        (pk, each)
        for priority in priorities
        for pk in store.places.partitions(qid, priority)
        for each in STATES_OF[state]
    ]
    return sum(await asyncio.gather(*[in_partition(*cell) for cell in cells]))


async def _in_progress(store: Store, pk: str, low_ms: int, high_ms: int) -> list[tuple[int, int]]:
    """The jobs in progress with a run_after in that range, as (-run_after, id), in that order."""
    found = []
    low, high = str(IN_PROGRESS), f"{IN_PROGRESS}{LAST}"
    async for entries in store.table.pages(pk, low, high, index=ORDER):
        found += [(-entry.get("ra", 0), int(entry["sk"])) for entry in entries]
    return sorted((minus, job_id) for minus, job_id in found if low_ms <= -minus <= high_ms)


async def scan(store: Store, queue: str, request: ScanRequest, now_ms: int) -> list[JobInfo]:
    """The places in each partition, merged; only then the jobs, and the bodies that fit."""
    qid = await store.queues.known(queue)
    if request.tag:
        return []
    bounds = _bounds(request.future, now_ms)
    cells = [
        (priority, pk, each)
        for priority in request.priorities
        for pk in store.places.partitions(qid, priority)
        for each in map(int, request.states)
    ]
    found = await asyncio.gather(
        *[_scan_places(store, pk, each, bounds, request.after, request.limit) for _, pk, each in cells]
    )
    placed = [[(*place, pk) for place in places] for (_, pk, _), places in zip(cells, found, strict=True)]
    keys = [ItemKey(pk, str(job_id)) for _, job_id, pk in islice(merge(*placed), request.limit)]
    jobs = await _found(store, queue, keys)
    ordered = {key: jobs[key] for key in keys if key in jobs}
    if not request.with_body:
        return [info for info, _ in ordered.values()]
    await _add_bodies(store, ordered, request.max_bytes)
    return [info for info, _ in ordered.values() if info.body is not None]


async def _scan_places(
    store: Store, pk: str, state: int, bounds: tuple[int, int], after: ScanPosition | None, limit: int
) -> list[tuple[int, int]]:
    """Up to `limit` jobs of one partition as (-run_after, id), in that order.

    The order is down in run_after and up in id, which no index serves. So that a page costs what a page holds: first
    what lies exactly at the place, then what lies below it, newest first; of the last time of that, all in their order.
    """
    low_ms, high_ms = bounds
    if state == IN_PROGRESS:
        found = await _in_progress(store, pk, low_ms, high_ms)
        if after is not None:
            found = [place for place in found if place > (-after.run_after_ms, after.id)]
        return found[:limit]
    found = []
    if after is not None:
        if low_ms <= after.run_after_ms <= high_ms:
            found = await _scan_at(store, pk, state, after.run_after_ms, after.id, limit)
        high_ms = min(high_ms, after.run_after_ms - 1)
    rest = limit - len(found)
    if rest <= 0 or high_ms < low_ms:
        return found
    entries = await store.table.first(pk, rest, *_between(state, low_ms, high_ms), index=ORDER, backwards=True)
    newest = [(-int(entry[ORDER_KEY][1:17]), int(entry["sk"])) for entry in entries]
    if len(newest) == rest:
        last = newest[-1][0]
        newest = [place for place in newest if place[0] != last]
        newest += await _scan_at(store, pk, state, -last, 0, rest - len(newest))
    return found + sorted(newest)


async def _scan_at(
    store: Store, pk: str, state: int, run_after_ms: int, after_id: int, limit: int
) -> list[tuple[int, int]]:
    begin = f"{state}{at(run_after_ms)}"
    entries = await store.table.first(pk, limit, f"{begin}{after_id or ''}\0", f"{begin}{LAST}", index=ORDER)
    return [(-run_after_ms, int(entry["sk"])) for entry in entries]


# -- statistics --------------------------------------------------------------------------------------------------------

NOTHING = LevelCounts(0, 0, 0, 0, 0, None)
COUNTED_AS = {
    **{PENDING: "scheduled", IN_PROGRESS: "in_progress", SUCCEEDED: "succeeded", FAILED: "failed"},
    **{WAITING: "waiting", CANCELLED: "cancelled", REPLAYED: "replayed"},
}
"""The states as they are counted; PENDING ones are those that are not ready."""


class Cell(NamedTuple):
    """The jobs of one state and priority in one partition, behind a place in its index."""

    state: int
    priority: int
    bucket: int
    behind: str = ""


async def stats(
    store: Store,
    queue: str,
    priorities: Sequence[int],
    now_ms: int,
    after: StatsPosition | None,
    limit: int,
    states: Collection[int] = tuple(COUNTED_AS),
) -> StatsPage:
    """Cell by cell: all are looked at at once, each a little. The first that has more is counted on, and ends it."""
    qid = await store.queues.known(queue)
    cells = _cells(store, states, sorted(priorities), after)
    each = max(1, limit // max(1, len(cells)))
    found = await asyncio.gather(*[_entries(store, qid, cell, each) for cell in cells])
    levels: dict[int, LevelCounts] = {}
    for cell, entries in zip(cells, found, strict=True):
        if len(entries) < each:
            _add(levels, cell, entries, now_ms)
            continue
        entries = await _entries(store, qid, cell, limit)
        _add(levels, cell, entries, now_ms)
        if len(entries) < limit and cell == cells[-1]:
            break
        last = entries[-1][ORDER_KEY] if entries else f"{cell.state}{at(0)}0"
        time_ms, job_id = int(last[1:17]), int(last[17:])
        if len(entries) < limit:
            time_ms = MAX_TIME_MS
        return StatsPage(levels, StatsPosition(cell.state, cell.priority, time_ms, job_id))
    return StatsPage(levels, None)


def _cells(store: Store, states: Collection[int], priorities: Sequence[int], after: StatsPosition | None) -> list[Cell]:
    """The cells to count behind a place, in order; a place names its partition by the id of its job."""
    cells = [
        Cell(state, priority, bucket)
        for state in COUNTED_AS
        if state in states
        for priority in priorities
        for bucket in range(store.places.buckets)
    ]
    if after is None:
        return cells
    place = Cell(after.state, after.priority, store.places.bucket_of(after.id))
    order = {state: number for number, state in enumerate(COUNTED_AS)}
    behind = [each for each in cells if (order[each.state], *each[1:3]) > (order[place.state], *place[1:3])]
    if after.run_after_ms == MAX_TIME_MS or place not in cells:
        return behind
    return [place._replace(behind=f"{after.state}{at(after.run_after_ms)}{after.id}\0"), *behind]


async def _entries(store: Store, qid: str, cell: Cell, limit: int) -> list[Item]:
    pk = store.places.partition(qid, cell.priority, cell.bucket)
    low, high = cell.behind or str(cell.state), f"{cell.state}{LAST}"
    return await store.table.first(pk, limit, low, high, index=ORDER, attributes=(ORDER_KEY,))


def _add(levels: dict[int, LevelCounts], cell: Cell, entries: Sequence[Item], now_ms: int) -> None:
    level = levels.get(cell.priority, NOTHING)
    if cell.state == PENDING:
        due = [time_ms for entry in entries if (time_ms := int(entry[ORDER_KEY][1:17])) <= now_ms]
        oldest = min((each for each in (level.oldest_ready_ms, *due) if each is not None), default=None)
        level = level._replace(
            ready=level.ready + len(due), scheduled=level.scheduled + len(entries) - len(due), oldest_ready_ms=oldest
        )
    else:
        name = COUNTED_AS[cell.state]
        level = level._replace(**{name: getattr(level, name) + len(entries)})
    levels[cell.priority] = level
