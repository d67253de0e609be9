"""Results, waits for ends, heartbeats and requests to stop, through the service."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pinlater.backends.base import JobKey
from pinlater.client.whole_lookups import complete
from pinlater.errors import Overloaded, RequestInvalid
from pinlater.model import (
    Ack,
    AckOutcome,
    CancelOutcome,
    ConnectionRef,
    DequeuedJob,
    DequeueRequest,
    ExtendedJob,
    Heartbeat,
    HeartbeatOutcome,
    Job,
    JobAction,
    JobChange,
    JobInfo,
    JobState,
    KeyRef,
    RequestContext,
)
from pinlater.model.job_selection import FoundJobsChange, JobSelection, TextCondition
from pinlater.shards.decorator import ShardDecorator
from tests.conformance.bindings import MOST_BODY_BYTES, Binding
from tests.conformance.conftest import Serve
from tests.conformance.served import CLAIM_TIMEOUT_MS, QUEUE, Served

OK, LOST, CANCEL, _ = HeartbeatOutcome


async def taken(served: Served, *jobs: Job) -> list[DequeuedJob]:
    """These jobs, enqueued and handed out."""
    await served.enqueue(*jobs)
    return await served.dequeue(len(jobs))


async def beat(served: Served, *heartbeats: Heartbeat) -> list[HeartbeatOutcome]:
    return [answer.outcome for answer in await served.api.heartbeat(QUEUE, heartbeats, context=served.context)]


def of(job: DequeuedJob) -> Heartbeat:
    return Heartbeat(job.descriptor, job.claim_descriptor)


# -- results -----------------------------------------------------------------------------------------------------------


async def test_a_result_is_found_where_it_is_asked_for(served: Served) -> None:
    (job,) = await taken(served, Job(b""))
    await served.api.ack(QUEUE, [Ack(job.descriptor, result=b"42")], [])
    found = (await served.api.lookup([job.descriptor], include_result=True))[job.descriptor]
    assert (found.state, found.result, found.body) == (JobState.SUCCEEDED, b"42", None)
    assert (await served.info(job.descriptor)).result is None
    assert served.api.metrics.counters["results_kept", QUEUE] == 1


async def test_a_result_outlives_a_job_that_is_not_kept(fleeting: Served) -> None:
    (job,) = await taken(fleeting, Job(b""))
    await fleeting.api.ack(QUEUE, [Ack(job.descriptor, result=b"42")], [])
    found = (await fleeting.api.lookup([job.descriptor], include_result=True))[job.descriptor]
    assert (found.state, found.result) == (JobState.SUCCEEDED, b"42")


async def test_a_result_above_the_bound_of_its_queue_fails_the_attempt(served: Served) -> None:
    await served.change(max_result="1KiB")
    large, small, again, final = await taken(
        served, Job(b"1", attempts_allowed=1), Job(b"2"), Job(b"3", attempts_allowed=5), Job(b"4", attempts_allowed=5)
    )
    acks = [
        Ack(large.descriptor, result=b"x" * 1025),
        Ack(small.descriptor, result=b"x" * 1024, permanent=True),
        Ack(again.descriptor, result=b"x" * 1025),
        Ack(final.descriptor, result=b"x" * 1025, permanent=True),
    ]
    outcomes = [AckOutcome.FAILED, AckOutcome.SUCCEEDED, AckOutcome.RETRIED, AckOutcome.FAILED]
    assert await served.api.ack(QUEUE, acks, []) == outcomes
    for job in (large, final):
        failed = await served.info(job.descriptor)
        assert (failed.state, "RESULT_TOO_LARGE: 1025 bytes" in failed.custom_status) == (JobState.FAILED, True)


@pytest.mark.parametrize("rides", [False, True], ids=["ack", "riding"])
async def test_a_result_that_the_store_cannot_keep_fails_the_attempt(
    served: Served, binding: Binding, rides: bool
) -> None:
    """Within the bound of its queue; the ack would be refused again and again, and the job would run for ever."""
    if rides:  # acks ride along where one shard alone serves
        served.members.all[1].eject("not needed")
    await served.change(max_result="1MiB")
    size = binding.most_body_bytes + 1 if binding.most_body_bytes < MOST_BODY_BYTES else MOST_BODY_BYTES
    large, small, again = await taken(served, Job(b"1", attempts_allowed=5), Job(b"2"), Job(b"3", attempts_allowed=5))
    acks = [
        Ack(large.descriptor, result=b"x" * size, permanent=True),
        Ack(small.descriptor, result=b"x" * 10, permanent=True),
        Ack(again.descriptor, result=b"x" * size),
    ]
    if rides:
        request = DequeueRequest(QUEUE, 1, succeeded=acks)
        jobs = await served.api.dequeue(request, context=served.context)
    else:
        await served.api.ack(QUEUE, acks, [])
        jobs = await served.dequeue(1)
    infos = [await served.info(job.descriptor) for job in (large, small, again)]
    if size <= binding.most_body_bytes:
        assert ([info.state for info in infos], jobs) == ([JobState.SUCCEEDED] * 3, [])
        return
    assert [job.descriptor for job in jobs] == [again.descriptor]
    assert [info.state for info in infos] == [JobState.FAILED, JobState.SUCCEEDED, JobState.IN_PROGRESS]
    for info in (infos[0], infos[2]):
        assert f"[RESULT_TOO_LARGE: {size} bytes" in info.custom_status


async def test_results_of_several_jobs_count_against_the_bound_of_an_answer(tight: Served) -> None:
    jobs = await taken(tight, *[Job(b"") for _ in range(4)])
    await tight.api.ack(QUEUE, [Ack(job.descriptor, result=b"x" * 1500) for job in jobs], [])
    found = await tight.api.lookup([job.descriptor for job in jobs], include_result=True)
    assert len(found) == 4
    assert 1 <= sum(info.result is not None for info in found.values()) <= 2
    assert all((info.result is None) is (info.result_left_out is True) for info in found.values())


async def test_a_lookup_has_a_job_with_its_body_and_result_or_says_what_it_left_out(tight: Served) -> None:
    jobs = [(await taken(tight, Job(b"b" * 1_900)))[0] for _ in range(6)]
    await tight.api.ack(QUEUE, [Ack(job.descriptor, result=b"r" * 1_000) for job in jobs[1:]], [])
    names = [job.descriptor for job in jobs]
    calls = 0

    async def look(names: Sequence[str], with_body: bool, with_result: bool) -> dict[str, JobInfo]:
        nonlocal calls
        calls += 1
        found = await tight.api.lookup(names, include_body=with_body, include_result=with_result)
        for info in found.values():
            assert (info.body is None) is (not with_body or info.body_left_out is True)
            has_result = with_result and info.descriptor != first
            assert (info.result is None) is (not has_result or info.result_left_out is True)
        return found

    first = names[0]
    found = await look(names, True, True)
    await complete(found, True, True, look)
    assert calls > 2
    assert [found[name].body for name in names] == [b"b" * 1_900] * 6
    assert [found[name].result for name in names] == [None] + [b"r" * 1_000] * 5
    assert not any(info.body_left_out or info.result_left_out for info in found.values())


async def test_jobs_that_are_named_are_judged_by_their_bodies_however_many(tight: Served) -> None:
    made = [(await tight.enqueue(Job(b"no" + b"x" * 1_900)))[0] for _ in range(5)]
    body = TextCondition("^no", is_not=True)
    change = FoundJobsChange(JobSelection(QUEUE, body_conditions=[body], descriptors=made), JobAction.CANCEL)
    assert (await tight.api.change_found_jobs(change)).changed == 0
    change = replace(change, selection=replace(change.selection, body_conditions=[TextCondition("^no")]))
    assert (await tight.api.change_found_jobs(change)).changed == 5


# -- waits -------------------------------------------------------------------------------------------------------------


def wait_for(served: Served, *descriptors: str, wait_ms: int = 30_000) -> asyncio.Task[dict[str, JobInfo]]:
    return asyncio.create_task(served.api.lookup(descriptors, include_result=True, wait_ms=wait_ms))


async def waited(served: Served, amount: int) -> None:
    while served.api.end_waits.waiters < amount:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.02)


async def test_a_lookup_waits_for_the_first_end(served: Served) -> None:
    jobs = await taken(served, Job(b"1"), Job(b"2"))
    waiting = wait_for(served, *[job.descriptor for job in jobs])
    await waited(served, 1)
    assert not waiting.done()
    await served.api.ack(QUEUE, [Ack(jobs[1].descriptor, result=b"42")], [])
    found = await asyncio.wait_for(waiting, 60)
    assert [found[job.descriptor].state for job in jobs] == [JobState.IN_PROGRESS, JobState.SUCCEEDED]
    assert found[jobs[1].descriptor].result == b"42"
    assert served.api.end_waits.waiters == 0


async def test_what_has_ended_or_is_not_there_is_answered_at_once(served: Served) -> None:
    (ended,) = await taken(served, Job(b"1"))
    (pending,) = await served.enqueue(Job(b"2"))
    await served.api.ack(QUEUE, [], [Ack(ended.descriptor, permanent=True)])
    gone = pending[:-1] + str((int(pending[-1]) + 5) % 10)
    assert len(await asyncio.wait_for(wait_for(served, pending, ended.descriptor), 60)) == 2
    assert len(await asyncio.wait_for(wait_for(served, pending, gone), 60)) == 1
    assert await asyncio.wait_for(wait_for(served), 60) == {}
    keyed = served.api.lookup([pending], queue=QUEUE, keys=[KeyRef("none")], wait_ms=30_000)
    assert len(await asyncio.wait_for(keyed, 60)) == 1


async def test_a_wait_is_over_in_time(served: Served) -> None:
    (descriptor,) = await served.enqueue(Job(b""))
    found = await asyncio.wait_for(wait_for(served, descriptor, wait_ms=20), 60)
    assert found[descriptor].state is JobState.PENDING


@pytest.mark.parametrize("way", ["cancel", "delete", "fail", "change", "delete queue"])
async def test_every_end_ends_a_wait(served: Served, way: str) -> None:
    (descriptor,) = await served.enqueue(ExtendedJob(b"", dedupe_key="a"))
    waiting = asyncio.create_task(served.api.lookup([], queue=QUEUE, keys=[KeyRef("a")], wait_ms=30_000))
    await waited(served, 1)
    if way == "cancel":
        await served.api.cancel(QUEUE, [descriptor])
    elif way == "delete":
        await served.api.delete_jobs(served.filter(JobState.PENDING))
    elif way == "delete queue":
        await served.api.delete_queue(QUEUE, served.password)
    elif way == "change":
        await served.api.change_jobs(JobChange(QUEUE, JobAction.CANCEL))
    else:
        (job,) = await served.dequeue(1)
        await served.api.ack(QUEUE, [], [Ack(job.descriptor, permanent=True)])
    found = await asyncio.wait_for(waiting, 3)
    assert [info.state for info in found.values()] == ([JobState.FAILED] if way == "fail" else [])


async def test_a_claim_that_expires_for_good_ends_a_wait(served: Served) -> None:
    (job,) = await taken(served, Job(b"", attempts_allowed=1))
    waiting = wait_for(served, job.descriptor)
    await waited(served, 1)
    served.clock.tick(CLAIM_TIMEOUT_MS + 1)
    await served.maintain()
    found = await asyncio.wait_for(waiting, 60)
    assert found[job.descriptor].state is JobState.FAILED


async def test_an_end_at_another_server_ends_a_wait(servers: tuple[Served, Served]) -> None:
    there, here = servers
    (job,) = await taken(here, Job(b""))
    waiting = wait_for(here, job.descriptor)
    await waited(here, 1)
    await there.api.ack(QUEUE, [Ack(job.descriptor, result=b"42")], [])
    found = await asyncio.wait_for(waiting, 60)
    assert found[job.descriptor].result == b"42"


async def test_a_retry_ends_no_wait(served: Served) -> None:
    (job,) = await taken(served, Job(b""))
    waiting = wait_for(served, job.descriptor)
    await waited(served, 1)
    await served.api.ack(QUEUE, [], [Ack(job.descriptor)])
    await asyncio.sleep(0.1)
    assert not waiting.done()
    (job,) = await served.dequeue(1)
    await served.api.ack(QUEUE, [Ack(job.descriptor)], [])
    found = await asyncio.wait_for(waiting, 60)
    assert found[job.descriptor].state is JobState.SUCCEEDED


async def test_who_waits_at_a_draining_server_is_answered_with_what_there_is(served: Served) -> None:
    (descriptor,) = await served.enqueue(Job(b""))
    waiting = wait_for(served, descriptor)
    await waited(served, 1)
    served.api.start_draining()
    found = await asyncio.wait_for(waiting, 60)
    assert found[descriptor].state is JobState.PENDING
    assert len(await asyncio.wait_for(wait_for(served, descriptor), 60)) == 1


async def test_a_caller_who_leaves_costs_nothing_more(served: Served) -> None:
    (descriptor,) = await served.enqueue(Job(b""))
    waiting = wait_for(served, descriptor)
    await waited(served, 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert served.api.end_waits.waiters == 0


@pytest.fixture
def narrow(serve: Serve) -> Served:
    return serve(max_waiters=2)


async def test_one_lookup_more_than_may_wait_is_refused(narrow: Served) -> None:
    (descriptor,) = await narrow.enqueue(Job(b""))
    waiting = [wait_for(narrow, descriptor) for _ in range(2)]
    await waited(narrow, 2)
    with pytest.raises(Overloaded):
        await wait_for(narrow, descriptor)
    narrow.api.start_draining()
    await asyncio.gather(*waiting)


async def test_a_wait_names_a_bounded_number_of_jobs(served: Served) -> None:
    with pytest.raises(RequestInvalid, match="at most 1000"):
        await served.api.lookup([f"{QUEUE}:s1:p1:{10**15 + number}" for number in range(1001)], wait_ms=1)
    with pytest.raises(RequestInvalid, match="waitMillis"):
        await served.api.lookup([], wait_ms=-1)


async def test_hundreds_wait_for_one_end_and_for_one_each(served: Served) -> None:
    jobs = await taken(served, *[Job(b"%d" % number) for number in range(200)])
    waiting = [wait_for(served, job.descriptor) for job in jobs] + [wait_for(served, jobs[0].descriptor) for _ in jobs]
    await waited(served, 400)
    await served.api.ack(QUEUE, [Ack(job.descriptor, result=job.body) for job in jobs], [])
    answers = await asyncio.wait_for(asyncio.gather(*waiting), 30)
    bodies = [info.result for found in answers for info in found.values()]
    assert bodies == [job.body for job in jobs] + [jobs[0].body] * 200


class Counted(ShardDecorator):
    """Counts the lookups of a shard."""

    lookups = 0

    async def lookup(
        self, queue: str, jobs: Sequence[JobKey], *, with_body: bool, max_bytes: int, with_result: bool = False
    ) -> list[JobInfo | None]:
        self.lookups += 1
        return await self.inner.lookup(queue, jobs, with_body=with_body, max_bytes=max_bytes, with_result=with_result)


async def test_thousands_who_wait_ask_no_store_again_and_again_one_by_one(served: Served) -> None:
    jobs = [job for _ in range(5) for job in await taken(served, *[Job(b"") for _ in range(200)])]
    member, other = served.members.all
    counted = member.shard = Counted(member.shard)
    waiting = [wait_for(served, job.descriptor) for job in jobs for _ in range(2)]
    await waited(served, 2_000)
    tells = await other.shard.watch_ends(QUEUE, [], served.clock.now_ms() + 1_000, served.clock.now_ms())
    for _ in range(20):  # each looks once by itself, which takes a busy machine a while
        began_s = asyncio.get_running_loop().time()
        counted.lookups = 0
        await asyncio.sleep(0.5)
        took_s = asyncio.get_running_loop().time() - began_s
        if counted.lookups <= (2 if tells else 2 + 2 * took_s / 0.04):
            break
    else:
        pytest.fail(f"{counted.lookups} lookups in {took_s:.2f} s")
    served.api.start_draining()
    assert len(await asyncio.gather(*waiting)) == 2_000


# -- heartbeats --------------------------------------------------------------------------------------------------------


async def test_a_heartbeat_keeps_a_claim_and_changes_nothing_else(served: Served) -> None:
    (job,) = await taken(served, Job(b"", run_after_ms=served.clock.now_ms() - 60_000))
    before = await served.info(job.descriptor)
    served.clock.tick(CLAIM_TIMEOUT_MS - 1)
    assert await beat(served, of(job)) == [OK]
    served.clock.tick(CLAIM_TIMEOUT_MS - 1)
    await served.maintain()
    after = await served.info(job.descriptor)
    assert (after.state, after.run_after_ms, after.body) == (JobState.IN_PROGRESS, before.run_after_ms, before.body)


async def test_heartbeats_are_answered_one_by_one_in_order(served: Served) -> None:
    first, second = await taken(served, Job(b"1"), Job(b"2"))
    await served.api.ack(QUEUE, [Ack(first.descriptor)], [])
    other = Heartbeat(second.descriptor, first.claim_descriptor + "x")
    beats = [of(first), of(second), Heartbeat("nothing", "x"), other, Heartbeat("other:s1:p1:1790000000000000", "x")]
    assert await beat(served, *beats) == [LOST, OK, LOST, LOST, LOST]


async def test_more_heartbeats_than_a_call_of_a_store_takes_are_all_answered(sliced: Served) -> None:
    jobs = [job for _ in range(3) for job in await taken(sliced, *[Job(b"") for _ in range(4)])]
    assert await beat(sliced, *[of(job) for job in jobs]) == [OK] * len(jobs)


async def test_progress_is_kept_within_its_bounds(served: Served) -> None:
    (job,) = await taken(served, Job(b""))
    odd = ((7.0, 1.0), (-0.1, 0.0), (math.inf, 1.0), (-math.inf, 0.0), (math.nan, 0.0), (None, 0.0))
    for fraction, expected in ((0.25, 0.25), *odd):
        text = "x" * 300 if fraction == 0.25 else None
        beat_ = Heartbeat(job.descriptor, job.claim_descriptor, fraction, text)
        assert await beat(served, beat_) == [OK]
        progress = (await served.info(job.descriptor)).progress
        assert progress is not None
        assert (progress.fraction, progress.text) == (expected, "x" * 200)


async def test_a_heartbeat_binds_a_claim_to_the_connection_by_which_it_comes(served: Served) -> None:
    old, new = ConnectionRef(), ConnectionRef()
    await served.enqueue(Job(b""))
    request = DequeueRequest(QUEUE, 1, release_on_disconnect=True)
    (job,) = await served.api.dequeue(request, context=RequestContext("worker", connection=old))
    served.clock.tick(10)
    await served.api.heartbeat(QUEUE, [of(job)], context=RequestContext("worker", connection=new))
    assert (list(old.claims), list(new.claims)) == ([], [job.descriptor])
    new.is_broken = True
    served.api.disconnected(new)
    await served.api.connection_claims.end_grace(new)
    assert (await served.info(job.descriptor)).state is JobState.PENDING


async def test_a_bound_claim_with_a_time_out_of_its_own_is_released_too(served: Served) -> None:
    connection = ConnectionRef()
    await served.enqueue(ExtendedJob(b"", claim_timeout_ms=1_234))
    request = DequeueRequest(QUEUE, 1, release_on_disconnect=True)
    (job,) = await served.api.dequeue(request, context=RequestContext("worker", connection=connection))
    assert job.claim_expires_at_ms == served.clock.now_ms() + 1_234
    served.api.disconnected(connection)
    await served.api.connection_claims.end_grace(connection)
    assert (await served.info(job.descriptor)).state is JobState.PENDING


async def test_a_dequeue_that_names_a_time_out_comes_before_that_of_the_job(served: Served) -> None:
    await served.enqueue(ExtendedJob(b"", claim_timeout_ms=1_234))
    (job,) = await served.api.dequeue(DequeueRequest(QUEUE, 1, claim_timeout_ms=5_000), context=served.context)
    assert job.claim_expires_at_ms == served.clock.now_ms() + 5_000


# -- requests to stop --------------------------------------------------------------------------------------------------


async def test_a_job_in_progress_is_asked_to_stop(served: Served) -> None:
    (job,) = await taken(served, Job(b""))
    plain = await served.api.cancel(QUEUE, [job.descriptor], context=served.context)
    assert plain == {job.descriptor: CancelOutcome.IN_PROGRESS}
    assert await beat(served, of(job)) == [OK]
    asked = await served.api.cancel(QUEUE, [job.descriptor], running=True, context=RequestContext("anna"))
    assert asked == {job.descriptor: CancelOutcome.REQUESTED}
    (answer,) = await served.api.heartbeat(QUEUE, [of(job)], context=served.context)
    assert (answer.outcome, answer.cancelled_by) == (CANCEL, "anna")
    assert await served.api.ack(QUEUE, [], [Ack(job.descriptor)]) == [AckOutcome.CANCELLED]
    info = await served.info(job.descriptor)
    assert (info.state, info.cancelled) == (JobState.FAILED, True)
    assert served.api.metrics.counters["jobs_cancelled", QUEUE] == 1
    assert ("anna", "ask_jobs_to_stop") in {(entry.who, entry.action) for entry in await served.api.audit()}


async def test_who_does_not_say_who_he_is_can_ask_too(served: Served) -> None:
    (job,) = await taken(served, Job(b""))
    await served.api.cancel(QUEUE, [job.descriptor], running=True)
    (answer,) = await served.api.heartbeat(QUEUE, [of(job)])
    assert (answer.outcome, answer.cancelled_by) == (CANCEL, "unknown")


async def test_what_was_stopped_is_no_failure_to_a_change_of_many(served: Served) -> None:
    stopped, failed = await taken(served, Job(b"1", attempts_allowed=1), Job(b"2", attempts_allowed=1))
    await served.api.cancel(QUEUE, [stopped.descriptor], running=True)
    await served.api.ack(QUEUE, [], [Ack(stopped.descriptor), Ack(failed.descriptor)])
    changed = await served.api.change_jobs(JobChange(QUEUE, JobAction.RETRY))
    assert changed.changed == 1
    assert [job.descriptor for job in await served.dequeue(2)] == [failed.descriptor]
    assert (await served.info(stopped.descriptor)).cancelled


async def test_a_retry_leaves_alone_what_would_be_a_second_live_job_of_its_key(served: Served) -> None:
    (failed,) = await taken(served, ExtendedJob(b"", dedupe_key="a", attempts_allowed=1))
    await served.api.ack(QUEUE, [], [Ack(failed.descriptor)])
    (live,) = await served.enqueue(ExtendedJob(b"", dedupe_key="a"))
    assert live != failed.descriptor
    changed = await served.api.change_jobs(JobChange(QUEUE, JobAction.RETRY))
    assert changed.changed == 0
    assert list(changed.refusals) == [failed.descriptor]
    assert live in changed.refusals[failed.descriptor]
