"""Successors of running jobs through the service: what may be asked, who has what runs stopped, and calls by key."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from pinlater.errors import RequestInvalid
from pinlater.extended_limits import MAX_REPLACE_WITHIN_MS
from pinlater.model import (
    Ack,
    AckOutcome,
    CancelOutcome,
    DequeuedJob,
    EnqueuedJobs,
    EnqueueOutcome,
    ExtendedJob,
    Heartbeat,
    HeartbeatOutcome,
    Job,
    JobState,
    KeyRef,
    OnDuplicate,
    ReplaceRunning,
    RequestContext,
    RescheduleJob,
    RescheduleOutcome,
)
from tests.conformance.served import QUEUE, Served
from tests.conformance.test_service_keys import counted, wait_for_jobs

REPLACE, ENQUEUE, CANCEL = OnDuplicate.REPLACE, ReplaceRunning.ENQUEUE, ReplaceRunning.CANCEL
KEY = KeyRef("a")


def newer(body: bytes = b"new", running: ReplaceRunning = ENQUEUE, **more: Any) -> ExtendedJob:
    given = {"dedupe_key": "a", "on_duplicate": REPLACE, "replace_running": running, **more}
    return ExtendedJob(body, **given)


async def running(served: Served) -> DequeuedJob:
    await served.enqueue(newer(b"old"))
    (job,) = await served.dequeue(1)
    return job


async def beat(served: Served, job: DequeuedJob, who: str = "worker") -> tuple[HeartbeatOutcome, str]:
    beats = [Heartbeat(job.descriptor, job.claim_descriptor)]
    (answer,) = await served.api.heartbeat(QUEUE, beats, context=RequestContext(who))
    return answer.outcome, answer.cancelled_by


async def fail(served: Served, job: DequeuedJob) -> AckOutcome:
    failed = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor)]
    (outcome,) = await served.api.ack(QUEUE, [], failed, context=served.context)
    return outcome


async def test_a_successor_is_stored_shown_and_handed_out_at_the_end_of_what_runs(served: Served) -> None:
    old = await running(served)
    (new,) = await served.enqueue(newer())
    assert (await served.info(old.descriptor)).successor == new
    assert (await served.info(new)).waits_for == old.descriptor
    assert await served.count(JobState.PENDING) == 1
    found = await served.api.lookup([], queue=QUEUE, keys=[KEY])
    assert {each.successor for each in found.values()} == {new}
    again = await served.enqueue(newer(b"newest"))
    assert isinstance(again, EnqueuedJobs)
    assert ([*again], again.outcomes) == ([new], [EnqueueOutcome.REPLACED])
    assert counted(served, "jobs_deduplicated", QUEUE, "replaced") == 1
    waiting = wait_for_jobs(served, 1)
    await asyncio.sleep(0.05)
    assert await fail(served, old) is AckOutcome.CANCELLED
    (job,) = await asyncio.wait_for(waiting, 60)
    assert (job.descriptor, job.body) == (new, b"newest")


@pytest.mark.parametrize(("who", "by"), [("ann", "ann"), ("", "unknown")])
async def test_who_enqueues_has_the_running_job_stopped(served: Served, who: str, by: str) -> None:
    old = await running(served)
    assert await beat(served, old) == (HeartbeatOutcome.OK, "")
    await served.api.enqueue(QUEUE, [newer(running=CANCEL)], context=RequestContext(who))
    assert await beat(served, old) == (HeartbeatOutcome.CANCEL, by)
    assert (await served.info(old.descriptor)).cancel_requested_by == by


@pytest.mark.parametrize("stops", [False, True])
async def test_a_key_is_cancelled_with_its_successor(served: Served, stops: bool) -> None:
    old = await running(served)
    (new,) = await served.enqueue(newer())
    cancelled = await served.api.cancel(QUEUE, [], keys=[KEY], running=stops, context=RequestContext("ann"))
    of_running = CancelOutcome.REQUESTED if stops else CancelOutcome.IN_PROGRESS
    assert (dict(cancelled), cancelled.by_key) == ({}, [of_running])
    assert await served.api.lookup([new]) == {}
    info = await served.info(old.descriptor)
    assert (info.successor, info.cancel_requested_by) == (None, "ann" if stops else None)


async def test_a_key_is_rescheduled_as_its_successor(served: Served) -> None:
    old = await running(served)
    (new,) = await served.enqueue(newer(run_after_ms=2**50))
    change = RescheduleJob(key=KEY, run_after_ms=0, body=b"changed")
    assert await served.api.reschedule(QUEUE, [change]) == [RescheduleOutcome.RESCHEDULED]
    assert await fail(served, old) is AckOutcome.CANCELLED
    (job,) = await served.dequeue(1)
    assert (job.descriptor, job.body) == (new, b"changed")
    assert await served.api.reschedule(QUEUE, [change]) == [RescheduleOutcome.IN_PROGRESS]


async def test_a_bound_is_kept_to_through_the_service(served: Served) -> None:
    now_ms = served.clock.now_ms()
    job = newer(replace_within_ms=10_000, run_after_ms=now_ms + 5_000)
    (descriptor,) = await served.enqueue(job)
    served.clock.tick(8_000)
    await served.enqueue(replace(job, body=b"last", run_after_ms=now_ms + 13_000))
    info = await served.info(descriptor)
    assert (info.run_after_ms, info.body) == (now_ms + 10_000, b"last")


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (newer(on_duplicate=OnDuplicate.KEEP), "onDuplicate is 'KEEP'; .*REPLACE, .* where replaceRunning is given"),
        (ExtendedJob(b"", dedupe_key="a", replace_within_ms=1), "where replaceWithinMillis is given"),
        (ExtendedJob(b"", dedupe_key="a", on_duplicate=OnDuplicate.REJECT, replace_running=CANCEL), "is 'REJECT'"),
        (ExtendedJob(b"", on_duplicate=REPLACE, replace_running=CANCEL), "allowed: KEEP"),
        (newer(replace_within_ms=0), f"replaceWithinMillis is 0; allowed: 1 to {MAX_REPLACE_WITHIN_MS}"),
        (newer(replace_within_ms=MAX_REPLACE_WITHIN_MS + 1), "replaceWithinMillis"),
    ],
)
async def test_what_means_nothing_is_refused_as_a_whole(served: Served, job: Job, told: str) -> None:
    with pytest.raises(RequestInvalid, match=told):
        await served.enqueue(job)
    assert await served.count(JobState.PENDING) == 0
