"""Two shards behind one service: placement, strict priority, descriptors that find their shard (decisions 3, 8, 10)."""

from __future__ import annotations

from collections import Counter

import pytest

from pinlater.errors import RequestInvalid
from pinlater.model import Ack, CancelOutcome, Checkpoint, DequeueRequest, Job, JobState, parse_descriptor
from tests.conformance.served import QUEUE, Served


def shards_of(descriptors: list[str]) -> Counter[str]:
    refs = [parse_descriptor(descriptor) for descriptor in descriptors]
    return Counter(ref.shard for ref in refs if ref is not None)


async def test_all_jobs_of_a_request_go_to_one_shard(served: Served) -> None:
    for _ in range(10):
        assert len(shards_of(await served.enqueue(*[Job(b"")] * 5))) == 1


async def test_requests_are_spread_over_the_shards(served: Served) -> None:
    assert len(shards_of(await served.spread())) == 2


async def test_higher_priorities_come_first_over_all_shards(served: Served) -> None:
    for number in range(30):
        await served.enqueue(Job(b"", 1 + number % 3))
    handed_out = [await served.dequeue(1) for _ in range(30)]
    assert [job.priority for jobs in handed_out for job in jobs] == [1] * 10 + [2] * 10 + [3] * 10


async def test_a_batch_has_the_highest_priorities_of_all_shards(served: Served) -> None:
    for number in range(30):
        await served.enqueue(Job(b"", 1 + number % 3))
    assert Counter(job.priority for job in await served.dequeue(15)) == {1: 10, 2: 5}
    assert Counter(job.priority for job in await served.dequeue(15)) == {2: 5, 3: 10}


async def test_never_more_than_the_limit_is_claimed_over_all_shards(served: Served) -> None:
    await served.spread()
    assert len(await served.dequeue(7)) == 7
    assert await served.count(JobState.IN_PROGRESS) == 7


async def test_every_job_is_handed_out_once(served: Served) -> None:
    descriptors = await served.spread()
    found: list[str] = []
    while jobs := await served.dequeue(7):
        found += [job.descriptor for job in jobs]
    assert Counter(found) == Counter(descriptors)


async def test_one_call_reaches_the_jobs_of_both_shards(served: Served) -> None:
    descriptors = await served.spread()
    await served.dequeue(len(descriptors))
    await served.api.checkpoint(
        QUEUE, [Checkpoint(each, prepend_status="beat ") for each in descriptors], context=served.context
    )
    half = len(descriptors) // 2
    await served.api.ack(
        QUEUE,
        [Ack(each, append_status="good") for each in descriptors[:half]],
        [Ack(each, append_status="bad", permanent=True) for each in descriptors[half:]],
        context=served.context,
    )
    found = await served.api.lookup(descriptors)
    assert set(found) == set(descriptors)
    assert {found[each].custom_status for each in descriptors[:half]} == {"beat good"}
    assert {found[each].custom_status for each in descriptors[half:]} == {"beat bad"}
    assert {found[each].state for each in descriptors[half:]} == {JobState.FAILED}


async def test_a_cancel_answers_for_the_jobs_of_both_shards(served: Served) -> None:
    descriptors = await served.spread()
    running = {job.descriptor for job in await served.dequeue(3)}
    outcomes = await served.api.cancel(QUEUE, [*descriptors, "nonsense"])
    assert outcomes == {
        each: CancelOutcome.IN_PROGRESS if each in running else CancelOutcome.CANCELLED for each in descriptors
    } | {"nonsense": CancelOutcome.NOT_FOUND}


