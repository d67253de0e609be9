"""The ends of extended jobs: what each does in the transaction that ends the job (see JobEnd in extended.py)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from pinlater.backends.sql import chains
from pinlater.backends.sql.chains import Freed
from pinlater.backends.sql.extensions import HAS_ROW, Extension, extensions, on_entries
from pinlater.backends.sql.held_references import release
from pinlater.backends.sql.records import EXPIRES, HAS_ENTRY, HAS_WINDOW, IN_CHAIN, IN_LINE, LIVE, STOPPING, TIERED
from pinlater.backends.sql.session import Session
from pinlater.backends.sql.successors import hand_over


class End(NamedTuple):
    """A job that ends now (`is_live`), or is removed and ended before; `flags` are its `extended`. `is_in_line`: it is
    in the line of its group, which it leaves where it is removed.
    """

    job_id: int
    flags: int
    is_live: bool
    is_in_line: bool = False

    @classmethod
    def of(cls, job_id: int, flags: int | None, state: int) -> End:
        """A job in that state, as it is stored."""
        return cls(job_id, flags or 0, state in LIVE, state == IN_LINE)


class Stays(Enum):
    """What stays of a job that ends."""

    JOB = 0
    WINDOWS = 1
    """The job is removed; the windows of its keys go on."""

    NOTHING = 2
    """And neither does its dedupe key."""


def end(session: Session, ends: Sequence[End], stays: Stays, now_ms: int, freed: Freed) -> None:
    """Carry out what the ends of these jobs do. Their rows are locked; `freed` takes in what became the first."""
    if not ends:
        return
    live = [each for each in ends if each.is_live]
    chained = [each.job_id for each in live if each.flags & IN_CHAIN]
    ending = [each.job_id for each in live if each.flags & HAS_ENTRY and each.flags & HAS_WINDOW]
    going = [] if stays is Stays.JOB else [each.job_id for each in ends if each.flags & (HAS_ENTRY | HAS_WINDOW)]
    paired = [each.job_id for each in live if each.flags & STOPPING and each.flags & HAS_ENTRY]
    known = extensions(session, [*chained, *ending, *going, *paired]) if chained or ending or going or paired else {}
    if paired:
        hand_over(session, [known[each] for each in paired], freed)
    _end_keys(session, [known[each] for each in going], [known[each] for each in ending], stays, now_ms)
    session.run_of("remove_tags", (), sorted(each for each in going if known[each].tags))
    session.run_of("remove_expiries", (), sorted(each.job_id for each in live if each.flags & EXPIRES))
    if chained:
        held = [known[each].keys for each in chained]
        chains.leave(session, [(keys.serialize_key, keys.place) for keys in held], now_ms, freed)
    if stays is not Stays.JOB:
        tiered = [each.job_id for each in ends if each.flags & TIERED]
        if tiered:
            release(session, tiered)
        session.run_of("remove_extensions", (), [each.job_id for each in sorted(ends) if each.flags & HAS_ROW])
        session.run_of("remove_cancelled", (), [each.job_id for each in sorted(ends) if each.flags & STOPPING])


def _end_keys(
    session: Session, going: Sequence[Extension], ending: Sequence[Extension], stays: Stays, now_ms: int
) -> None:
    """Keys first, chains behind: as an enqueue does. `going`: those whose jobs are removed."""
    if stays is Stays.WINDOWS:
        on_entries(session, "drop_keys_over", (now_ms,), going)
        on_entries(session, "leave_windows", (now_ms, now_ms), [each for each in going if each.keys.flags & HAS_WINDOW])
        return
    on_entries(session, "drop_keys", (), going)
    on_entries(session, "end_keys", (now_ms, now_ms), ending)
