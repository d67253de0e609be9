"""Extensions of jobs: what few jobs have apart from the job, and the entries of their keys.

`extended` of a job tells what there is, so that all other jobs cost nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pinlater.backends.sql.records import EXPIRES, HAS_ENTRY, HAS_WINDOW, IN_CHAIN, OWN_TIMEOUT, SHOWN, STOPPING
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


class KeyEntry(NamedTuple):
    """A row of `keys`, behind its name."""

    job_id: int
    priority: int
    slot: int
    until_ms: int | None
    outcome: int
    elsewhere: str | None

    def stands(self, now_ms: int) -> bool:
        return self.until_ms is None or self.until_ms > now_ms


def send_name(send_id: str) -> bytes:
    return b"i" + send_id.encode()


def entries(session: Session, queue_id: int, names: Iterable[bytes]) -> dict[bytes, KeyEntry]:
    return {bytes(row[0]): KeyEntry(*row[1:]) for row in session.rows_in("keys", (queue_id,), names)}
