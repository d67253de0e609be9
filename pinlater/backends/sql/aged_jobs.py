"""Ready jobs of a queue whose jobs age, in SQL: the candidates of a claim, and counts (see aged_levels.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from pinlater.backends.aged_levels import AgedLevel, JobPlace, Level, by_level, count_levels, in_turn
from pinlater.backends.requests import StoredState
from pinlater.backends.sql.group_lines import Turns, sums_of_weights
from pinlater.backends.sql.session import Row, Session

T = TypeVar("T")


def candidates(
    session: Session, turns: Turns | None, queue_id: int, last: AgedLevel, limit: int, now_ms: int
) -> list[Row]:
    """As `Session.candidates`, of levels down to the last one. `turns` has the lines, where there are groups.

    What is read here is locked, and others pass it over: so of each priority only as many as come in their order, and
    more where others have locked some of these.
    """
    if turns is not None:
        return _in_order(
            last,
            [_in_turn(session, turns, queue_id, each, last, limit, now_ms) for each in last.priorities],
            limit,
            now_ms,
        )
    amounts = _amounts(session, queue_id, last, limit, now_ms)
    rows = _first(session, queue_id, last, amounts, limit, now_ms)
    if len(rows) < sum(amounts.values()):
        rows = _first(session, queue_id, last, dict.fromkeys(last.priorities, limit), limit, now_ms)
    return rows


def _amounts(session: Session, queue_id: int, last: AgedLevel, limit: int, now_ms: int) -> Mapping[int, int]:
    """How many of the first jobs each priority has, with those whose time is over."""
    oldest = [
        [(each, each) for each in _oldest(session, queue_id, priority, last.reach_ms(priority, now_ms), limit)]
        for priority in last.priorities
    ]
    return Counter(place.priority for place in _in_order(last, oldest, limit, now_ms))


def _first(
    session: Session, queue_id: int, last: AgedLevel, amounts: Mapping[int, int], limit: int, now_ms: int
) -> list[Row]:
    """The first jobs of so many of each priority, by level."""
    found = [
        session.candidates(queue_id, [priority], amount, last.reach_ms(priority, now_ms))
        for priority, amount in sorted(amounts.items())
    ]
    return _in_order(last, [[(_place(row), row) for row in rows] for rows in found], limit, now_ms)


def _in_turn(
    session: Session, turns: Turns, queue_id: int, priority: int, last: AgedLevel, limit: int, now_ms: int
) -> Iterable[tuple[JobPlace, Row]]:
    rows = [(_place(row), row) for row in turns.candidates(queue_id, [priority], limit, now_ms)]
    until_ms = last.reach_ms(priority, now_ms)
    return in_turn(rows, _oldest(session, queue_id, priority, until_ms, limit, now_ms, has_groups=True))


def _in_order(
    last: AgedLevel, of_priorities: Iterable[Iterable[tuple[JobPlace, T]]], limit: int, now_ms: int
) -> list[T]:
    return [job for _, job in islice(by_level(last, of_priorities, now_ms), limit)]


def _place(row: Row) -> JobPlace:
    job_id, priority, run_after_ms = row[:3]
    return JobPlace(priority, run_after_ms, job_id)


def count_ready(
    session: Session, queue: str, levels: Sequence[Level], last: AgedLevel, limit: int, now_ms: int
) -> list[int]:
    """As `ready_jobs.count_ready`, of levels down to the last one."""
    queue_id, rules_version = session.queue_with_groups(queue)
    has_groups = rules_version is not None
    times: dict[int, list[int]] = {}
    groups: dict[int, int] = {}
    for priority in last.priorities:
        until_ms = last.reach_ms(priority, now_ms)
        oldest = _oldest(session, queue_id, priority, until_ms, limit, now_ms, has_groups=has_groups)
        times[priority] = [each.run_after_ms for each in oldest]
        if has_groups:  # the jobs in line are among the oldest
            which = (queue, priority)
            ((_, groups[priority], is_held, _),) = session.rows(
                "in_line_in_priority", (priority, *which, limit, *which, *which, 0)
            )
            if is_held:  # whoever is asked to claim is to find so many
                ((_, in_turn_jobs),) = session.rows("in_turn_in_priority", (priority, *which, now_ms, limit))
                outside = _oldest(session, queue_id, priority, until_ms, limit)
                times[priority] = times[priority][: in_turn_jobs + len(outside)]
    if rules_version:
        groups = sums_of_weights(session, queue, last.priorities)
    return count_levels(levels, times, limit, now_ms, groups if has_groups else None)


def _oldest(
    session: Session,
    queue_id: int,
    priority: int,
    until_ms: int,
    limit: int,
    alive_ms: int = 0,
    *,
    has_groups: bool = False,
) -> list[JobPlace]:
    """The first jobs of a priority by run_after that are ready, in line or not; none whose time was over at
    `alive_ms`.
    """
    states = (StoredState.PENDING, StoredState.IN_LINE) if has_groups else (StoredState.PENDING,)
    rows = [
        JobPlace(priority, run_after_ms, job_id)
        for state in states
        for run_after_ms, job_id in session.rows(
            "oldest_ready", (queue_id, int(state), priority, until_ms, alive_ms, limit)
        )
    ]
    return sorted(rows)[:limit]
