"""What an operator sets for a queue, all the way to the store and back to a worker."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.errors import BodyTooLarge, DequeueRateLimited, EnqueueRejected, RequestInvalid
from pinlater.model import Ack, DequeueRequest, Job, JobState
from pinlater.queues.quota_balancer import QuotaBalancer
from tests.conformance.served import QUEUE, Served
from tests.queues import record_of


async def test_a_change_is_an_entry_on_every_shard_under_one_version(served: Served) -> None:
    await served.change(succeeded_ttl="5m", max_in_progress="3")
    first, second = [await record_of(shard, QUEUE) for shard in served.shards]
    assert first is not None
    assert first == second
    (view,) = await served.api.get_queues([QUEUE])
    assert view.version == first.version
    assert view.settings["succeeded_ttl"] == ("5m", "queue")


async def test_another_server_goes_by_a_change_from_its_next_poll(servers: tuple[Served, Served]) -> None:
    served, other = servers
    await served.change(paused="true")
    await other.api.queues.poll()
    with pytest.raises(DequeueRateLimited):
        await other.dequeue(1)


async def test_a_paused_queue_hands_out_nothing_and_all_else_goes_on(served: Served) -> None:
    await served.enqueue(Job(b"1", attempts_allowed=5), Job(b"2"))
    (running,) = await served.dequeue(1)
    await served.change(paused="true", paused_why="a broken mail server")
    with pytest.raises(DequeueRateLimited) as refused:
        await served.api.dequeue(DequeueRequest(QUEUE, 1, failed=[Ack(running.descriptor)]), context=served.context)
    assert (refused.value.reason, refused.value.acks_applied) == ("QUEUE_PAUSED", True)
    assert (await served.info(running.descriptor)).attempts_remaining == 4
    await served.enqueue(Job(b"3"))
    assert await served.count(JobState.PENDING) == 3
    await served.change(paused="false")
    assert len(await served.dequeue(9)) == 3


async def test_a_draining_queue_takes_no_new_jobs_and_hands_out_those_it_has(served: Served) -> None:
    await served.enqueue(Job(b""))
    await served.change(draining="true")
    with pytest.raises(EnqueueRejected):
        await served.enqueue(Job(b""))
    (job,) = await served.dequeue(9)
    await served.api.ack(QUEUE, [Ack(job.descriptor)], [])
    assert await served.count(JobState.SUCCEEDED) == 1
    assert await served.count(JobState.PENDING) == 0


async def test_what_a_queue_does_not_take_is_refused_whole(served: Served) -> None:
    await served.change(max_attempts="3", max_body="10B")
    with pytest.raises(RequestInvalid):
        await served.enqueue(Job(b""), Job(b"", attempts_allowed=4))
    with pytest.raises(BodyTooLarge):
        await served.enqueue(Job(b""), Job(bytes(11)))
    assert await served.count(JobState.PENDING) == 0
    assert len(await served.enqueue(Job(bytes(10), attempts_allowed=3))) == 1


async def test_a_claim_lasts_as_long_as_its_queue_says(served: Served) -> None:
    await served.change(claim_timeout="2s")
    await served.enqueue(Job(b""))
    (job,) = await served.dequeue(1)
    assert job.claim_expires_at_ms == served.clock.now_ms() + 2_000
    served.clock.tick(2_001)
    await served.maintain()
    assert await served.count(JobState.PENDING) == 1


async def test_the_last_ack_removes_what_is_not_kept_and_other_queues_keep_theirs(served: Served) -> None:
    await served.api.create_queue("other")
    await served.change(succeeded_ttl="0s", failed_ttl="0s")
    for queue in (QUEUE, "other"):
        await served.api.enqueue(queue, [Job(b"1"), Job(b"2")])
        good, bad = await served.api.dequeue(DequeueRequest(queue, 2))
        await served.api.ack(queue, [Ack(good.descriptor)], [Ack(bad.descriptor, permanent=True)])
    for state in (JobState.SUCCEEDED, JobState.FAILED):
        assert await served.count(state) == 0
        assert await served.api.count(served.filter(state, queue="other")) == 1


async def test_a_lost_worker_counts_against_the_crash_budget_of_the_queue(served: Served) -> None:
    await served.change(crash_budget="2")
    (descriptor,) = await served.enqueue(Job(b"", attempts_allowed=9))
    for state in (JobState.PENDING, JobState.FAILED):
        await served.dequeue(1)
        served.clock.tick(300_001)
        await served.maintain()
        assert (await served.info(descriptor)).state is state


async def test_a_job_that_failed_for_good_goes_to_the_dead_letter_queue_on_its_shard(served: Served) -> None:
    await served.api.create_queue("dead")
    await served.change(dead_letter_queue="dead", failed_ttl="0s")
    descriptors = await served.spread()
    jobs = await served.dequeue(len(descriptors))
    await served.api.ack(QUEUE, [], [Ack(job.descriptor, permanent=True) for job in jobs])
    await served.maintain()
    originals = await served.api.lookup(descriptors)
    letters = await served.api.dequeue(DequeueRequest("dead", 100))
    assert {info.moved_to for info in originals.values()} == {letter.descriptor for letter in letters}
    for descriptor, info in originals.items():
        assert info.moved_to is not None
        assert descriptor.split(":")[1] == info.moved_to.split(":")[1]
    served.clock.tick(1)
    await served.maintain()
    assert await served.api.lookup(descriptors) == {}


@pytest.mark.parametrize("most", [1, 5])
async def test_never_more_jobs_are_in_progress_than_the_queue_allows_over_all_shards(served: Served, most: int) -> None:
    """One is fewer than there are shards, and still both of them are emptied."""
    await served.change(max_in_progress=str(most))
    shares = QuotaBalancer(served.members, served.api.queues, served.clock)
    left = set(await served.spread())

    async def work() -> None:
        for job in await served.dequeue(3):
            assert await served.count(JobState.IN_PROGRESS) <= most
            await served.api.ack(QUEUE, [Ack(job.descriptor)], [])
            left.discard(job.descriptor)

    for _ in range(200):
        await shares.balance(QUEUE)
        await asyncio.gather(*[work() for _ in range(3)])
        served.clock.tick(1_000)
        if not left:
            break
    assert await served.count(JobState.SUCCEEDED) == 24


async def test_a_rate_is_charged_for_jobs_that_are_handed_out_and_fills_by_the_clock(served: Served) -> None:
    await served.change(max_jobs_per_second="10/s")
    await served.spread()
    assert len(await served.dequeue(20)) == 1
    with pytest.raises(DequeueRateLimited) as refused:
        await served.dequeue(20)
    assert (refused.value.reason, refused.value.retry_after_ms) == ("RATE_LIMITED", 100)
    served.clock.tick(300)
    assert len(await served.dequeue(2)) == 2
    assert len(await served.dequeue(20)) == 1
    await served.change(max_jobs_per_second="none")
    assert len(await served.dequeue(100)) == 20
