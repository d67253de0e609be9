"""Requests to stop, heartbeats, progress, expiry, results, other times, and the ends that somebody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pinlater.backends.base import AckRequest, EndRules, Shard
from pinlater.backends.extended import HeartbeatAnswer, HeartbeatRequest, RescheduleRequest
from pinlater.model import (
    AckOutcome,
    CancelOutcome,
    DequeuedJob,
    HeartbeatOutcome,
    JobProgress,
    JobState,
    RescheduleOutcome,
)
from tests.conformance.extended_subject import expire_jobs, stop, store, with_result
from tests.conformance.subject import START_MS, TIMEOUT_MS, Subject, claim_key_of, key_of
from tests.queues import drop_queue


async def beat(subject: Subject, job: DequeuedJob, **progress: object) -> HeartbeatAnswer:
    requests = [HeartbeatRequest(*claim_key_of(job), **progress)]  # type: ignore[arg-type]
    (answer,) = await subject.shard.heartbeat(subject.queue, requests, subject.now_ms)
    return answer


async def test_a_heartbeat_renews_the_claim_and_changes_nothing_else(subject: Subject) -> None:
    descriptor = await subject.job(run_after_ms=START_MS - 500)
    job = await subject.claimed()
    before = await subject.info(descriptor)
    subject.tick(1000)
    assert await beat(subject, job) == HeartbeatAnswer(HeartbeatOutcome.OK)
    after = await subject.info(descriptor)
    assert after.claim_expires_at_ms == subject.now_ms + TIMEOUT_MS
    assert after.updated_at_ms == subject.now_ms
    assert (after.run_after_ms, after.custom_status, after.progress) == (
        before.run_after_ms,
        before.custom_status,
        None,
    )


async def test_a_heartbeat_of_a_lost_claim(subject: Subject) -> None:
    await subject.job()
    job = await subject.claimed()
    await subject.requeue(job)
    assert (await beat(subject, job)).outcome is HeartbeatOutcome.LOST
    await subject.claimed()
    assert (await beat(subject, job, fraction=0.5)).outcome is HeartbeatOutcome.LOST
    assert await subject.shard.heartbeat("none", [HeartbeatRequest(*claim_key_of(job))], START_MS) == [
        HeartbeatAnswer(HeartbeatOutcome.LOST)
    ]


async def test_progress_in_words_alone_has_no_fraction(subject: Subject) -> None:
    descriptor = await subject.job()
    await beat(subject, await subject.claimed(), text="a word")
    assert (await subject.info(descriptor)).progress == JobProgress(None, "a word", START_MS)


async def test_progress_is_shown_and_what_is_not_told_stays(subject: Subject) -> None:
    descriptor = await subject.job()
    job = await subject.claimed()
    await beat(subject, job, fraction=0.25, text="a quarter")
    assert (await subject.info(descriptor)).progress == JobProgress(0.25, "a quarter", START_MS)
    subject.tick(1)
    await beat(subject, job, fraction=0.5)
    assert (await subject.info(descriptor)).progress == JobProgress(0.5, "a quarter", START_MS + 1)
    subject.tick(1)
    await beat(subject, job, text="two")
    assert (await subject.info(descriptor)).progress == JobProgress(0.5, "two", START_MS + 2)
    subject.tick(1)
    await beat(subject, job)
    assert (await subject.info(descriptor)).progress == JobProgress(0.5, "two", START_MS + 2)
    await subject.fail(descriptor)
    assert (await subject.info(descriptor)).progress == JobProgress(0.5, "two", START_MS + 2)


async def test_what_runs_is_asked_to_stop(subject: Subject) -> None:
    pending, running = await subject.job(priority=2), await subject.job()
    job = await subject.claimed()
    assert await stop(subject, pending) is CancelOutcome.CANCELLED
    assert await stop(subject, running, "ann") is CancelOutcome.REQUESTED
    assert await stop(subject, running, "bob") is CancelOutcome.REQUESTED
    assert await beat(subject, job) == HeartbeatAnswer(HeartbeatOutcome.CANCEL, "ann")
    info = await subject.info(running)
    assert (info.state, info.cancel_requested_by, info.cancelled) == (JobState.IN_PROGRESS, "ann", None)
    assert await subject.fail(running, append_status="stopped") is AckOutcome.CANCELLED
    info = await subject.info(running)
    assert (info.state, info.cancelled, info.cancel_requested_by) == (JobState.FAILED, True, "ann")
    assert (info.custom_status, info.finished_at_ms) == ("stopped", subject.now_ms)
    assert await stop(subject, running) is CancelOutcome.ENDED


async def test_a_success_after_the_request_counts(subject: Subject) -> None:
    descriptor = await subject.job()
    await subject.claimed()
    await stop(subject, descriptor)
    assert await subject.succeed(descriptor) is AckOutcome.SUCCEEDED
    assert (await subject.info(descriptor)).cancelled is None


async def test_every_other_way_back_ends_as_cancelled(subject: Subject) -> None:
    for way in range(5):
        descriptor = await subject.job(attempts_allowed=5)
        job = await subject.claimed()
        await stop(subject, descriptor)
        if way == 0:
            assert await subject.requeue(job) == 1
        elif way == 1:
            assert await subject.requeue_undelivered(job) == 1
        elif way == 2:
            assert await subject.checkpoint(descriptor, move_to_pending=True)
        elif way == 3:
            assert (await subject.expire_disconnected(job)).cancelled == 1
        else:
            subject.tick(TIMEOUT_MS + 1)
            assert (await subject.expire(dead_letters=True))[subject.queue].cancelled == 1
        info = await subject.info(descriptor)
        assert (info.state, info.cancelled) == (JobState.FAILED, True)
        assert await subject.claim() == []
    levels = (await subject.shard.stats(subject.queue, [1], subject.now_ms, None, 1000)).levels
    assert (levels[1].failed, levels[1].cancelled) == (0, 5)
    assert await subject.count(JobState.FAILED) == 5
    assert len(await subject.scan(JobState.FAILED)) == 5
    assert await subject.retry_failed() == 0
    assert await subject.shard.dead_letter(10, subject.now_ms, {}) == {}
    assert (await subject.prune(failed_ttl_ms=-1))[subject.queue] == 5
    assert await subject.count(JobState.FAILED) == 0


async def test_a_cancelled_job_is_retried_where_it_is_named_and_deleted_with_the_failed(subject: Subject) -> None:
    made = [await subject.job() for _ in range(2)]
    await subject.claim(2)
    for descriptor in made:
        await stop(subject, descriptor)
        await subject.fail(descriptor)
    assert await subject.retry_listed(made[0]) == 1
    info = await subject.info(made[0])
    assert (info.state, info.cancelled, info.cancel_requested_by) == (JobState.PENDING, None, None)
    await subject.claimed()
    assert await subject.fail(made[0]) is AckOutcome.RETRIED
    assert await subject.delete(JobState.FAILED) == 1
    assert await subject.find(made[1]) is None


async def test_a_job_is_not_handed_out_after_its_expiry(subject: Subject) -> None:
    descriptor = await store(subject, expires_at_ms=START_MS + 1000, custom_status="as it was\n")
    other = await subject.job()
    assert (await subject.info(descriptor)).expires_at_ms == START_MS + 1000
    subject.tick(1000)
    assert await subject.shard.count_ready(subject.queue, [1], 10, subject.now_ms) == [1]
    peeked = await subject.shard.peek(subject.queue, [1], 10, 1000, subject.now_ms)
    assert [job.descriptor for job in peeked] == [other]
    assert [job.descriptor for job in await subject.claim(10)] == [other]
    assert (await subject.info(descriptor)).state is JobState.PENDING
    assert await expire_jobs(subject) == 1
    assert await expire_jobs(subject) == 0
    info = await subject.info(descriptor)
    assert (info.state, info.finished_at_ms) == (JobState.FAILED, subject.now_ms)
    assert info.custom_status.startswith("as it was\n")
    assert "EXPIRED" in info.custom_status
    assert (await subject.prune(failed_ttl_ms=-1))[subject.queue] == 1


async def test_a_job_expires_that_is_to_be_retried(subject: Subject) -> None:
    descriptor = await store(subject, expires_at_ms=START_MS + 1000)
    await subject.claimed()
    subject.tick(1000)
    assert await expire_jobs(subject) == 0
    assert await subject.fail(descriptor) is AckOutcome.RETRIED
    assert await subject.claim() == []
    assert await expire_jobs(subject, rules=EndRules(dead_letters=True)) == 1
    assert await subject.prune(failed_ttl_ms=-1) == {}


async def test_jobs_behind_many_that_expired_are_found(subject: Subject) -> None:
    for _ in range(5):
        offers = [await store(subject, expires_at_ms=START_MS + 1) for _ in range(10)]
    last = await subject.job()
    subject.tick(1)
    assert [job.descriptor for job in await subject.claim()] == [last]
    assert await expire_jobs(subject, limit=7) == 7
    while await expire_jobs(subject, limit=7):
        pass
    assert (await subject.info(offers[0])).state is JobState.FAILED
    assert await subject.count(JobState.PENDING) == 0


async def test_the_first_of_its_key_that_expired_waits_for_nobody(subject: Subject) -> None:
    descriptor = await store(subject, serialize_key="k", expires_at_ms=START_MS + 1)
    behind = await store(subject, serialize_key="k")
    subject.tick(1)
    assert await subject.claim() == []
    assert (await subject.info(descriptor)).waits_for is None
    assert (await subject.info(behind)).waits_for == descriptor
    assert await expire_jobs(subject) == 1
    assert (await subject.claimed()).descriptor == behind


async def test_a_cancelled_job_does_not_expire(subject: Subject) -> None:
    descriptor = await store(subject, expires_at_ms=START_MS + 1)
    subject.tick(1)
    assert await subject.claim() == []
    assert await subject.cancel(descriptor) == [CancelOutcome.CANCELLED]
    assert await expire_jobs(subject) == 0


async def test_a_claim_time_out_of_its_own_where_the_dequeue_names_none(subject: Subject) -> None:
    await store(subject, claim_timeout_ms=5_000)
    await subject.job()
    request = subject.request(2)
    request.is_default_timeout = True
    ((own, other),) = await subject.shard.claim(subject.queue, [request], subject.now_ms)
    assert own.claim_expires_at_ms == START_MS + 5_000
    assert other.claim_expires_at_ms == START_MS + TIMEOUT_MS
    info = await subject.info(own.descriptor)
    assert (info.claim_expires_at_ms, info.claim_timeout_ms) == (START_MS + 5_000, 5_000)
    subject.tick(5_001)
    assert (await subject.expire())[subject.queue].retried == 1
    assert (await subject.claimed()).claim_expires_at_ms == subject.now_ms + TIMEOUT_MS


async def test_a_result_is_kept_for_its_own_time(subject: Subject) -> None:
    for keep in (True, False):
        descriptor = await subject.job()
        await subject.claimed()
        rules = EndRules(keep_succeeded=keep, result_ttl_ms=1000)
        ack = AckRequest(*key_of(descriptor), True, result=b"42", append_status="done")
        assert await subject.ack(ack, rules=rules) == [AckOutcome.SUCCEEDED]
        assert (await subject.find(descriptor) is not None) is keep
        info = await with_result(subject, descriptor)
        assert info is not None
        assert (info.state, info.result, info.finished_at_ms) == (JobState.SUCCEEDED, b"42", subject.now_ms)
        assert info.descriptor == descriptor
        subject.tick(1000)
        await subject.prune()
        left = await with_result(subject, descriptor)
        assert left is None if not keep else left is not None and left.result is None


async def test_a_result_outlasts_its_job_but_not_its_removal(subject: Subject) -> None:
    made = [await subject.job() for _ in range(2)]
    await subject.claim(2)
    await subject.ack(*[AckRequest(*key_of(each), True, result=b"42") for each in made])
    assert await subject.delete_listed(JobState.SUCCEEDED, made[0]) == 1
    assert await with_result(subject, made[0]) is None
    subject.tick(1)
    assert await subject.prune(succeeded_ttl_ms=0) == {subject.queue: 1}
    info = await with_result(subject, made[1])
    assert info is not None
    assert info.result == b"42"


async def test_results_count_as_bodies(subject: Subject) -> None:
    made = [await subject.job() for _ in range(3)]
    await subject.claim(3)
    await subject.ack(*[AckRequest(*key_of(each), True, result=bytes(600)) for each in made])
    infos = await subject.shard.lookup(
        subject.queue, [key_of(each) for each in made], with_body=True, max_bytes=1000, with_result=True
    )
    assert [info is not None and info.result is not None for info in infos] == [True, False, False]


async def test_other_times_bodies_and_attempts_of_pending_jobs(subject: Subject) -> None:
    descriptor, running, ended = (
        await subject.job(priority=1),
        await subject.job(priority=2),
        await subject.job(priority=3),
    )
    await subject.claim(priorities=[2])
    await subject.claim(priorities=[3])
    await subject.succeed(ended)
    subject.tick(5)

    async def change(descriptor: str, **fields: object) -> RescheduleOutcome:
        requests: Sequence[RescheduleRequest] = [RescheduleRequest(*key_of(descriptor), **fields)]  # type: ignore[arg-type]
        (outcome,) = await subject.shard.reschedule(subject.queue, requests, subject.now_ms)
        return outcome

    assert await change(running, body=b"new") is RescheduleOutcome.IN_PROGRESS
    assert await change(ended, body=b"new") is RescheduleOutcome.ENDED
    assert await change(descriptor, body=b"new", only_if_updated_at_ms=START_MS - 1) is RescheduleOutcome.CHANGED
    assert (
        await change(descriptor, run_after_ms=START_MS + 999, only_if_updated_at_ms=START_MS)
        is RescheduleOutcome.RESCHEDULED
    )
    assert await change(descriptor, body=b"new", attempts_allowed=9) is RescheduleOutcome.RESCHEDULED
    info = await subject.info(descriptor)
    assert (info.run_after_ms, info.body, info.attempts_allowed, info.attempts_remaining) == (
        START_MS + 999,
        b"new",
        9,
        9,
    )
    assert info.updated_at_ms == subject.now_ms
    assert await subject.claim(priorities=[1]) == []
    await subject.cancel(descriptor)
    assert await change(descriptor, body=b"new") is RescheduleOutcome.NOT_FOUND


class Ends:
    """Notes what a shard tells."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, int]] = []
        self.told = asyncio.Event()

    def jobs_freed(self, queue: str, run_after_ms: Sequence[int]) -> None: ...

    def jobs_ended(self, queue: str, ids: Sequence[int]) -> None:
        self.ended += [(queue, each) for each in ids]
        self.told.set()

    async def heard(self) -> list[tuple[str, int]]:
        async with asyncio.timeout(60):
            await self.told.wait()
        self.told.clear()
        told, self.ended = self.ended, []
        return told


async def watched(subject: Subject, *descriptors: str) -> bool:
    keys = [key_of(each) for each in descriptors]
    return await subject.shard.watch_ends(subject.queue, keys, subject.now_ms + 60_000, subject.now_ms)


async def test_ends_that_somebody_waits_for_are_told(subject: Subject, shard: Shard) -> None:
    ends = Ends()
    before, shard.events = shard.events, ends
    try:
        made = [await subject.job() for _ in range(4)]
        if not await watched(subject, *made[:3]):
            return  # this store tells nobody
        await subject.claim(4)
        await subject.ack_all([made[3], made[0]])
        assert await ends.heard() == [(subject.queue, key_of(made[0]).id)]
        await subject.fail(made[1])
        await subject.cancel(made[1])
        assert await ends.heard() == [(subject.queue, key_of(made[1]).id)]
        assert await drop_queue(subject.shard, subject.queue, subject.tick(1))
        assert await ends.heard() == [(subject.queue, key_of(made[2]).id)]
    finally:
        shard.events = before
