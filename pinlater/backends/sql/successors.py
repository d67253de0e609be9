"""Successors: newer jobs that wait for the running one of their dedupe key (see JobEnd in extended.py).

The entry of a dedupe key names the running job, and an entry beside it the successor. The bit STOPPING is the sign of
both, so that all other jobs cost nothing more: a running job with a successor has it, with an empty `cancelled_by`
where nobody asked it to stop, and so has the successor while it waits. What decides is the entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pinlater.backends.sql.chains import Freed, free
from pinlater.backends.sql.extensions import Extension, KeyEntry, entries, extensions, set_extended
from pinlater.backends.sql.records import IN_CHAIN, STOPPING, WAITING
from pinlater.backends.sql.schema_version import SUCCESSORS_VERSION
from pinlater.backends.sql.session import Row, Session

FIRST_NAME, BEHIND_NAMES = b"s", b"t"
"""The names of these entries begin with the one, and come before the other; those of all other entries before both."""


def successor_name(dedupe_name: bytes) -> bytes:
    """The name of the entry that names the successor, by that of the dedupe key's own."""
    return FIRST_NAME + dedupe_name[1:]


def successors(session: Session, queue_id: int, names: Iterable[bytes]) -> dict[bytes, KeyEntry]:
    """The entries of successors, by the names of their dedupe keys' own entries."""
    found = entries(session, queue_id, map(successor_name, names))
    return {b"d" + name[1:]: entry for name, entry in found.items()}


def raise_version(session: Session) -> None:
    """With the first successor: a server that does not know these would let them wait for ever."""
    if int(session.rows("schema_version")[0][0]) < SUCCESSORS_VERSION:
        session.run("raise_successors_version")


def stop_requests(session: Session, ids: Sequence[int]) -> set[int]:
    """Those of these jobs that somebody asked to stop."""
    return {each.job_id for each in extensions(session, ids).values() if each.cancelled_by}


def ends_cancelled(session: Session, job_id: int, flags: int, *, goes_on: bool) -> bool:
    """Whether a job in progress that does not succeed ends as CANCELLED: it was asked to stop, or would go back to
    PENDING (`goes_on`) while its successor waits.
    """
    if not flags & STOPPING:
        return False
    job = extensions(session, [job_id])[job_id]
    if job.cancelled_by or not goes_on or not job.keys.dedupe_key:
        return bool(job.cancelled_by)
    return bool(successors(session, job.queue_id, [job.keys.dedupe_name]))


def hand_over(session: Session, ending: Iterable[Extension], freed: Freed) -> None:
    """Each of these jobs ends, and has or is a successor. A successor has the key from now on, and waits no more unless
    in a chain; one that ends itself is forgotten.
    """
    per_queue: dict[int, dict[bytes, Extension]] = {}
    for each in ending:
        if each.keys.dedupe_key:
            per_queue.setdefault(each.queue_id, {})[each.keys.dedupe_name] = each
    for queue_id, own in sorted(per_queue.items()):
        found = successors(session, queue_id, own)
        ends = [name for name, entry in found.items() if entry.job_id == own[name].job_id]
        heirs = {name: entry.job_id for name, entry in found.items() if name not in ends}
        live = {row[0]: row for row in session.rows_of("states", (), sorted(heirs.values()))}
        heirs = {name: job_id for name, job_id in heirs.items() if job_id in live and live[job_id][2] == WAITING}
        known = extensions(session, heirs.values())
        new: list[Row] = []
        for name, job_id in sorted(heirs.items()):
            keys = known[job_id].keys
            new.append((queue_id, name, job_id, live[job_id][1], keys.slot, keys.dedupe_for_ms, 0, 0))
        session.put("put_live_keys", new)
        session.run_in("remove_keys", (queue_id,), [successor_name(name) for name in (*ends, *heirs)])
        flags = {job_id: live[job_id][3] & ~STOPPING for job_id in heirs.values()}
        set_extended(session, flags)
        alone = sorted(job_id for job_id, own_flags in flags.items() if not own_flags & IN_CHAIN)
        if alone:
            free(session, session.rows_of("run_afters", (), alone), freed)
