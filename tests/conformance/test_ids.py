"""The names of jobs (decision 15)."""

from __future__ import annotations

from pinlater.model import Job, parse_descriptor
from tests.conformance.extended_subject import store
from tests.conformance.subject import START_MS, Subject, key_of
from tests.queues import make_queue


async def test_a_descriptor_names_queue_shard_priority_and_a_number_of_sixteen_digits(subject: Subject) -> None:
    descriptor = await subject.job(priority=3)
    ref = parse_descriptor(descriptor)
    assert ref is not None
    assert (ref.queue, ref.shard, ref.priority) == (subject.queue, "1", 3)
    assert 10**15 <= ref.id < 2**53


async def test_ids_ascend_in_the_order_given_and_from_call_to_call(subject: Subject) -> None:
    descriptors = [descriptor for _ in range(5) for descriptor in await subject.enqueue(*[Job(b"")] * 20)]
    ids = [key_of(each).id for each in descriptors]
    assert ids == sorted(set(ids))


async def test_each_descriptor_names_its_own_job(subject: Subject) -> None:
    bodies = [b"%d" % number for number in range(20)]
    descriptors = await subject.enqueue(*[Job(body) for body in bodies])
    assert [(await subject.info(each)).body for each in descriptors] == bodies


async def test_the_text_order_of_ids_is_their_age(subject: Subject) -> None:
    descriptors = []
    for _ in range(5):
        descriptors += await subject.enqueue(*[Job(b"")] * 30)
        subject.tick(1)
    assert descriptors == sorted(descriptors)


async def test_ids_never_fall_behind_the_time_in_microseconds(subject: Subject) -> None:
    for step in (0, 1, 1_000, 10**9):
        subject.tick(step)
        assert key_of(await subject.job()).id >= subject.now_ms * 1_000


async def test_ids_go_on_ascending_when_the_clock_goes_back(subject: Subject) -> None:
    before = key_of(await subject.job()).id
    subject.now_ms = START_MS - 60_000
    after = key_of(await subject.job()).id
    assert after > before


async def test_ids_of_extended_jobs_follow_the_time_too_and_go_on_when_the_clock_goes_back(subject: Subject) -> None:
    subject.tick(10**9)
    before = key_of(await store(subject)).id
    assert before >= subject.now_ms * 1_000
    subject.now_ms = START_MS
    assert key_of(await store(subject)).id > before


async def test_all_queues_of_a_shard_share_one_sequence(subject: Subject) -> None:
    other = Subject(subject.shard, "other")
    await make_queue(subject.shard, "other", START_MS)
    ids = [key_of(await each.job()).id for each in (subject, other, subject, other)]
    assert ids == sorted(set(ids))


async def test_the_id_of_a_job_that_is_gone_is_not_used_again(subject: Subject) -> None:
    descriptor = await subject.job()
    await subject.cancel(descriptor)
    assert key_of(await subject.job()).id > key_of(descriptor).id
