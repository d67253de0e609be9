"""Counts and scans: now and later, order, paging."""

from __future__ import annotations

import pytest

from pinlater.backends.base import ScanPosition, StoredState
from pinlater.model import MAX_TIME_MS, CancelOutcome, Job, JobInfo, JobState
from tests.conformance.extended_subject import stop, store
from tests.conformance.subject import START_MS, Subject, key_of


def position(info: JobInfo) -> ScanPosition:
    return ScanPosition(info.run_after_ms, key_of(info.descriptor).id)


async def pages(subject: Subject, limit: int, **fields: object) -> list[list[JobInfo]]:
    """All pages of a scan; it ends at the first empty one."""
    found: list[list[JobInfo]] = []
    after: ScanPosition | None = None
    while page := await subject.scan(after=after, limit=limit, **fields):  # type: ignore[arg-type]
        assert len(page) <= limit
        found.append(page)
        after = position(page[-1])
        assert len(found) < 100
    return found


async def test_a_job_at_exactly_now_is_current_and_counted_once(subject: Subject) -> None:
    await subject.enqueue(*[Job(b"", run_after_ms=START_MS + shift) for shift in (-1, 0, 1)])
    assert await subject.count(JobState.PENDING) == 2
    assert await subject.count(JobState.PENDING, future=True) == 1
    assert len(await subject.scan()) == 2
    assert len(await subject.scan(future=True)) == 1
    subject.tick(1)
    assert await subject.count(JobState.PENDING) == 3
    assert await subject.count(JobState.PENDING, future=True) == 0


@pytest.mark.parametrize("state", list(JobState))
async def test_each_state_is_counted_and_scanned_apart(subject: Subject, state: JobState) -> None:
    descriptors = {each: await subject.job_in(each) for each in reversed(JobState)}
    assert await subject.count(state) == 1
    assert await subject.count(state, future=True) == 0
    assert [info.descriptor for info in await subject.scan(state)] == [descriptors[state]]
    assert [info.descriptor for page in await pages(subject, 1, state=state) for info in page] == [descriptors[state]]
    assert await subject.scan(state, future=True) == []


@pytest.mark.parametrize("state", [JobState.IN_PROGRESS, JobState.SUCCEEDED, JobState.FAILED])
async def test_jobs_that_are_not_pending_are_now_or_later_by_their_run_after_too(
    subject: Subject, state: JobState
) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    await subject.checkpoint(descriptor, run_after_ms=START_MS + 100)
    if state is not JobState.IN_PROGRESS:
        await subject.ack_one(descriptor, state is JobState.SUCCEEDED, permanent=True)
    assert (await subject.count(state), await subject.count(state, future=True)) == (0, 1)
    assert [info.descriptor for info in await subject.scan(state, future=True)] == [descriptor]
    subject.tick(100)
    assert (await subject.count(state), await subject.count(state, future=True)) == (1, 0)


async def test_counts_and_scans_take_the_priorities_asked_for(subject: Subject) -> None:
    await subject.enqueue(*[Job(b"", priority) for priority in (1, 2, 2, 3, 3, 3)])
    assert await subject.count(JobState.PENDING) == 6
    assert [await subject.count(JobState.PENDING, priorities=(each,)) for each in (1, 2, 3)] == [1, 2, 3]
    assert await subject.count(JobState.PENDING, priorities=(1, 3)) == 4
    assert {info.priority for info in await subject.scan(priorities=(2,))} == {2}
    assert len(await subject.scan(priorities=(1, 2))) == 3


async def test_a_scan_shows_the_newest_run_after_first_and_equal_ones_by_age(subject: Subject) -> None:
    times = [10, 30, 20, 30, 10, 30]
    jobs = await subject.enqueue(*[Job(b"", 1 + n % 3, run_after_ms=time) for n, time in enumerate(times)])
    assert [info.descriptor for info in await subject.scan()] == [jobs[n] for n in (1, 3, 5, 2, 0, 4)]