async def test_what_is_no_descriptor_of_a_known_job_is_left_out_or_refused_by_itself(served: Served) -> None:
    (descriptor,) = await served.enqueue(Job(b""))
    unknown = [
        descriptor.replace(":p1:", ":p01:"),
        descriptor.replace(":p1:", ":p2:"),
        descriptor.replace(f"{QUEUE}:s", f"{QUEUE}:s9"),
        descriptor.replace(QUEUE, "other"),
        descriptor + "0",
        descriptor[:-1],
        descriptor + "000",  # 19 digits, as 64 bits have
    ]
    malformed = ["", "nonsense", descriptor + "\n", descriptor.upper(), descriptor + "0000"]
    strange = [*unknown, *malformed]
    assert set(await served.api.lookup([*strange, descriptor])) == {descriptor}
    await served.dequeue(1)
    await served.api.ack(QUEUE, [Ack(each) for each in unknown], [Ack(each) for each in unknown])
    await served.api.checkpoint(QUEUE, [Checkpoint(each, move_to_pending=True) for each in unknown])
    for each in malformed:
        with pytest.raises(RequestInvalid, match="1 of 1 acks"):
            await served.api.ack(QUEUE, [Ack(each)], [])
        with pytest.raises(RequestInvalid, match="1 of 1 "):
            await served.api.checkpoint(QUEUE, [Checkpoint(each, move_to_pending=True)])
    assert (await served.info(descriptor)).state is JobState.IN_PROGRESS
    outcomes = await served.api.cancel(QUEUE, strange)
    assert set(outcomes.values()) == {CancelOutcome.NOT_FOUND}


async def test_an_ack_in_the_name_of_another_queue_changes_nothing(served: Served) -> None:
    await served.api.create_queue("other")
    (descriptor,) = await served.enqueue(Job(b""))
    await served.dequeue(1)
    await served.api.ack("other", [Ack(descriptor)], [])
    await served.api.checkpoint("other", [Checkpoint(descriptor, move_to_pending=True)], context=served.context)
    assert await served.api.cancel("other", [descriptor]) == {descriptor: CancelOutcome.NOT_FOUND}
    assert (await served.info(descriptor)).state is JobState.IN_PROGRESS


async def test_coverage_looks_at_a_share_of_the_shards_but_at_least_one(served: Served) -> None:
    descriptors = await served.spread()
    by_shard = shards_of(descriptors)
    for coverage in (0.0, 0.5):
        request = DequeueRequest(QUEUE, 1_000, dry_run=True, coverage=coverage)
        seen = shards_of([job.descriptor for job in await served.api.dequeue(request)])
        assert len(seen) == 1
        assert all(by_shard[shard] == number for shard, number in seen.items())
    request = DequeueRequest(QUEUE, 1_000, dry_run=True)
    assert len(await served.api.dequeue(request)) == len(descriptors)


async def test_counts_and_deletes_and_retries_work_over_all_shards(served: Served) -> None:
    descriptors = await served.spread()
    assert await served.count(JobState.PENDING) == len(descriptors)
    await served.dequeue(len(descriptors))
    await served.api.ack(QUEUE, [], [Ack(each, permanent=True) for each in descriptors])
    assert await served.count(JobState.FAILED) == len(descriptors)
    assert await served.api.retry_failed(QUEUE, limit=5) == 5
    assert await served.api.retry_failed(QUEUE, limit=1_000) == len(descriptors) - 5
    assert await served.api.delete_jobs(served.filter(JobState.PENDING, priority=1), limit=3) == 3
    rest = len(descriptors) - 3
    assert await served.api.delete_jobs(served.filter(JobState.PENDING, priority=1), limit=1_000) == rest
    assert await served.count(JobState.PENDING) == 0


async def test_queues_are_made_and_listed_and_deleted_on_all_shards(served: Served) -> None:
    await served.api.create_queue("other")
    await served.api.create_queue("other")
    assert await served.api.queue_names() == {QUEUE, "other"}
    for _ in range(10):
        await served.api.enqueue("other", [Job(b"")])
    await served.api.delete_queue("other", served.password)
    await served.api.delete_queue("other", served.password)
    assert await served.api.queue_names() == {QUEUE}
