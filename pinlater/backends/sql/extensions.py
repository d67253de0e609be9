"""Extensions of jobs: what few jobs have apart from the job, and what their ends do (see JobEnd in extended.py).

`extended` of a job tells what there is, so that the ends of all other jobs cost nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from pinlater.backends.sql import chains
from pinlater.backends.sql.chains import Freed
from pinlater.backends.sql.records import EXPIRES, HAS_ENTRY, IN_CHAIN, STOPPING
from pinlater.backends.sql.session import Session


class Extension(NamedTuple):
    """A row of `extensions`."""

    job_id: int
    dedupe_key: bytes | None = None
    serialize_key: bytes | None = None
    place: int | None = None
    slot: int = 0
    dedupe_for_ms: int = 0
    claim_timeout_ms: int | None = None
    expires_at_ms: int | None = None
    cancelled_by: str | None = None
    fraction: float | None = None
    progress: str | None = None
    progress_at_ms: int | None = None

    @property
    def key_flags(self) -> int:
        """The bits of its keys."""
        return (HAS_ENTRY if self.dedupe_key else 0) | (IN_CHAIN if self.serialize_key else 0)


def extensions(session: Session, ids: Iterable[int]) -> dict[int, Extension]:
    """Of those of the jobs that have one."""
    return {row[0]: Extension(*row) for row in session.rows_of("extensions", (), sorted(set(ids)))}


def set_extended(session: Session, flags: Mapping[int, int]) -> None:
    """Change the bits of jobs that are locked."""
    for bits in sorted(set(flags.values())):
        session.run_of("set_extended", (bits,), sorted(job_id for job_id, own in flags.items() if own == bits))


def extend(session: Session, flags: Mapping[int, int], bit: int) -> None:
    """Give jobs that are locked, and have these bits, one more. It may make a job the first extended one."""
    lacking = {job_id: own | bit for job_id, own in flags.items() if not own & bit}
    if lacking:
        session.run("raise_schema_version")
        set_extended(session, lacking)


class End(NamedTuple):
    """A job that ends now (`is_live`), or is removed and ended before; `flags` are its `extended`."""

    job_id: int
    flags: int
    is_live: bool


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
    chained = sorted(each.job_id for each in live if each.flags & IN_CHAIN)
    keyed = sorted(each.job_id for each in ends if each.flags & HAS_ENTRY)
    keyed_live = sorted(each.job_id for each in live if each.flags & HAS_ENTRY)
    if keyed:
        _end_keys(session, keyed, keyed_live, stays, now_ms)
    session.run_of("remove_expiries", (), sorted(each.job_id for each in live if each.flags & EXPIRES))
    if chained:
        chains.leave(session, extensions(session, chained).values(), now_ms, freed)
    if stays is not Stays.JOB:
        ids = sorted(each.job_id for each in ends)
        session.run_of("remove_extensions", (), ids)
        session.run_of("remove_cancelled", (), [each.job_id for each in sorted(ends) if each.flags & STOPPING])


def _end_keys(session: Session, ids: Sequence[int], live: Sequence[int], stays: Stays, now_ms: int) -> None:
    """Keys first, chains behind: as an enqueue does."""
    if stays is Stays.WINDOWS:
        session.run_of("drop_keys_over", (now_ms,), ids)
        session.run_of("leave_windows", (now_ms, now_ms), ids)
        return
    if stays is Stays.NOTHING:
        session.run_of("drop_keys", (), ids)
    session.run_of("end_keys", (now_ms, now_ms), live)
