"""Queries that change nothing: lookup, count, scan, and the counts of a whole queue, a bounded page at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import NamedTuple

from pinlater.backends.base import JobKey, LevelCounts, ScanPosition, ScanRequest, StatsPage, StatsPosition
from pinlater.backends.sql.chains import firsts
from pinlater.backends.sql.extensions import Extension, entries, extensions, load_tags
from pinlater.backends.sql.group_counts import count_held
from pinlater.backends.sql.held_references import kept_result, stored_at
from pinlater.backends.sql.records import (
    CANCELLED,
    IN_LINE,
    INFO,
    REFERENCE_BIT,
    REPLAYED,
    STATES_OF,
    STOPPING,
    TIERED,
    WAITING,
    Descriptors,
    bodies,
    how_many_fit,
    job_info,
)
from pinlater.backends.sql.session import Row, Session
from pinlater.backends.sql.successors import successors
from pinlater.model import MAX_TIME_MS, JobInfo, JobProgress, JobState

BODY_BYTES, EXTENDED = INFO.index("body_bytes"), INFO.index("extended")
"""Where a row of `infos` has the size of the body."""


def lookup(
    session: Session, queue: str, jobs: Sequence[JobKey], with_body: bool, max_bytes: int, first_bytes: int = 2**63
) -> list[JobInfo | None]:
    """The first job's body comes beyond `max_bytes` too, up to `first_bytes`, unless `max_bytes` is 0."""
    session.snapshot()
    rows = _rows_by_id(session, queue, [job.id for job in jobs])
    named = [row if row is not None and row[2] == job.priority else None for job in jobs for row in (rows.get(job.id),)]
    found = {row[0]: row for row in named if row is not None}
    texts: dict[int, bytes] = {}
    if with_body:
        sizes = [row[BODY_BYTES] for row in found.values()]
        fitting = how_many_fit(sizes, max_bytes) if max_bytes and sum(sizes[:1]) <= first_bytes else 0
        texts = bodies(session, list(found)[:fitting])
    descriptors = Descriptors(queue, session.shard_id)
    infos = {row[0]: job_info(row, descriptors, texts.get(row[0])) for row in found.values()}
    if with_body:
        for job_id in infos.keys() - texts.keys():
            infos[job_id].body_left_out = True
    _add_extensions(session, found.values(), infos, descriptors)
    return [None if row is None else infos[row[0]] for row in named]


def _add_extensions(
    session: Session, rows: Iterable[Row], infos: Mapping[int, JobInfo], descriptors: Descriptors
) -> None:
    """What few jobs have, and what those wait for that wait for another one."""
    tiered = [row[0] for row in rows if row[EXTENDED] and row[EXTENDED] & TIERED]
    if tiered:
        for job_id, text in stored_at(session, tiered).items():
            infos[job_id].body_stored_at = text
    known = extensions(session, [row[0] for row in rows if row[EXTENDED]])
    waiting = {row[0] for row in rows if row[1] == WAITING}
    keys = [each.keys.serialize_key for each in known.values() if each.keys.serialize_key and each.job_id in waiting]
    first = firsts(session, keys)
    for each in known.values():
        info = infos[each.job_id]
        if each.keys.dedupe_key:
            info.dedupe_key = each.keys.dedupe_key.decode()
        if each.keys.serialize_key:
            info.serialize_key = each.keys.serialize_key.decode()
        head = first.get(each.keys.serialize_key) if each.job_id in waiting else None
        info.waits_for = None if head == info.descriptor else head
        info.expires_at_ms, info.claim_timeout_ms = each.expires_at_ms, each.claim_timeout_ms
        info.cancel_requested_by, info.dedupe_for_ms = each.cancelled_by or None, each.keys.dedupe_for_ms
        if each.progress_at_ms is not None:
            info.progress = JobProgress(each.fraction, each.progress or "", each.progress_at_ms)
        if each.tags:
            info.tags = load_tags(each.tags)
        if each.keys.group:
            info.group = each.keys.group.decode()
    paired = [known[row[0]] for row in rows if row[EXTENDED] and row[EXTENDED] & STOPPING]
    _add_successors(session, [each for each in paired if each.keys.dedupe_key], infos, descriptors)


