"""The calls that store jobs: the seam to the servers, and many jobs in as few of these calls as their bounds allow."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, TypeVar

from pinlater.clock import Clock
from pinlater.model import EnqueuedJobs, EnqueueOutcome, Job
from pinlater_workers.errors import WorkerError
from pinlater_workers.jobs.dependencies import Providers

if TYPE_CHECKING:
    from pinlater.client.async_client import AsyncClient
    from pinlater.client.client import Client


class WithBody(Protocol):
    """A job, or what becomes one."""

    @property
    def body(self) -> bytes: ...


JobT = TypeVar("JobT", bound=WithBody)

JOBS_PER_CALL = 500
BYTES_PER_CALL = 4 * 1024 * 1024


class JobSink(Protocol):
    """Where jobs go. Each call stores all of its jobs or none, and answers with their descriptors in order; jobs with
    keys may be stored in part, which the error says. `timeout_s`: another than the client's own.
    """

    def send(self, queue: str, jobs: Sequence[Job], *, timeout_s: float | None = None) -> list[str]: ...

    async def send_async(self, queue: str, jobs: Sequence[Job]) -> list[str]: ...


class Producer(Protocol):
    """The app, as its job types see it."""

    clock: Clock
    sink: JobSink
    providers: Providers

    @property
    def client(self) -> Client: ...

    def async_client(self) -> AsyncClient:
        """That of the running event loop."""

    def exceeded_result_bound(self, queue: str, size: int, *, may_ask: bool = True) -> int | None:
        """The bound of the results of a queue, where one of that size is beyond it; None: it fits, or nobody knows."""

    def headers(self, job: str, given: Mapping[str, str]) -> dict[str, str]:
        """What travels with a job that is enqueued now, beside what the caller gives."""


class EnqueuedInPart(WorkerError):
    """Some of many jobs were enqueued: the first are stored, `enqueued` has their descriptors in order; then a call
    failed.

    `__cause__` is its error. Where that is OutcomeUnknown, the jobs of that call, up to 500 of those that follow, may
    be stored as well; of the rest surely none is.
    """

    def __init__(self, enqueued: list[str], wanted: int, why: str) -> None:
        super().__init__(f"{len(enqueued)} of {wanted} jobs are enqueued; then: {why}")
        self.enqueued = enqueued
        self.wanted = wanted


def slices(jobs: Sequence[JobT]) -> Iterator[Sequence[JobT]]:
    """The jobs in order, in as few calls as the bounds of a call allow."""
    start = 0
    while start < len(jobs):
        some = jobs[start : start + JOBS_PER_CALL]
        sizes = list(accumulate([len(job.body) for job in some]))
        end = start + max(1, bisect_right(sizes, BYTES_PER_CALL))
        yield jobs[start:end]
        start = end


def send_all(sink: JobSink, queue: str, jobs: Sequence[Job]) -> list[str]:
    """EnqueuedInPart: a call after the first one failed. The error of the first is raised as it is."""
    enqueued = EnqueuedJobs([])
    for some in slices(jobs):
        try:
            _add(enqueued, sink.send(queue, some))
        except Exception as error:
            if not enqueued:
                raise
            raise EnqueuedInPart(enqueued, len(jobs), str(error)) from error
    return enqueued


async def send_all_async(sink: JobSink, queue: str, jobs: Sequence[Job]) -> list[str]:
    """`send_all` for an event loop."""
    enqueued = EnqueuedJobs([])
    for some in slices(jobs):
        try:
            _add(enqueued, await sink.send_async(queue, some))
        except Exception as error:
            if not enqueued:
                raise
            raise EnqueuedInPart(enqueued, len(jobs), str(error)) from error
    return enqueued


def _add(enqueued: EnqueuedJobs, more: list[str]) -> None:
    """The outcomes too, where one of them is another than STORED."""
    outcomes = more.outcomes if isinstance(more, EnqueuedJobs) else ()
    if outcomes or enqueued.outcomes:
        stored = EnqueueOutcome.STORED
        before, after = enqueued.outcomes or [stored] * len(enqueued), outcomes or [stored] * len(more)
        enqueued.outcomes = [*before, *after]
    enqueued += more
