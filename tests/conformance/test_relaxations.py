"""What a store holds to where it need not be as exact as the others (see Binding)."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest

from pinlater.backends.base import STORED_STATES, AckRequest, CheckpointRequest, ScanRequest
from pinlater.backends.extended import RescheduleRequest
from pinlater.errors import BodyTooLarge, GroupsNotSupported, TagsNotSupported
from pinlater.model import Ack, Checkpoint, DequeuedJob, DequeueRequest, Job, JobState
from tests.conformance.bindings import BINDINGS, MOST_BODY_BYTES, Binding
from tests.conformance.crowd import Crowd, at_once
from tests.conformance.extended_subject import offer
from tests.conformance.served import QUEUE, Served
from tests.conformance.subject import START_MS, Subject, key_of

SMALLER_BODIES = [each for each in BINDINGS if each.most_body_bytes < MOST_BODY_BYTES]
WITHOUT_TAGS = [each for each in BINDINGS if not each.has_tags]
WITHOUT_GROUPS = [each for each in BINDINGS if not each.has_groups]
SEVERAL_SEQUENCES = [each for each in BINDINGS if not each.one_sequence]


@pytest.mark.parametrize("binding", [each.param() for each in SMALLER_BODIES], indirect=True)
async def test_a_body_beyond_what_the_store_takes_is_refused_and_nothing_is_changed(
    subject: Subject, depth: str, most_body_bytes: int
) -> None:
    """A tier takes it."""
    large = bytes(most_body_bytes + 1)
    told = rf"{most_body_bytes + 1}.*{most_body_bytes}.*tier"
    waiting = await subject.job(b"waiting", priority=2)
    running = await subject.job_in(JobState.IN_PROGRESS)
    before = [await subject.info(each) for each in (waiting, running)]
    changes = [
        subject.enqueue(Job(b"small"), Job(large)),
        offer(subject, large, dedupe_key="a"),
        subject.shard.checkpoint(
            subject.queue, [CheckpointRequest(*key_of(running), "worker", new_body=large)], subject.now_ms
        ),
        subject.shard.reschedule(subject.queue, [RescheduleRequest(*key_of(waiting), body=large)], subject.now_ms),
        subject.ack(AckRequest(*key_of(running), True, result=large)),
    ]
    for change in changes:
        with pytest.raises(BodyTooLarge, match=told):
            await change
    assert [await subject.info(each) for each in (waiting, running)] == before
    assert await subject.count(JobState.PENDING) == 1


async def in_progress(served: Served, number: int) -> list[DequeuedJob]:
    """Of one shard, so that one call of the store has them all."""
    while True:
        await served.enqueue(*[Job(b"")] * number)
        jobs = await served.dequeue(10 * number)
        shards = {job.descriptor.split(":")[1] for job in jobs}
        if len(shards) == 1 and len(jobs) == number:
            return jobs
        await served.api.ack(QUEUE, [Ack(job.descriptor) for job in jobs], [])


@pytest.mark.parametrize("binding", [each.param() for each in SMALLER_BODIES], indirect=True)
@pytest.mark.parametrize("rides", [False, True])
async def test_a_result_that_the_store_does_not_take_keeps_no_other_ack_back(
    served: Served, binding: Binding, rides: bool
) -> None:
    await served.change(max_result="1MiB")
    jobs = await in_progress(served, 5)
    acks = [Ack(job.descriptor, result=b"small") for job in jobs]
    acks[2] = Ack(jobs[2].descriptor, result=bytes(binding.most_body_bytes + 1), permanent=True)
    if rides:
        await served.api.dequeue(DequeueRequest(QUEUE, 1, succeeded=acks), context=served.context)
    else:
        await served.api.ack(QUEUE, acks, [])
    infos = [await served.info(job.descriptor) for job in jobs]
    assert [info.state for info in infos] == [
        JobState.FAILED if place == 2 else JobState.SUCCEEDED for place in range(5)
    ]
    assert "RESULT_TOO_LARGE" in infos[2].custom_status


@pytest.mark.parametrize("binding", [each.param() for each in SMALLER_BODIES], indirect=True)
async def test_a_body_that_the_store_does_not_take_keeps_no_other_checkpoint_back(
    served: Served, binding: Binding
) -> None:
    jobs = await in_progress(served, 5)
    changes = [Checkpoint(job.descriptor, new_body=b"new") for job in jobs]
    changes[2] = Checkpoint(jobs[2].descriptor, new_body=bytes(binding.most_body_bytes + 1))
    with pytest.raises(BodyTooLarge, match="1 of 5 checkpoints were not carried out, all others were"):
        await served.api.checkpoint(QUEUE, changes, context=served.context)
    bodies = [(await served.info(job.descriptor)).body for job in jobs]
    assert bodies == [b"" if place == 2 else b"new" for place in range(5)]


@pytest.mark.parametrize("binding", [each.param() for each in SEVERAL_SEQUENCES], indirect=True)
async def test_ids_of_one_server_ascend_and_those_of_several_are_close_to_the_time(
    crowd: Crowd, binding: Binding
) -> None:
    answers: list[list[list[str]]] = [[] for _ in crowd]
    for _ in range(5):
        found = await at_once(*[partial(subject.enqueue, *[Job(b"")] * 10) for subject in crowd])
        for place, descriptors in enumerate(found):
            answers[place].append(descriptors)
    of_server = [[key_of(each).id for answer in found for each in answer] for found in answers]
    assert all(ids == sorted(set(ids)) for ids in of_server)
    ids = [each for found in of_server for each in found]
    assert len(set(ids)) == len(ids)
    assert min(ids) >= START_MS * 1_000
    assert max(ids) <= (START_MS + 2 * binding.clock_ms) * 1_000


async def test_the_clock_of_a_store_is_as_exact_as_it_says(subject: Subject, binding: Binding) -> None:
    if not subject.shard.has_own_clock:
        return
    before_ms = time.time_ns() // 1_000_000
    now_ms = (await subject.shard.ping()).now_ms
    assert before_ms - binding.clock_ms <= now_ms <= time.time_ns() // 1_000_000 + binding.clock_ms


async def test_statistics_taken_while_jobs_come_and_go_are_about_right(crowd: Crowd) -> None:
    """Each page is of its own moment."""
    await crowd[0].enqueue(*[Job(b"")] * 40)
    claims = [partial(subject.claim, 5) for subject in crowd]
    looks = [partial(subject.shard.stats, subject.queue, (1,), subject.now_ms, None, 1_000) for subject in crowd]
    answers = await at_once(*claims, *looks)
    for page in answers[len(claims) :]:
        assert 0 < sum(page.levels[1][:3]) <= 80
    await asyncio.sleep(0)
    page = await crowd[0].shard.stats(crowd[0].queue, (1,), crowd[0].now_ms, None, 1_000)
    assert sum(page.levels[1][:3]) == 40


@pytest.mark.parametrize("binding", [each.param() for each in WITHOUT_TAGS], indirect=True)
async def test_a_store_without_tags_refuses_them_and_finds_none(subject: Subject) -> None:
    with pytest.raises(TagsNotSupported, match="shard '1' keeps no tags; enqueue the job without tags") as raised:
        await offer(subject, tags=("t",))
    assert raised.value.reason == "TAGS_NOT_SUPPORTED"
    assert await subject.count(JobState.PENDING) == 0
    await offer(subject)
    request = ScanRequest(STORED_STATES[JobState.PENDING], (1,), False, 10, tag="t")
    assert await subject.shard.scan(subject.queue, request, subject.now_ms) == []


@pytest.mark.parametrize("binding", [each.param() for each in WITHOUT_GROUPS], indirect=True)
async def test_a_store_without_groups_refuses_them(subject: Subject) -> None:
    with pytest.raises(GroupsNotSupported, match="shard '1' has no groups; leave the group out") as raised:
        await offer(subject, group="acme")
    assert raised.value.reason == "GROUPS_NOT_SUPPORTED"
    assert await subject.count(JobState.PENDING) == 0


async def test_a_store_says_whether_it_has_groups(subject: Subject, binding: Binding) -> None:
    assert subject.shard.has_groups is binding.has_groups


@pytest.mark.parametrize("binding", [each.param() for each in WITHOUT_GROUPS], indirect=True)
async def test_a_queue_on_a_store_without_groups_gives_none_to_flows(served: Served) -> None:
    setting = {"flows_by_group": "true"}
    with pytest.raises(GroupsNotSupported, match="has no groups; leave the group out"):
        await served.api.update_queue(QUEUE, served.password, set=setting, context=served.context)
    (view,) = await served.api.get_queues([QUEUE])
    assert view.settings["flows_by_group"].value == "false"
