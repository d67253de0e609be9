"""The steps in SQL that take the groups off the jobs of a queue (see GroupStore.clear_groups).

The steps walk over all jobs by id. Whoever stores a job takes its id first, and keeps others that take ids waiting
until the commit: so ids are seen in their order, no job with a group comes in behind a step that has passed its id, and
at the end of the ids, with that lock, there is none left.
"""

from __future__ import annotations

from pinlater.backends.group_store import ClearedGroups
from pinlater.backends.sql.extensions import extensions, split_group
from pinlater.backends.sql.group_lines import CLEARING, forget, lock_times, put_back
from pinlater.backends.sql.records import IN_LINE
from pinlater.backends.sql.session import Row, Session


def clear_groups(session: Session, queue: str, position: str, limit: int, dry_run: bool) -> ClearedGroups:
    queue_id, rules_version = session.queue_with_groups(queue)
    if rules_version is None:
        return ClearedGroups(0, "")
    after = int(position or 0)
    rows = session.rows("jobs_behind", (after, limit))
    if dry_run:
        return ClearedGroups(len(_grouped(rows, queue_id)), str(rows[-1][0]) if len(rows) == limit else "")
    if len(rows) < limit:
        session.allocate_ids(0, 0)
        rows = session.rows("jobs_behind", (after, limit))
    in_line = [job_id for (job_id,) in session.rows("lines_of_queue", (queue_id, limit))]
    ids = sorted({*_grouped(rows, queue_id), *in_line})
    states = {row[0]: row[2] for row in session.rows_of("states", (), ids)}
    was_clearing = CLEARING in lock_times(session, queue_id, [CLEARING])
    if not was_clearing:
        session.put("put_virtual_times", [(queue_id, CLEARING, 0.0)])
    put_back(session, [job_id for job_id, state in states.items() if state == IN_LINE])
    grouped = [each for each in extensions(session, states).values() if each.keys.group]
    for each in grouped:
        session.run("set_job_keys", (each.keys._replace(group=b"").dump(), each.job_id))
    if len(rows) < limit and was_clearing and not session.rows("lines_of_queue", (queue_id, 1)):
        lock_times(session, queue_id, [priority for (priority,) in session.rows("times_of_queue", (queue_id,))])
        if forget(session, queue_id, limit):
            return ClearedGroups(len(grouped), "")
    return ClearedGroups(len(grouped), str(rows[-1][0] if rows else after))


def _grouped(rows: list[Row], queue_id: int) -> list[int]:
    """Those of the jobs that are of this queue and have a group."""
    return [
        job_id
        for job_id, its_queue_id, keys in rows
        if its_queue_id == queue_id and keys and split_group(bytes(keys))[0]
    ]