def _add_successors(
    session: Session, jobs: Iterable[Extension], infos: Mapping[int, JobInfo], descriptors: Descriptors
) -> None:
    """Those of running jobs, and the running jobs of successors that are in no chain."""
    for job in jobs:
        info, name = infos[job.job_id], job.keys.dedupe_name
        if info.state is JobState.IN_PROGRESS:
            for entry in successors(session, job.queue_id, [name]).values():
                info.successor = descriptors.of(entry.priority, entry.job_id)
        elif info.state is JobState.PENDING and not job.keys.serialize_key:
            for entry in entries(session, job.queue_id, [name]).values():
                if entry.job_id != job.job_id:
                    info.waits_for = descriptors.of(entry.priority, entry.job_id)


def results(
    session: Session, queue: str, jobs: Sequence[JobKey], known: Sequence[JobInfo | None], room: int, first: bool
) -> list[JobInfo | None]:
    """The jobs of `known` with the results that are kept, as far as they fit into `room` bytes; the `first` always
    does. A job that is gone is described by the entry of its result, and its id says when it came in.
    """
    found = {row[0]: row for row in session.rows_of("results", (queue,), sorted({job.id for job in jobs}))}
    rows = [row for job in jobs if (row := found.get(job.id)) is not None and row[1] == job.priority]
    sizes = [row[RESULT_BYTES] & ~REFERENCE_BIT for row in rows]
    fitting = how_many_fit(sizes, room)
    if rows and not first and sizes[0] > room:
        fitting = 0
    texts = {
        job_id: kept_result(result, size)
        for job_id, result, size in session.rows_of("result_bodies", (), sorted({row[0] for row in rows[:fitting]}))
    }
    descriptors = Descriptors(queue, session.shard_id)
    answer: list[JobInfo | None] = []
    for job, info in zip(jobs, known, strict=True):
        row = found.get(job.id)
        if row is not None and row[1] == job.priority:
            if info is None:
                _, _, remaining, finished_at_ms, _ = row
                came_at_ms = job.id // 1000
                info = JobInfo(
                    *(descriptors.of(job.priority, job.id), JobState.SUCCEEDED, job.priority, remaining, remaining, ""),
                    *(came_at_ms, came_at_ms, finished_at_ms),
                    finished_at_ms=finished_at_ms,
                )
            if job.id in texts:
                info.result = texts[job.id]
            else:
                info.result_left_out = True
        answer.append(info)
    return answer


RESULT_BYTES = 4
"""Where a row of `results` has the size of it."""


def _rows_by_id(session: Session, queue: str, ids: Sequence[int]) -> dict[int, Row]:
    return {row[0]: row for row in session.rows_of("infos", (queue,), sorted(set(ids)))}


def _bounds(future: bool, now_ms: int) -> tuple[int, int]:
    """The run_after of what counts: exactly now is current."""
    return (now_ms + 1, MAX_TIME_MS) if future else (0, now_ms)


def count(session: Session, queue: str, state: JobState, priorities: Sequence[int], future: bool, now_ms: int) -> int:
    session.snapshot()
    queue_id, rules_version = session.queue_with_groups(queue)
    between = _bounds(future, now_ms)
    return sum(
        int(session.rows("count_between", (queue_id, each, priority, *between))[0][0])
        for each in STATES_OF[state]
        if each != IN_LINE or rules_version is not None
        for priority in priorities
    )


def scan(session: Session, queue: str, request: ScanRequest, now_ms: int) -> list[JobInfo]:
    """The places in each priority, merged; only then the rows, and the bodies that fit."""
    session.snapshot()
    queue_id, rules_version = session.queue_with_groups(queue)
    bounds = _bounds(request.future, now_ms)
    if request.tag:
        ids = _tagged(session, queue_id, request, bounds)
    else:
        places = [
            _places(session, (queue_id, int(state), priority), bounds, request.after, request.limit)
            for state in request.states
            if state != IN_LINE or rules_version is not None
            for priority in request.priorities
        ]
        ids = [job_id for _, job_id in islice(merge(*places), request.limit)]
    found = _rows_by_id(session, queue, ids)
    rows = [found[job_id] for job_id in ids if job_id in found]
    texts: dict[int, bytes] = {}
    if request.with_body:
        rows = rows[: how_many_fit((row[BODY_BYTES] for row in rows), request.max_bytes)]
        texts = bodies(session, [row[0] for row in rows])
    descriptors = Descriptors(queue, session.shard_id)
    infos = {row[0]: job_info(row, descriptors, texts.get(row[0])) for row in rows}
    _add_extensions(session, rows, infos, descriptors)
    return list(infos.values())


TAGGED_PER_STATEMENT = 1_000


