"""Keys, chains, requests to stop and results, as the reference sees them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf

from pinlater.backends.base import ConfigEntry, JobKey
from pinlater.backends.extended import (
    SEND_ID_KEPT_MS,
    BlockedChain,
    HeartbeatAnswer,
    HeartbeatRequest,
    KeyHolder,
    Offer,
    Offered,
    OfferOutcome,
    RescheduleRequest,
)
from pinlater.model import (
    WHILE_KEPT,
    ExtendedJob,
    HeartbeatOutcome,
    JobProgress,
    JobState,
    KeyRef,
    OnDuplicate,
    ReplaceRunning,
    RescheduleOutcome,
    parse_descriptor,
)
from tests.conformance.reference_job import RefJob, appended, new_job
from tests.conformance.reference_queues import RefQueues

Place = tuple[str, int]
"""A job: its queue and its id."""

KeyName = tuple[str, ...]
"""A dedupe key with its serialize key, or a send id."""


class Stays(Enum):
    """What is left of a job's keys at its end, or when it goes."""

    ALL = 0
    WINDOWS = 1
    NOTHING = 2


@dataclass(slots=True)
class KeyEntry:
    """What a key stands for. `until_ms`: inf while it counts without an end; `job` None: one of another shard;
    `successor`: the newer job that waits for it.
    """

    descriptor: str
    slot: int
    job: Place | None
    is_live: bool = True
    until_ms: float = inf
    outcome: OfferOutcome = OfferOutcome.STORED
    successor: Place | None = None

    def counts(self, now_ms: int) -> bool:
        return self.is_live or self.until_ms > now_ms

    def is_window(self, now_ms: int) -> bool:
        return not self.is_live and now_ms < self.until_ms < inf


@dataclass(slots=True)
class Chain:
    """The live jobs of a serialize key, in order. `behind`: they wait for another shard."""

    slot: int
    since_ms: int
    jobs: list[Place]
    behind: str = ""


