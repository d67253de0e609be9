"""What a heartbeat changes, and what it leaves."""

from __future__ import annotations

import pytest

from pinlater.backends.base import CheckpointRequest
from pinlater.model import MAX_TIME_MS, Job, JobState
from tests.conformance.subject import Subject, key_of


async def test_a_checkpoint_replaces_the_body(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    assert await subject.checkpoint(descriptor, new_body=b"\x00\xff")
    assert (await subject.info(descriptor)).body == b"\x00\xff"


async def test_a_checkpoint_can_empty_the_body(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    assert await subject.checkpoint(descriptor, new_body=b"")
    assert (await subject.info(descriptor)).body == b""


async def test_a_checkpoint_sets_both_the_attempts_allowed_and_those_remaining(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS, attempts_allowed=3)
    assert await subject.checkpoint(descriptor, attempts_allowed=7)
    info = await subject.info(descriptor)
    assert (info.attempts_allowed, info.attempts_remaining) == (7, 7)


async def test_a_checkpoint_puts_status_in_front(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS, custom_status="old")
    assert await subject.checkpoint(descriptor, prepend_status="new ")
    assert (await subject.info(descriptor)).custom_status == "new old"


@pytest.mark.parametrize("run_after_ms", [0, 5, MAX_TIME_MS])
async def test_a_checkpoint_sets_run_after(subject: Subject, run_after_ms: int) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    assert await subject.checkpoint(descriptor, run_after_ms=run_after_ms)
    assert (await subject.info(descriptor)).run_after_ms == run_after_ms


async def test_a_checkpoint_without_a_time_means_now(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS, run_after_ms=5)
    subject.tick(10)
    assert await subject.checkpoint(descriptor)
    assert (await subject.info(descriptor)).run_after_ms == subject.now_ms


async def test_heartbeats_that_name_the_run_after_of_their_jobs_leave_it(subject: Subject) -> None:
    """As workers send them, many in one call. The claim's time-out starts again from now."""
    planned = [subject.now_ms - 5_000, subject.now_ms - 3_000, subject.now_ms - 3_000]
    descriptors = await subject.enqueue(*(Job(b"", run_after_ms=time_ms) for time_ms in planned))
    await subject.claim(3)
    subject.tick(1_000)
    beats = [
        CheckpointRequest(*key_of(descriptor), "worker", run_after_ms=time_ms)
        for descriptor, time_ms in zip(descriptors, planned, strict=True)
    ]
    assert await subject.shard.checkpoint(subject.queue, beats, subject.now_ms) == [True] * 3
    found = [await subject.info(descriptor) for descriptor in descriptors]
    assert [info.run_after_ms for info in found] == planned
    assert [info.updated_at_ms for info in found] == [subject.now_ms] * 3
    expiries = [info.claim_expires_at_ms or 0 for info in found]
    assert min(expiries) == max(expiries) > subject.now_ms


async def test_a_heartbeat_that_names_an_earlier_run_after_sets_it_back(subject: Subject) -> None:
    """Within one call, which begins with what the store knew before."""
    descriptor = await subject.job_in(JobState.IN_PROGRESS, run_after_ms=5)
    beats = [
        CheckpointRequest(*key_of(descriptor), "worker", run_after_ms=7),
        CheckpointRequest(*key_of(descriptor), "worker", run_after_ms=5),
    ]
    assert await subject.shard.checkpoint(subject.queue, beats, subject.now_ms) == [True, True]
    assert (await subject.info(descriptor)).run_after_ms == 5


async def test_checkpoints_of_one_call_work_in_order(subject: Subject) -> None:
    descriptor, other = await subject.enqueue(Job(b"1"), Job(b"2"))
    await subject.claim(2)
    beats = [
        CheckpointRequest(*key_of(descriptor), "worker", prepend_status="a"),
        CheckpointRequest(*key_of(descriptor), "nobody", prepend_status="x"),
        CheckpointRequest(*key_of(descriptor), "worker", prepend_status="b", move_to_pending=True),
        CheckpointRequest(*key_of(descriptor), "worker", prepend_status="c"),
        CheckpointRequest(*key_of(other), "worker", prepend_status="d"),
    ]
    matched = await subject.shard.checkpoint(subject.queue, beats, subject.now_ms)
    assert matched == [True, False, True, False, True]
    assert (await subject.info(descriptor)).custom_status == "ba"
    assert (await subject.info(other)).custom_status == "d"


async def test_a_job_moved_to_pending_is_handed_out_with_what_the_checkpoint_left(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    assert await subject.checkpoint(descriptor, move_to_pending=True, new_body=b"half done", attempts_allowed=4)
    job = await subject.claimed()
    assert (job.body, job.attempts_allowed, job.attempts_remaining) == (b"half done", 4, 4)


async def test_a_job_moved_to_pending_for_later_is_handed_out_only_then(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    assert await subject.checkpoint(descriptor, move_to_pending=True, run_after_ms=subject.now_ms + 10)
    subject.tick(9)
    assert await subject.claim() == []
    subject.tick(1)
    assert (await subject.claimed()).descriptor == descriptor


async def test_a_claim_with_a_checkpoint_for_later_stays_claimed(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    assert await subject.checkpoint(descriptor, run_after_ms=1)
    assert await subject.claim() == []
    assert await subject.count(JobState.IN_PROGRESS) == 1
