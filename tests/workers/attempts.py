"""One attempt of a job without a pool: a claimed job, its context, and the verdict on it."""

from __future__ import annotations

import time
from typing import Any

from pinlater.job_limits import JobLimits
from pinlater.model import DequeuedJob, Job
from pinlater_workers.app import App
from pinlater_workers.execution.attempt import close_loop, run_attempt
from pinlater_workers.jobs.context import JobContext
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.outcome import Outcome
from pinlater_workers.testing.memory import Run, RunHost

QUEUE = "tested"


def claimed(body: bytes = b"", *, allowed: int = 5, remaining: int = 5) -> DequeuedJob:
    return DequeuedJob("tested:1:1:1", body, 1, allowed, remaining, 0, 0, claim_descriptor="claim-1")


def kept(job: DequeuedJob) -> Run:
    """The job as a server would keep it."""
    run = Run.of(Job(job.body, attempts_allowed=job.attempts_allowed), "job", QUEUE, 1, 0)
    run.descriptor = job.descriptor
    return run


def context_of(job: DequeuedJob, name: str = "job", run: Run | None = None) -> JobContext:
    deadline_ms = time.time_ns() // 1_000_000 + 3_600_000
    return JobContext(name, QUEUE, job, RunHost(kept(job) if run is None else run, JobLimits()), deadline_ms)


def attempt(job_type: JobType, *args: Any, body: bytes | None = None, remaining: int = 5, **kwargs: Any) -> Outcome:
    """Run it once, in this thread."""
    job = claimed(job_type.body(*args, **kwargs) if body is None else body, remaining=remaining)
    app = job_type.app
    assert isinstance(app, App)
    try:
        return run_attempt(app, job_type, job, context_of(job, job_type.name), None)
    finally:
        close_loop()
