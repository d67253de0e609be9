"""Evidence: a snapshot of the cluster, and the history that a judge keeps of those before. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from pinlater.cluster.throughput import LOST
from pinlater.cluster.worker_entries import MAX_JOB_TYPES
from pinlater.counter_ledger import CounterLedger
from pinlater.model import ClusterStatus, ProcessCounters, QueueStatus, ServerView, ShardView, WorkerInfo
from pinlater.model.alarm_views import Alarm
from pinlater.model.operator_views import COUNTED

MINUTE_MS = 60_000
REMEMBERED_MS = 86_400_000
"""So long a lost worker is remembered at most."""

UNKNOWN_FOR_MS = 900_000
"""A job that nobody knows is met again within ten minutes."""

WINDOW_MINUTES = 5
"""Rates of failures are over so many."""

HOUR_MINUTES = 60
READINGS = 11
"""Of a backlog, one a minute: the first is ten minutes before the last."""

LEAST_BACKLOG = 100
"""A queue with fewer ready jobs has no backlog."""

_DEQUEUED = COUNTED.index("dequeued")
_DEQUEUED_FOR_MS = 600_000
"""So long it is remembered when jobs of a queue were handed out last."""

_EXPIRED = LOST.index("expired")
_ENDS = [COUNTED.index(word) for word in ("succeeded", "failed", "retried")]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """A queue in the numbers that conditions look at, over all its priorities."""

    name: str
    ready: int = 0
    running: int = 0
    oldest_ready_ms: int | None = None
    dequeued_per_second: float = 0.0
    enqueued_per_second: float = 0.0
    is_paused: bool = False
    paused_since_ms: int | None = None
    paused_until_ms: int | None = None
    paused_by: str = ""
    paused_why: str = ""
    counted_at_ms: int = 0

    @classmethod
    def of(cls, status: QueueStatus) -> QueueFacts:
        pause = status.pause
        oldest = [level.oldest_ready_ms for level in status.levels if level.oldest_ready_ms is not None]
        return cls(
            name=status.name,
            ready=sum(level.ready for level in status.levels),
            running=sum(level.in_progress for level in status.levels),
            oldest_ready_ms=min(oldest, default=None),
            dequeued_per_second=status.rates.get("dequeued", 0.0),
            enqueued_per_second=status.rates.get("enqueued", 0.0),
            is_paused=pause is not None,
            paused_since_ms=None if pause is None else pause.at_ms,
            paused_until_ms=None if pause is None else pause.until_ms,
            paused_by="" if pause is None else pause.by,
            paused_why="" if pause is None else pause.why,
            counted_at_ms=status.counted_at_ms,
        )


class LimitSet(NamedTuple):
    """The limits of a queue, as they are set; None: there is none."""

    jobs_per_second: float | None = None
    in_progress: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """A worker, whether it takes no more jobs, as it is meant: it stops, has stopped, or was ordered to rest; and the
    types of job that it says it can run.
    """

    worker: WorkerInfo
    is_stopping: bool = False
    job_types: Sequence[str] = ()

    def may_know(self, queue: str, job_type: str) -> bool:
        """Whether it may run such a job: one that says nothing of its types may, unless it says that it could not."""
        if self.is_stopping or queue not in self.worker.queues:
            return False
        if any((each.queue, each.job_type) == (queue, job_type) for each in self.worker.unknown_types):
            return False
        is_whole = 0 < len(self.job_types) < MAX_JOB_TYPES
        return not is_whole or not job_type or job_type in self.job_types


class UnknownSince(NamedTuple):
    """Jobs of a queue that none of its workers knows: since when, the last time one met one, and how many were met."""

    queue: str
    job_type: str
    since_ms: int
    last_ms: int
    jobs: int


class GoneServer(NamedTuple):
    """A server process whose lease ran out, as it was last, and since when it is missing."""

    server: ServerView
    missing_since_ms: int


@dataclass(slots=True)
class TypeSample:
    """Jobs of one type that ended lately, as far as they were examined, and the last line of the status of one. Of
    those that failed, `over_budget` crashed too often, and `unheard` were lost with their last attempt.
    """

    succeeded: int = 0
    failed: int = 0
    error: str = ""
    over_budget: int = 0
    unheard: int = 0


class JobWait(NamedTuple):
    """When a job could run that succeeded lately, and when it was handed out."""

    due_ms: int
    claimed_ms: int


@dataclass(frozen=True, slots=True)
class StuckFlow:
    """A flow that runs and cannot go on as it should, the queue of its first stage, and why. `is_whole`: none of its
    items is under way. `childless`: so many items have no children, as these could not be made.
    """

    id: str
    name: str
    queue: str
    is_whole: bool
    why: str
    childless: int = 0


class UnsealedStage(NamedTuple):
    """A stage of a flow that runs: its items have all ended, and nobody has sealed it. `since_ms`: when it was seen so
    first, with as many items.
    """

    flow_id: str
    flow: str
    queue: str
    stage: str
    items: int
    since_ms: int


class FlowFacts(NamedTuple):
    """What the database of flows says. `problem`: why it does not answer; "" where it does, or nobody needs it."""

    stuck: Sequence[StuckFlow] = ()
    unsealed: Sequence[UnsealedStage] = ()
    problem: str = ""


class LostCallback(NamedTuple):
    """The completion callback of a flow that was given up, the queue of the flow's first stage, and why."""

    flow_id: str
    flow: str
    queue: str
    why: str
    at_ms: int


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A cluster at one moment. `workers` None: it is not known which there are.

    `dead_letter_queues` are those that another queue names, `latency_goals` for how long jobs of a queue may wait where
    that was set, `limits` those of queues that have any, `counters` what server processes have counted where that
    changed, and `schedule_problems` the queue of a schedule that does not fire, and why, by the schedule's name;
    of `schedules_of_shards` a store did not take the job, and `schedule_causes` have a word of UnfiredCause for some.
    `waits` are samples of jobs that succeeded, of queues with a latency goal.
    `types` are samples of jobs that ended, by queue and type of job ("": it names none), `refused` the calls that a
    shard which is out was needed for, and `low_disks` the bytes free on the disk of a server's data folder, and all of
    them, where few are. `webhook_problems` say why nothing arrives, by the webhook's host. `lost` is what each server
    process has counted of jobs that failed without a word of a worker, in the order of throughput.LOST.
    `queue_names` are all that there are; None: that is not known.
    `gone_servers` are processes whose lease ran out. `tiers_away` are the processes that cannot use a tier of bodies,
    and why, `slow_shards` those at which many calls to a shard that is in go wrong, and `certificates` when that of a
    server ends, where that is soon.
    """

    now_ms: int
    servers: Sequence[ServerView] = ()
    shards: Sequence[ShardView] = ()
    queues: Mapping[str, QueueFacts] = field(default_factory=dict)
    queue_names: Set[str] | None = None
    homes_problem: str = ""
    counters: Sequence[ProcessCounters] = ()
    lost: Sequence[ProcessCounters] = ()
    gone_servers: Sequence[GoneServer] = ()
    workers: Sequence[WorkerSeen] | None = ()
    dead_letter_queues: frozenset[str] = frozenset()
    latency_goals: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, LimitSet] = field(default_factory=dict)
    schedule_problems: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    schedule_causes: Mapping[str, str] = field(default_factory=dict)
    schedules_of_shards: frozenset[str] = frozenset()
    types: Mapping[str, Mapping[str, TypeSample]] = field(default_factory=dict)
    waits: Mapping[str, Sequence[JobWait]] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    low_disks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    flows: FlowFacts = field(default_factory=lambda: FlowFacts())
    lost_callbacks: Sequence[LostCallback] = ()
    tiers_away: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    slow_shards: Mapping[str, Sequence[str]] = field(default_factory=dict)
    certificates: Mapping[str, int] = field(default_factory=dict)
    webhook_problems: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def working(self) -> list[QueueFacts]:
        """Queues that workers are to empty: neither paused, nor for dead letters; those with the most jobs first."""
        found = [
            each for each in self.queues.values() if not each.is_paused and each.name not in self.dead_letter_queues
        ]
        return sorted(found, key=lambda each: (-each.ready, each.name))

    @cached_property
    def polled(self) -> dict[str, int]:
        """How many workers take from each queue, of those that do not stop."""
        found: dict[str, int] = {}
        for each in self.workers or ():
            if not each.is_stopping:
                for queue in each.worker.queues:
                    found[queue] = found.get(queue, 0) + 1
        return found

    def lacks(self, queue: str) -> bool:
        """It was deleted, or never was."""
        return self.queue_names is not None and queue not in self.queue_names

    @property
    def is_any_shard_in(self) -> bool:
        return any(shard.state == "in" for shard in self.shards)


def snapshot_of(status: ClusterStatus, **more: object) -> Snapshot:
    """What a server knows of its cluster; `more` are the fields that a status does not have."""
    return Snapshot(
        now_ms=status.now_ms,
        servers=status.servers,
        shards=status.shards,
        queues={each.name: QueueFacts.of(each) for each in status.queues},
        homes_problem=status.homes_trouble,
        counters=status.counters or (),
        **more,  # type: ignore[arg-type]
    )


@dataclass(frozen=True, slots=True)
class LostWorker:
    """A worker that is gone and announced no stop. `noticed_ms`: when it was missed."""

    worker: WorkerInfo
    noticed_ms: int


@dataclass(frozen=True, slots=True)
class Ends:
    """How the attempts of some time ended. Jobs that `expired` were not handed out in time, and are not among those
    that `failed`; the workers of those that `crashed` were lost too often.
    """

    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    expired: int = 0
    crashed: int = 0

    def of_types(self, samples: Mapping[str, TypeSample]) -> dict[str, Ends]:
        """What that was of each type, by the parts that these have in a sample; empty where it does not say."""
        succeeded, failed = (
            sum(each.succeeded for each in samples.values()),
            sum(each.failed for each in samples.values()),
        )
        if (self.succeeded and not succeeded) or (self.failed and not failed):
            return {}
        return {
            name: Ends(
                round(self.succeeded * each.succeeded / succeeded) if succeeded else 0,
                round(self.failed * each.failed / failed) if failed else 0,
            )
            for name, each in samples.items()
            if name
        }

    @property
    def ended(self) -> int:
        """Jobs."""
        return self.succeeded + self.failed

    @property
    def expired_share(self) -> float:
        """Of the jobs that are over."""
        return self.expired / (self.ended + self.expired) if self.expired else 0.0

    @property
    def attempts(self) -> int:
        return self.succeeded + self.failed + self.retried

    @property
    def failed_share(self) -> float:
        """Of the jobs that ended."""
        return self.failed / self.ended if self.ended else 0.0

    @property
    def failed_attempts_share(self) -> float:
        return (self.failed + self.retried) / self.attempts if self.attempts else 0.0


class ClusterHistory:
    """What was in the snapshots before, as far as a condition needs it.

    It keeps counts by the minute for the last minutes and by five minutes for the hour, of queues where attempts end;
    readings of queues with a backlog; and the workers that were there.
    """

    def __init__(self) -> None:
        self._workers: dict[str, WorkerInfo] = {}
        self._lost: dict[str, LostWorker] = {}
        self._unknown: dict[tuple[str, str], UnknownSince] = {}
        self._ledger = CounterLedger()
        self._lost_ledger = CounterLedger()
        self._dequeued_ms: dict[str, int] = {}
        self._minutes: dict[int, dict[str, list[int]]] = {}
        self._spans: dict[int, dict[str, list[int]]] = {}
        self._backlogs: dict[str, deque[tuple[int, int]]] = {}
        self._paused_ms: dict[str, int] = {}
        self._first_ms: int | None = None
        self._taken_ms: int | None = None

    def take(self, now: Snapshot) -> None:
        """A further snapshot."""
        self._first_ms = now.now_ms if self._first_ms is None else self._first_ms
        self._take_workers(now)
        self._take_unknown(now)
        self._take_counters(now)
        self._take_backlogs(now)
        self._take_pauses(now)
        self._taken_ms = now.now_ms

    @property
    def watched_ms(self) -> int:
        """For how long there have been snapshots."""
        return (self._taken_ms or 0) - (self._first_ms or 0)

    # -- workers -----------------------------------------------------------------------------------------------------

    def _take_workers(self, now: Snapshot) -> None:
        if now.workers is None:
            return
        here = {each.worker.id: each for each in now.workers}
        for gone in self._workers.keys() - here.keys():
            self._lost[gone] = LostWorker(self._workers.pop(gone), now.now_ms)
        for id, each in here.items():
            self._lost.pop(id, None)
            if each.is_stopping:
                self._workers.pop(id, None)
            else:
                self._workers[id] = each.worker
        relayed = {_outbox_of(each) for each in self._workers.values()} - {""}
        self._lost = {
            id: each
            for id, each in self._lost.items()
            if now.now_ms - each.noticed_ms <= REMEMBERED_MS and _outbox_of(each.worker) not in relayed
        }

    def lost(self) -> list[LostWorker]:
        """Workers that were there and are gone, those that were missed first at the beginning."""
        return sorted(self._lost.values(), key=lambda each: (each.noticed_ms, each.worker.name, each.worker.id))

    # -- jobs that nobody knows --------------------------------------------------------------------------------------

    def _take_unknown(self, now: Snapshot) -> None:
        """What workers met of late, of types that no worker of that queue knows."""
        if now.workers is None:
            return
        met: dict[tuple[str, str], UnknownSince] = {}
        for seen in now.workers:
            for each in seen.worker.unknown_types:
                key, last_ms = (each.queue, each.job_type), seen.worker.seen_ms - each.last_ms
                before = met.get(key) or self._unknown.get(key) or UnknownSince(*key, last_ms, 0, 0)
                jobs = each.jobs + (met[key].jobs if key in met else 0)
                met[key] = UnknownSince(*key, min(before.since_ms, last_ms), max(before.last_ms, last_ms), jobs)
        self._unknown = {
            key: each
            for key, each in (self._unknown | met).items()
            if now.now_ms - each.last_ms < UNKNOWN_FOR_MS and not any(seen.may_know(*key) for seen in now.workers)
        }

    def unknown(self) -> list[UnknownSince]:
        """Those of which most were met first."""
        return sorted(self._unknown.values(), key=lambda each: (-each.jobs, each.queue, each.job_type))

    # -- ends --------------------------------------------------------------------------------------------------------

    def _take_counters(self, now: Snapshot) -> None:
        minute = now.now_ms // MINUTE_MS
        for queue, numbers in self._ledger.take(now.counters, self._taken_ms, now.now_ms).items():
            if numbers[_DEQUEUED]:
                self._dequeued_ms[queue] = now.now_ms
            new = [numbers[at] for at in _ENDS]
            if any(new):
                _add(self._minutes.setdefault(minute, {}), queue, [*new, 0, 0])
        for queue, numbers in self._lost_ledger.take(now.lost, self._taken_ms, now.now_ms).items():
            _add(self._minutes.setdefault(minute, {}), queue, [0, -numbers[_EXPIRED], 0, *numbers[: len(LOST)]])
        least_ms = now.now_ms - _DEQUEUED_FOR_MS
        self._dequeued_ms = {queue: at_ms for queue, at_ms in self._dequeued_ms.items() if at_ms > least_ms}
        for old in [each for each in self._minutes if each <= minute - WINDOW_MINUTES]:
            span = self._spans.setdefault(old // WINDOW_MINUTES, {})
            for queue, sums in self._minutes.pop(old).items():
                _add(span, queue, sums)
        least = (minute - HOUR_MINUTES) // WINDOW_MINUTES
        self._spans = {span: queues for span, queues in self._spans.items() if span >= least}

    def dequeued_ms(self, queue: str) -> int:
        """When jobs of it were handed out last, as far as that is known; else 0."""
        return self._dequeued_ms.get(queue, 0)

    def ends(self) -> dict[str, Ends]:
        """By queue, of the last minutes."""
        return _summed(self._minutes.values())

    def ends_before(self, queue: str) -> Ends:
        """Of the hour before these minutes."""
        of_queue = [{queue: each[queue]} for each in self._spans.values() if queue in each]
        return _summed(of_queue).get(queue, Ends())

    # -- pauses ------------------------------------------------------------------------------------------------------

    def _take_pauses(self, now: Snapshot) -> None:
        self._paused_ms = {queue: at_ms for queue, at_ms in self._paused_ms.items() if queue in now.queues}
        self._paused_ms |= {each.name: now.now_ms for each in now.queues.values() if each.is_paused}

    def paused_ms(self, queue: str) -> int:
        """When it was paused last, as far as that is known; else 0. Jobs wait for nobody before."""
        return self._paused_ms.get(queue, 0)

    # -- backlogs ----------------------------------------------------------------------------------------------------

    def _take_backlogs(self, now: Snapshot) -> None:
        minute = now.now_ms // MINUTE_MS
        large = {each.name: each.ready for each in now.queues.values() if each.ready >= LEAST_BACKLOG}
        self._backlogs = {queue: found for queue, found in self._backlogs.items() if queue in large}
        for queue, ready in large.items():
            readings = self._backlogs.setdefault(queue, deque(maxlen=READINGS))
            if not readings or readings[-1][0] != minute:
                readings.append((minute, ready))

    def backlog(self, queue: str) -> Sequence[int]:
        """How many jobs were ready, minute by minute; empty where that is not known for ten minutes."""
        readings = self._backlogs.get(queue, ())
        return [ready for _, ready in readings] if len(readings) == READINGS else []


def _outbox_of(worker: WorkerInfo) -> str:
    """The one that it relays, else ""."""
    return "" if worker.outbox is None else worker.outbox.name


def _add(sums: dict[str, list[int]], queue: str, numbers: Sequence[int]) -> None:
    into = sums.setdefault(queue, [0] * len(numbers))
    for place, number in enumerate(numbers):
        into[place] += number


def _summed(parts: Iterable[Mapping[str, Sequence[int]]]) -> dict[str, Ends]:
    sums: dict[str, list[int]] = {}
    for part in parts:
        for queue, numbers in part.items():
            _add(sums, queue, numbers)
    return {queue: Ends(*(max(0, number) for number in numbers)) for queue, numbers in sums.items()}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a condition may look at: the snapshot, what was before, and the alarms that stand."""

    now: Snapshot
    past: ClusterHistory = field(default_factory=ClusterHistory)
    standing: Mapping[tuple[str, str], Alarm] = field(default_factory=dict)

    def remembered(self, name: str) -> Iterator[tuple[str, Alarm]]:
        """By subject the alarms of a condition that stand: a judge before this one may have seen why. Not for ever."""
        for (condition, subject), alarm in self.standing.items():
            if condition == name and self.now.now_ms - alarm.since_ms < REMEMBERED_MS:
                yield subject, alarm

    def stands(self, name: str, subject: str) -> bool:
        """An alarm that stands ends by another threshold than it begins by."""
        return (name, subject) in self.standing
