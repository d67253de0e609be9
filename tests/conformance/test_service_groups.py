"""Groups of jobs through the service, over two shards."""

from __future__ import annotations

import secrets
from collections import Counter

import pytest

from pinlater.errors import ContinuationInvalid, RequestInvalid
from pinlater.model import (
    DequeueFromQueuesRequest,
    DequeueRequest,
    ExtendedJob,
    Job,
    JobAction,
    JobFilter,
    JobState,
    QueueShare,
    RequestContext,
)
from pinlater.model.job_selection import PENDING_PHASES, FoundJobsChange, JobPhase, JobSelection
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


async def test_a_queue_with_groups_gives_no_prefetch(served: Served) -> None:
    """Neither does that one of its shards which has no groups."""
    await stored(served, "a", 1)
    await served.enqueue(*[Job(b"plain") for _ in range(40)])
    for _ in range(3):
        assert len(await served.api.dequeue(DequeueRequest(QUEUE, 2, prefetch=8))) == 2
        request = DequeueFromQueuesRequest([QueueShare(QUEUE, prefetch=8)], 3)
        assert len(await served.api.dequeue_from_queues(request)) == 3


async def test_jobs_in_line_are_ready_on_every_face(served: Served) -> None:
    await stored(served, "a", 3)
    await served.enqueue(Job(b"plain"))
    assert await served.api.count(JobFilter(QUEUE, JobState.PENDING)) == 4
    ready = await found(served, JobSelection(QUEUE, [JobPhase.READY]))
    assert Counter(info.group for info in ready) == {"a": 3, None: 1}
    assert await found(served, JobSelection(QUEUE, [JobPhase.SCHEDULED, JobPhase.WAITING])) == []


async def test_the_jobs_of_a_group_are_found_by_its_exact_name_and_changed(served: Served) -> None:
    for group in ("acme", "acme2", "ACME"):
        await stored(served, group, 3)
    await served.enqueue(Job(b"plain"))
    assert {info.group for info in await found(served, JobSelection(QUEUE, group="acme"), limit=2)} == {"acme"}
    assert len(await found(served, JobSelection(QUEUE, group="acme"), limit=2)) == 3
    for none in ("", "acm", "acme*"):
        assert await found(served, JobSelection(QUEUE, group=none)) == []
    change = FoundJobsChange(JobSelection(QUEUE, group="acme"), JobAction.CANCEL, note="gone")
    who = RequestContext(f"operator-{secrets.token_hex(8)}")
    assert (await served.api.change_found_jobs(change, context=who)).changed == 3
    pending = await found(served, JobSelection(QUEUE, PENDING_PHASES))
    assert Counter(info.group for info in pending) == {"acme2": 3, "ACME": 3, None: 1}
    (entry,) = [each for each in await served.api.audit(limit=1_000) if each.who == who.source]
    assert entry.detail == "3 jobs, group acme: gone"


async def test_a_continuation_for_one_group_is_not_good_for_another(served: Served) -> None:
    await stored(served, "acme", 3)
    page = await served.api.search_jobs(JobSelection(QUEUE, group="acme"), limit=1)
    for other in (JobSelection(QUEUE, group="betty"), JobSelection(QUEUE), JobSelection(QUEUE, tags=("acme",))):
        with pytest.raises(ContinuationInvalid):
            await served.api.search_jobs(other, limit=1, continuation=page.continuation)


async def test_a_search_for_a_group_that_no_job_can_have_is_refused(served: Served) -> None:
    for group, match in (("x" * 256, "1 to 255 bytes"), ("a\n", "control characters")):
        with pytest.raises(RequestInvalid, match=match):
            await served.api.search_jobs(JobSelection(QUEUE, group=group))


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
