"""Counts of groups in SQL: how many jobs of each are ready, how old the oldest is, and how many are held back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from pinlater.backends.group_store import HELD_AT_ONCE, MOST_COUNTED, GroupCounts
from pinlater.backends.sql.group_lines import GROUPS_PER_STATEMENT
from pinlater.backends.sql.session import Session, in_slices


def list_groups(
    session: Session,
    queue: str,
    priorities: Sequence[int],
    first: str,
    limit: int,
    limited_at_ms: int | None = None,
) -> dict[str, GroupCounts]:
    """The names of each priority come by themselves, and the first of all of them count."""
    queue_id, rules_version = session.queue_with_groups(queue)
    if rules_version is None:
        return {}
    names = {
        bytes(group)
        for priority in priorities
        for (group,) in session.rows("groups_in_priority", (queue_id, priority, first.encode(), limit))
    }
    return _counts_in_line(session, queue_id, priorities, sorted(names)[:limit], MOST_COUNTED, limited_at_ms)


def count_groups(
    session: Session,
    queue: str,
    priorities: Sequence[int],
    groups: Sequence[str],
    most: int = MOST_COUNTED,
    limited_at_ms: int | None = None,
) -> dict[str, GroupCounts]:
    queue_id, rules_version = session.queue_with_groups(queue)
    if rules_version is None:
        return {}
    return _counts_in_line(session, queue_id, priorities, [group.encode() for group in groups], most, limited_at_ms)


def count_held(
    session: Session,
    queue_id: int,
    priority: int,
    after: tuple[int, int],
    to: tuple[int, int],
    now_ms: int,
    limit: int,
) -> int:
    """The jobs of groups that are held back now, between two places, each a run_after and an id, up to `limit` of each
    group. Of up to HELD_AT_ONCE groups.
    """
    groups = [bytes(group) for (group,) in session.rows("held_groups", (queue_id, priority, now_ms, HELD_AT_ONCE))]
    jobs = 0
    for some in in_slices(groups, GROUPS_PER_STATEMENT):
        text = "\nUNION ALL\n".join([session.statements["in_line_between"]] * len(some))
        places = (after[0], to[0], *after, *to, limit)
        session.cursor.execute(text, [value for group in some for value in (queue_id, priority, group, *places)])
        jobs += sum(count for (count,) in session.cursor.fetchall())
    return jobs


def _counts_in_line(
    session: Session,
    queue_id: int,
    priorities: Sequence[int],
    groups: Sequence[bytes],
    most: int,
    limited_at_ms: int | None,
) -> dict[str, GroupCounts]:
    """Of the groups that have jobs in line, in their order."""
    held: set[tuple[int, bytes]] = set()
    for priority in priorities if limited_at_ms is not None else ():
        rows = session.rows_in("held_among", (queue_id, priority, limited_at_ms), groups)
        held |= {(priority, bytes(group)) for (group,) in rows}
    found: dict[int, GroupCounts] = {}
    for some in in_slices([*product(range(len(groups)), priorities)], GROUPS_PER_STATEMENT):
        text = "\nUNION ALL\n".join([session.statements["in_line_of_group"]] * len(some))
        values = [value for place, each in some for value in (place, each, queue_id, each, groups[place], most)]
        session.cursor.execute(text, values)
        for place, priority, ready, oldest_ms in session.cursor.fetchall():
            if ready:
                counts = GroupCounts(ready, oldest_ms, ready if (priority, groups[place]) in held else 0)
                found[place] = found[place].plus(counts) if place in found else counts
    return {groups[place].decode(): found[place] for place in sorted(found)}
