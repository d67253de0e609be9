"""One attempt of a job without a pool: a claimed job, its context, and the verdict on it."""

from __future__ import annotations

import time
from typing import Any

from pinlater.model import Checkpoint, DequeuedJob
from pinlater_workers.app import App
from pinlater_workers.execution.attempt import close_loop, run_attempt
from pinlater_workers.jobs.context import JobContext
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.outcome import Outcome

QUEUE = "tested"


def claimed(body: bytes = b"", *, allowed: int = 5, remaining: int = 5) -> DequeuedJob:
    return DequeuedJob("tested:1:1:1", body, 1, allowed, remaining, 0, 0, claim_descriptor="claim-1")


class Sent:
    """Keeps what is asked of it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[Checkpoint] = []
        self._error = error

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        self.asked.append(checkpoint)
        if self._error is not None:
            raise self._error

    async def checkpoint_async(self, checkpoint: Checkpoint) -> None:
        self.checkpoint(checkpoint)

    def progress_made(self, context: JobContext) -> None:
        """It is taken from the context."""


def context_of(job: DequeuedJob, name: str = "job") -> JobContext:
    deadline_ms = time.time_ns() // 1_000_000 + 3_600_000
    return JobContext(name, QUEUE, job, Sent(), deadline_ms)


def attempt(job_type: JobType, *args: Any, body: bytes | None = None, remaining: int = 5, **kwargs: Any) -> Outcome:
    """Run it once, in this thread."""
    job = claimed(job_type.body(*args, **kwargs) if body is None else body, remaining=remaining)
    app = job_type.app
    assert isinstance(app, App)
    try:
        return run_attempt(app, job_type, job, context_of(job, job_type.name), None)
    finally:
        close_loop()
