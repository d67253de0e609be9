"""A dequeue as a worker sees it: riding acks, dry runs, claims, answers within the frame (decisions 1, 9, 13)."""

from __future__ import annotations

import pytest

from pinlater.errors import QueueNotFound
from pinlater.model import Ack, Checkpoint, DequeueRequest, Job, JobState, RequestContext
from tests.conformance.served import CLAIM_TIMEOUT_MS, MAX_CLAIM_TIMEOUT_MS, QUEUE, SUCCEEDED_TTL_MS, Served


async def test_riding_acks_are_carried_out_first(served: Served) -> None:
    (descriptor,) = await served.enqueue(Job(b"", attempts_allowed=5))
    await served.dequeue(1)
    (again,) = await served.api.dequeue(DequeueRequest(QUEUE, 1, failed=[Ack(descriptor, append_status="again")]))
    assert (again.descriptor, again.attempts_remaining) == (descriptor, 4)
    assert (await served.info(descriptor)).custom_status == "again"


async def test_riding_acks_count_for_the_queue_they_name(served: Served) -> None:
    await served.api.create_queue("other")
    (descriptor,) = await served.api.enqueue("other", [Job(b"")])
    await served.api.dequeue(DequeueRequest("other", 1))
    await served.api.dequeue(DequeueRequest(QUEUE, 1, succeeded=[Ack(descriptor)], ack_queue="other"))
    assert (await served.info(descriptor)).state is JobState.SUCCEEDED


async def test_acks_that_ride_on_a_refused_dequeue_are_carried_out_and_the_error_says_so(served: Served) -> None:
    (descriptor,) = await served.enqueue(Job(b""))
    await served.dequeue(1)
    with pytest.raises(QueueNotFound) as refused:
        await served.api.dequeue(DequeueRequest("none", 1, succeeded=[Ack(descriptor)], ack_queue=QUEUE))
    assert refused.value.acks_applied is True
    assert (await served.info(descriptor)).state is JobState.SUCCEEDED


async def test_acks_that_ride_on_a_dry_run_are_carried_out(served: Served) -> None:
    (descriptor,) = await served.enqueue(Job(b""))
    await served.dequeue(1)
    request = DequeueRequest(QUEUE, 1, succeeded=[Ack(descriptor)], dry_run=True)
    assert await served.api.dequeue(request) == []
    assert (await served.info(descriptor)).state is JobState.SUCCEEDED


async def test_a_dry_run_hands_out_jobs_in_order_without_claiming_them(served: Served) -> None:
    await served.enqueue(Job(b"2", 2))
    await served.enqueue(Job(b"1", 1))
    jobs = await served.api.dequeue(DequeueRequest(QUEUE, 5, dry_run=True))
    assert [job.body for job in jobs] == [b"1", b"2"]
    assert {(job.claim_descriptor, job.claim_expires_at_ms) for job in jobs} == {("", 0)}
    assert await served.count(JobState.PENDING) == 2


async def test_a_dequeue_of_an_empty_queue_is_empty(served: Served) -> None:
    assert await served.dequeue(10) == []


@pytest.mark.parametrize("source", ["worker", "", "host:12:x", "wörker"])
async def test_a_claim_ends_with_the_callers_source_and_only_he_may_checkpoint(served: Served, source: str) -> None:
    (descriptor,) = await served.enqueue(Job(b""))
    caller = RequestContext(source)
    (job,) = await served.api.dequeue(DequeueRequest(QUEUE, 1), context=caller)
    assert job.claim_descriptor.endswith(":" + source)
    beat = Checkpoint(descriptor, prepend_status="beat")
    await served.api.checkpoint(QUEUE, [beat], context=RequestContext(source + "x"))
    assert (await served.info(descriptor)).custom_status == ""
    await served.api.checkpoint(QUEUE, [beat], context=caller)
    assert (await served.info(descriptor)).custom_status == "beat"


async def test_every_dequeue_has_a_claim_of_its_own(served: Served) -> None:
    await served.spread()
    claims = [{job.claim_descriptor for job in await served.dequeue(3)} for _ in range(4)]
    assert [len(each) for each in claims] == [1] * 4
    assert len(set().union(*claims)) == 4


async def test_claims_last_as_long_as_asked_within_the_bound(served: Served) -> None:
    async def lasts_ms(timeout_ms: int | None) -> int:
        await served.enqueue(Job(b""))
        (job,) = await served.api.dequeue(DequeueRequest(QUEUE, 1, claim_timeout_ms=timeout_ms))
        return job.claim_expires_at_ms - served.clock.now_ms()

    assert await lasts_ms(None) == CLAIM_TIMEOUT_MS
    assert await lasts_ms(1) == 1
    assert await lasts_ms(MAX_CLAIM_TIMEOUT_MS + 1) == MAX_CLAIM_TIMEOUT_MS


async def test_an_answer_stays_within_the_frame_and_the_rest_stays_pending(tight: Served) -> None:
    await tight.enqueue(*[Job(bytes(400)) for _ in range(10)])
    jobs = await tight.dequeue(10)
    assert 1 <= len(jobs) <= 5
    assert await tight.count(JobState.PENDING) == 10 - len(jobs)
    handed_out = len(jobs)
    while jobs := await tight.dequeue(10):
        handed_out += len(jobs)
    assert handed_out == 10


async def test_one_job_is_handed_out_however_tight_the_frame(tight: Served) -> None:
    await tight.enqueue(Job(bytes(tight.max_body_bytes)))
    assert [len(job.body) for job in await tight.dequeue(10)] == [tight.max_body_bytes]


async def test_a_claim_that_nobody_ends_is_handed_out_again(served: Served) -> None:
    (descriptor,) = await served.enqueue(Job(b""))
    await served.dequeue(1)
    served.clock.tick(CLAIM_TIMEOUT_MS)
    await served.maintain()
    assert await served.dequeue(1) == []
    served.clock.tick(1)
    await served.maintain()
    assert [job.descriptor for job in await served.dequeue(1)] == [descriptor]


async def test_ended_jobs_are_kept_for_their_time_to_live(served: Served) -> None:
    (descriptor,) = await served.enqueue(Job(b""))
    await served.dequeue(1)
    await served.api.ack(QUEUE, [Ack(descriptor)], [])
    served.clock.tick(SUCCEEDED_TTL_MS)
    await served.maintain()
    assert (await served.info(descriptor)).state is JobState.SUCCEEDED
    served.clock.tick(1)
    await served.maintain()
    assert await served.api.lookup([descriptor]) == {}


async def test_a_time_to_live_of_nothing_removes_ended_jobs_at_once(fleeting: Served) -> None:
    good, bad = await fleeting.enqueue(Job(b"good"), Job(b"bad"))
    await fleeting.dequeue(2)
    await fleeting.api.ack(QUEUE, [Ack(good)], [Ack(bad, permanent=True)])
    assert await fleeting.api.lookup([good, bad]) == {}
