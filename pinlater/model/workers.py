"""Workers: what each says of itself, on a dequeue or a heartbeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class WorkerJob:
    """A job that a worker runs, and for how long. `job_type` is the worker's word for what it does."""

    job_descriptor: str
    job_type: str = ""
    running_ms: int = 0


@dataclass(slots=True)
class WorkerReport:
    """One report of a worker. `id` is that of this run of its process, `up_ms` the time since that began: of two
    reports the one with more is the newer.

    `queues` are names with weights, `running` the jobs that run longest, and `versions` those of what it is made of.
    With `has_stopped` it leaves the list. `silent_ms`: its process has not moved for so long.
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
