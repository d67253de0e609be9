"""Data for operators: views of queues, shards, servers, the cluster and workers, changes to many jobs, the audit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from pinlater.model.jobs import CONTINUATION_END, CONTINUATION_START, JobInfo, JobState
from pinlater.model.word_enum import WordEnum
from pinlater.model.workers import OutboxReport, UnknownType


class SettingView(NamedTuple):
    """One setting of a queue: its value as people write it, and where that comes from.

    `source` is "breaker" (a pause by its circuit breaker), "queue" (set for this queue by a command), "file", "default"
    (set for all queues by a command), "file default", or "server" (the server's own configuration).
    """

    value: str
    source: str


@dataclass(slots=True)
class QueueView:
    """A queue and all its settings, by name. `holds_dead_letters`: others name it as their dead-letter queue."""

    name: str
    version: str
    settings: dict[str, SettingView]
    holds_dead_letters: bool = False


@dataclass(slots=True)
class GroupView:
    """A group of a queue, as far as its jobs are ready, and its settings, by name. `name` "" is the group of jobs
    without one.

    `ready` counts no further than 10,000 for a shard and a priority, and leaves out jobs that came due with no dequeue
    since; `oldest_run_after_ms` is None where none is ready. `running` are in progress, over all shards: None where the
    group has no maximum, or that cannot be counted now. `limited` are those of the ready jobs that its pause or its
    limits hold back. `last_minute_share` is the part of the hand-outs of the queue that it had in the last minute, from
    0 to 1, at most 30 s ago; None where there were none, or they cannot be read. Both are None where the server does
    not know them yet. `source` in a setting is "group" (set for this name), "pattern NAME", "queue" (a limit that
    counts for each of its groups), or "default".
    """

    name: str
    settings: dict[str, SettingView]
    ready: int = 0
    oldest_run_after_ms: int | None = None
    running: int | None = None
    limited: int | None = None
    last_minute_share: float | None = None


@dataclass(slots=True)
class GroupsPage:
    """Groups of a queue, by name. `missing_shards` are not counted."""

    groups: list[GroupView]
    continuation: str = CONTINUATION_END
    missing_shards: list[str] = field(default_factory=list)


@dataclass(slots=True)
class GroupsCleared:
    """How many jobs of a queue one step took the group off, or counted. `missing_shards` were passed over: out."""

    jobs: int
    continuation: str = CONTINUATION_END
    missing_shards: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Changed:
    """What a change left: its version, and the shards that do not have it yet (they will before they serve)."""

    version: str
    missed_shards: list[str] = field(default_factory=list)


@dataclass(slots=True)
class LevelView:
    """The jobs of one priority of a queue, over the shards that answered. `waiting` are PENDING behind another job of
    their serialize key, and neither ready nor scheduled; `cancelled` and `replayed` are FAILED, and not in `failed`.
    `ready_limited` are those of the ready ones whose groups are paused or at their limits, as claims found them.
    """

    priority: int
    ready: int = 0
    scheduled: int = 0
    in_progress: int = 0
    succeeded: int = 0
    failed: int = 0
    oldest_ready_ms: int | None = None
    waiting: int = 0
    cancelled: int = 0
    replayed: int = 0
    ready_limited: int = 0


@dataclass(slots=True)
class PauseView:
    """Who paused a queue, why and since when; `until_ms` None: until it is resumed. What is not known is "" or None."""

    by: str = ""
    why: str = ""
    at_ms: int | None = None
    until_ms: int | None = None


DEAD_LETTERS = "dead letters"
"""The flag of a queue that another one names for its dead letters: nobody is expected to work on its jobs."""


@dataclass(slots=True)
class QueueStatus:
    """A queue in numbers. `counted_at_ms` is when the oldest of them was counted, but for jobs that ended where
    `ended_counted_at_ms` is set: they were counted before the others, the oldest of them then. Rates are over the
    whole cluster, per second, over the last few seconds. `flags` are words like "paused", "draining", "limited",
    DEAD_LETTERS. `pause` is set where it is paused; by servers of before it is not.
    """

    name: str
    counted_at_ms: int
    levels: list[LevelView]
    rates: dict[str, float] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    pause: PauseView | None = None
    ended_counted_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class BlockedChain:
    """A serialize key with jobs that wait: the first of its jobs, how many wait behind it, and since when it is
    the first.
    """

    serialize_key: str
    first: str
    waiting: int
    since_ms: int


@dataclass(slots=True)
class ShardView:
    """A shard as one server process sees it. `state` is "in", "out", "probing", "unopened"; `trouble` why.

    One that is in and `is_full` takes no new jobs, since its store has no room for them.

    `jobs` are those that are pending or in progress, as they were counted at `counted_at_ms`; None: they never were.
    `jobs_by_queue` says whose they are, where the shard takes no new jobs: up to 20 queues, those with the most.
    `blocked_chains` are serialize keys whose first job keeps too many others waiting, or for too long: up to five.

    `is_home`: whether jobs with new keys come there (None: no key was ever used). Of 4,096 parts of all keys
    `left_slots` have something here although their home is another shard; `barriers` serialize keys wait here for what
    is left of them where they lived before. `is_given_up`: what lived there counts as lost. `has_windows_left`: it
    is no home any more, and windows of keys are still on their way from there.
    """

    id: str
    store: str
    state: str
    dequeue_only: bool
    trouble: str = ""
    good: int = 0
    samples: int = 0
    skew_ms: int = 0
    next_try_ms: int | None = None
    maintained_by: str = ""
    jobs: int | None = None
    counted_at_ms: int | None = None
    jobs_by_queue: dict[str, int] = field(default_factory=dict)
    is_full: bool = False
    blocked_chains: list[BlockedChain] = field(default_factory=list)
    is_home: bool | None = None
    left_slots: int = 0
    barriers: int = 0
    is_given_up: bool = False
    has_windows_left: bool = False

    def keep_queues(self, may_read: Callable[[str], bool]) -> None:
        """Leave out what it says of jobs of other queues."""
        self.jobs_by_queue = {queue: jobs for queue, jobs in self.jobs_by_queue.items() if may_read(queue)}
        self.blocked_chains = [each for each in self.blocked_chains if may_read(each.first.partition(":")[0])]


@dataclass(slots=True)
class ServerView:
    """A server process that is alive, by its lease. `maintains` are shard ids, and so are `shards_out` and
    `shards_full`, those that it takes for full; `overflow_jobs` None: it keeps none. `exposed`: why callers may do more
    there than an operator may want.
    """

    server: str
    process: str
    address: str
    started_ms: int
    seen_ms: int
    is_ready: bool
    trouble: str = ""
    maintains: list[str] = field(default_factory=list)
    shards_out: list[str] = field(default_factory=list)
    overflow_jobs: int | None = None
    shards_full: list[str] = field(default_factory=list)
    exposed: str = ""


COUNTED = ("enqueued", "dequeued", "succeeded", "failed", "retried")
"""What a server process counts of each queue, in the order of the numbers that it tells."""


@dataclass(slots=True)
class ProcessCounters:
    """What one server process has counted of each queue since it began, as of `counted_at_ms`: the numbers of jobs that
    were enqueued, dequeued, succeeded, failed and retried.

    `process` is SERVER/PROCESS, and may have ended lately. `is_cut`: it counts more queues than it can tell of at a
    time, so some that did not change are not there although they are asked for.
    """

    process: str
    started_ms: int
    counted_at_ms: int
    queues: dict[str, tuple[int, ...]]
    is_cut: bool = False


@dataclass(slots=True)
class ClusterStatus:
    """What one server knows of its cluster. `homes_trouble`: why keys cannot move to other shards as they should.

    `counters`: of each process, where they were asked for; None: they were not, or the server is of before them.
    """

    now_ms: int
    servers: list[ServerView]
    shards: list[ShardView]
    queues: list[QueueStatus]
    homes_trouble: str = ""
    counters: list[ProcessCounters] | None = None


class JobAction(WordEnum):
    """What is done to the jobs that a filter finds. The numbers are those of the wire contract."""

    RETRY = 0
    DELETE = 1
    CANCEL = 2
    REPLAY = 3


@dataclass(slots=True)
class JobChange:
    """A change to the jobs of one queue that match: `state` (RETRY: FAILED, CANCEL: PENDING; None: what the action
    takes), priority (None: all), created before or after a time, a body pattern. `limit` is for this one call.

    REPLAY sends the dead letters of the queue back. `attempts` (RETRY, REPLAY; None: as allowed before) and
    `run_after_ms` (RETRY; None: now) are what the jobs get.
    """

    queue: str
    action: JobAction
    state: JobState | None = None
    priority: int | None = None
    created_before_ms: int | None = None
    created_after_ms: int | None = None
    body_regex: str = ""
    limit: int = 1000
    dry_run: bool = False
    attempts: int | None = None
    run_after_ms: int | None = None
    continuation: str = CONTINUATION_START


@dataclass(slots=True)
class JobsChanged:
    """What one call did: `changed` jobs (`matched` ones for a dry run), up to ten samples, and how to go on.

    `refusals`: by descriptor, why a job was left alone: it would have been a second live job of its dedupe key,
    or its dead letter runs, has succeeded or lies elsewhere.
    `asked_to_stop`: jobs in progress whose workers were asked to stop; they are not in `changed`.
    """

    changed: int
    looked_at: int
    samples: list[JobInfo] = field(default_factory=list)
    continuation: str = CONTINUATION_END
    missing_shards: list[str] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)
    asked_to_stop: int = 0


@dataclass(slots=True)
class AuditEntry:
    """A change by an operator: who, what, when."""

    at_ms: int
    who: str
    action: str
    target: str
    detail: str = ""
    server: str = ""


@dataclass(slots=True)
class WorkerJobInfo:
    """A job that a worker runs, and since when."""

    job_descriptor: str
    job_type: str
    since_ms: int


@dataclass(slots=True)
class WorkerInfo:
    """A worker by its last report, of `seen_ms`.

    `running` are up to 100 jobs, those that run longest first, and empty where they were not asked for, as are
    `job_types`, the names of those that it can run; `longest_since_ms` is since when the first of them runs.
    `silent_since_ms`: its process has not moved since then. `identity`: who reported it; None: an earlier version got
    the report, which does not keep that. `is_quiet`: it takes no more jobs for now; None: it knows no commands.
    `outbox`: it is the relay of that one, as it was at `seen_ms`, and takes no jobs. `unknown_types`: jobs that it met
    of late and could not run.
    """

    id: str
    name: str
    host: str
    pid: int
    queues: dict[str, int]
    slots: int
    busy_slots: int
    stuck_slots: int
    running: list[WorkerJobInfo]
    longest_since_ms: int | None
    versions: dict[str, str]
    is_stopping: bool
    started_ms: int
    seen_ms: int
    silent_since_ms: int | None = None
    identity: str | None = None
    is_quiet: bool | None = None
    job_types: list[str] = field(default_factory=list)
    outbox: OutboxReport | None = None
    unknown_types: list[UnknownType] = field(default_factory=list)

    def keep_queues(self, is_kept: Callable[[str], bool]) -> None:
        """Leave out what it says of other queues: its types of job too, as nothing says which queues they are for."""
        if not all(map(is_kept, self.queues)):
            self.job_types = []
        self.queues = {queue: weight for queue, weight in self.queues.items() if is_kept(queue)}
        self.running = [job for job in self.running if is_kept(job.job_descriptor.partition(":")[0])]
        self.unknown_types = [each for each in self.unknown_types if is_kept(each.queue)]


@dataclass(slots=True)
class WorkersPage:
    """Workers by name, host and pid. The sums are over all that match, on whichever page; `missing_shards` could not
    be read, so workers that reported only to other servers may be missing.
    """

    now_ms: int
    workers: list[WorkerInfo]
    total: int
    slots: int
    busy_slots: int
    stuck_slots: int
    continuation: str = CONTINUATION_END
    missing_shards: list[str] = field(default_factory=list)
