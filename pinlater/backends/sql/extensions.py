"""Extensions of jobs: what few jobs have apart from the job, and what their ends do (see JobEnd in extended.py).

`extended` of a job tells what there is, so that the ends of all other jobs cost nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from pinlater.backends.sql import chains
from pinlater.backends.sql.chains import Freed
from pinlater.backends.sql.held_references import release
from pinlater.backends.sql.records import (
    EXPIRES,
    HAS_ENTRY,
    HAS_WINDOW,
    IN_CHAIN,
    IN_LINE,
    LIVE,
    OWN_TIMEOUT,
    SHOWN,
    STOPPING,
    TIERED,
)
from pinlater.backends.sql.session import KEYS_PER_STATEMENT, Session, in_slices

HAS_ROW = OWN_TIMEOUT | EXPIRES | STOPPING | SHOWN
"""The bits of what stands in `pinlater_extensions`."""


class HeldKeys(NamedTuple):
    """The keys of a job, as `job_keys` of it has them in one value: written and read with the job."""

    dedupe_key: bytes = b""
    serialize_key: bytes = b""
    send_id: bytes = b""
    place: int = 0
    slot: int = 0
    dedupe_for_ms: int = 0
    group: bytes = b""

    def dump(self) -> bytes:
        return dump_keys(*self)

    @classmethod
    def load(cls, text: bytes) -> HeldKeys:
        group, text = split_group(text)
        serialize_bytes, send_bytes, place, slot, dedupe_for_ms, rest = text.split(b":", 5)
        at = int(serialize_bytes)
        end = at + int(send_bytes)
        return cls(rest[end:], rest[:at], rest[at:end], int(place), int(slot), int(dedupe_for_ms), group)

    @property
    def dedupe_name(self) -> bytes:
        """The name of the dedupe key's entry, which is unique per serialize key."""
        return dedupe_name(self.dedupe_key, self.serialize_key)

    @property
    def names(self) -> list[bytes]:
        """The names of the entries that its keys have."""
        names = [self.dedupe_name] if self.dedupe_key else []
        return [*names, b"i" + self.send_id] if self.send_id else names

    @property
    def flags(self) -> int:
        """The bits of its keys."""
        flags = IN_CHAIN if self.serialize_key else 0
        if self.dedupe_key or self.send_id:
            flags |= HAS_ENTRY
        if self.dedupe_for_ms or self.send_id:
            flags |= HAS_WINDOW
        if self.group:
            flags |= SHOWN
        return flags


NO_KEYS = HeldKeys()


def dump_keys(
    dedupe_key: bytes,
    serialize_key: bytes,
    send_id: bytes,
    place: int,
    slot: int,
    dedupe_for_ms: int,
    group: bytes = b"",
) -> bytes:
    """The keys as one value, for `HeldKeys.load`. A function, since all jobs with keys come in by it."""
    if group:
        keys = dump_keys(dedupe_key, serialize_key, send_id, place, slot, dedupe_for_ms)
        return b"%b%d:%b%b" % (GROUP_MARK, len(group), group, keys)
    if not (serialize_key or send_id):
        return b"0:0:0:%d:%d:%b" % (slot, dedupe_for_ms, dedupe_key)
    numbers = (len(serialize_key), len(send_id), place, slot, dedupe_for_ms)
    return b"%d:%d:%d:%d:%d:%b%b%b" % (*numbers, serialize_key, send_id, dedupe_key)


GROUP_MARK = b"g"
"""What the keys of a job with a group begin with; those of others begin with a number."""


def split_group(keys: bytes) -> tuple[bytes, bytes]:
    """The group in the keys of a job, and the rest of them.

    >>> split_group(b"g4:acme0:0:0:7:0:"), split_group(b"0:0:0:7:0:")
    ((b'acme', b'0:0:0:7:0:'), (b'', b'0:0:0:7:0:'))
    """
    if not keys.startswith(GROUP_MARK):
        return b"", keys
    length, _, rest = keys[1:].partition(b":")
    return rest[: int(length)], rest[int(length) :]


def dedupe_name(dedupe_key: bytes, serialize_key: bytes) -> bytes:
    return b"d%d:%b%b" % (len(serialize_key), serialize_key, dedupe_key)


class Extension(NamedTuple):
    """What an extended job has apart from what all have."""

    job_id: int
    queue_id: int = 0
    keys: HeldKeys = NO_KEYS
    claim_timeout_ms: int | None = None
    expires_at_ms: int | None = None
    cancelled_by: str | None = None
    fraction: float | None = None
    progress: str | None = None
    progress_at_ms: int | None = None
    tags: bytes | None = None
    """As `dump_tags` writes them."""


def dump_tags(tags: Sequence[str]) -> bytes:
    """One value for all tags of a job, which have no control characters."""
    return "\n".join(tags).encode()


def load_tags(text: bytes) -> list[str]:
    return bytes(text).decode().split("\n")


def tag_flags(flags: int) -> int:
    """The bits of a job that has these and tags."""
    return flags | SHOWN if flags & HAS_ENTRY else flags | SHOWN | HAS_WINDOW


def put_tags(session: Session, queue_id: int, tags: Mapping[int, bytes]) -> None:
    """Give tags to new jobs of a queue; their bits are set by the caller."""
    session.put("put_job_tags", sorted(tags.items()))
    rows = [(queue_id, tag, job_id) for job_id, text in tags.items() for tag in text.split(b"\n")]
    session.put("put_tags", sorted(rows))


def extensions(session: Session, ids: Iterable[int]) -> dict[int, Extension]:
    """What these jobs have beside others, by id; a job without an extension is left out."""
    return {
        job_id: Extension(job_id, queue_id, NO_KEYS if keys is None else HeldKeys.load(bytes(keys)), *rest)
        for job_id, queue_id, keys, *rest in session.rows_of("extensions", (), sorted(set(ids)))
    }


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
    known = extensions(session, [*chained, *ending, *going]) if chained or ending or going else {}
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


def on_entries(session: Session, statement: str, values: Sequence[object], jobs: Sequence[Extension]) -> None:
    """Change entries of these jobs: they are found by their names, and may be those of later jobs by now."""
    per_queue: dict[int, list[Extension]] = {}
    for each in jobs:
        per_queue.setdefault(each.queue_id, []).append(each)
    for queue_id, own in sorted(per_queue.items()):
        for some in in_slices(sorted(own, key=lambda each: each.keys.names), JOBS_PER_STATEMENT):
            names = [name for each in some for name in each.keys.names]
            session.run_in(statement, (*values, queue_id), names, session.bound([each.job_id for each in some]))


JOBS_PER_STATEMENT = KEYS_PER_STATEMENT // 2
"""The most jobs in one statement: each may have two entries."""
