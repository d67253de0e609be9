"""Keys through the service: what an enqueue answers, who is told of freed jobs, and calls that name jobs by keys."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.errors import EnqueueRejected, PinLaterError, RequestInvalid
from pinlater.model import (
    Ack,
    CancelOutcome,
    DequeuedJob,
    DequeueRequest,
    EnqueuedJobs,
    EnqueueOutcome,
    ExtendedJob,
    Job,
    JobState,
    KeyRef,
    OnDuplicate,
    RequestContext,
    RescheduleJob,
    RescheduleOutcome,
)
from tests.conformance.served import QUEUE, Served

STORED, KEPT, REPLACED = EnqueueOutcome


def keyed(body: bytes = b"", dedupe_key: str = "a", **more: object) -> ExtendedJob:
    return ExtendedJob(body, dedupe_key=dedupe_key, **more)  # type: ignore[arg-type]


def counted(served: Served, *key: object) -> float:
    return served.api.metrics.counters[key]


def wait_for_jobs(served: Served, limit: int = 2) -> asyncio.Task[list[DequeuedJob]]:
    request = DequeueRequest(QUEUE, limit, wait_ms=30_000)
    return asyncio.create_task(served.api.dequeue(request, context=served.context))


# -- enqueue -----------------------------------------------------------------------------------------------------------


async def test_an_enqueue_says_what_was_kept_and_what_was_replaced(served: Served) -> None:
    first = await served.enqueue(keyed(b"1"), keyed(b"2", "b"))
    assert isinstance(first, EnqueuedJobs)
    assert list(first.outcomes) == []
    again = await served.enqueue(keyed(b"3"), keyed(b"4", "b", on_duplicate=OnDuplicate.REPLACE), keyed(b"5", "c"))
    assert isinstance(again, EnqueuedJobs)
    assert again[:2] == first
    assert list(again.outcomes) == [KEPT, REPLACED, STORED]
    found = await served.api.lookup(again, include_body=True)
    assert [found[each].body for each in again] == [b"1", b"4", b"5"]
    assert counted(served, "jobs_enqueued", QUEUE, 1) == 3
    assert counted(served, "jobs_deduplicated", QUEUE, "kept") == 1
    assert counted(served, "jobs_deduplicated", QUEUE, "replaced") == 1


async def test_a_duplicate_that_is_to_be_rejected_names_the_job_that_stands(served: Served) -> None:
    (descriptor,) = await served.enqueue(keyed())
    with pytest.raises(EnqueueRejected, match=descriptor) as raised:
        await served.enqueue(keyed(on_duplicate=OnDuplicate.REJECT))
    assert (raised.value.reason, raised.value.retryable) == ("DUPLICATE", False)
    assert await served.count(JobState.PENDING) == 1


async def test_a_job_is_replaced_by_none_of_another_priority(served: Served) -> None:
    (descriptor,) = await served.enqueue(keyed(b"1"))
    other = keyed(b"2", priority=2, on_duplicate=OnDuplicate.REPLACE)
    with pytest.raises(RequestInvalid, match=descriptor) as raised:
        await served.enqueue(keyed(b"3", "b"), other)
    assert raised.value.job_descriptors is not None
    stored, refused = raised.value.job_descriptors
    assert refused == ""
    assert (await served.info(stored)).dedupe_key == "b"


@pytest.mark.parametrize(
    ("jobs", "told"),
    [
        ([keyed(dedupe_key="x" * 256)], "dedupeKey .* 1 to 255 bytes"),
        ([keyed(dedupe_key="é" * 128)], "dedupeKey .* 1 to 255 bytes"),
        ([keyed(dedupe_key="@schedule/a/1")], "dedupeKey .* without @"),
        ([ExtendedJob(b"", serialize_key="@a")], "serializeKey .* without @"),
        ([ExtendedJob(b"", send_id="x" * 65)], "sendId .* 1 to 64 bytes"),
        ([keyed(dedupe_for_ms=-2)], "dedupeForMillis"),
        ([keyed(expires_at_ms=2**60)], "expiresAtMillis"),
        (
            [ExtendedJob(b"", on_duplicate=OnDuplicate.REPLACE, expires_at_ms=1)],
            "onDuplicate is 'REPLACE'; allowed: KEEP",
        ),
        ([keyed(), keyed(dedupe_key="b", on_duplicate=OnDuplicate.REJECT)], "onDuplicate is 'REJECT'"),
        ([keyed(), Job(b"")], "dedupeKey of job 2"),
        ([ExtendedJob(b"", serialize_key="a"), ExtendedJob(b"", serialize_key="b")], "dedupeKey of job 1"),
        ([ExtendedJob(b"", send_id="a"), Job(b"")], "dedupeKey of job 2"),
    ],
)
async def test_what_cannot_be_stored_is_refused_as_a_whole(served: Served, jobs: list[Job], told: str) -> None:
    with pytest.raises(RequestInvalid, match=told):
        await served.enqueue(*jobs)
    assert await served.count(JobState.PENDING) == 0
    assert counted(served, "enqueues_rejected", QUEUE, "invalid") == 1


async def test_an_empty_key_is_no_key_for_an_enqueue_and_names_no_job(served: Served) -> None:
    made = await served.enqueue(*[keyed(b"%d" % number, "", serialize_key="") for number in range(3)])
    assert len(set(made)) == 3
    assert [job.body for job in await served.dequeue(3)] == [b"0", b"1", b"2"]
    for nothing in (KeyRef(""), KeyRef("", "")):
        with pytest.raises(RequestInvalid, match="a key"):
            await served.api.lookup([], queue=QUEUE, keys=[nothing])
        with pytest.raises(RequestInvalid, match="a key"):
            await served.api.cancel(QUEUE, [], keys=[nothing], running=True, context=served.context)
    assert await served.count(JobState.IN_PROGRESS) == 3


async def test_several_jobs_of_one_serialize_key_need_no_other_key(served: Served) -> None:
    jobs = [ExtendedJob(b"%d" % number, serialize_key="a") for number in range(3)]
    await served.enqueue(*jobs)
    assert [job.body for job in await served.dequeue(3)] == [b"0"]


async def test_a_resend_gets_the_first_answer(served: Served) -> None:
    jobs = [ExtendedJob(b"%d" % number, send_id="once") for number in range(3)]
    first = await served.enqueue(*jobs)
    assert len(set(first)) == 3
    assert await served.enqueue(*jobs) == first
    assert await served.count(JobState.PENDING) == 3


async def test_waiting_jobs_count_as_pending(served: Served) -> None:
    await served.change(max_pending="3")
    await served.enqueue(*[ExtendedJob(b"", serialize_key="a") for _ in range(3)])
    with pytest.raises(EnqueueRejected):
        await served.enqueue(ExtendedJob(b"", serialize_key="a"))
    await served.api.count_pending()
    with pytest.raises(EnqueueRejected):
        await served.enqueue(Job(b""))


async def test_a_draining_queue_takes_no_keyed_job(served: Served) -> None:
    await served.change(draining="true")
    with pytest.raises(EnqueueRejected, match="draining"):
        await served.enqueue(keyed())


# -- freed jobs --------------------------------------------------------------------------------------------------------


async def test_a_long_poll_gets_the_next_of_a_key_when_the_first_has_ended(served: Served) -> None:
    await served.enqueue(*[ExtendedJob(b"%d" % number, serialize_key="a") for number in range(2)])
    (first,) = await served.dequeue(2)
    waiting = wait_for_jobs(served)
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await served.api.ack(QUEUE, [Ack(first.descriptor)], [])
    (second,) = await asyncio.wait_for(waiting, 60)
    assert second.body == b"1"


async def test_a_cancelled_first_frees_the_next(served: Served) -> None:
    later = ExtendedJob(b"0", serialize_key="a", run_after_ms=2**50)
    first, second = await served.enqueue(later, ExtendedJob(b"1", serialize_key="a"))
    assert (await served.info(second)).waits_for == first
    waiting = wait_for_jobs(served)
    await asyncio.sleep(0.05)
    assert await served.api.cancel(QUEUE, [first]) == {first: CancelOutcome.CANCELLED}
    (job,) = await asyncio.wait_for(waiting, 60)
    assert job.descriptor == second


async def test_a_deleted_queue_frees_those_who_wait_for_its_jobs(served: Served) -> None:
    await served.api.create_queue("other")
    await served.api.enqueue("other", [ExtendedJob(b"1", serialize_key="a")])
    await served.enqueue(ExtendedJob(b"2", serialize_key="a"))
    waiting = wait_for_jobs(served)
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await served.api.delete_queue("other", served.password)
    await served.maintain()
    (job,) = await asyncio.wait_for(waiting, 60)
    assert job.body == b"2"


async def test_an_expired_first_frees_the_next(served: Served) -> None:
    first = ExtendedJob(b"1", serialize_key="a", run_after_ms=2**50, expires_at_ms=served.clock.now_ms() + 1_000)
    await served.enqueue(first, ExtendedJob(b"2", serialize_key="a"))
    waiting = wait_for_jobs(served)
    await asyncio.sleep(0.05)
    served.clock.tick(1_001)
    await served.maintain()
    (job,) = await asyncio.wait_for(waiting, 60)
    assert job.body == b"2"


# -- calls by keys -----------------------------------------------------------------------------------------------------


async def test_jobs_are_found_by_their_keys(served: Served) -> None:
    (one,) = await served.enqueue(keyed(b"1", "a", serialize_key="s"))
    (two,) = await served.enqueue(keyed(b"2", "b"))
    found = await served.api.lookup([], queue=QUEUE, keys=[KeyRef("a", "s"), KeyRef("b"), KeyRef("", "s"), KeyRef("c")])
    assert {descriptor: info.dedupe_key for descriptor, info in found.items()} == {one: "a", two: "b"}
    assert found[one].serialize_key == "s"


@pytest.mark.parametrize("key", [KeyRef(), KeyRef("x" * 256), KeyRef(serialize_key="x" * 256)])
async def test_what_is_no_key_is_refused(served: Served, key: KeyRef) -> None:
    with pytest.raises(RequestInvalid):
        await served.api.lookup([], queue=QUEUE, keys=[key])
    with pytest.raises(RequestInvalid):
        await served.api.cancel(QUEUE, [], keys=[key])
    with pytest.raises(RequestInvalid):
        await served.api.reschedule(QUEUE, [RescheduleJob(key=key)])


async def test_jobs_are_cancelled_by_their_keys(served: Served) -> None:
    (descriptor,) = await served.enqueue(keyed())
    cancelled = await served.api.cancel(QUEUE, [], keys=[KeyRef("a"), KeyRef("b")])
    assert (dict(cancelled), cancelled.by_key) == ({}, [CancelOutcome.CANCELLED, CancelOutcome.NOT_FOUND])
    assert await served.api.lookup([descriptor]) == {}
    assert await served.enqueue(keyed()) != [descriptor]


async def test_jobs_are_rescheduled_by_descriptor_and_by_key(served: Served) -> None:
    (plain,) = await served.enqueue(Job(b"plain"))
    (named,) = await served.enqueue(keyed(b"named", run_after_ms=2**50))
    outcomes = await served.api.reschedule(
        QUEUE,
        [
            RescheduleJob(plain, run_after_ms=2**50),
            RescheduleJob(key=KeyRef("a"), run_after_ms=0, body=b"new", attempts_allowed=7),
            RescheduleJob(key=KeyRef("b")),
            RescheduleJob("nothing"),
            RescheduleJob(plain, run_after_ms=1, only_if_updated_at_ms=1),
        ],
    )
    assert [outcome.name for outcome in outcomes] == ["RESCHEDULED", "RESCHEDULED", "NOT_FOUND", "NOT_FOUND", "CHANGED"]
    (job,) = await served.dequeue(2)
    assert (job.descriptor, job.body, job.attempts_allowed) == (named, b"new", 7)
    (outcome,) = await served.api.reschedule(QUEUE, [RescheduleJob(named, run_after_ms=1)])
    assert outcome is RescheduleOutcome.IN_PROGRESS


async def test_the_audit_names_the_jobs_that_an_operator_rescheduled_and_none_of_programs(served: Served) -> None:
    (plain,) = await served.enqueue(Job(b"plain"))
    (named,) = await served.enqueue(keyed(b"named", run_after_ms=2**50))
    at_ms = 1_790_000_000_000
    both = [
        RescheduleJob(plain, run_after_ms=at_ms, attempts_allowed=7),
        RescheduleJob(key=KeyRef("a"), run_after_ms=at_ms, body=b"new", attempts_allowed=7),
        RescheduleJob("nothing", run_after_ms=at_ms, attempts_allowed=7),
    ]
    anna = RequestContext("anna")
    await served.api.reschedule(QUEUE, both, context=anna)
    await served.api.reschedule(QUEUE, [RescheduleJob("nothing", body=b"x")], audited=True, context=anna)
    assert "reschedule_jobs" not in {entry.action for entry in await served.api.audit()}
    await served.api.reschedule(QUEUE, both, audited=True, context=anna)
    await served.api.reschedule(QUEUE, [RescheduleJob(plain, run_after_ms=0, body=b"x")], audited=True)
    last, first = [entry for entry in await served.api.audit() if entry.action == "reschedule_jobs"]
    assert (first.who, first.action, first.target) == ("anna", "reschedule_jobs", QUEUE)
    what, _, jobs = first.detail.partition(", of ")
    assert what == "2 jobs, runs after 2026-09-21T14:13:20Z, gets attempts 7"
    assert sorted(jobs.split()) == sorted((plain, named))
    assert last.detail == f"1 job, runs at once, another body, of {plain}"


async def test_a_rescheduled_job_ends_a_long_poll(served: Served) -> None:
    (descriptor,) = await served.enqueue(Job(b"", run_after_ms=2**50))
    waiting = wait_for_jobs(served)
    await asyncio.sleep(0.05)
    await served.api.reschedule(QUEUE, [RescheduleJob(descriptor, run_after_ms=0)])
    assert [job.descriptor for job in await asyncio.wait_for(waiting, 60)] == [descriptor]


@pytest.mark.parametrize(
    "change",
    [
        RescheduleJob(),
        RescheduleJob("mail:s1:p1:1", key=KeyRef("a")),
        RescheduleJob(key=KeyRef(serialize_key="s")),
        RescheduleJob("mail:s1:p1:1", body=b"x" * (1024 * 1024 + 1)),
        RescheduleJob("mail:s1:p1:1", run_after_ms=2**60),
        RescheduleJob("mail:s1:p1:1", attempts_allowed=2**40),
    ],
    ids=str,
)
async def test_an_impossible_change_keeps_all_others_from_being_made(served: Served, change: RescheduleJob) -> None:
    (descriptor,) = await served.enqueue(Job(b"old"))
    with pytest.raises(PinLaterError):
        await served.api.reschedule(QUEUE, [RescheduleJob(descriptor, body=b"new"), change])
    assert [job.body for job in await served.dequeue(1)] == [b"old"]
