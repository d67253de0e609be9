"""Dead letters: copies of jobs that failed, which go back to their queues, and go where their jobs are retried."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from pinlater.backends.base import ClaimKey, DeadLetterTarget, JobKey
from pinlater.backends.sql.attempts import EXTENDED, claims_standing, jobs_named, remove
from pinlater.backends.sql.chains import Freed
from pinlater.backends.sql.extensions import (
    NO_KEYS,
    Extension,
    HeldKeys,
    extend,
    extensions,
    put_tags,
    set_extended,
    tag_flags,
)
from pinlater.backends.sql.group_lines import make_times
from pinlater.backends.sql.held_references import share
from pinlater.backends.sql.job_ends import End, Stays, end
from pinlater.backends.sql.keyed_jobs import Returning, queue_by_homes, take_keys
from pinlater.backends.sql.ready_jobs import first_new_id
from pinlater.backends.sql.records import (
    CANCELLED,
    IN_LINE,
    SHOWN,
    STOPPING,
    TIERED,
    WAITING,
    Descriptors,
    how_many_fit,
)
from pinlater.backends.sql.session import Row, Session
from pinlater.backends.status_lines import dead_letter_status
from pinlater.model import JobRef, JobState, descriptor_prefix, parse_descriptor

BYTES_PER_STEP = 32 << 20
"""Bodies are copied inside the store; this bounds the transaction."""

BODY_BYTES = 5
"""Where a row of `dead_letters_pending` has the size of the body."""

ORIGIN, ORIGIN_ATTEMPTS, MOVED_TO = 1, 2, 3
"""Where a row of `links` has these."""


def dead_letter(session: Session, limit: int, now_ms: int, targets: Mapping[str, DeadLetterTarget]) -> dict[str, int]:
    """See JobStore.dead_letter. The queues follow one another; one whose target is not there is passed over."""
    counts: dict[str, int] = {}
    if not targets:
        return counts
    for queue_id, name in session.rows("queues_with_dead_letters_pending", (session.bound_texts(sorted(targets)),)):
        target = targets[name]
        letter_queue = session.rows("queue_id_for_enqueue", (target.queue,))
        rows = session.rows("dead_letters_pending", (queue_id, limit)) if letter_queue and limit > 0 else []
        rows = rows[: how_many_fit((row[BODY_BYTES] for row in rows), BYTES_PER_STEP)]
        if rows:
            _copy_letters(session, rows, name, target, letter_queue[0][0], now_ms)
            counts[name] = len(rows)
            limit -= len(rows)
    return counts


def _copy_letters(
    session: Session, rows: Sequence[Row], queue: str, target: DeadLetterTarget, target_id: int, now_ms: int
) -> None:
    first_id = first_new_id(session, len(rows), now_ms)
    origins, copies = Descriptors(queue, session.shard_id), Descriptors(target.queue, session.shard_id)
    known = extensions(session, [row[0] for row in rows if row[6]])
    extended: dict[int, int] = {}
    tiered: dict[int, int] = {}
    tags: dict[int, bytes] = {}
    for copy_id, (job_id, priority, allowed, crashes, created_at_ms, _, flags) in enumerate(rows, first_id):
        origin = origins.of(priority, job_id)
        history = dead_letter_status(origin, created_at_ms, allowed, crashes, now_ms)
        _copy(session, job_id, copy_id, target_id, target.attempts_allowed, history, now_ms)
        session.run("put_origin", (copy_id, origin, allowed))
        session.run("put_moved_to", (job_id, copies.of(priority, copy_id)))
        keys = known[job_id].keys._replace(send_id=b"", place=0) if job_id in known else NO_KEYS
        if keys.flags:
            session.run("set_job_keys", (keys.dump(), copy_id))
            extended[copy_id] = SHOWN
        if keys.group:
            make_times(session, target_id, [priority])
        if flags and flags & TIERED:
            extended[copy_id] = extended.get(copy_id, 0) | TIERED
            tiered[copy_id] = job_id
        if job_id in known and (text := known[job_id].tags):
            extended[copy_id] = tag_flags(extended.get(copy_id, 0))
            tags[copy_id] = bytes(text)
    set_extended(session, extended)
    put_tags(session, target_id, tags)
    if tiered:
        share(session, tiered)
    session.run_of("clear_dead_letter_pending", (now_ms,), sorted(row[0] for row in rows))


def _copy(session: Session, job_id: int, copy_id: int, queue_id: int, attempts: int, history: str, now_ms: int) -> None:
    session.run("copy_job", (copy_id, queue_id, now_ms, attempts, attempts, now_ms, now_ms, history, job_id))


# -- letters that go back ----------------------------------------------------------------------------------------------


class GoneLetter(NamedTuple):
    """A letter that is not where it was: the job that it is the letter of, its descriptor, and that of its own copy."""

    origin: JobRef
    letter: str
    copy: str


def replay(
    session: Session,
    freed: Freed,
    queue: str,
    jobs: Sequence[JobKey],
    now_ms: int,
    attempts: int | None,
    homes_version: str = "",
    marks_originals: bool = True,
) -> list[str | None]:
    queue_by_homes(session, queue, homes_version)
    letters = Descriptors(queue, session.shard_id)
    rows = jobs_named(session, queue, jobs)
    links = _links(session, rows)
    known = extensions(session, [row[0] for row in rows.values() if row[3]])
    homes: dict[str, int | None] = {}
    replayed: list[GoneLetter] = []
    new: list[str | None] = []
    sent: list[End] = []
    for job in jobs:
        row, link = rows.get(job.id), links.get(job.id)
        home = None
        if row is not None and link is not None and _is_letter(row, link, job):
            home = _home(session, link[ORIGIN], homes)
        if row is None or link is None or home is None:
            new.append(None)
            continue
        origin, home_id = home
        new_id = first_new_id(session, 1, now_ms)
        keys = NO_KEYS if job.id not in known else known[job.id].keys
        state = _state_by_keys(session, keys, new_id, home_id, job.priority, now_ms)
        if state is None:
            new.append(None)
            continue
        flags = row[3] or 0
        del rows[job.id]  # named twice, it goes once
        allowed = link[ORIGIN_ATTEMPTS] if attempts is None else attempts
        letter = letters.of(job.priority, job.id)
        _copy(session, job.id, new_id, home_id, allowed, "", now_ms)
        session.run("put_origin", (new_id, letter, None))
        new_flags = keys.flags | flags & TIERED
        if flags & TIERED:
            share(session, {new_id: job.id})
        if job.id in known and (text := known[job.id].tags):
            new_flags = tag_flags(new_flags)
            put_tags(session, home_id, {new_id: bytes(text)})
        if keys.flags:
            place = new_id if keys.serialize_key else 0
            session.run("set_job_keys", (keys._replace(place=place).dump(), new_id))
            session.run_of("hold_back", (), [new_id] if state == WAITING else [])
        if keys.group:
            make_times(session, home_id, [job.priority])
        if new_flags:
            set_extended(session, {new_id: new_flags})
        descriptor = f"{descriptor_prefix(origin.queue, session.shard_id, job.priority)}{new_id}"
        replayed.append(GoneLetter(origin, letter, descriptor))
        new.append(descriptor)
        sent.append(End.of(job.id, flags, row[2]))
    remove(session, sent, now_ms, freed)
    if marks_originals:
        _mark_originals(session, replayed, now_ms)
    return new


def _links(session: Session, ids: Iterable[int]) -> dict[int, Row]:
    return {row[0]: row for row in session.rows_of("links", (), sorted(ids))}


def _is_letter(row: Row, link: Row, job: JobKey) -> bool:
    """Only `dead_letter` writes down what the origin was allowed."""
    return row[1] == job.priority and row[2] in GOES and link[ORIGIN_ATTEMPTS] is not None


def _home(session: Session, origin: str, known: dict[str, int | None]) -> tuple[JobRef, int] | None:
    """The job that a letter came from, and its queue's id, if that is there; locked against deletion."""
    ref = parse_descriptor(origin)
    if ref is None:
        return None
    if ref.queue not in known:
        rows = session.rows("queue_id_for_enqueue", (ref.queue,))
        known[ref.queue] = rows[0][0] if rows else None
    queue_id = known[ref.queue]
    return None if queue_id is None else (ref, queue_id)


