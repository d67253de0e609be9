"""Jobs, acks and requests in the arguments of a client's calls: the short forms, the jobs that are named, their times.

Bytes stand for a job, a dequeued job for its ack, and the name of a queue for a request. What a mistake of the program
is, as a text that is no descriptor, or seconds for milliseconds, is refused here before anything is sent: the server
takes all of it, from every language.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pinlater.errors import RequestInvalid
from pinlater.model import (
    Ack,
    Checkpoint,
    DequeuedJob,
    DequeueFromQueuesRequest,
    DequeueRequest,
    ExtendedJob,
    Job,
    JobChange,
    JobFilter,
    JobState,
    KeyRef,
    QueueShare,
    is_descriptor,
)
from pinlater.model.job_selection import FoundJobsChange
from pinlater.model.jobs import MAX_TIME_MS
from pinlater.schedule import Delay, delay_seconds, refuse_seconds

_EXAMPLE = "descriptors as an enqueue or dequeue gave them, such as 'mail:s1:p1:1790000000000000'"
_SHOWN = 3

# -- short forms ----------------------------------------------------------------------------------------------------


def as_jobs(jobs: Job | bytes | Sequence[Job | bytes]) -> Job | Sequence[Job]:
    """Bytes as jobs; what is neither is left as it is."""
    if isinstance(jobs, bytes):
        return Job(jobs)
    if isinstance(jobs, list | tuple) and bytes in set(map(type, jobs)):
        return [Job(each) if isinstance(each, bytes) else each for each in jobs]
    return jobs  # type: ignore[return-value]  # the only bytes are gone


def as_acks(acks: Sequence[Ack | DequeuedJob]) -> list[Ack]:
    """Each dequeued job as its ack, fenced by its claim."""
    return [
        Ack(each.descriptor, claim_descriptor=each.claim_descriptor) if isinstance(each, DequeuedJob) else each
        for each in acks
    ]


def has_dequeued(acks: Sequence[Ack | DequeuedJob]) -> bool:
    return isinstance(acks, list | tuple) and any(isinstance(each, DequeuedJob) for each in acks)


def as_dequeue(request: DequeueRequest | str, limit: int | None, wait: Delay | None) -> DequeueRequest:
    """The request for a queue by its name. RequestInvalid."""
    if isinstance(request, str):
        return DequeueRequest(request, 1 if limit is None else limit, wait_ms=_wait_ms(wait))
    _refuse_both(limit, wait)
    return request


def as_dequeue_from_queues(
    request: DequeueFromQueuesRequest | Sequence[str | QueueShare], limit: int | None, wait: Delay | None
) -> DequeueFromQueuesRequest:
    """The request for queues by their names, or their shares. RequestInvalid."""
    if isinstance(request, list | tuple):
        queues = [QueueShare(each) if isinstance(each, str) else each for each in request]
        return DequeueFromQueuesRequest(queues, 1 if limit is None else limit, wait_ms=_wait_ms(wait))
    _refuse_both(limit, wait)
    return request  # type: ignore[return-value]  # a list or a tuple is gone


def as_filter(filter: JobFilter | str, state: JobState | None) -> JobFilter:
    """The jobs of a queue by its name: those that are ready to run, or of a state. RequestInvalid."""
    if isinstance(filter, str):
        return JobFilter(filter, JobState.PENDING if state is None else state)
    if state is not None:
        raise RequestInvalid("either a JobFilter, which has its state, or a queue and a state can be given, not both")
    return filter


def _wait_ms(wait: Delay | None) -> int:
    try:
        return 0 if wait is None else math.ceil(delay_seconds(wait) * 1000)
    except ValueError:
        raise RequestInvalid.of("wait", wait, "seconds, a text as in 30s or 1m, or a timedelta") from None


def _refuse_both(limit: int | None, wait: Delay | None) -> None:
    if limit is not None or wait is not None:
        raise RequestInvalid("limit and wait go with the name of a queue; a request has its limit and wait_ms")


# -- jobs that are named --------------------------------------------------------------------------------------------


def named_jobs(
    named: Sequence[str | Sequence[str]],
    queue: str | None = None,
    descriptors: Sequence[str] | None = None,
    keys: Sequence[KeyRef] = (),
) -> tuple[str | None, Sequence[str]]:
    """The queue, where one is named, and the descriptors, whichever way they were given: in places, or by name.
    RequestInvalid.
    """
    if len(named) == 2 or (len(named) == 1 and (keys or descriptors is not None) and isinstance(named[0], str)):
        queue, named = named[0], named[1:]  # type: ignore[assignment]
    if named:
        descriptors = named[0]
    if keys and descriptors is None:
        descriptors = ()
    if keys and not queue:
        raise RequestInvalid("keys name jobs of one queue: give it, as in queue='mail'")
    if descriptors is None or isinstance(descriptors, str | bytes) or not isinstance(queue, str | None):
        raise RequestInvalid.of("jobDescriptors", descriptors, f"a list of {_EXAMPLE}")
    wrong = [each for each in descriptors if not isinstance(each, str) or not is_descriptor(each)]
    if wrong:
        shown = ", ".join(repr(each)[:100] for each in wrong[:_SHOWN])
        more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise RequestInvalid(f"no descriptor: {shown}{more}; allowed: {_EXAMPLE}")
    return queue or None, descriptors


def by_queue(descriptors: Sequence[str]) -> dict[str, list[str]]:
    """
    >>> by_queue(["mail:s1:p1:17", "images:s1:p1:18", "mail:s2:p1:19"])
    {'mail': ['mail:s1:p1:17', 'mail:s2:p1:19'], 'images': ['images:s1:p1:18']}
    """
    found: dict[str, list[str]] = {}
    for each in descriptors:
        found.setdefault(each.partition(":")[0], []).append(each)
    return found


# -- times ----------------------------------------------------------------------------------------------------------


def delayed(jobs: Job | Sequence[Job], delay: Delay, now_ms: int | None = None) -> Job | Sequence[Job]:
    """The same, to run so long from now. RequestInvalid: no delay, or a job that has a time of its own."""
    try:
        at_ms = (time.time_ns() // 1_000_000 if now_ms is None else now_ms) + math.ceil(delay_seconds(delay) * 1000)
    except ValueError as error:
        raise RequestInvalid(str(error)) from None
    if at_ms > MAX_TIME_MS:
        raise RequestInvalid.of("delay", delay, f"up to {MAX_TIME_MS // 1000} seconds from 1970 on")
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
