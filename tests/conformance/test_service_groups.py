"""Groups of jobs through the service, over two shards."""

from __future__ import annotations

from collections import Counter

import pytest

from pinlater.errors import RequestInvalid
from pinlater.model import ExtendedJob, Job, JobFilter, JobState
from pinlater.model.job_selection import JobPhase, JobSelection
from tests.conformance.bindings import BINDINGS
from tests.conformance.served import QUEUE, Served
from tests.conformance.test_service_searches import found

pytestmark = pytest.mark.parametrize("binding", [each.param() for each in BINDINGS if each.has_groups], indirect=True)


async def stored(served: Served, group: str, count: int) -> None:
    """One call each, so that they are spread over the shards."""
    for number in range(count):
        await served.enqueue(ExtendedJob(f"{group}{number}".encode(), group=group))


async def test_groups_have_fair_shares_over_two_shards(served: Served) -> None:
    await stored(served, "flood", 60)
    await stored(served, "calm", 20)
    taken = [job for _ in range(20) for job in await served.dequeue(1)]
    assert Counter(bytes(job.body)[:1] for job in taken)[b"c"] >= 8


async def test_jobs_in_line_are_ready_on_every_face(served: Served) -> None:
    await stored(served, "a", 3)
    await served.enqueue(Job(b"plain"))
    assert await served.api.count(JobFilter(QUEUE, JobState.PENDING)) == 4
    ready = await found(served, JobSelection(QUEUE, [JobPhase.READY]))
    assert Counter(info.group for info in ready) == {"a": 3, None: 1}
    assert await found(served, JobSelection(QUEUE, [JobPhase.SCHEDULED, JobPhase.WAITING])) == []


@pytest.mark.parametrize(
    ("group", "match"),
    [
        ("ü" * 128, "1 to 255 bytes of UTF-8"),
        ("a\0b", "a text without control characters"),
        ("a\n", "a text without control characters"),
        ("\ud800", "1 to 255 bytes of UTF-8"),
    ],
)
async def test_a_group_that_cannot_be_is_refused_and_nothing_is_stored(served: Served, group: str, match: str) -> None:
    with pytest.raises(RequestInvalid, match=match):
        await served.enqueue(Job(b"fine"), ExtendedJob(b"", group=group))
    assert await found(served, JobSelection(QUEUE)) == []