def _state_by_keys(
    session: Session, keys: HeldKeys, new_id: int, queue_id: int, priority: int, now_ms: int
) -> int | None:
    """The state in which a new job with these keys begins, which are its own from now on; None: they are taken."""
    if not keys.flags:
        return 0
    returning = Returning(new_id, queue_id, priority, Extension(new_id, queue_id, keys))
    return take_keys(session, [returning], new_id, now_ms).get(new_id)


def _mark_originals(session: Session, replayed: Sequence[GoneLetter], now_ms: int) -> None:
    """The jobs whose letters went back are dealt with."""
    for row, new in _originals(session, {each.letter: each for each in replayed}):
        job_id, flags = row[0], row[3] or 0
        session.run_of("mark_replayed", (now_ms,), [job_id])
        session.run("put_moved_to", (job_id, new.copy))
        session.run_of("note_cancelled", (), [job_id])
        extend(session, {job_id: flags}, STOPPING)


def _originals(session: Session, letters: Mapping[str, GoneLetter]) -> list[tuple[Row, GoneLetter]]:
    """The rows of the failed jobs that these letters, by their descriptors, are those of; locked."""
    rows = _rows_of(session, [each.origin for each in letters.values() if each.origin.shard == session.shard_id])
    found = []
    for job_id, link in _links(session, rows).items():
        letter = letters.get(link[MOVED_TO] or "")
        if letter is not None and letter.origin.id == job_id and rows[job_id][2] == JobState.FAILED:
            found.append((rows[job_id], letter))
    return found


