"""Selections of jobs: what a search looks for, and what a change to all jobs that it finds is to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pinlater.model.jobs import CONTINUATION_END, CONTINUATION_START, JobInfo, JobState
from pinlater.model.operator_views import JobAction
from pinlater.model.word_enum import WordEnum


class JobPhase(WordEnum):
    """A state of jobs as people read it, and as LevelView counts. The numbers are those of the wire contract.

    >>> [phase.word for phase in JobPhase.in_order()]
    ['scheduled', 'ready', 'waiting', 'running', 'succeeded', 'failed', 'cancelled', 'replayed']
    """

    READY = 0
    """PENDING, and may run now."""

    SCHEDULED = 1
    """PENDING, and may run only later."""

    WAITING = 2
    """PENDING behind another job of its serialize key, whatever its run_after."""

    IN_PROGRESS = 3
    SUCCEEDED = 4
    FAILED = 5
    CANCELLED = 6
    """FAILED, since it was to stop."""

    REPLAYED = 7
    """FAILED, and its dead letter was sent back as a new job."""

    def __str__(self) -> str:
        return self.word

    @property
    def word(self) -> str:
        """As commands, pages and documents write it."""
        return "running" if self is JobPhase.IN_PROGRESS else self.name.lower()

    @property
    def state(self) -> JobState:
        """That of the wire."""
        if self in PENDING_PHASES:
            return JobState.PENDING
        return JobState.FAILED if self in FAILED_PHASES else JobState[self.name]

    @classmethod
    def in_order(cls) -> list[JobPhase]:
        """In the order of a job's life."""
        return sorted(cls, key=lambda phase: (phase is not cls.SCHEDULED, phase))


PHASE_WORDS = {phase.name.lower(): phase.word for phase in JobPhase}
"""The words of the phases, by the names that counts of them have."""

PENDING_PHASES = (JobPhase.READY, JobPhase.SCHEDULED, JobPhase.WAITING)
"""Those that are PENDING on the wire."""

FAILED_PHASES = (JobPhase.FAILED, JobPhase.CANCELLED, JobPhase.REPLAYED)
"""Those that are FAILED on the wire."""


def phases_of(state: JobState) -> list[JobPhase]:
    """All phases that are this state on the wire."""
    return [phase for phase in JobPhase if phase.state is state]


def phase_of(job: JobInfo, now_ms: int) -> JobPhase:
    """The one judgement of what a job's state is for people."""
    if job.state is JobState.FAILED:
        if job.replayed_to is not None:
            return JobPhase.REPLAYED
        return JobPhase.CANCELLED if job.cancelled else JobPhase.FAILED
    if job.state is not JobState.PENDING:
        return JobPhase[job.state.name]
    if job.waits_for is not None:
        return JobPhase.WAITING
    return JobPhase.SCHEDULED if job.run_after_ms > now_ms else JobPhase.READY


@dataclass(frozen=True, slots=True)
class TextCondition:
    """An RE2 pattern that is found in a text (`is_not`: is not found), which is searched as bytes."""

    regex: str
    is_not: bool = False


@dataclass(slots=True)
class JobSelection:
    """The jobs of one queue that meet all that is said here; what is left out (None) does not count.

    `phases` and `priorities`: one of them is enough. A time `before` is not included, one `after` is; a job that has
    not ended meets no condition on its end. Attempts are those that were taken: allowed ones less remaining ones.
    `descriptors`: only these jobs, at most 1,000. An empty list of them, or of phases or priorities, and an empty key
    mean no job at all. `tags`: jobs that have all of these; an index finds those of the first.
    `origin_queue`: copies of jobs of that queue, as its dead letters are. `group`: jobs of that group alone.
    """

    queue: str
    phases: Sequence[JobPhase] | None = None
    priorities: Sequence[int] | None = None
    body_conditions: Sequence[TextCondition] = ()
    status_conditions: Sequence[TextCondition] = ()
    created_before_ms: int | None = None
    created_after_ms: int | None = None
    updated_before_ms: int | None = None
    updated_after_ms: int | None = None
    ended_before_ms: int | None = None
    ended_after_ms: int | None = None
    min_attempts: int | None = None
    max_attempts: int | None = None
    dedupe_key: str | None = None
    serialize_key: str | None = None
    descriptors: Sequence[str] | None = None
    tags: Sequence[str] = ()
    origin_queue: str | None = None
    group: str | None = None

    @property
    def selects_nothing(self) -> bool:
        """One of a list is enough, and the list is empty; or a key is, which no job has."""
        named = (
            *(self.phases, self.priorities, self.dedupe_key, self.serialize_key),
            *(self.descriptors, self.origin_queue, self.group),
        )
        return any(each is not None and not each for each in named)


@dataclass(slots=True)
class FoundJobs:
    """One page of a search: jobs whose time has come, the newest run_after first, then scheduled ones; by tag each of
    the two newest first, by when the jobs came in. `looked_at`: how
    many jobs this call looked at; a page may be empty and yet not the last, when its time was over.
    """

    jobs: list[JobInfo]
    looked_at: int
    continuation: str = CONTINUATION_END
    missing_shards: list[str] = field(default_factory=list)


@dataclass(slots=True)
class FoundJobsChange:
    """One slice of a change to all jobs of a selection, which without phases means those that the action takes.

    `attempts` (RETRY, REPLAY; None: as allowed before) and `run_after_ms` (RETRY; None: now) are what the jobs get.
    `stops_running` (CANCEL): the workers of those in progress are asked to stop. `limit` is for this one call, and so
    is `max_ms` (None: as long as the server allows). `is_last`: no slice of this run follows, whatever is left, so the
    audit gets its sum; with a `limit` of 0 nothing more is done. `note` is a text for the audit.
    """

    selection: JobSelection
    action: JobAction
    limit: int = 1000
    dry_run: bool = False
    attempts: int | None = None
    run_after_ms: int | None = None
    stops_running: bool = False
    max_ms: int | None = None
    is_last: bool = False
    note: str = ""
    continuation: str = CONTINUATION_START
