"""The model of a worker's report, which comes with a dequeue or a heartbeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pinlater.model.word_enum import WordEnum


@dataclass(slots=True)
class WorkerJob:
    """A job that a worker runs, and for how long. `job_type` is the worker's word for what it does."""

    job_descriptor: str
    job_type: str = ""
    running_ms: int = 0


@dataclass(slots=True)
class OutboxReport:
    """What a relay says of the outbox that it empties: how many jobs wait, how long the oldest does, and how long one
    may (0: nobody said). `problem`: what keeps them.
    """

    name: str
    waiting: int = 0
    oldest_ms: int = 0
    goal_ms: int = 0
    problem: str = ""


@dataclass(slots=True)
class UnknownType:
    """Jobs of a queue that a worker could not run, of one type ("": bodies that name none that it can read): how many
    it was the first to meet, and how long ago it met one last.
    """

    queue: str
    job_type: str = ""
    jobs: int = 0
    last_ms: int = 0


@dataclass(slots=True)
class WorkerReport:
    """One report of a worker. `id` is that of this run of its process, `up_ms` the time since that began: of two
    reports the one with more is the newer.

    `queues` are names with weights, `running` the jobs that run longest, and `versions` those of what it is made of.
    With `has_stopped` it leaves the list. `silent_ms`: its process has not moved for so long. `is_quiet`: whether it
    takes no more jobs for now; None: it is of a version that knows no commands. `job_types`: the names of those that
    it can run. `outbox`: it is the relay of an outbox, and takes no jobs. `unknown_types`: what it met of late.
    """

    id: str
    name: str
    up_ms: int
    host: str = ""
    pid: int = 0
    queues: Mapping[str, int] = field(default_factory=dict)
    slots: int = 0
    busy_slots: int = 0
    stuck_slots: int = 0
    running: Sequence[WorkerJob] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    is_stopping: bool = False
    has_stopped: bool = False
    silent_ms: int = 0
    is_quiet: bool | None = None
    job_types: Sequence[str] = ()
    outbox: OutboxReport | None = None
    unknown_types: Sequence[UnknownType] = ()


class WorkerCommand(WordEnum):
    """What a worker is to do: QUIET takes no more jobs, RESUME takes jobs again, STOP ends when its jobs have."""

    QUIET = 0
    RESUME = 1
    STOP = 2


class CommandOutcome(WordEnum):
    """TAKEN: the worker gets it with its next report. NOT_KNOWN: there is no such worker, or none that the caller may
    see. TOO_OLD: it is of a version that knows no commands. FORBIDDEN: the caller may not operate all of its queues.
    """

    TAKEN = 0
    NOT_KNOWN = 1
    TOO_OLD = 2
    FORBIDDEN = 3


class NumberedCommand(NamedTuple):
    """A command on its way to its worker; of two the one with the greater number is the newer."""

    command: WorkerCommand
    number: int


@dataclass(slots=True)
class CommandedWorker:
    """What became of a command for one worker. `id`: its own, or the text by which it was named, of one NOT_KNOWN."""

    id: str
    outcome: CommandOutcome
    name: str = ""
    host: str = ""
    pid: int = 0


@dataclass(slots=True)
class WorkersCommanded:
    """An answer for each worker that was meant. `missing_shards` could not be read: more may be meant."""

    workers: Sequence[CommandedWorker]
    missing_shards: Sequence[str] = ()
