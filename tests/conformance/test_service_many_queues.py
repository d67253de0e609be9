"""A dequeue from many queues as a worker sees it, on every store (decision 27)."""

from __future__ import annotations

import asyncio

from pinlater.errors import QueueNotFound
from pinlater.model import (
    Ack,
    AckOutcome,
    DequeuedFromQueues,
    DequeueFromQueuesRequest,
    DequeueRequest,
    Job,
    JobState,
    QueueAcks,
    QueueShare,
    RequestContext,
)
from tests.conformance.served import CLAIM_TIMEOUT_MS, QUEUE, Served

WITHIN_S = 100.0
NAMES = (QUEUE, "other", "third")
SHARES = [QueueShare(name) for name in NAMES]


async def made(served: Served) -> None:
    for name in NAMES[1:]:
        await served.api.create_queue(name)


async def asked(served: Served, limit: int = 10, wait_ms: int = 0, **fields: object) -> DequeuedFromQueues:
    request = DequeueFromQueuesRequest(SHARES, limit, wait_ms=wait_ms, **fields)  # type: ignore[arg-type]
    return await served.api.dequeue_from_queues(request, context=RequestContext("me"))


async def waiting(served: Served) -> asyncio.Task[DequeuedFromQueues]:
    task = asyncio.create_task(asked(served, 1, 60_000))
    async with asyncio.timeout(WITHIN_S):
        while not served.api.waiting:
            await asyncio.sleep(0.001)
    return task


async def test_each_queue_hands_out_as_it_does_alone(served: Served) -> None:
    await made(served)
    now_ms = served.clock.now_ms()
    for name in NAMES:
        for body, priority, run_after_ms in ((b"3", 2, None), (b"1", 1, None), (b"never", 1, now_ms + 60_000)):
            await served.api.enqueue(name, [Job(body, priority, run_after_ms)])
    jobs = await asked(served)
    for name in NAMES:
        assert [job.body for job in jobs if job.descriptor.startswith(name + ":")] == [b"1", b"3"]
    assert {job.claim_expires_at_ms - now_ms for job in jobs} == {CLAIM_TIMEOUT_MS}
    assert len({job.claim_descriptor for job in jobs}) >= len(NAMES)  # of each queue one at least
    assert all(job.claim_descriptor.endswith(":me") for job in jobs)
    assert await asked(served) == []


async def test_one_that_waits_gets_what_comes_to_any_queue_in_this_process_or_by_time(served: Served) -> None:
    await made(served)
    for name in NAMES:
        task = await waiting(served)
        await served.api.enqueue(name, [Job(name.encode())])
        assert [job.body for job in await asyncio.wait_for(task, WITHIN_S)] == [name.encode()]
    task = await waiting(served)
    await served.api.enqueue("third", [Job(b"later", run_after_ms=served.clock.now_ms() + 500)])
    await asyncio.sleep(0.05)
    assert not task.done()
    served.clock.tick(500)
    await served.api.enqueue("other", [Job(b"never", run_after_ms=served.clock.now_ms() + 60_000)])  # it wakes nobody
    assert [job.body for job in await asyncio.wait_for(task, WITHIN_S)] == [b"later"]


async def test_one_that_waits_gets_what_another_server_brings(servers: tuple[Served, Served]) -> None:
    here, there = servers
    await made(here)
    await there.api.queues.refresh()
    for name in NAMES:
        task = await waiting(here)
        await there.api.enqueue(name, [Job(name.encode())])
        assert [job.body for job in await asyncio.wait_for(task, WITHIN_S)] == [name.encode()]


async def test_acks_of_several_queues_go_before_and_may_make_jobs_eligible(served: Served) -> None:
    await made(served)
    for name in NAMES:
        await served.api.enqueue(name, [Job(b"", attempts_allowed=5)])
    first = await asked(served)
    acks = [QueueAcks(job.descriptor.partition(":")[0], failed=[Ack(job.descriptor)]) for job in first]
    again = await asked(served, acks=acks)
    assert {(job.descriptor, job.attempts_remaining) for job in again} == {(job.descriptor, 4) for job in first}
    assert not again.ack_outcomes
    done = [QueueAcks(job.descriptor.partition(":")[0], [Ack(job.descriptor), Ack(job.descriptor)]) for job in again]
    told = await asked(served, acks=done)
    assert told == []
    assert [list(outcomes) for outcomes in told.ack_outcomes] == [[AckOutcome.SUCCEEDED, AckOutcome.IGNORED]] * 3
    assert {(await served.info(job.descriptor)).state for job in first} == {JobState.SUCCEEDED}


async def test_a_queue_that_is_not_there_is_named(served: Served) -> None:
    await served.api.enqueue(QUEUE, [Job(b"x")])
    jobs = await asked(served)
    assert len(jobs) == 1
    assert {name: type(error) for name, error in jobs.queue_errors.items()} == {
        "other": QueueNotFound,
        "third": QueueNotFound,
    }


async def test_an_answer_of_many_queues_stays_within_the_frame_and_no_job_is_lost(tight: Served) -> None:
    await made(tight)
    for name in NAMES:
        await tight.api.enqueue(name, [Job(bytes(400)) for _ in range(4)])
    got = 0
    while jobs := await asked(tight):
        assert 1 <= len(jobs) <= 5
        got += len(jobs)
    assert got == 12


async def test_a_prefetch_is_brought_at_once_or_not_at_all(served: Served) -> None:
    await served.api.enqueue(QUEUE, [Job(b"x")] * 8)
    assert len(await served.api.dequeue(DequeueRequest(QUEUE, 1, prefetch=4))) == 5
    request = DequeueFromQueuesRequest([QueueShare(QUEUE, prefetch=10)], 1)
    assert len(await served.api.dequeue_from_queues(request)) == 3
    assert await served.api.dequeue_from_queues(request) == []
