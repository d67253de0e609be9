"""One claimed job while this worker runs it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from pinlater.model import DequeuedJob

if TYPE_CHECKING:
    from pinlater_workers.envelope import Envelope
    from pinlater_workers.job import JobType


class Why(StrEnum):
    """Why a running job is told to stop. The words stand in statuses, logs and metrics."""

    TIME_LIMIT = "time limit exceeded"
    CLAIM_LOST = "claim lost"
    OUT_OF_TOUCH = "no heartbeat gets through"
    STOPPING = "the worker stops"


ENDS = frozenset({Why.TIME_LIMIT, Why.CLAIM_LOST})
"""The reasons that end a job, and that no other one replaces; of the others it is only told."""


class Running(msgspec.Struct, eq=False, gc=False):
    """What the worker keeps of it. `type` None: none that this worker knows. `envelope` None: a body that has none.

    `began_s` and `until_s` (the time limit) are of time.monotonic, `deadline_ms` is the limit by the wall clock.
    `told` is why it was told to stop, if it was.
    """

    job: DequeuedJob
    queue: str
    type: JobType | None
    began_s: float
    until_s: float
    envelope: Envelope | None = None
    deadline_ms: int = 0
    told: Why | None = None


def attempt_number(job: DequeuedJob) -> int:
    """1 for the first; at least 1 for a job that an operator gave more attempts."""
    return max(1, job.attempts_allowed - job.attempts_remaining + 1)


def waited_s(job: DequeuedJob, now_ms: int) -> float:
    """From when it was due until now; 0 where the server does not say when that was."""
    return (now_ms - job.run_after_ms) / 1000 if job.run_after_ms else 0.0
