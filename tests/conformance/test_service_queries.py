"""Scans, counts and patterns over two shards, and the rows of the table of disagreements that speak of them."""

from __future__ import annotations

import pytest

from pinlater.errors import ContinuationInvalid, RequestInvalid
from pinlater.model import CONTINUATION_END, CONTINUATION_START, Job, JobFilter, JobInfo, JobState, parse_descriptor
from tests.conformance.served import QUEUE, START_MS, Served


async def all_pages(served: Served, filter: JobFilter, limit: int) -> list[JobInfo]:
    found: list[JobInfo] = []
    continuation = CONTINUATION_START
    for _ in range(1_000):
        page = await served.api.scan(filter, continuation=continuation, limit=limit)
        assert len(page.jobs) <= limit
        found += page.jobs
        continuation = page.continuation
        if continuation == CONTINUATION_END:
            return found
    pytest.fail("the scan never came to an end")


def place(info: JobInfo) -> tuple[int, str, int]:
    ref = parse_descriptor(info.descriptor)
    assert ref is not None
    return (-info.run_after_ms, ref.shard, ref.id)


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
async def test_pages_show_every_job_once_newest_first_then_by_shard_and_age(served: Served, limit: int) -> None:
    descriptors = [
        descriptor
        for number in range(12)
        for descriptor in await served.enqueue(Job(b"", 1 + number % 3, run_after_ms=10 + number // 6), Job(b""))
    ]
    found = await all_pages(served, served.filter(JobState.PENDING), limit)
    assert [place(info) for info in found] == sorted(map(place, found))
    assert sorted(info.descriptor for info in found) == sorted(descriptors)


async def test_a_scan_goes_on_with_the_now_it_began_with(served: Served) -> None:
    await served.enqueue(Job(b"1", run_after_ms=START_MS - 1), Job(b"2", run_after_ms=START_MS - 2))
    page = await served.api.scan(served.filter(JobState.PENDING), limit=1)
    await served.enqueue(Job(b"new"))
    served.clock.tick(5)
    rest = await served.api.scan(served.filter(JobState.PENDING), continuation=page.continuation)
    assert len(rest.jobs) == 1
    assert rest.continuation == CONTINUATION_END


async def test_a_continuation_works_only_with_its_own_filter(served: Served) -> None:
    await served.spread()
    await served.api.create_queue("other")
    page = await served.api.scan(served.filter(JobState.PENDING), limit=1)
    assert page.continuation not in (CONTINUATION_START, CONTINUATION_END)
    for filter in (
        served.filter(JobState.FAILED),
        served.filter(JobState.PENDING, priority=1),
        served.filter(JobState.PENDING, future=True),
        served.filter(JobState.PENDING, body_regex="x"),
        served.filter(JobState.PENDING, queue="other"),
    ):
        with pytest.raises(ContinuationInvalid):
            await served.api.scan(filter, continuation=page.continuation)


@pytest.mark.parametrize("text", ["", "1", "-2", "nonsense", "00", " 0", "🦆", "0\0", CONTINUATION_END])
async def test_any_other_text_is_no_continuation(served: Served, text: str) -> None:
    with pytest.raises(ContinuationInvalid):
        await served.api.scan(served.filter(JobState.PENDING), continuation=text)


async def test_a_job_at_exactly_now_is_current_and_counted_once(served: Served) -> None:
    for shift in (-1, 0, 1):
        await served.enqueue(Job(b"", run_after_ms=START_MS + shift))
    assert await served.count(JobState.PENDING) == 2
    assert await served.count(JobState.PENDING, future=True) == 1


BODIES = [b"plain", b"", b"\xff\x00\xfe", b"a\nb", "ümlaut".encode(), b"PLAIN"]


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("lai", [b"plain"]),
        ("^plain$", [b"plain"]),
        ("(?i)plain", [b"plain", b"PLAIN"]),
        ("^$", [b""]),
        (r"^...$", [b"\xff\x00\xfe"]),
        (r"\xff", [b"\xff\x00\xfe"]),
        (r"\x00", [b"\xff\x00\xfe"]),
        ("ü", ["ümlaut".encode()]),
        ("nowhere", []),
    ],
)
async def test_a_pattern_is_searched_in_the_bytes_of_the_body(
    served: Served, pattern: str, matching: list[bytes]
) -> None:
    for body in BODIES:
        await served.enqueue(Job(body))
    wanted = served.filter(JobState.PENDING, priority=1, body_regex=pattern)
    found = await served.api.lookup([info.descriptor for info in await all_pages(served, wanted, 2)], include_body=True)
    assert sorted(info.body or b"" for info in found.values()) == sorted(matching)
    assert await served.api.count(wanted) == len(matching)
    assert await served.api.delete_jobs(wanted, limit=1_000) == len(matching)
    assert await served.count(JobState.PENDING) == len(BODIES) - len(matching)


@pytest.mark.parametrize("pattern", ["(", "a**b", "(?=x)", r"\1", "x{99999}"])
async def test_a_pattern_that_is_none_is_refused(served: Served, pattern: str) -> None:
    wanted = served.filter(JobState.PENDING, priority=1, body_regex=pattern)
    for call in (served.api.count, served.api.scan, served.api.delete_jobs):
        with pytest.raises(RequestInvalid):
            await call(wanted)


async def test_a_search_goes_through_more_jobs_than_one_page_holds(tight: Served) -> None:
    for number in range(30):
        await tight.enqueue(Job(b"%d" % number), Job(b"other"))
    wanted = tight.filter(JobState.PENDING, priority=1, body_regex="^[0-9]+$")
    assert await tight.api.count(wanted) == 30
    assert len(await all_pages(tight, wanted, 7)) == 30
    assert await tight.api.delete_jobs(wanted, limit=20) == 20
    assert await tight.api.delete_jobs(wanted, limit=20) == 10
    assert await tight.count(JobState.PENDING) == 30


async def test_a_lookup_shows_bodies_only_where_asked_for(served: Served) -> None:
    (descriptor,) = await served.enqueue(Job(b"data"))
    assert (await served.api.lookup([descriptor]))[descriptor].body is None
    assert (await served.api.lookup([descriptor], include_body=True))[descriptor].body == b"data"
    assert await served.api.lookup([]) == {}


async def test_a_queue_of_the_same_name_made_anew_is_empty(served: Served) -> None:
    descriptors = await served.spread()
    await served.api.delete_queue(QUEUE, served.password)
    await served.api.create_queue(QUEUE)
    assert await served.count(JobState.PENDING) == 0
    assert await served.dequeue(10) == []
    assert await served.api.lookup(descriptors) == {}