def _rows_of(session: Session, refs: Collection[JobRef]) -> dict[int, Row]:
    """The rows of these jobs of any queues, by id, locked."""
    rows: dict[int, Row] = {}
    for queue in sorted({ref.queue for ref in refs}):
        rows |= jobs_named(session, queue, [JobKey(ref.priority, ref.id) for ref in refs if ref.queue == queue])
    return rows


# -- letters of jobs that are retried ----------------------------------------------------------------------------------


class LettersOf(NamedTuple):
    """The dead letters of failed jobs: those that can go with a retry, by the jobs' ids; and the jobs that stay, since
    their letters run, succeeded, or are elsewhere.
    """

    going: Mapping[int, End]
    held: frozenset[int]


NO_LETTERS = LettersOf({}, frozenset())
GOES = (0, WAITING, IN_LINE, int(JobState.FAILED), CANCELLED)
"""The states of a dead letter that can be sent back, and goes with a retry of its job."""


def letters_of(session: Session, ids: Iterable[int]) -> LettersOf:
    """What the letters of these jobs, which are locked, mean for a retry. The letters are locked, then."""
    moved = {job_id: link[MOVED_TO] for job_id, link in _links(session, ids).items() if link[MOVED_TO] is not None}
    if not moved:
        return NO_LETTERS
    refs = {job_id: parse_descriptor(descriptor) for job_id, descriptor in moved.items()}
    here = {job_id: ref for job_id, ref in refs.items() if ref is not None and ref.shard == session.shard_id}
    rows = _rows_of(session, here.values())
    links = _links(session, rows)
    going: dict[int, End] = {}
    held = set(refs.keys() - here.keys())
    for job_id, ref in here.items():
        row = rows.get(ref.id)
        if row is None or row[1] != ref.priority:
            continue  # somebody deleted it
        if row[2] in GOES and (ref.id not in links or links[ref.id][MOVED_TO] is None):
            going[job_id] = End.of(ref.id, row[3], row[2])
        else:
            held.add(job_id)
    return LettersOf(going, frozenset(held))


def mark_moved(
    session: Session, freed: Freed, queue: str, moved: Sequence[tuple[ClaimKey, str]], now_ms: int
) -> list[bool]:
    rows = claims_standing(session, queue, [claim for claim, _ in moved])
    done: list[bool] = []
    ids: list[int] = []
    ends: list[End] = []
    links = _links(session, rows)
    letters: dict[str, GoneLetter] = {}
    named = Descriptors(queue, session.shard_id)
    for claim, descriptor in moved:
        row = rows.get(claim.id)
        done.append(row is not None and (row[1], row[4]) == (claim.priority, claim.claim_descriptor))
        if done[-1]:
            flags = rows.pop(claim.id)[EXTENDED]
            session.run("put_moved_to", (claim.id, descriptor))
            ids.append(claim.id)
            if flags:
                ends.append(End(claim.id, flags, True))
            link = links.get(claim.id)
            origin = parse_descriptor(link[ORIGIN]) if link and link[ORIGIN_ATTEMPTS] is not None else None
            if origin is not None:
                letter = named.of(claim.priority, claim.id)
                letters[letter] = GoneLetter(origin, letter, descriptor)
    session.run_of("succeed", (now_ms, now_ms), sorted(ids))
    end(session, ends, Stays.JOB, now_ms, freed)
    for row, letter_elsewhere in _originals(session, letters):
        session.run("put_moved_to", (row[0], letter_elsewhere.copy))
    return done
