"""When a job is to run, and how many travel in one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

from pinlater.model import Job
from pinlater_workers.errors import WorkerError
from pinlater_workers.raised import Delay, seconds

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
JOBS_PER_CALL = 500
BYTES_PER_CALL = 4 * 1024 * 1024


class EnqueuedInPart(WorkerError):
    """Of many jobs the first are stored, `enqueued` has their descriptors in order; then a call failed.

    `__cause__` is its error. Where that is OutcomeUnknown, the jobs of that call, up to 500 of those that follow, may
    be stored as well; of the rest surely none is.
    """

    def __init__(self, enqueued: list[str], wanted: int, why: str) -> None:
        super().__init__(f"{len(enqueued)} of {wanted} jobs are enqueued; then: {why}")
        self.enqueued = enqueued
        self.wanted = wanted


class Outbox(Protocol):
    """Where jobs go. Each call stores all of its jobs or none, and answers with their descriptors in order."""

    def send(self, queue: str, jobs: Sequence[Job]) -> list[str]: ...

    async def send_async(self, queue: str, jobs: Sequence[Job]) -> list[str]: ...


def run_after_ms(delay: Delay | None, run_after: datetime | int | None, now_ms: int) -> int | None:
    """The time a job waits for; None: at once. ValueError: both are given, a negative delay, a naive time."""
    if delay is not None:
        if run_after is not None:
            raise ValueError("either delay or run_after can be given, not both")
        return now_ms + round(seconds(delay) * 1000)
    if isinstance(run_after, datetime):
        if run_after.tzinfo is None:
            raise ValueError(f"run_after is {run_after}, without a time zone; allowed: as in datetime.now(UTC)")
        return -((_EPOCH - run_after) // timedelta(milliseconds=1))  # rounded up: not before the time that was named
    if run_after is not None and (isinstance(run_after, bool) or not isinstance(run_after, int)):
        raise ValueError(f"run_after is {run_after!r}; allowed: an aware datetime, or milliseconds as an int")
    return run_after


def slices(jobs: Sequence[Job]) -> Iterator[Sequence[Job]]:
    """The jobs in order, in as few calls as the bounds of a call allow."""
    start, size = 0, 0
    for index, job in enumerate(jobs):
        if index > start and (index - start == JOBS_PER_CALL or size + len(job.body) > BYTES_PER_CALL):
            yield jobs[start:index]
            start, size = index, 0
        size += len(job.body)
    if start < len(jobs):
        yield jobs[start:]


def send_all(outbox: Outbox, queue: str, jobs: Sequence[Job]) -> list[str]:
    """EnqueuedInPart: a call after the first one failed. The error of the first is raised as it is."""
    enqueued: list[str] = []
    for some in slices(jobs):
        try:
            enqueued += outbox.send(queue, some)
        except Exception as error:
            if not enqueued:
                raise
            raise EnqueuedInPart(enqueued, len(jobs), str(error)) from error
    return enqueued


async def send_all_async(outbox: Outbox, queue: str, jobs: Sequence[Job]) -> list[str]:
    """`send_all` for an event loop."""
    enqueued: list[str] = []
    for some in slices(jobs):
        try:
            enqueued += await outbox.send_async(queue, some)
        except Exception as error:
            if not enqueued:
                raise
            raise EnqueuedInPart(enqueued, len(jobs), str(error)) from error
    return enqueued