def _tagged(session: Session, queue_id: int, request: ScanRequest, bounds: tuple[int, int]) -> list[int]:
    """Up to the limit of jobs with a tag, newest first: its entries in turn, whatever state their jobs are in."""
    (low, high), below = bounds, BEHIND_ALL_IDS if request.after is None else request.after.id
    states, found = set(map(int, request.states)), list[int]()
    while True:
        rows = session.rows("tagged", (queue_id, request.tag.encode(), below, TAGGED_PER_STATEMENT))
        found += [
            job_id
            for job_id, state, priority, run_after_ms in rows
            if state in states and priority in request.priorities and low <= run_after_ms <= high
        ]
        if len(found) >= request.limit or len(rows) < TAGGED_PER_STATEMENT:
            return found[: request.limit]
        below = rows[-1][0]


def _places(
    session: Session, which: tuple[int, int, int], bounds: tuple[int, int], after: ScanPosition | None, limit: int
) -> list[tuple[int, int]]:
    """Up to `limit` jobs of one priority as (-run_after, id), in that order.

    The order is down in run_after and up in id, which no index serves. So that a page costs what a page holds, and not
    what the queue holds: first where the page ends, then what lies above (a small sort), then what lies exactly there.
    """
    low, high = bounds
    found: list[tuple[int, int]] = []
    if after is not None:
        high = min(high, after.run_after_ms - 1)
        if low <= after.run_after_ms <= bounds[1]:
            found += _at(session, which, after.run_after_ms, after.id, limit)
    rest = limit - len(found)
    if rest <= 0 or high < low:
        return found
    end = session.rows("scan_time", (*which, low, high, rest - 1))
    above = end[0][0] + 1 if end else low
    between = session.rows("scan_between", (*which, above, high))
    found += sorted((-run_after_ms, job_id) for run_after_ms, job_id in between)
    if end:
        found += _at(session, which, end[0][0], 0, limit - len(found))
    return found


def _at(
    session: Session, which: tuple[int, int, int], run_after_ms: int, after_id: int, limit: int
) -> list[tuple[int, int]]:
    rows = session.rows("scan_at", (*which, run_after_ms, after_id, limit))
    return [(-run_after_ms, job_id) for (job_id,) in rows]


NOTHING = LevelCounts(0, 0, 0, 0, 0, None)
BEHIND_ALL_IDS = 2**53
LEVEL_COUNTS = {
    **{0: "scheduled", 1: "in_progress", 2: "succeeded", 3: "failed"},
    **{WAITING: "waiting", CANCELLED: "cancelled", REPLAYED: "replayed", IN_LINE: "ready"},
}
"""What the jobs of a state count as; of PENDING ones, those that are not ready."""


class Piece(NamedTuple):
    """A stretch of the order index: jobs of one state and priority with run_after from `low_ms` to `high_ms`.

    With `after_id` the two are equal, and only jobs behind that id count.
    """

    state: int
    priority: int
    low_ms: int
    high_ms: int
    after_id: int | None = None

    def values(self, queue_id: int) -> tuple[int, ...]:
        if self.after_id is None:
            return queue_id, self.state, self.priority, self.low_ms, self.high_ms
        return queue_id, self.state, self.priority, self.low_ms, self.after_id

    def statement(self, name: str) -> str:
        return f"{name}_between" if self.after_id is None else f"{name}_at"


