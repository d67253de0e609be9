"""What a server is led through for its metrics; each part says what must have been counted of its own queues."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from pinlater.client.async_client import AsyncClient
from pinlater.errors import BodyTooLarge, DequeueRateLimited, EnqueueRejected, PinLaterError, QueueNotFound
from pinlater.model import (
    Ack,
    DequeueFromQueuesRequest,
    DequeueRequest,
    ExtendedJob,
    Job,
    JobAction,
    JobChange,
    JobFilter,
    JobState,
    QueueShare,
    ScheduleChange,
    WorkerReport,
)
from pinlater.model.flow_words import Applet, AppletKind, CompletionCallback, NewFlow, NewItem, Stage
from pinlater.wire.convert import dequeue_to_wire
from tests.server.running import Plain

PASSWORD = "correct horse"
Counts = dict[tuple[str, ...], float]
"""By name of a metric and values of its labels, in the order of its labels."""


async def new_queue(client: AsyncClient, name: str, **settings: str) -> None:
    await client.update_queue(name, PASSWORD, set=settings, create=True)


async def acks_of_all_outcomes(client: AsyncClient) -> Counts:
    await new_queue(client, "acked")
    await client.enqueue("acked", [Job(b"", attempts_allowed=1), Job(b""), Job(b"", priority=2), Job(b"", priority=2)])
    one, two, three, four = [job.descriptor for job in await client.dequeue(DequeueRequest("acked", 9))]
    await client.ack("acked", [Ack(three), Ack(four)], [Ack(one), Ack(two, retry_delay_ms=60_000)])
    await client.ack("acked", [Ack(three)])
    await client.ack("acked", [Ack(three, claim_descriptor="none")] * 2, [Ack(three.replace(":s1:", ":s9:"))] * 3)
    return {
        ("jobs_enqueued", "acked", "1"): 2,
        ("jobs_enqueued", "acked", "2"): 2,
        ("jobs_dequeued", "acked", "1"): 2,
        ("jobs_dequeued", "acked", "2"): 2,
        ("jobs_acked", "acked", "2", "succeeded"): 2,
        ("jobs_acked", "acked", "1", "retried"): 1,
        ("jobs_acked", "acked", "1", "failed"): 1,
        ("jobs_acked", "acked", "2", "ignored"): 3,
        ("acks_without_effect", "acked", "job"): 1,
        ("acks_without_effect", "acked", "claim"): 2,
        ("acks_without_effect", "acked", "not_here"): 3,
        ("queue_jobs", "1", "acked", "1", "scheduled"): 1,
        ("queue_jobs", "1", "acked", "1", "failed"): 1,
        ("queue_jobs", "1", "acked", "2", "succeeded"): 2,
    }


async def workers_that_say_who_they_are(client: AsyncClient) -> Counts:
    await new_queue(client, "listed")
    report = WorkerReport("w1", "shop", 1, queues={"listed": 1, "nowhere": 1}, slots=4, busy_slots=2, stuck_slots=1)
    await client.dequeue(DequeueRequest("listed", 1, worker=report))
    shares = [QueueShare("listed")]
    await client.dequeue_from_queues(DequeueFromQueuesRequest(shares, 1, worker=replace(report, id="w2")))
    await client.checkpoint("listed", [], worker=replace(report, id="w3", queues={}))
    return {
        ("cluster_workers",): 3,
        ("cluster_worker_slots", "free"): 3,
        ("cluster_worker_slots", "busy"): 6,
        ("cluster_worker_slots", "stuck"): 3,
        ("queue_workers", "listed"): 2,
    }


async def claims_that_expire(client: AsyncClient) -> Counts:
    await new_queue(client, "lost")
    await client.enqueue("lost", [Job(b"", attempts_allowed=1), Job(b"", attempts_allowed=2)])
    assert len(await client.dequeue(DequeueRequest("lost", 2, claim_timeout_ms=1))) == 2
    return {("claims_expired", "lost", "failed"): 1, ("claims_expired", "lost", "retried"): 1}


async def claims_whose_connection_breaks(client: AsyncClient, port: int) -> Counts:
    await new_queue(client, "cut")
    await client.enqueue("cut", [Job(b"", attempts_allowed=1), Job(b"", attempts_allowed=2)])
    worker = await Plain.to(port)
    bound = DequeueRequest("cut", 2, release_on_disconnect=True)
    assert len((await worker.call("dequeueJobs", request=dequeue_to_wire(bound))).jobs) == 2
    await worker.close()
    return {("claims_released", "cut", "failed"): 1, ("claims_released", "cut", "retried"): 1}


async def hand_outs_that_nobody_receives(client: AsyncClient, port: int) -> Counts:
    await new_queue(client, "unheard")
    await client.enqueue("unheard", [Job(b""), Job(b"")])
    caller = await Plain.to(port)
    request = DequeueRequest("unheard", 2, claim_timeout_ms=1_500, confirms_receipt=True)
    assert len((await caller.call("dequeueJobs", request=dequeue_to_wire(request))).jobs) == 2
    await caller.close()
    return {("jobs_undelivered", "unheard"): 2}


async def what_maintenance_does_later(client: AsyncClient) -> Counts:
    await new_queue(client, "dead")
    await new_queue(client, "ended", dead_letter_queue="dead", failed_ttl="0s", succeeded_ttl="1ms")
    good, bad = await client.enqueue("ended", [Job(b""), Job(b"")])
    await client.dequeue(DequeueRequest("ended", 2))
    await client.ack("ended", [Ack(good)], [Ack(bad, permanent=True)])
    return {
        ("jobs_buried", "ended"): 1,
        ("letters_stored", "dead"): 1,
        ("jobs_collected", "ended"): 2,
        ("queue_jobs", "1", "dead", "1", "ready"): 1,
    }


async def jobs_with_keys(client: AsyncClient) -> Counts:
    await new_queue(client, "keyed")
    await client.enqueue("keyed", [ExtendedJob(b"", priority=2, dedupe_key="a", expires_at_ms=1)])
    await client.enqueue("keyed", [ExtendedJob(b"", run_after_ms=2**50, dedupe_key="b")])
    await client.enqueue("keyed", [ExtendedJob(b"", dedupe_key="b")])
    await client.enqueue("keyed", [ExtendedJob(b"", serialize_key="s", run_after_ms=2**50)] * 3)
    await client.enqueue("keyed", [Job(b""), Job(b"")])
    one, two = await client.dequeue(DequeueRequest("keyed", 2))
    await client.cancel("keyed", [one.descriptor], running=True)
    await client.ack("keyed", [Ack(two.descriptor, result=b"42")], [Ack(one.descriptor)])
    return {
        ("jobs_enqueued", "keyed", "1"): 6,
        ("jobs_deduplicated", "keyed", "kept"): 1,
        ("jobs_expired", "keyed"): 1,
        ("jobs_asked_to_stop", "keyed"): 1,
        ("jobs_cancelled", "keyed"): 1,
        ("jobs_acked", "keyed", "1", "cancelled"): 1,
        ("results_kept", "keyed"): 1,
        ("queue_jobs", "1", "keyed", "1", "scheduled"): 2,
        ("queue_jobs", "1", "keyed", "1", "waiting"): 2,
        ("queue_jobs", "1", "keyed", "1", "cancelled"): 1,
        ("blocked_chains", "1"): 1,
    }


async def a_schedule_that_fires_once(client: AsyncClient) -> Counts:
    await new_queue(client, "timed")
    soon_ms = time.time_ns() // 1_000_000 + 1_000
    once = ScheduleChange(
        name="soon", queue="timed", body=b"", every_ms=3_600_000, start_ms=soon_ms, end_ms=soon_ms + 1_800_000
    )
    assert (await client.update_schedule(once, PASSWORD)).view.next_ms == [soon_ms]
    return {
        ("jobs_enqueued", "timed", "1"): 1,
        ("schedule_firings", "timed", "stored"): 1,
        ("schedule_lateness", "timed"): 1,
    }


async def a_flow_that_ends(client: AsyncClient) -> Counts:
    """One of its two items has a dear expression."""
    stages = [Stage("first", "", "steps"), Stage("sums", "", "sums", "first", Applet(AppletKind.MAP, "[sum(payload)]"))]
    callback = CompletionCallback("flow_ends", "told")
    dear = NewItem(b"[%s]" % b",".join([b"1"] * 30_000))
    made = await client.create_flow(NewFlow("counted", stages, on_complete=callback, items={"first": [dear]}))
    await client.add_flow_items(made.id, "first", [NewItem(b"[2]")], seal=True)
    for queue in ("steps", "sums"):
        done = 0
        while done < 2:
            jobs = await client.dequeue(DequeueRequest(queue, 2, wait_ms=5_000))
            await client.ack(queue, [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs])
            done += len(jobs)
    return {
        ("flows_created",): 1,
        ("flow_items_added",): 2,
        ("flow_items_queued", "steps"): 2,
        ("flow_items_queued", "sums"): 2,
        ("flow_expressions", "made"): 1,
        ("flow_callbacks", "made"): 1,
    }


async def bodies_in_a_tier(client: AsyncClient, tier: Path) -> Counts:
    """Of three bodies one comes back, one is gone, and one cannot be read; a fourth cannot be put."""
    for name in ("photos", "walled"):
        await new_queue(client, name)
    bodies = {number: bytes([number]) * 300_000 for number in range(3)}
    files = {}
    for number, body in bodies.items():
        before = set(tier.rglob("*-*"))
        await client.enqueue("photos", Job(body))
        (files[number],) = {each for each in set(tier.rglob("*-*")) - before if each.is_file()}
    files[1].unlink()
    files[2].unlink()
    files[2].mkdir()
    (files[0].parents[2] / "walled").write_text("no folder")
    await client.enqueue("walled", Job(bodies[0]))
    (job,) = await client.dequeue(DequeueRequest("photos", 3))
    assert job.body == bodies[0]
    await client.ack("photos", [Ack(job.descriptor)])
    assert await client.delete_jobs(JobFilter("photos", JobState.SUCCEEDED, priority=1)) == 1
    return {
        ("body_seconds", "file", "put"): 3,
        ("body_seconds", "file", "get"): 1,
        ("body_failures", "file", "put"): 1,
        ("body_failures", "file", "get"): 1,
        ("body_fallbacks", "file"): 1,
        ("bodies_unread", "file"): 2,
        ("bodies_deleted", "file"): 1,
    }


async def changes_by_operators(client: AsyncClient) -> Counts:
    await new_queue(client, "operated")
    names = await client.enqueue("operated", [Job(b"")] * 6)
    await client.dequeue(DequeueRequest("operated", 4))
    await client.ack("operated", [], [Ack(name, permanent=True) for name in names[:4]])
    assert await client.retry_failed("operated", limit=1) == 1
    assert (await client.change_jobs(JobChange("operated", JobAction.RETRY, limit=1))).changed == 1
    assert await client.delete_jobs(JobFilter("operated", JobState.FAILED), limit=1) == 1
    assert (await client.change_jobs(JobChange("operated", JobAction.DELETE, JobState.FAILED))).changed == 1
    await client.cancel("operated", names[5:])
    return {("jobs_retried_by_operator", "operated"): 2, ("jobs_deleted_by_operator", "operated"): 3}


REFUSED: Mapping[str, tuple[str, str, Job]] = {
    "draining": ("draining", "true", Job(b"")),
    "pending": ("max_pending", "0", Job(b"")),
    "attempts": ("max_attempts", "1", Job(b"", attempts_allowed=2)),
    "body": ("max_body", "1B", Job(b"two")),
    "priority": ("max_attempts", "none", Job(b"", priority=9)),
    "invalid": ("max_attempts", "none", Job(b"", run_after_ms=2**53)),
}
"""By the reason that is counted: the setting of the queue, and a job that it does not take."""


async def enqueues_that_are_refused(client: AsyncClient) -> Counts:
    for reason, (key, value, job) in REFUSED.items():
        await new_queue(client, f"no_{reason}", **{key: value})
        with pytest.raises(PinLaterError) as refused:
            await client.enqueue(f"no_{reason}", [job])
        if reason in ("draining", "pending", "body"):
            assert refused.errisinstance((EnqueueRejected, BodyTooLarge))
    return {("enqueues_rejected", f"no_{reason}", reason): 1 for reason in REFUSED}


async def dequeues_that_are_limited(client: AsyncClient) -> Counts:
    await new_queue(client, "paused", paused="true")
    await new_queue(client, "slow", max_jobs_per_second="1/h")
    await new_queue(client, "narrow", max_in_progress="0")
    for queue in ("paused", "slow", "narrow"):
        await client.enqueue(queue, [Job(b"")] * 3)
    with pytest.raises(DequeueRateLimited):
        await client.dequeue(DequeueRequest("paused", 1))
    assert len(await client.dequeue(DequeueRequest("slow", 3))) == 1
    assert await client.dequeue(DequeueRequest("narrow", 1)) == []
    return {
        ("dequeues_limited", "paused", "paused"): 1,
        ("dequeues_limited", "slow", "rate"): 1,
        ("dequeues_limited", "narrow", "in_progress"): 1,
        ("jobs_dequeued", "slow", "1"): 1,
    }


async def groups_with_settings_of_their_own(client: AsyncClient) -> Counts:
    await new_queue(client, "tenants")
    for group, settings in (("acme", {"concurrency": "2"}), ("betty", {"paused": "true"}), ("b*", {"weight": "2"})):
        await client.update_group("tenants", group, PASSWORD, set=settings)
    await client.enqueue(
        "tenants", [ExtendedJob(b"", group=group) for group in ("acme", "betty", "bo", "") for _ in "123"]
    )
    assert len(await client.dequeue(DequeueRequest("tenants", 20))) == 8
    return {
        ("group_jobs_dequeued", "tenants", "acme"): 2,
        ("group_jobs_dequeued", "tenants", "other"): 6,
        ("group_ready_jobs", "tenants", "betty"): 3,
        ("group_ready_limited_jobs", "tenants", "betty"): 3,
        ("group_running_jobs", "tenants", "acme"): 2,
        ("group_running_jobs", "tenants", "other"): 6,
    }


async def failures_that_open_a_breaker(client: AsyncClient) -> Counts:
    """An attempt fails ten times a second, until nothing is handed out any more."""
    await new_queue(client, "fragile", pause_on_failures="50%/1/1h/24h")
    await client.enqueue("fragile", Job(b"", attempts_allowed=10_000))
    with pytest.raises(DequeueRateLimited):
        await _fail_all(client, "fragile")
    return {("breakers_opened", "fragile"): 1}


async def _fail_all(client: AsyncClient, queue: str) -> NoReturn:
    while True:
        jobs = await client.dequeue(DequeueRequest(queue, 1, wait_ms=5_000))
        await client.ack(queue, [], [Ack(job.descriptor, retry_delay_ms=100) for job in jobs])


async def calls_that_fail(client: AsyncClient) -> Counts:
    with pytest.raises(QueueNotFound):
        await client.dequeue(DequeueRequest("nowhere", 1))
    return {("call_errors", "dequeueJobs", "QUEUE_NOT_FOUND"): 1}


async def callers_that_are_gone(client: AsyncClient, port: int) -> Counts:
    """They ask for a job and hang up, until one was too late for its answer."""
    await new_queue(client, "gone")
    for asked in range(1, 20):
        await client.enqueue("gone", Job(b""))
        caller = await Plain.to(port)
        await caller.send("dequeueJobs", request=dequeue_to_wire(DequeueRequest("gone", 1)))
        caller.half_close()
        answer = await caller.answer()
        await caller.close()
        if not answer.success.jobs:
            return {("jobs_given_back", "gone"): 1, ("jobs_dequeued", "gone", "1"): asked}
    raise AssertionError("all were answered")


async def long_polls_beyond_the_bound(client: AsyncClient, port: int) -> list[Plain]:
    """Each of two processes lets one wait, so the third is refused; the others go on waiting."""
    await new_queue(client, "empty")
    callers = [await Plain.to(port) for _ in range(3)]
    for caller in callers:
        await caller.send("dequeueJobs", request=dequeue_to_wire(DequeueRequest("empty", 1, wait_ms=60_000)))
    return callers
