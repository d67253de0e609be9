"""Successors: newer jobs of a dedupe key that wait for the running one; and the bound of what replacements postpone."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from pinlater.backends.base import DeadLetterTarget
from pinlater.backends.extended import SEND_ID_KEPT_MS, KeyHolder, Offered, OfferOutcome, RescheduleRequest
from pinlater.model import (
    AckOutcome,
    CancelOutcome,
    DequeuedJob,
    HeartbeatOutcome,
    JobState,
    OnDuplicate,
    ReplaceRunning,
    RescheduleOutcome,
)
from pinlater.model.status_text import newer_waits_status, not_replaced_status
from tests.conformance.crowd import Crowd, at_once
from tests.conformance.extended_subject import (
    SLOT,
    expire_jobs,
    holder_of,
    offer,
    offer_all,
    offer_of,
    slots,
    stop,
    store,
)
from tests.conformance.subject import START_MS, TIMEOUT_MS, Subject, claim_key_of, key_of
from tests.conformance.test_requests_to_stop import beat
from tests.queues import drop_queue, make_queue

KEPT, STORED, REPLACED = OfferOutcome.KEPT, OfferOutcome.STORED, OfferOutcome.REPLACED
REPLACE: dict[str, Any] = {"dedupe_key": "d", "on_duplicate": OnDuplicate.REPLACE}
FOLLOW: dict[str, Any] = {**REPLACE, "replace_running": ReplaceRunning.ENQUEUE}
CANCEL: dict[str, Any] = {**REPLACE, "replace_running": ReplaceRunning.CANCEL, "by": "ann"}


async def running(subject: Subject, **fields: Any) -> tuple[str, DequeuedJob]:
    """A job of the key, in progress."""
    descriptor = await store(subject, b"1", **{"dedupe_key": "d", "attempts_allowed": 5, **fields})
    job = await subject.claimed()
    assert job.descriptor == descriptor
    return descriptor, job


async def pair(subject: Subject, **fields: Any) -> tuple[str, str]:
    """A running job and its successor."""
    descriptor, _ = await running(subject)
    return descriptor, await store(subject, b"2", **{**FOLLOW, **fields})


async def test_a_newer_job_waits_for_the_running_one(subject: Subject) -> None:
    old, _ = await running(subject)
    subject.tick(5)
    offered = await offer(subject, b"2", **FOLLOW)
    new = offered.descriptor
    assert offered == Offered(STORED, new)
    assert await holder_of(subject, "d") == KeyHolder(old, new)
    info = await subject.info(old)
    assert (info.state, info.successor, info.waits_for) == (JobState.IN_PROGRESS, new, None)
    assert (info.custom_status, info.updated_at_ms) == (newer_waits_status(subject.now_ms, new), START_MS)
    assert (info.cancel_requested_by, info.cancelled) == (None, None)
    info = await subject.info(new)
    assert (info.state, info.waits_for, info.successor) == (JobState.PENDING, old, None)
    assert (info.created_at_ms, info.dedupe_key) == (subject.now_ms, "d")
    assert [job.waits_for for job in await subject.scan()] == [old]
    assert [job.successor for job in await subject.scan(JobState.IN_PROGRESS)] == [new]
    assert await subject.claim(10) == []
    assert await subject.succeed(old) is AckOutcome.SUCCEEDED
    assert await holder_of(subject, "d") == KeyHolder(new)
    assert (await subject.info(old)).successor is None
    job = await subject.claimed()
    assert (job.descriptor, job.body) == (new, b"2")
    assert await subject.succeed(new) is AckOutcome.SUCCEEDED
    assert await holder_of(subject, "d") == KeyHolder(new)
    await store(subject, dedupe_key="d")


async def test_a_third_one_takes_the_place_of_the_successor(subject: Subject) -> None:
    old, new = await pair(subject)
    subject.tick(5)
    due_ms = subject.now_ms + 7
    third = await offer(subject, b"3", attempts_allowed=9, run_after_ms=due_ms, **FOLLOW)
    assert third == Offered(REPLACED, new)
    assert await offer(subject, b"4", priority=2, **FOLLOW) == Offered(OfferOutcome.DIFFERENT, new)
    info = await subject.info(new)
    assert (info.body, info.attempts_allowed, info.run_after_ms) == (b"3", 9, due_ms)
    assert (info.created_at_ms, info.updated_at_ms) == (START_MS, subject.now_ms)
    await subject.succeed(old)
    assert await subject.claim() == []
    subject.tick(7)
    assert (await subject.claimed()).body == b"3"


async def test_a_replacement_that_keeps_what_runs_replaces_what_waits(subject: Subject) -> None:
    old, new = await pair(subject)
    for rules in ({}, {"on_duplicate": OnDuplicate.KEEP}):
        assert await offer(subject, dedupe_key="d", **rules) == Offered(KEPT, old)
    rejected = await offer(subject, dedupe_key="d", on_duplicate=OnDuplicate.REJECT)
    assert rejected == Offered(OfferOutcome.REJECTED, old)
    assert await offer(subject, b"3", **REPLACE) == Offered(REPLACED, new)
    status = (await subject.info(old)).custom_status
    assert not_replaced_status(START_MS) not in status
    await subject.succeed(old)
    assert (await subject.claimed()).body == b"3"


async def test_a_successor_may_have_another_priority_than_the_running_job(subject: Subject) -> None:
    old, new = await pair(subject, priority=2)
    assert await holder_of(subject, "d") == KeyHolder(old, new)
    assert (await offer(subject, b"3", priority=2, **FOLLOW)).outcome is REPLACED
    await subject.succeed(old)
    assert (await subject.claimed(priorities=(2,))).descriptor == new


async def test_without_a_running_job_the_rules_change_nothing(subject: Subject) -> None:
    first = await store(subject, b"1", **CANCEL)
    assert await offer(subject, b"2", **CANCEL) == Offered(REPLACED, first, START_MS)
    await subject.claimed()
    assert await subject.fail(first) is AckOutcome.RETRIED
    assert await offer(subject, b"3", **FOLLOW) == Offered(REPLACED, first, START_MS)
    info = await subject.info(first)
    assert (info.cancel_requested_by, info.successor, info.custom_status) == (None, None, "")


async def test_a_bound_alone_keeps_what_runs(subject: Subject) -> None:
    old, _ = await running(subject)
    assert await offer(subject, b"2", replace_within_ms=10, **REPLACE) == Offered(KEPT, old)
    assert (await subject.info(old)).custom_status == not_replaced_status(START_MS)


async def test_offers_of_one_call_see_a_successor(subject: Subject) -> None:
    old, _ = await running(subject)
    bodies = (b"2", b"3", b"4")
    stored, second, third = await offer_all(subject, *[offer_of(body, **FOLLOW) for body in bodies])
    assert [each.outcome for each in (stored, second, third)] == [STORED, REPLACED, REPLACED]
    assert (await holder_of(subject, "d")) == KeyHolder(old, stored.descriptor)
    assert (await subject.info(stored.descriptor)).body == b"4"
    assert (await subject.info(old)).custom_status == newer_waits_status(START_MS, stored.descriptor)


# -- how the running job ends ------------------------------------------------------------------------------------------


async def test_a_running_job_with_a_successor_is_not_tried_again(subject: Subject) -> None:
    """Whatever would send it back ends it as cancelled, and the successor begins at once."""
    for way in range(6):
        old, job = await running(subject)
        new = await store(subject, b"2", **FOLLOW)
        assert (await beat(subject, job)).outcome is HeartbeatOutcome.OK
        if way == 0:
            assert await subject.fail(old, append_status="it failed") is AckOutcome.CANCELLED
        elif way == 1:
            assert await subject.requeue(job) == 1
        elif way == 2:
            assert await subject.checkpoint(old, move_to_pending=True)
        elif way == 3:
            assert (await subject.expire_disconnected(job)).cancelled == 1
        elif way == 4:
            assert await subject.requeue_undelivered(job) == 1
        else:
            subject.tick(TIMEOUT_MS + 1)
            assert (await subject.expire(dead_letters=True))[subject.queue].cancelled == 1
        info = await subject.info(old)
        assert (info.state, info.cancelled, info.cancel_requested_by) == (JobState.FAILED, True, None)
        assert info.attempts_remaining == 0
        assert (await subject.claimed()).descriptor == new, way
        assert await subject.succeed(new) is AckOutcome.SUCCEEDED
    assert await subject.dead_letter({subject.queue: DeadLetterTarget(subject.queue, 1)}) == {}


@pytest.mark.parametrize("permanent", [True, False])
async def test_a_failure_for_good_is_one_beside_a_successor_too(subject: Subject, permanent: bool) -> None:
    letters = await subject.beside("letters")
    old, _ = await running(subject, attempts_allowed=5 if permanent else 1)
    new = await store(subject, b"2", **FOLLOW)
    assert await subject.ack_with(old, False, permanent=permanent, dead_letters=True) is AckOutcome.FAILED
    assert (await subject.info(old)).cancelled is None
    assert (await subject.claimed()).descriptor == new
    assert await subject.dead_letter({subject.queue: DeadLetterTarget("letters", 1)}) == {subject.queue: 1}
    (letter,) = await letters.scan()
    assert await subject.retry_listed(old) == 0
    assert await letters.replay(letter.descriptor) == [None]


async def test_a_claim_that_expires_for_the_last_time_fails_beside_a_successor(subject: Subject) -> None:
    old, _ = await running(subject, attempts_allowed=1)
    new = await store(subject, b"2", **FOLLOW)
    subject.tick(TIMEOUT_MS + 1)
    counts = (await subject.expire())[subject.queue]
    assert (counts.failed, counts.cancelled) == (1, 0)
    assert (await subject.info(old)).cancelled is None
    assert (await subject.claimed()).descriptor == new


async def test_whatever_removes_a_running_job_frees_its_successor(subject: Subject) -> None:
    old, new = await pair(subject)
    assert await subject.delete(JobState.IN_PROGRESS) == 1
    assert await subject.find(old) is None
    assert await holder_of(subject, "d") == KeyHolder(new)
    assert (await subject.claimed()).descriptor == new
    newest = await store(subject, b"3", **FOLLOW)
    assert await subject.ack_with(new, True, keep_succeeded=False) is AckOutcome.SUCCEEDED
    assert (await subject.claimed()).descriptor == newest


async def test_a_moved_job_hands_its_key_over(subject: Subject) -> None:
    old, job = await running(subject)
    new = await store(subject, b"2", **FOLLOW)
    assert await subject.move(job, "mail:s2:p1:1000000000000001")
    assert (await subject.info(old)).moved_to is not None
    assert (await subject.claimed()).descriptor == new


async def test_no_window_of_the_one_before_counts(subject: Subject) -> None:
    old, _ = await running(subject, dedupe_for_ms=10_000, send_id="first")
    new = await store(subject, b"2", dedupe_for_ms=1_000, send_id="second", **FOLLOW)
    await subject.succeed(old)
    await subject.claimed()
    await subject.succeed(new)
    assert (await offer(subject, dedupe_key="d")) == Offered(KEPT, new)
    subject.tick(1_000)
    await store(subject, dedupe_key="d")
    assert await offer(subject, send_id="first") == Offered(STORED, old)
    assert await offer(subject, send_id="second") == Offered(STORED, new)


async def test_a_send_id_of_a_replacement_names_the_successor(subject: Subject) -> None:
    old, new = await pair(subject)
    assert await offer(subject, b"3", send_id="s", **FOLLOW) == Offered(REPLACED, new)
    await subject.succeed(old)
    assert await offer(subject, b"4", send_id="s", **FOLLOW) == Offered(REPLACED, new)
    assert (await subject.info(new)).body == b"3"
    subject.tick(SEND_ID_KEPT_MS)
    assert await offer(subject, b"4", send_id="s", **FOLLOW) == Offered(REPLACED, new, subject.now_ms)


# -- how a successor ends ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["cancel", "delete", "expire"])
async def test_a_successor_that_goes_leaves_the_running_job_as_it_was(subject: Subject, way: str) -> None:
    old, new = await pair(subject, expires_at_ms=START_MS + 100)
    if way == "cancel":
        assert await subject.cancel(new) == [CancelOutcome.CANCELLED]
    elif way == "delete":
        assert await subject.delete(JobState.PENDING) == 1
    else:
        subject.tick(100)
        assert await expire_jobs(subject) == 1
    assert await holder_of(subject, "d") == KeyHolder(old)
    info = await subject.info(old)
    assert (info.successor, info.cancel_requested_by) == (None, None)
    assert await offer(subject, **REPLACE) == Offered(KEPT, old)
    assert await subject.fail(old) is AckOutcome.RETRIED
    assert (await subject.info(old)).waits_for is None
    assert (await subject.claimed()).descriptor == old
    again = await store(subject, b"3", **FOLLOW)
    assert await holder_of(subject, "d") == KeyHolder(old, again)
    assert await subject.fail(old) is AckOutcome.CANCELLED
    assert (await subject.claimed()).descriptor == again


async def test_a_successor_whose_time_is_over_is_not_handed_out(subject: Subject) -> None:
    old, new = await pair(subject, expires_at_ms=START_MS + 100)
    subject.tick(100)
    await subject.succeed(old)
    assert await subject.claim() == []
    assert await holder_of(subject, "d") == KeyHolder(new)
    assert await expire_jobs(subject) == 1
    assert (await subject.info(new)).state is JobState.FAILED
    await store(subject, dedupe_key="d")


async def test_a_successor_is_rescheduled_as_a_pending_job(subject: Subject) -> None:
    old, new = await pair(subject)
    request = RescheduleRequest(*key_of(new), run_after_ms=START_MS + 50, body=b"other")
    outcomes = await subject.shard.reschedule(subject.queue, [request], subject.now_ms)
    assert outcomes == [RescheduleOutcome.RESCHEDULED]
    await subject.succeed(old)
    assert await subject.claim() == []
    subject.tick(50)
    assert (await subject.claimed()).body == b"other"


async def test_a_deleted_queue_takes_a_pair_with_it(subject: Subject) -> None:
    await pair(subject)
    assert await drop_queue(subject.shard, subject.queue, subject.tick(1))
    assert await make_queue(subject.shard, subject.queue, subject.tick(1))
    while await subject.prune():
        pass
    assert await slots(subject) == []
    old, new = await pair(subject)
    assert await holder_of(subject, "d") == KeyHolder(old, new)


# -- cancel ------------------------------------------------------------------------------------------------------------


async def test_a_newer_job_has_the_running_one_stopped(subject: Subject) -> None:
    old, job = await running(subject)
    new = await store(subject, b"2", **CANCEL)
    assert await beat(subject, job) == (HeartbeatOutcome.CANCEL, "ann")
    assert (await subject.info(old)).cancel_requested_by == "ann"
    assert await subject.fail(old, permanent=True) is AckOutcome.CANCELLED
    assert (await subject.claimed()).descriptor == new


async def test_a_success_counts_although_a_newer_job_had_it_stopped(subject: Subject) -> None:
    old, _ = await running(subject)
    new = await store(subject, b"2", **CANCEL)
    assert await subject.succeed(old) is AckOutcome.SUCCEEDED
    assert (await subject.claimed()).descriptor == new


async def test_a_third_one_may_have_the_running_job_stopped(subject: Subject) -> None:
    old, job = await running(subject)
    new = await store(subject, b"2", **FOLLOW)
    assert (await beat(subject, job)).outcome is HeartbeatOutcome.OK
    assert await offer(subject, b"3", priority=2, **CANCEL) == Offered(OfferOutcome.DIFFERENT, new)
    assert (await beat(subject, job)).outcome is HeartbeatOutcome.OK
    assert await offer(subject, b"3", **CANCEL) == Offered(REPLACED, new)
    assert await beat(subject, job) == (HeartbeatOutcome.CANCEL, "ann")
    assert await offer(subject, b"4", **{**CANCEL, "by": "bob"}) == Offered(REPLACED, new)
    assert await beat(subject, job) == (HeartbeatOutcome.CANCEL, "ann")
    assert await subject.cancel(new) == [CancelOutcome.CANCELLED]
    assert await subject.fail(old) is AckOutcome.CANCELLED


async def test_an_operator_stops_a_running_job_that_has_a_successor(subject: Subject) -> None:
    old, job = await running(subject)
    new = await store(subject, b"2", **FOLLOW)
    assert await stop(subject, old, "ops") is CancelOutcome.REQUESTED
    assert await beat(subject, job) == (HeartbeatOutcome.CANCEL, "ops")
    assert await subject.fail(old) is AckOutcome.CANCELLED
    assert (await subject.claimed()).descriptor == new
    newest = await store(subject, b"3", **FOLLOW)
    by_descriptor = await subject.shard.cancel(subject.queue, [key_of(new), key_of(newest)], subject.now_ms, "ops")
    assert by_descriptor == [CancelOutcome.REQUESTED, CancelOutcome.CANCELLED]
    assert await holder_of(subject, "d") == KeyHolder(new)


async def test_an_expired_claim_says_whether_its_job_was_asked_to_stop(subject: Subject) -> None:
    old, job = await running(subject)
    await store(subject, b"2", **FOLLOW)
    subject.tick(TIMEOUT_MS + 1)
    (claim,) = (await subject.shard.expired_claims([subject.queue], 9, subject.now_ms))[subject.queue]
    assert (claim.claim_descriptor, claim.is_to_stop) == (claim_key_of(job).claim_descriptor, False)
    await stop(subject, old)
    (claim,) = (await subject.shard.expired_claims([subject.queue], 9, subject.now_ms))[subject.queue]
    assert claim.is_to_stop


async def test_a_cancelled_predecessor_is_retried_once_its_key_is_free(subject: Subject) -> None:
    old, new = await pair(subject)
    await subject.fail(old)
    assert await subject.retry_listed(old) == 0
    await subject.claimed()
    await subject.succeed(new)
    assert await subject.retry_listed(old) == 1
    info = await subject.info(old)
    assert (info.state, info.cancelled, info.cancel_requested_by) == (JobState.PENDING, None, None)
    assert await holder_of(subject, "d") == KeyHolder(old)
    await subject.claimed()
    assert await subject.fail(old) is AckOutcome.RETRIED


# -- with a serialize key ----------------------------------------------------------------------------------------------


async def test_a_successor_keeps_its_place_among_the_jobs_of_its_serialize_key(subject: Subject) -> None:
    old, _ = await running(subject, serialize_key="k")
    between = await store(subject, b"between", serialize_key="k")
    new = await store(subject, b"2", serialize_key="k", **FOLLOW)
    assert await holder_of(subject, "d", "k") == KeyHolder(old, new)
    assert (await subject.info(new)).waits_for == old
    assert await subject.fail(old) is AckOutcome.CANCELLED
    assert await holder_of(subject, "d", "k") == KeyHolder(new)
    assert (await subject.info(new)).waits_for == between
    assert [job.descriptor for job in await subject.claim(10)] == [between]
    await subject.succeed(between)
    assert (await subject.claimed()).descriptor == new
    await subject.succeed(new)
    assert await subject.shard.has_chains(["k"]) == [False]


async def test_a_successor_that_is_next_in_its_chain_is_freed_once(subject: Subject) -> None:
    old, _ = await running(subject, serialize_key="k")
    new = await store(subject, b"2", serialize_key="k", **FOLLOW)
    await subject.succeed(old)
    assert [job.descriptor for job in await subject.claim(10)] == [new]
    assert await slots(subject) == [SLOT]


# -- homes -------------------------------------------------------------------------------------------------------------


async def test_a_shard_that_takes_no_jobs_takes_no_successor(subject: Subject) -> None:
    old, job = await running(subject)
    closed = {"only_if_known": True, "takes_no_jobs": True}
    assert await offer(subject, b"2", **closed, **CANCEL) == Offered(OfferOutcome.RUNS_HERE, old)
    assert (await beat(subject, job)).outcome is HeartbeatOutcome.OK
    assert await holder_of(subject, "d") == KeyHolder(old)
    new = await store(subject, b"2", **FOLLOW)
    assert await offer(subject, b"3", **closed, **FOLLOW) == Offered(REPLACED, new)
    await subject.succeed(old)
    assert await offer(subject, b"4", **closed, **FOLLOW) == Offered(REPLACED, new, START_MS)


async def test_a_former_home_takes_a_successor(subject: Subject) -> None:
    old, _ = await running(subject)
    offered = await offer(subject, b"2", only_if_known=True, **FOLLOW)
    assert offered.outcome is STORED
    assert await holder_of(subject, "d") == KeyHolder(old, offered.descriptor)


# -- debounce ----------------------------------------------------------------------------------------------------------


async def test_replacements_postpone_a_job_up_to_a_bound(subject: Subject) -> None:
    rules: dict[str, Any] = {**REPLACE, "replace_within_ms": 10_000}
    descriptor = await store(subject, b"0", run_after_ms=START_MS + 4_000, **rules)
    due_ms = []
    for number in range(1, 5):
        subject.tick(3_000)
        offered = await offer(subject, b"%d" % number, run_after_ms=subject.now_ms + 4_000, **rules)
        info = await subject.info(descriptor)
        assert offered == Offered(REPLACED, descriptor, info.run_after_ms)
        due_ms.append(info.run_after_ms - START_MS)
    assert due_ms == [7_000, 10_000, 10_000, 10_000]
    assert (await subject.claimed()).body == b"4"


async def test_the_bound_pulls_nothing_in(subject: Subject) -> None:
    """A job that stands later than the bound stays there, unless a replacement wants it sooner."""
    rules: dict[str, Any] = {**REPLACE, "replace_within_ms": 1_000}
    descriptor = await store(subject, run_after_ms=START_MS + 60_000, **rules)
    subject.tick(5_000)
    for wanted_ms, expected_ms in ((70_000, 60_000), (50_000, 50_000), (55_000, 50_000), (500, 500), (700, 700)):
        offered = await offer(subject, run_after_ms=START_MS + wanted_ms, **rules)
        assert offered == Offered(REPLACED, descriptor, START_MS + expected_ms)
    assert await offer(subject, **rules) == Offered(REPLACED, descriptor, START_MS + 1_000)
    assert await offer(subject, run_after_ms=START_MS + 90_000, **REPLACE) == Offered(
        REPLACED, descriptor, START_MS + 90_000
    )


async def test_the_bound_of_a_successor_counts_from_its_own_enqueue(subject: Subject) -> None:
    old, _ = await running(subject)
    subject.tick(5_000)
    rules: dict[str, Any] = {**FOLLOW, "replace_within_ms": 2_000}
    new = await store(subject, b"2", **rules)
    assert await offer(subject, b"3", run_after_ms=subject.now_ms + 9_000, **rules) == Offered(REPLACED, new)
    assert (await subject.info(new)).run_after_ms == subject.now_ms + 2_000
    await subject.succeed(old)


async def test_offers_of_one_call_are_bounded_each(subject: Subject) -> None:
    bounded: dict[str, Any] = {"on_duplicate": OnDuplicate.REPLACE, "replace_within_ms": 1_000}
    await store(subject, dedupe_key="a")
    await store(subject, dedupe_key="b")
    offers = [
        offer_of(dedupe_key=key, run_after_ms=START_MS + wanted_ms, **bounded)
        for key, wanted_ms in (("a", 5_000), ("c", 5_000), ("b", 400))
    ]
    answers = await offer_all(subject, *offers)
    assert [each.ready_at_ms for each in answers] == [START_MS + 1_000, START_MS + 5_000, START_MS + 400]


# -- many at once ------------------------------------------------------------------------------------------------------


async def test_many_callers_store_one_successor_of_each_key(crowd: Crowd) -> None:
    first = crowd[0]
    await offer_all(first, *[offer_of(dedupe_key=str(key)) for key in range(10)])
    running_jobs = await first.claim(10)
    fields = {"on_duplicate": OnDuplicate.REPLACE, "replace_running": ReplaceRunning.ENQUEUE}
    offers = [offer_of(dedupe_key=str(key), **fields) for key in range(10)]
    answers = await at_once(
        *(partial(offer_all, subject, *offers) for subject in crowd),
        partial(first.ack_all, [job.descriptor for job in running_jobs]),
    )
    live = [each for answer in answers[:-1] for each in answer]
    assert {each.outcome for each in live} <= {STORED, REPLACED}
    assert len({each.descriptor for each in live}) == 10
    assert len(await first.claim(100)) == 10