def stats(
    session: Session,
    queue: str,
    priorities: Sequence[int],
    now_ms: int,
    after: StatsPosition | None,
    limit: int,
    states: Collection[int] = tuple(LEVEL_COUNTS),
) -> StatsPage:
    """A small queue goes at once. A large one, or some of its states, by pieces: the first that is cut is counted on,
    and ends the page.
    """
    queue_id, rules_version = session.queue_with_groups(queue)
    has_groups = rules_version is not None
    if after is None and len(states) == len(LEVEL_COUNTS):
        at_once = _counted_at_once(session, queue_id, priorities, now_ms, limit)
        if at_once is not None:
            for priority in [each for each, level in at_once.items() if has_groups and level.ready]:
                whole = Piece(IN_LINE, priority, 0, MAX_TIME_MS)
                _add_limited(session, queue_id, at_once, whole, (MAX_TIME_MS, BEHIND_ALL_IDS), now_ms, limit)
            return StatsPage(at_once, None)
    levels: dict[int, LevelCounts] = {}
    pieces = list(_pieces(sorted(states), sorted(priorities), now_ms, after))
    each = max(1, limit // max(1, len(pieces)))
    for piece, count, oldest_ms in zip(pieces, *_counted(session, queue_id, pieces, each), strict=True):
        is_in_line = has_groups and piece.state == IN_LINE
        if count < each:
            _add(levels, piece, count, oldest_ms, now_ms)
            if is_in_line and count:
                _add_limited(session, queue_id, levels, piece, (piece.high_ms, BEHIND_ALL_IDS), now_ms, limit)
            continue
        (count,), (oldest_ms,) = _counted(session, queue_id, [piece], limit)
        _add(levels, piece, count, oldest_ms, now_ms)
        place = StatsPosition(int(piece.state), piece.priority, piece.high_ms, BEHIND_ALL_IDS)
        if count == limit:
            last = session.rows(piece.statement("stats_place"), (*piece.values(queue_id), limit - 1))
            place = StatsPosition(int(piece.state), piece.priority, *last[0]) if last else place
        if is_in_line:
            _add_limited(session, queue_id, levels, piece, place[2:], now_ms, limit)
        return StatsPage(levels, place)
    return StatsPage(levels, None)


def _counted_at_once(
    session: Session, queue_id: int, priorities: Sequence[int], now_ms: int, limit: int
) -> dict[int, LevelCounts] | None:
    """The counts by priority, in one statement; None where there are `limit` jobs or more."""
    rows = session.rows("stats_all", (now_ms, queue_id, limit))
    if sum(row[3] for row in rows) >= limit:
        return None
    levels: dict[int, LevelCounts] = {}
    for state, priority, is_scheduled, count, oldest_ms in rows:
        if priority in priorities:
            _add(
                levels, Piece(state, priority, now_ms + 1 if is_scheduled else 0, MAX_TIME_MS), count, oldest_ms, now_ms
            )
    return levels


def _pieces(
    states: Sequence[int], priorities: Sequence[int], now_ms: int, after: StatsPosition | None
) -> Iterator[Piece]:
    """The pieces to count behind a place, in the order of the index; ready jobs apart from scheduled ones."""
    for state in states:
        ends = [(0, now_ms), (now_ms + 1, MAX_TIME_MS)] if state == JobState.PENDING else [(0, MAX_TIME_MS)]
        for priority in priorities:
            for low_ms, high_ms in ends:
                if after is None or (state, priority) > after[:2]:
                    yield Piece(state, priority, low_ms, high_ms)
                elif (state, priority) == after[:2] and high_ms >= after.run_after_ms:
                    if low_ms <= after.run_after_ms:
                        yield Piece(state, priority, after.run_after_ms, after.run_after_ms, after.id)
                        low_ms = after.run_after_ms + 1
                    if low_ms <= high_ms:
                        yield Piece(state, priority, low_ms, high_ms)


def _counted(
    session: Session, queue_id: int, pieces: Sequence[Piece], limit: int
) -> tuple[list[int], list[int | None]]:
    """How many jobs each piece has, up to `limit`, and the first run_after of each (None: it has no job)."""
    if not pieces:
        return [], []
    texts = [session.statements[piece.statement("stats")] for piece in pieces]
    values = [value for place, piece in enumerate(pieces) for value in (place, *piece.values(queue_id), limit)]
    session.cursor.execute("\nUNION ALL\n".join(texts), values)
    rows = sorted(session.cursor.fetchall())
    return [row[1] for row in rows], [row[2] for row in rows]


def _add(levels: dict[int, LevelCounts], piece: Piece, count: int, oldest_ms: int | None, now_ms: int) -> None:
    level = levels.get(piece.priority, NOTHING)
    if piece.state == IN_LINE or (piece.state == JobState.PENDING and piece.low_ms <= now_ms):
        oldest = min((each for each in (level.oldest_ready_ms, oldest_ms) if each is not None), default=None)
        levels[piece.priority] = level._replace(ready=level.ready + count, oldest_ready_ms=oldest)
    else:
        name = LEVEL_COUNTS[piece.state]
        levels[piece.priority] = level._replace(**{name: getattr(level, name) + count})


def _add_limited(
    session: Session,
    queue_id: int,
    levels: dict[int, LevelCounts],
    piece: Piece,
    end: tuple[int, int],
    now_ms: int,
    limit: int,
) -> None:
    """Of the jobs in line that a piece has up to a run_after and an id, those whose groups are held back."""
    begin = (piece.low_ms, piece.after_id or 0)
    jobs = count_held(session, queue_id, piece.priority, begin, end, now_ms, limit)
    level = levels[piece.priority]
    # as jobs come and go between the statements there may be more by now
    levels[piece.priority] = level._replace(ready_limited=min(level.ready, level.ready_limited + jobs))