@pytest.mark.parametrize("state", list(JobState))
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
async def test_paging_through_equal_run_after_values_shows_every_job_once_and_in_order(
    subject: Subject, state: JobState, limit: int
) -> None:
    descriptors = await subject.enqueue(*[Job(b"", 1 + n % 3, run_after_ms=10 + n // 4) for n in range(12)])
    if state is not JobState.PENDING:
        await subject.claim(12)
    if state in (JobState.SUCCEEDED, JobState.FAILED):
        for descriptor in descriptors:
            await subject.ack_one(descriptor, state is JobState.SUCCEEDED, permanent=True)
    shown = [info.descriptor for page in await pages(subject, limit, state=state) for info in page]
    assert shown == descriptors[8:] + descriptors[4:8] + descriptors[:4]


async def test_a_scan_goes_on_behind_a_job_that_is_gone(subject: Subject) -> None:
    descriptors = await subject.enqueue(*[Job(b"", run_after_ms=10) for _ in range(6)])
    page = await subject.scan(limit=2)
    await subject.cancel(descriptors[1], descriptors[2])
    rest = await subject.scan(after=position(page[-1]))
    assert [info.descriptor for info in rest] == descriptors[3:]


async def test_a_scan_from_the_first_and_the_last_moment_there_is(subject: Subject) -> None:
    first, last = await subject.enqueue(Job(b"", run_after_ms=0), Job(b"", run_after_ms=MAX_TIME_MS))
    assert [info.descriptor for info in await subject.scan()] == [first]
    assert await subject.scan(after=ScanPosition(0, key_of(first).id)) == []
    assert [info.descriptor for info in await subject.scan(future=True)] == [last]
    assert await subject.scan(future=True, after=ScanPosition(MAX_TIME_MS, key_of(last).id)) == []


async def test_a_scan_without_bodies_shows_all_else(subject: Subject) -> None:
    descriptor = await subject.job(b"data", priority=2, custom_status="s")
    whole = await subject.info(descriptor)
    (info,) = await subject.scan()
    whole.body = None
    assert info == whole


async def test_a_scan_of_jobs_in_progress_shows_their_claims(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    (info,) = await subject.scan(JobState.IN_PROGRESS, with_body=True)
    assert info == await subject.info(descriptor)


async def test_a_page_of_large_jobs_is_as_long_as_one_of_small_ones(subject: Subject) -> None:
    descriptors = [await subject.job(bytes(300_000)) for _ in range(40)]
    assert [job.descriptor for job in await subject.scan(limit=41)] == descriptors
    assert [job.descriptor for job in await subject.scan(limit=39)] == descriptors[:39]
    found = await subject.scan(limit=9, with_body=True, max_bytes=1_650_000)
    assert [(job.descriptor, len(job.body or b"")) for job in found] == [(each, 300_000) for each in descriptors[:5]]


async def test_a_page_with_bodies_stays_within_its_bytes_but_shows_at_least_one_job(subject: Subject) -> None:
    await subject.enqueue(*[Job(bytes(10)) for _ in range(5)])
    assert [len(page) for page in await pages(subject, 9, with_body=True, max_bytes=25)] == [2, 2, 1]
    assert [len(page) for page in await pages(subject, 9, with_body=True, max_bytes=1)] == [1] * 5
    assert [len(page) for page in await pages(subject, 9, with_body=True, max_bytes=50)] == [5]


async def test_counting_many_jobs_is_exact(subject: Subject) -> None:
    await subject.enqueue(*[Job(b"", 1 + n % 3, run_after_ms=START_MS - 500 + n) for n in range(1_000)])
    assert await subject.count(JobState.PENDING) == 501
    assert await subject.count(JobState.PENDING, future=True) == 499


async def test_a_scan_tells_jobs_that_wait_for_others_and_jobs_that_were_stopped(subject: Subject) -> None:
    failed = await subject.job_in(JobState.FAILED)
    first, second = [await store(subject, serialize_key="k") for _ in range(2)]
    await subject.claim(1)
    assert await stop(subject, first) is CancelOutcome.REQUESTED
    third = await store(subject, serialize_key="other")
    fourth = await store(subject, serialize_key="other")
    await subject.ack_one(first, False, permanent=True)
    for stored, found in (
        ((StoredState.PENDING,), {second, third}),
        ((StoredState.WAITING,), {fourth}),
        ((StoredState.CANCELLED,), {first}),
        ((StoredState.FAILED,), {failed}),
        ((StoredState.WAITING, StoredState.CANCELLED), {first, fourth}),
        (tuple(StoredState), {first, second, third, fourth, failed}),
    ):
        assert {info.descriptor for info in await subject.scan(stored=stored)} == found
        paged = [info.descriptor for page in await pages(subject, 1, stored=stored) for info in page]
        assert paged == [info.descriptor for info in await subject.scan(stored=stored)]
