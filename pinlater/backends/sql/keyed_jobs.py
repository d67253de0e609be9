"""Jobs that come in with keys, and their return: enqueue, retry, replay.

All of these take ids first, which keeps every other one that takes ids waiting until the commit. So what is read of
keys behind that is decided by nobody else before this transaction has written it; ends of jobs alone come in between,
and those never take a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pinlater.backends.base import JobKey
from pinlater.backends.extended import (
    SEND_ID_KEPT_MS,
    KeyHolder,
    Offer,
    Offered,
    OfferOutcome,
    replaced_due_ms,
)
from pinlater.backends.sql.chains import Joining, Member, firsts
from pinlater.backends.sql.extensions import (
    Extension,
    KeyEntry,
    dedupe_name,
    dump_keys,
    dump_tags,
    entries,
    extend,
    extensions,
    put_tags,
    send_name,
    tag_flags,
)
from pinlater.backends.sql.group_lines import DueJob, enter_new, put_back
from pinlater.backends.sql.held_references import hold, replace_body
from pinlater.backends.sql.ready_jobs import first_new_id, least_id
from pinlater.backends.sql.records import (
    EXPIRES,
    HAS_ENTRY,
    HAS_WINDOW,
    IN_CHAIN,
    IN_LINE,
    OWN_TIMEOUT,
    SHOWN,
    STATES_OF,
    STOPPING,
    TIERED,
    WAITING,
    Descriptors,
    new_extended_job,
)
from pinlater.backends.sql.session import NewJob, Row, Session
from pinlater.backends.sql.successors import raise_version, stop_requests, successor_name, successors
from pinlater.errors import HomesChanged, QueueNotFound
from pinlater.model import (
    ExtendedJob,
    JobState,
    KeyRef,
    OnDuplicate,
    ReplaceRunning,
    parse_descriptor,
)
from pinlater.model.body_reference import BodyReference
from pinlater.model.status_text import NOT_REPLACED_END, append_at, newer_waits_status, not_replaced_status

RUN_AFTER = 6
"""Where the row of a new extended job has it."""


def marks(session: Session, schedules: Iterable[str]) -> dict[str, str]:
    """The highest of each schedule that has one."""
    rows = session.rows_in("firings", (), [schedule.encode() for schedule in schedules])
    return {bytes(name).decode(): bytes(mark).decode() for name, mark in rows}


def put_marks(session: Session, marks: Mapping[str, str]) -> None:
    """Only a higher one takes the place of one that is there."""
    session.put("put_firings", [(name.encode(), mark.encode()) for name, mark in sorted(marks.items())])


def queue_by_homes(session: Session, queue: str, homes_version: str, otherwise: str = "queue_id") -> int:
    """The id of a queue; `otherwise`: the statement where the caller goes by no homes of keys. HomesChanged where the
    store knows newer ones; they stay as they are until the commit. QueueNotFound.
    """
    if not homes_version:
        return session.queue_id(queue, otherwise)
    rows = session.rows("queue_id_by_homes", (queue,))
    if not rows:
        raise QueueNotFound.of(queue)
    queue_id, version = rows[0]
    if (version or "") > homes_version:
        raise HomesChanged.of_store()
    return int(queue_id)


def enqueue_extended(
    session: Session, queue: str, offers: Sequence[Offer], now_ms: int, homes_version: str, raises_version: bool
) -> list[Offered]:
    """The queue is locked against deletion first, and the version of the homes against a change."""
    if offers and not (homes_version or raises_version) and all(map(_is_in_group, offers)):
        return _store_in_groups(session, queue, offers, now_ms)
    queue_id = queue_by_homes(session, queue, homes_version, "queue_id_for_enqueue")
    if not offers:
        return []
    first_id = first_new_id(session, len(offers), now_ms)
    if raises_version:
        session.run("raise_schema_version")
    if not any(map(_must_read_keys, offers)):
        offered = _Enqueue(session, queue, queue_id, offers, now_ms, reads_keys=False).carry_out(first_id)
        if offered is not None:
            return offered
    return _Enqueue(session, queue, queue_id, offers, now_ms).carry_out(first_id) or []


def _must_read_keys(offer: Offer) -> bool:
    """Whether what stands of its keys has to be known before it is stored."""
    return bool(offer.only_if_known or offer.schedule) or offer.job.on_duplicate is OnDuplicate.REPLACE


def _is_in_group(offer: Offer) -> bool:
    """Whether it is of a job that has a group, and nothing else of what few jobs have, and for this shard in any
    case.
    """
    job = offer.job
    return (
        job.group != ""
        and job.dedupe_key == job.serialize_key == job.send_id == ""
        and job.claim_timeout_ms is job.expires_at_ms is None
        and not (job.dedupe_for_ms or job.tags or offer.only_if_known or offer.schedule)
        and type(job.body) is not BodyReference
    )


def _store_in_groups(session: Session, queue: str, offers: Sequence[Offer], now_ms: int) -> list[Offered]:
    """Jobs that have a group, and nothing else of what few jobs have: as _Enqueue does, in fewer steps."""
    jobs = [offer.job for offer in offers]
    times_ms = [now_ms if job.run_after_ms is None else job.run_after_ms for job in jobs]
    alike = {(offer.job.group, offer.slot) for offer in offers}
    groups = {name: name.encode() for name, _ in alike}
    held = {(name, slot): dump_keys(b"", b"", b"", 0, slot, 0, groups[name]) for name, slot in alike}
    job_keys = [held[offer.job.group, offer.slot] for offer in offers]
    stored = session.store_in_groups(queue, jobs, job_keys, least_id(now_ms), now_ms)
    if stored is None:
        queue_id = session.queue_id(queue, "queue_id_for_enqueue")
        first_id = first_new_id(session, len(jobs), now_ms)
        rows = [
            new_extended_job(job, keys, SHOWN, IN_LINE if time_ms <= now_ms else 0, queue_id, job_id, now_ms)
            for job_id, (job, keys, time_ms) in enumerate(zip(jobs, job_keys, times_ms, strict=True), first_id)
        ]
        session.insert_jobs(rows, "insert_extended_jobs")
    else:
        queue_id, first_id = stored
    due: dict[int, list[DueJob]] = {job.priority: [] for job in jobs}
    for job_id, (job, time_ms) in enumerate(zip(jobs, times_ms, strict=True), first_id):
        if time_ms <= now_ms:
            due[job.priority].append((job_id, time_ms, groups[job.group]))
    enter_new(session, queue_id, due)
    descriptors, outcome = Descriptors(queue, session.shard_id), OfferOutcome.STORED
    return [
        Offered(outcome, f"{descriptors[job.priority]}{job_id}", time_ms)
        for job_id, (job, time_ms) in enumerate(zip(jobs, times_ms, strict=True), first_id)
    ]


class _Enqueue:
    """The offers of one call, each of which sees what those before it did. What is new is written at the end.

    Most often all keys are new. Without `reads_keys` that is taken for granted: where the inserts find that it is not
    so, they are undone, and `carry_out` is None.
    """

    def __init__(
        self,
        session: Session,
        queue: str,
        queue_id: int,
        offers: Sequence[Offer],
        now_ms: int,
        *,
        reads_keys: bool = True,
    ) -> None:
        self._session = session
        self._queue_id = queue_id
        self._offers = offers
        self._now_ms = now_ms
        self._descriptors = Descriptors(queue, session.shard_id)
        self._keys = [self._keys_of(offer.job) for offer in offers]
        names = [name for *_, dedupe, send in self._keys for name in (dedupe, send) if name]
        self._reads_keys = reads_keys
        self._entries = entries(session, queue_id, names) if reads_keys and names else {}
        serialize_keys = [serialize for _, serialize, _, _ in self._keys if serialize]
        self._chains = Joining(session, serialize_keys, now_ms, reads_keys=reads_keys)
        self._fired = marks(session, [offer.schedule for offer in offers if offer.schedule])
        self._pending: dict[int, tuple[int, int, int]] = {}
        """The priority, state and `extended` of the PENDING and WAITING jobs that this call may change, locked."""

        self._running: dict[int, int] = {}
        """The `extended` of the jobs in progress that this call would replace, locked."""

        self._noted: set[int] = set()
        """Those of them whose status says already that they were not replaced."""

        self._successors: dict[bytes, KeyEntry] = {}
        """The entries of their successors, by the names of the dedupe keys."""

        if reads_keys:
            self._lock_replaced()
        self._jobs: list[NewJob] = []
        self._references: dict[int, bytes] = {}
        self._extensions: list[Row] = []
        self._tags: dict[int, bytes] = {}
        self._in_groups: dict[int, list[DueJob]] = {}
        """By priority, of jobs with groups, those that come into line at once."""
        self._expiries: list[Row] = []
        self._live_entries: list[Row] = []
        self._answers: list[Row] = []
        self._marks: dict[str, str] = {}

    @staticmethod
    def _keys_of(job: ExtendedJob) -> tuple[bytes, bytes, bytes, bytes]:
        """Its dedupe key and serialize key, and the names of its entries."""
        dedupe, serialize = job.dedupe_key.encode(), job.serialize_key.encode()
        return (
            dedupe,
            serialize,
            dedupe_name(dedupe, serialize) if dedupe else b"",
            send_name(job.send_id) if job.send_id else b"",
        )

    def _lock_replaced(self) -> None:
        """Lock the jobs that this call may replace, and the successors of those in progress. Where one has ended since
        its key was read, the key is read again: its successor may have it now.
        """
        names = {
            name
            for offer, (*_, name, _) in zip(self._offers, self._keys, strict=True)
            if offer.job.on_duplicate == OnDuplicate.REPLACE
        }
        if not names:
            return
        while names := {name for name in names if name in self._entries and self._entries[name].until_ms is None}:
            self._lock(self._entries[name].job_id for name in names)
            names = {name for name in names if not self._is_live(self._entries[name].job_id)}
            if names:
                fresh = entries(self._session, self._queue_id, names)
                self._entries = {name: each for name, each in self._entries.items() if name not in names} | fresh
        followed = [name for name, each in self._entries.items() if self._running.get(each.job_id, 0) & STOPPING]
        if followed:
            found = successors(self._session, self._queue_id, followed)
            self._lock(entry.job_id for entry in found.values())
            self._successors = {name: entry for name, entry in found.items() if entry.job_id in self._pending}

    def _lock(self, ids: Iterable[int]) -> None:
        for job_id, priority, state, flags in self._session.rows_of("states", (), sorted(set(ids))):
            if state in STATES_OF[JobState.PENDING]:
                self._pending[job_id] = (priority, state, flags or 0)
            elif state in STATES_OF[JobState.IN_PROGRESS]:
                self._running[job_id] = flags or 0

    def _is_live(self, job_id: int) -> bool:
        return job_id in self._pending or job_id in self._running

    def carry_out(self, first_id: int) -> list[Offered] | None:
        offered = [
            self._take(offer, keys, job_id)
            for job_id, (offer, keys) in enumerate(zip(self._offers, self._keys, strict=True), first_id)
        ]
        if not self._reads_keys and not self._take_new(first_id):
            return None
        self._write()
        put_marks(self._session, self._marks)
        return offered

    def _take(self, offer: Offer, keys: tuple[bytes, bytes, bytes, bytes], job_id: int) -> Offered:
        _, serialize, name, send = keys
        if offer.schedule and self._fired.get(offer.schedule, "") >= offer.mark:
            return Offered(OfferOutcome.KEPT)
        sent = self._entries.get(send)
        if sent is not None and sent.stands(self._now_ms):
            return Offered(OfferOutcome(sent.outcome), self._descriptor(sent))
        entry = self._entries.get(name)
        if entry is not None and entry.stands(self._now_ms):
            offered = self._decide(offer, entry, keys, job_id)
            if send and offered.outcome in (OfferOutcome.KEPT, OfferOutcome.REPLACED):
                is_newer = offered.outcome is OfferOutcome.REPLACED
                named = self._successors.get(name, entry) if is_newer else entry
                self._remember(send, offer, named, offered.outcome)
        elif offer.only_if_known and not (serialize and self._chains.is_live(serialize)):
            return Offered(OfferOutcome.NOT_HERE)
        elif offer.only_if_known and offer.takes_no_jobs:
            return Offered(OfferOutcome.CHAIN_HERE)
        else:
            offered = self._store(offer, keys, job_id)
        if offer.schedule and offered.outcome <= OfferOutcome.REPLACED:
            self._fired[offer.schedule] = self._marks[offer.schedule] = offer.mark
        return offered

    def _descriptor(self, entry: KeyEntry) -> str:
        return entry.elsewhere or self._descriptors.of(entry.priority, entry.job_id)

    def _remember(self, send: bytes, offer: Offer, entry: KeyEntry, outcome: OfferOutcome) -> None:
        """A resend gets the same answer, for as long as one may come."""
        until_ms = self._now_ms + SEND_ID_KEPT_MS
        self._entries[send] = entry._replace(until_ms=until_ms, outcome=int(outcome))
        job_id = 0 if entry.elsewhere else entry.job_id
        self._answers.append(
            (
                *(self._queue_id, send, job_id, entry.priority, offer.slot, SEND_ID_KEPT_MS),
                *(1, int(outcome), until_ms, until_ms, entry.elsewhere),
            )
        )

    def _decide(self, offer: Offer, entry: KeyEntry, keys: tuple[bytes, bytes, bytes, bytes], job_id: int) -> Offered:
        """What becomes of an offer whose dedupe key is taken, by the entry of that key."""
        job, running, descriptor = offer.job, entry.job_id, self._descriptor(entry)
        if job.on_duplicate == OnDuplicate.REJECT:
            return Offered(OfferOutcome.REJECTED, descriptor)
        if job.on_duplicate != OnDuplicate.REPLACE or not self._is_live(running):
            return Offered(OfferOutcome.KEPT, descriptor)
        stands = self._successors.get(keys[2], entry)
        if stands.job_id in self._pending:
            offered = self._replace(job, stands)
        elif job.replace_running is ReplaceRunning.KEEP:
            self._note_not_replaced(running)
            return Offered(OfferOutcome.KEPT, descriptor)
        elif offer.takes_no_jobs:
            return Offered(OfferOutcome.RUNS_HERE, descriptor)
        else:
            offered = self._store(offer, keys, job_id, follows=running)
            self._stop(running, "")
            status = newer_waits_status(self._now_ms, offered.descriptor)
            self._session.run("append_status", (*append_at(status), running))
        asks = job.replace_running is ReplaceRunning.CANCEL and offered.outcome is not OfferOutcome.DIFFERENT
        if asks and running in self._running:
            self._stop(running, offer.by)
        return offered

    def _replace(self, job: ExtendedJob, stands: KeyEntry) -> Offered:
        """Give a job that is PENDING or WAITING what the newer one is to do."""
        job_id, descriptor = stands.job_id, self._descriptor(stands)
        priority, state, flags = self._pending[job_id]
        if priority != job.priority:
            return Offered(OfferOutcome.DIFFERENT, descriptor)
        self._write()  # it may be of this very call
        run_after_ms = self._now_ms if job.run_after_ms is None else job.run_after_ms
        if job.replace_within_ms is not None:
            times = self._session.rows("times", (job_id,))[0]
            run_after_ms = replaced_due_ms(run_after_ms, job.replace_within_ms, *times)
        attempts = job.attempts_allowed
        self._session.run_of("reschedule", (run_after_ms, attempts, attempts, self._now_ms), [job_id])
        if state == IN_LINE:
            put_back(self._session, [job_id])
            state = 0
        flags = replace_body(self._session, job_id, flags, job.body)
        self._pending[job_id] = (priority, state, flags)
        return Offered(OfferOutcome.REPLACED, descriptor, None if state == WAITING else run_after_ms)

    def _stop(self, job_id: int, by: str) -> None:
        """A job in progress does not go back to PENDING any more; where `by` says who asks, it is to stop at once."""
        flags = self._running[job_id]
        if flags & STOPPING and (not by or stop_requests(self._session, [job_id])):
            return
        self._session.put("stop", [(job_id, by)])
        extend(self._session, {job_id: flags}, STOPPING)
        self._running[job_id] = flags | STOPPING

    def _note_not_replaced(self, job_id: int) -> None:
        """Note in the status of a job in progress that it was not replaced, unless it ends with that already."""
        if job_id in self._noted:
            return
        self._noted.add(job_id)
        if not self._session.rows("status", (job_id,))[0][0].endswith(NOT_REPLACED_END):
            self._session.run("append_status", (*append_at(not_replaced_status(self._now_ms)), job_id))

    def _store(
        self, offer: Offer, keys: tuple[bytes, bytes, bytes, bytes], job_id: int, *, follows: int = 0
    ) -> Offered:
        """`follows`: the running job whose successor it is."""
        job, slot, queue_id, (dedupe, serialize, name, send) = offer.job, offer.slot, self._queue_id, keys
        priority, timeout_ms, expires_at_ms = job.priority, job.claim_timeout_ms, job.expires_at_ms
        window_ms, state, place = job.dedupe_for_ms, 0, 0
        flags = HAS_ENTRY if name or send else 0
        if follows:
            flags, state = flags | STOPPING, WAITING
            raise_version(self._session)
        if send or window_ms:
            flags |= HAS_WINDOW
        if serialize:
            flags |= IN_CHAIN
            place = job_id
            if self._chains.add(Member(serialize, job_id, place, queue_id, priority, slot, offer.behind)):
                state = WAITING
        if timeout_ms is not None:
            flags |= OWN_TIMEOUT
        if expires_at_ms is not None:
            flags |= EXPIRES
            self._expiries.append((job_id, expires_at_ms))
        if timeout_ms is not None or expires_at_ms is not None:
            self._extensions.append((job_id, timeout_ms, expires_at_ms))
        if type(job.body) is BodyReference:
            flags |= TIERED
            self._references[job_id] = job.body
        if job.tags:
            flags = tag_flags(flags)
            self._tags[job_id] = dump_tags(job.tags)
        group = job.group.encode()
        if group:
            flags |= SHOWN
            if state == 0 and (job.run_after_ms is None or job.run_after_ms <= self._now_ms):
                state = IN_LINE
        held = dump_keys(dedupe, serialize, send[1:], place, slot, window_ms, group)
        row = new_extended_job(job, held, flags, state, queue_id, job_id, self._now_ms)
        self._jobs.append(row)
        if group:
            due = [(job_id, row[RUN_AFTER], group)] if state == IN_LINE else []
            self._in_groups.setdefault(priority, []).extend(due)
        if flags & HAS_ENTRY:
            entry = KeyEntry(job_id, priority, slot, None, 0, None)
            if name:
                named, by_name = (successor_name(name), self._successors) if follows else (name, self._entries)
                by_name[name] = entry
                self._live_entries.append((queue_id, named, job_id, priority, slot, window_ms, 0, 0))
            if send:
                self._entries[send] = entry
                self._live_entries.append((queue_id, send, job_id, priority, slot, SEND_ID_KEPT_MS, 1, 0))
        self._pending[job_id] = (priority, state, flags)
        ready_at_ms = None if state == WAITING else row[RUN_AFTER]
        return Offered(OfferOutcome.STORED, self._descriptors.of(priority, job_id), ready_at_ms)

    def _take_new(self, first_id: int) -> bool:
        """Write the keys. Whether all were new; else there is nothing of them."""
        session, new = self._session, sorted(self._live_entries)
        if session.put("add_live_keys", new) == len(new):
            if self._chains.write():
                self._live_entries = []
                return True
            self._chains.untake(first_id)
        session.run_in("untake_keys", (self._queue_id,), [row[1] for row in new], first_id)
        return False

    def _write(self) -> None:
        """Many rows in a statement."""
        session = self._session
        if self._jobs:
            session.insert_jobs(self._jobs, "insert_extended_jobs")
            if self._references:
                hold(session, self._references)
                self._references = {}
            session.put("put_extensions", self._extensions)
            session.put("put_expiries", self._expiries)
            if self._tags:
                put_tags(session, self._queue_id, self._tags)
                self._tags = {}
            if self._in_groups:
                enter_new(session, self._queue_id, self._in_groups)
                self._in_groups = {}
        session.put("put_live_keys", sorted(self._live_entries))
        session.put("put_keys", self._answers)
        self._chains.write()
        self._jobs, self._extensions, self._expiries, self._live_entries, self._answers = [], [], [], [], []


def _expiries(extensions: Sequence[Extension]) -> list[Row]:
    return [(each.job_id, each.expires_at_ms) for each in extensions if each.expires_at_ms is not None]


# -- jobs that come back -------------------------------------------------------------------------------------------


class Returning(NamedTuple):
    """A job that becomes live again, or for the first time as a copy, with these keys."""

    job_id: int
    queue_id: int
    priority: int
    extension: Extension


def take_keys(session: Session, returning: Sequence[Returning], first_place: int, now_ms: int) -> dict[int, int]:
    """Give the jobs their keys: each is the only live job of its dedupe key, and has a new place. Returns the state of
    those that could be; a job that is left out would be the second one of its key. The caller has taken ids.
    """
    per_queue: dict[int, list[bytes]] = {}
    for each in returning:
        if each.extension.keys.dedupe_key:
            per_queue.setdefault(each.queue_id, []).append(each.extension.keys.dedupe_name)
    known = {queue_id: entries(session, queue_id, names) for queue_id, names in sorted(per_queue.items())}
    serialize_keys = [each.extension.keys.serialize_key for each in returning if each.extension.keys.serialize_key]
    chains = Joining(session, serialize_keys, now_ms)
    states: dict[int, int] = {}
    new_entries: list[Row] = []
    for place, (job_id, queue_id, priority, extension) in enumerate(returning, first_place):
        keys = extension.keys
        if keys.dedupe_key:
            name = keys.dedupe_name
            entry = known[queue_id].get(name)
            if entry is not None and entry.until_ms is None and entry.job_id != job_id:
                continue
            known[queue_id][name] = KeyEntry(job_id, priority, keys.slot, None, 0, None)
            new_entries.append((queue_id, name, job_id, priority, keys.slot, keys.dedupe_for_ms, 0, 0))
        states[job_id] = 0
        if keys.serialize_key:
            member = Member(keys.serialize_key, place, job_id, queue_id, priority, keys.slot)
            states[job_id] = WAITING if chains.add(member) else 0
            session.run("set_job_keys", (keys._replace(place=place).dump(), job_id))
    session.put("put_live_keys", sorted(new_entries))
    chains.write()
    session.put("put_expiries", _expiries([each.extension for each in returning if each.job_id in states]))
    return states


# -- queries -------------------------------------------------------------------------------------------------------


def find_keys(session: Session, queue: str, keys: Sequence[KeyRef]) -> list[KeyHolder | None]:
    """A key of no dedupe key names the first job of its serialize key, in whichever queue."""
    session.snapshot()
    queue_id = _queue_id_or_none(session, queue)
    names = [dedupe_name(key.dedupe_key.encode(), key.serialize_key.encode()) for key in keys if key.dedupe_key]
    found: dict[bytes, KeyEntry] = {}
    if names and queue_id is not None:
        found = entries(session, queue_id, [*names, *map(successor_name, names)])
    heads = firsts(session, [key.serialize_key.encode() for key in keys if not key.dedupe_key and key.serialize_key])
    descriptors = Descriptors(queue, session.shard_id)
    answers: list[KeyHolder | None] = []
    for dedupe_key, serialize_key in keys:
        if not dedupe_key:
            head = heads.get(serialize_key.encode())
            answers.append(None if head is None else KeyHolder(head))
            continue
        name = dedupe_name(dedupe_key.encode(), serialize_key.encode())
        entry, newer = found.get(name), found.get(successor_name(name))
        if entry is None:
            answers.append(None)
            continue
        successor = "" if newer is None else descriptors.of(newer.priority, newer.job_id)
        answers.append(KeyHolder(entry.elsewhere or descriptors.of(entry.priority, entry.job_id), successor))
    return answers


def _queue_id_or_none(session: Session, queue: str) -> int | None:
    rows = session.rows("queue_id", (queue,))
    return int(rows[0][0]) if rows else None


def taken_keys(session: Session, queue: str, jobs: Sequence[JobKey]) -> list[str | None]:
    """A dead letter's keys are those of its origin, in the queue of that."""
    session.snapshot()
    found = extensions(session, [job.id for job in jobs])
    rows = {row[0]: row for row in session.rows_of("infos", (queue,), sorted(found))}
    origins = {row[0]: row[1] for row in session.rows_of("links", (), sorted(rows)) if row[2] is not None}
    answers: list[str | None] = []
    for job in jobs:
        row, extension = rows.get(job.id), found.get(job.id)
        if row is None or row[2] != job.priority or extension is None or not extension.keys.dedupe_key:
            answers.append(None)
            continue
        origin = parse_descriptor(origins[job.id]) if job.id in origins else None
        own_queue, own_id = (origin.queue, origin.id) if origin is not None else (queue, job.id)
        queue_id = _queue_id_or_none(session, own_queue)
        name = extension.keys.dedupe_name
        entry = entries(session, queue_id, [name]).get(name) if queue_id is not None else None
        is_taken = entry is not None and entry.until_ms is None and entry.job_id != own_id
        if entry is None or not is_taken:
            answers.append(None)
        else:
            answers.append(Descriptors(own_queue, session.shard_id).of(entry.priority, entry.job_id))
    return answers