class RefKeys(RefQueues):
    def __init__(self, shard_id: str) -> None:
        super().__init__(shard_id)
        self.entries: dict[tuple[str, KeyName], KeyEntry] = {}
        self.chains: dict[str, Chain] = {}
        self.results: dict[Place, tuple[int, bytes]] = {}
        """Of jobs that succeeded, also of those that are gone: priority and result."""

        self.fired: dict[str, str] = {}

    def put_record(self, entry: ConfigEntry) -> bool:
        before = self.here.get(entry.name)
        was_there = entry.name in self.queues
        taken = super().put_record(entry)
        if taken and was_there and before is not None and entry.deleted_version > before.version:
            self._drop_queue(entry.name)
        return taken

    def _drop_queue(self, queue: str) -> None:
        """A queue that is gone, or was made anew; as if `prune` had passed since."""
        live = self.queues.get(queue, {})
        for key in [key for key in self.entries if key[0] == queue]:
            del self.entries[key]
        for place in [place for place in self.results if place[0] == queue]:
            del self.results[place]
        for key, chain in list(self.chains.items()):
            for place in [place for place in chain.jobs if place[0] == queue and place[1] not in live]:
                self._leave_chain(key, place, self.newest_ms)

    newest_ms = 0
    """When the chains of a queue that is gone are freed."""

    # -- chains ------------------------------------------------------------------------------------------------------

    def is_first(self, queue: str, job: RefJob) -> bool:
        if job.follows is not None:
            return False
        chain = self.chains.get(job.serialize_key) if job.in_chain else None
        return chain is None or (not chain.behind and chain.jobs[0] == (queue, job.id))

    def waits_for(self, queue: str, job: RefJob) -> str | None:
        if job.follows is not None and not job.in_chain:
            return self._named(job.follows)
        chain = self.chains.get(job.serialize_key)
        if chain is None or chain.behind or self.is_first(queue, job):
            return None
        return self._named(chain.jobs[0])

    def _named(self, place: Place) -> str:
        queue, job_id = place
        return self.descriptor(queue, self.queues[queue][job_id])

    def _leave_chain(self, key: str, place: Place, now_ms: int) -> None:
        chain = self.chains[key]
        if chain.jobs[0] == place and not chain.behind:
            chain.since_ms = now_ms
        chain.jobs.remove(place)
        if not chain.jobs:
            del self.chains[key]

    def _join_chain(self, queue: str, job: RefJob, slot: int, now_ms: int, behind: str = "") -> None:
        if job.serialize_key:
            chain = self.chains.setdefault(job.serialize_key, Chain(slot, now_ms, [], behind))
            chain.jobs.append((queue, job.id))
            job.in_chain = True

    def blocked_chains(self) -> set[BlockedChain]:
        return {
            BlockedChain(key, self._named(chain.jobs[0]), len(chain.jobs) - 1, chain.since_ms)
            for key, chain in self.chains.items()
            if len(chain.jobs) > 1 and not chain.behind
        }

    def lift_barrier(self, key: str, now_ms: int) -> tuple[str, int] | None:
        chain = self.chains.get(key)
        if chain is None or not chain.behind:
            return None
        chain.behind, chain.since_ms = "", now_ms
        queue, job_id = chain.jobs[0]
        return queue, self.queues[queue][job_id].run_after_ms

    # -- keys --------------------------------------------------------------------------------------------------------

    def key_slots(self) -> set[int]:
        return {each.slot for each in (*self.entries.values(), *self.chains.values())}

    def find_key(self, queue: str, key: KeyRef) -> KeyHolder | None:
        if not key.dedupe_key:
            chain = self.chains.get(key.serialize_key)
            return None if chain is None or chain.behind else KeyHolder(self._named(chain.jobs[0]))
        entry = self.entries.get((queue, (key.dedupe_key, key.serialize_key)))
        if entry is None:
            return None
        return KeyHolder(entry.descriptor, self._named(entry.successor) if entry.successor else "")

    def successor(self, queue: str, job: RefJob) -> str | None:
        """The newer job that waits for this one."""
        entry = self.entries.get((queue, (job.dedupe_key, job.serialize_key))) if job.dedupe_key else None
        if entry is None or entry.job != (queue, job.id) or entry.successor is None:
            return None
        return self._named(entry.successor)

    def result_of(self, queue: str, key: JobKey) -> bytes | None:
        priority, result = self.results.get((queue, key.id), (key.priority, None))
        return result if priority == key.priority else None

    def is_left_over(self, queue: str, key: KeyRef, now_ms: int) -> bool:
        """An entry that counts no more, and may be there or not."""
        entry = self.entries.get((queue, (key.dedupe_key, key.serialize_key)))
        return entry is not None and not entry.counts(now_ms) and not self._names_kept(entry)

    def _names_kept(self, entry: KeyEntry) -> bool:
        return entry.job is not None and entry.job[1] in self.queues.get(entry.job[0], {})

    def taken_by(self, queue: str, job: RefJob) -> str | None:
        """Another job that is live has the job's dedupe key."""
        if not job.dedupe_key:
            return None
        if job.is_letter:
            origin = parse_descriptor(job.origin or "")
            assert origin is not None
            queue = origin.queue
        entry = self.entries.get((queue, (job.dedupe_key, job.serialize_key)))
        if entry is None or not entry.is_live or entry.job == (queue, job.id):
            return None
        return entry.descriptor

    def come_alive(self, queue: str, job: RefJob, now_ms: int) -> None:
        """A job that has ended has its keys again; so has a new one that goes on for it."""
        if job.is_letter:
            return
        descriptor, place = self.descriptor(queue, job), (queue, job.id)
        if job.dedupe_key:
            self.entries[queue, (job.dedupe_key, job.serialize_key)] = KeyEntry(descriptor, job.slot, place)
        entry = self.entries.get((queue, (job.send_id,)))
        if job.send_id and entry is not None and entry.job == place:
            if entry.counts(now_ms):
                entry.is_live, entry.until_ms = True, inf
            else:
                del self.entries[queue, (job.send_id,)]
        self._join_chain(queue, job, job.slot, now_ms)

    def leave(self, queue: str, job: RefJob, now_ms: int, stays: Stays) -> None:
        """A job ends, or goes."""
        place, is_end = (queue, job.id), job.state in (JobState.PENDING, JobState.IN_PROGRESS)
        if job.in_chain:
            self._leave_chain(job.serialize_key, place, now_ms)
            job.in_chain = False
        if job.is_letter:
            return
        key = (queue, (job.dedupe_key, job.serialize_key))
        entry = self.entries.get(key) if job.dedupe_key else None
        if entry is not None and job.follows is not None:
            entry.successor = job.follows = None
        elif entry is not None and entry.job == place and entry.successor is not None:
            heir = self.queues[queue][entry.successor[1]]
            heir.follows = None
            self.entries[key] = KeyEntry(self.descriptor(queue, heir), heir.slot, entry.successor)
        elif entry is not None and entry.job == place:
            if is_end:
                entry.is_live = False
                entry.until_ms = inf if job.dedupe_for_ms == WHILE_KEPT else now_ms + job.dedupe_for_ms
            if stays is Stays.NOTHING or (stays is Stays.WINDOWS and not entry.is_window(now_ms)):
                del self.entries[key]
        sent = self.entries.get((queue, (job.send_id,))) if job.send_id else None
        if sent is not None and sent.job == place and is_end:
            sent.is_live, sent.until_ms = False, now_ms + SEND_ID_KEPT_MS

    def remove(self, queue: str, job: RefJob, now_ms: int) -> None:
        """By whichever call but `prune`."""
        self.leave(queue, job, now_ms, Stays.NOTHING)
        self.results.pop((queue, job.id), None)
        del self.queues[queue][job.id]

    def prune_keys(self, now_ms: int) -> None:
        for key, entry in list(self.entries.items()):
            if not entry.counts(now_ms) and (len(key[1]) == 1 or not self._names_kept(entry)):
                del self.entries[key]

    def move_windows(self, now_ms: int) -> None:
        """They are listed, dropped and put back, as those of another shard."""
        for entry in self.entries.values():
            if entry.is_window(now_ms):
                entry.job = None

    # -- offers ------------------------------------------------------------------------------------------------------

    def offer(self, queue: str, offer: Offer, new_id: int, now_ms: int) -> Offered:
        """One of an enqueue_extended; the job has this id if it is stored."""
        self.known(queue)
        job = offer.job
        if offer.schedule and self.fired.get(offer.schedule, "") >= offer.mark:
            return Offered(OfferOutcome.KEPT)
        sent = self.entries.get((queue, (job.send_id,))) if job.send_id else None
        if sent is not None and sent.counts(now_ms):
            return Offered(sent.outcome, sent.descriptor)
        entry = self.entries.get((queue, (job.dedupe_key, job.serialize_key))) if job.dedupe_key else None
        if entry is not None and entry.counts(now_ms):
            answer = self._decide(queue, offer, entry, new_id, now_ms)
            if job.send_id and answer.outcome in (OfferOutcome.KEPT, OfferOutcome.REPLACED):
                self.entries[queue, (job.send_id,)] = KeyEntry(
                    answer.descriptor, offer.slot, None, False, now_ms + SEND_ID_KEPT_MS, answer.outcome
                )
        elif offer.only_if_known and job.serialize_key not in self.chains:
            return Offered(OfferOutcome.NOT_HERE)
        elif offer.only_if_known and offer.takes_no_jobs:
            return Offered(OfferOutcome.CHAIN_HERE)
        else:
            answer = self._store(queue, offer, new_id, now_ms)
        if offer.schedule and answer.outcome <= OfferOutcome.REPLACED:
            self.fired[offer.schedule] = offer.mark
        return answer

    def _decide(self, queue: str, offer: Offer, entry: KeyEntry, new_id: int, now_ms: int) -> Offered:
        new = offer.job
        if new.on_duplicate is OnDuplicate.REJECT:
            return Offered(OfferOutcome.REJECTED, entry.descriptor)
        kept = Offered(OfferOutcome.KEPT, entry.descriptor)
        if new.on_duplicate is not OnDuplicate.REPLACE or not entry.is_live or entry.job is None:
            return kept
        job = self.queues[queue][entry.job[1]]
        if job.state is JobState.PENDING:
            return self._replace(queue, job, new, now_ms)
        if entry.successor is not None:
            answer = self._replace(queue, self.queues[queue][entry.successor[1]], new, now_ms)
        elif new.replace_running is ReplaceRunning.KEEP:
            if not job.custom_status.endswith(" on, while it was in progress]\n"):
                line = f"[newer arguments were not taken from {now_ms} on, while it was in progress]\n"
                job.custom_status = appended(job.custom_status, line)
            return kept
        elif offer.takes_no_jobs:
            return Offered(OfferOutcome.RUNS_HERE, entry.descriptor)
        else:
            answer = self._store(queue, offer, new_id, now_ms, follows=entry)
            line = f"[a newer job of its key waits from {now_ms} on: {answer.descriptor}]\n"
            job.custom_status = appended(job.custom_status, line)
        if new.replace_running is ReplaceRunning.CANCEL and answer.outcome is not OfferOutcome.DIFFERENT:
            job.stop_by = job.stop_by or offer.by
        return answer

    def _replace(self, queue: str, job: RefJob, new: ExtendedJob, now_ms: int) -> Offered:
        descriptor = self.descriptor(queue, job)
        if job.priority != new.priority:
            return Offered(OfferOutcome.DIFFERENT, descriptor)
        job.body, job.updated_at_ms = new.body, now_ms
        due_ms = now_ms if new.run_after_ms is None else new.run_after_ms
        if new.replace_within_ms is not None and due_ms > job.created_at_ms + new.replace_within_ms:
            due_ms = min(due_ms, max(job.created_at_ms + new.replace_within_ms, job.run_after_ms))
        job.run_after_ms = due_ms
        job.attempts_allowed = job.attempts_remaining = new.attempts_allowed
        ready_at_ms = job.run_after_ms if self.is_first(queue, job) and not job.is_over(now_ms) else None
        return Offered(OfferOutcome.REPLACED, descriptor, ready_at_ms)

    def _store(self, queue: str, offer: Offer, new_id: int, now_ms: int, *, follows: KeyEntry | None = None) -> Offered:
        new = offer.job
        run_after_ms = now_ms if new.run_after_ms is None else new.run_after_ms
        job = new_job(new_id, new.body, new.priority, run_after_ms, new.attempts_allowed, new.custom_status, now_ms)
        job.dedupe_key, job.serialize_key, job.send_id = new.dedupe_key, new.serialize_key, new.send_id
        job.dedupe_for_ms, job.slot = new.dedupe_for_ms, offer.slot
        job.over_at_ms, job.claim_timeout_ms = new.expires_at_ms, new.claim_timeout_ms
        job.tags = tuple(new.tags)
        self.queues[queue][new_id] = job
        descriptor = self.descriptor(queue, job)
        if job.send_id:
            self.entries[queue, (job.send_id,)] = KeyEntry(descriptor, offer.slot, (queue, new_id))
        if follows is not None:
            follows.successor, job.follows = (queue, new_id), follows.job
        elif job.dedupe_key:
            self.entries[queue, (job.dedupe_key, job.serialize_key)] = KeyEntry(descriptor, offer.slot, (queue, new_id))
        self._join_chain(queue, job, offer.slot, now_ms, offer.behind)
        return Offered(OfferOutcome.STORED, descriptor, run_after_ms if self.is_first(queue, job) else None)

    # -- what few jobs have beside keys ------------------------------------------------------------------------------

    def heartbeat(self, queue: str, beat: HeartbeatRequest, now_ms: int) -> HeartbeatAnswer:
        job = self.find(queue, beat.priority, beat.id)
        if job is None or not job.held_by(beat.claim_descriptor):
            return HeartbeatAnswer(HeartbeatOutcome.LOST)
        job.renew(now_ms, now_ms + job.timeout_ms)
        if beat.fraction is not None or beat.text is not None:
            before = job.progress or JobProgress(None, "", now_ms)
            fraction = before.fraction if beat.fraction is None else beat.fraction
            job.progress = JobProgress(fraction, before.text if beat.text is None else beat.text, now_ms)
        if job.stop_by is not None:
            return HeartbeatAnswer(HeartbeatOutcome.CANCEL, job.stop_by)
        return HeartbeatAnswer(HeartbeatOutcome.OK)

    def reschedule(self, queue: str, change: RescheduleRequest, now_ms: int) -> RescheduleOutcome:
        job = self.find(queue, change.priority, change.id)
        if job is None:
            return RescheduleOutcome.NOT_FOUND
        if job.state is JobState.IN_PROGRESS:
            return RescheduleOutcome.IN_PROGRESS
        if job.state is not JobState.PENDING:
            return RescheduleOutcome.ENDED
        if change.only_if_updated_at_ms not in (None, job.updated_at_ms):
            return RescheduleOutcome.CHANGED
        job.updated_at_ms = now_ms
        if change.run_after_ms is not None:
            job.run_after_ms = change.run_after_ms
        if change.body is not None:
            job.body = change.body
        if change.attempts_allowed is not None:
            job.attempts_allowed = job.attempts_remaining = change.attempts_allowed
        return RescheduleOutcome.RESCHEDULED

    def taken_keys(self, queue: str, keys: Iterable[JobKey]) -> list[str | None]:
        jobs = [self.find(queue, *key) for key in keys]
        return [None if job is None else self.taken_by(queue, job) for job in jobs]

    def has_chains(self, keys: Sequence[str]) -> list[bool]:
        return [key in self.chains for key in keys]
