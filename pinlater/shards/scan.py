"""One scan over several shards: by run_after, newest first, then by shard, then by id; by tag by id, newest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pinlater.backends.base import ScanPosition, ScanRequest, StoredState
from pinlater.errors import PinLaterError
from pinlater.model import MAX_TIME_MS, JobInfo
from pinlater.shards.handle import ShardHandle, answers, ask_all

_ID_DIGITS = 16
_BEHIND_ALL_IDS = MAX_TIME_MS
_BEFORE_ALL_IDS = 0


class Place(NamedTuple):
    """A place in the order over all shards."""

    run_after_ms: int
    shard: str
    id: int


@dataclass(slots=True)
class ScanQuery:
    """A scan of one queue for jobs in these states; `with_body`, `max_bytes` and `tag` as for a shard."""

    queue: str
    states: Sequence[StoredState]
    priorities: Sequence[int]
    future: bool
    now_ms: int
    with_body: bool = False
    max_bytes: int = 2**53
    tag: str = ""


@dataclass(slots=True)
class Scanned:
    """Jobs in order; `ended` when none follow. `missing` shards gave nothing."""

    jobs: list[JobInfo]
    ended: bool
    missing: list[ShardHandle]


def place_of(job: JobInfo) -> Place:
    """The place of a job in the order of a scan, by its descriptor `QUEUE:sSHARD:pPRIORITY:ID`."""
    _, shard, _, job_id = job.descriptor.split(":")
    return Place(job.run_after_ms, shard[1:], int(job_id))


def position_on(shard_id: str, after: Place | None, tag: str = "") -> ScanPosition | None:
    """The position from which one shard goes on when all shards together stand at `after`; None: from its first job."""
    if after is None:
        return None
    if shard_id == after.shard:
        return ScanPosition(after.run_after_ms, after.id)
    if tag:
        return ScanPosition(after.run_after_ms, after.id + (shard_id > after.shard))
    return ScanPosition(after.run_after_ms, _BEHIND_ALL_IDS if shard_id < after.shard else _BEFORE_ALL_IDS)


async def scan_over(handles: Sequence[ShardHandle], query: ScanQuery, after: Place | None, limit: int) -> Scanned:
    """Up to `limit` jobs behind `after`. QueueNotFound if no shard that answers has the queue."""
    outcomes = await ask_all(
        handles,
        lambda shard: shard.scan(
            query.queue,
            ScanRequest(
                query.states,
                query.priorities,
                query.future,
                limit + 1,
                position_on(shard.shard_id, after, query.tag),
                query.with_body,
                query.max_bytes // len(handles),
                query.tag,
            ),
            query.now_ms,
        ),
    )
    pages = answers(outcomes)
    jobs, ended = merge_pages(pages, limit, with_body=query.with_body, order=_age if query.tag else _order)
    missing = [
        handle
        for handle, outcome in zip(handles, outcomes, strict=True)
        if isinstance(outcome, PinLaterError) and outcome.retryable
    ]
    return Scanned(jobs, ended, missing)


def merge_pages(
    pages: Sequence[list[JobInfo]],
    limit: int,
    *,
    with_body: bool,
    order: Callable[[JobInfo], tuple[int | str, ...]] | None = None,
) -> tuple[list[JobInfo], bool]:
    """The first jobs of all pages, and whether that was all.

    A page that is short of its limit may have been cut for its bytes: nothing behind its last job is certain.
    """
    if len(pages) == 1:
        jobs, cut = pages[0], bool(pages[0]) and with_body
    else:
        order = order or _order
        jobs = sorted([job for page in pages for job in page], key=order)
        cut = with_body and any(pages)
        if cut:
            horizon = min(order(page[-1]) for page in pages if page)
            jobs = [job for job in jobs if order(job) <= horizon]
    return jobs[:limit], not cut and len(jobs) <= limit


def _order(job: JobInfo) -> tuple[int, str, str]:
    _, shard, _, job_id = job.descriptor.split(":")
    return (-job.run_after_ms, shard, job_id)


def _age(job: JobInfo) -> tuple[int, str]:
    _, shard, _, job_id = job.descriptor.split(":")
    return (-int(job_id), shard)
