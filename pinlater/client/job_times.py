"""The times of jobs that a program gives its client, checked here: the server takes all, from every language."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pinlater.errors import RequestInvalid
from pinlater.model import Checkpoint, ExtendedJob, Job, JobChange
from pinlater.model.job_selection import FoundJobsChange
from pinlater.schedule import Delay, delay_seconds, refuse_seconds


def delayed(jobs: Job | Sequence[Job], delay: Delay, now_ms: int | None = None) -> Job | Sequence[Job]:
    """The same, to run so long from now. RequestInvalid: no delay, or a job that has a time of its own."""
    try:
        at_ms = (time.time_ns() // 1_000_000 if now_ms is None else now_ms) + math.ceil(delay_seconds(delay) * 1000)
    except ValueError as error:
        raise RequestInvalid(str(error)) from None
    if any(job.run_after_ms is not None for job in ([jobs] if isinstance(jobs, Job) else jobs)):
        raise RequestInvalid("either the delay of an enqueue or the run_after_ms of its jobs can be given, not both")
    if isinstance(jobs, Job):
        return replace(jobs, run_after_ms=at_ms)
    return [replace(job, run_after_ms=at_ms) for job in jobs]


def check_times(planned: Iterable[Job | Checkpoint | JobChange | FoundJobsChange]) -> None:
    for each in planned:
        if each.run_after_ms is not None:
            check_time(each.run_after_ms)


def check_expiries(jobs: Iterable[Job]) -> None:
    for job in jobs:
        if isinstance(job, ExtendedJob) and job.expires_at_ms is not None:
            check_time(job.expires_at_ms, "expires_at_ms")


def check_time(time_ms: int | None, name: str = "run_after_ms") -> None:
    """RequestInvalid: seconds."""
    try:
        refuse_seconds(time_ms, name)
    except ValueError as error:
        raise RequestInvalid(str(error)) from None
