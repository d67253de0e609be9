"""Jobs of one serialize key: one at a time, in order, in whichever queues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pinlater.backends.base import NO_RULES, AckRequest, DeadLetterTarget, EndRules, PerQueue
from pinlater.backends.extended import Barrier, OfferOutcome
from pinlater.model import AckOutcome, CancelOutcome, JobState
from tests.conformance.crowd import Crowd, at_once
from tests.conformance.extended_subject import found, offer, offer_all, offer_of, slots, stop, store
from tests.conformance.subject import START_MS, TIMEOUT_MS, Subject, key_of, new_name
from tests.queues import drop_queue


async def claims(subject: Subject) -> list[bytes]:
    return [job.body for job in await subject.claim(10)]


async def test_they_are_handed_out_one_at_a_time_in_order(subject: Subject) -> None:
    offered = await offer_all(subject, *[offer_of(body, serialize_key="k") for body in (b"1", b"2", b"3")])
    assert [each.ready_at_ms for each in offered] == [START_MS, None, None]
    for body in (b"1", b"2", b"3"):
        (job,) = await subject.claim(10)
        assert job.body == body
        assert await claims(subject) == []
        assert await subject.succeed(job.descriptor) is AckOutcome.SUCCEEDED
    assert await claims(subject) == []
    assert await slots(subject) == []
    assert await subject.shard.has_chains(["k", "other"]) == [False, False]


async def test_other_keys_and_jobs_without_one_do_not_wait(subject: Subject) -> None:
    await offer_all(subject, *[offer_of(serialize_key=key) for key in ("a", "a", "b")])
    await subject.job()
    assert len(await subject.claim(10)) == 3


async def test_what_waits_is_pending_and_neither_ready_nor_scheduled(subject: Subject) -> None:
    first, second = [each.descriptor for each in await offer_all(subject, *[offer_of(serialize_key="k")] * 2)]
    info = await subject.info(second)
    assert (info.state, info.waits_for, info.serialize_key) == (JobState.PENDING, first, "k")
    assert (await subject.info(first)).waits_for is None
    assert await subject.count(JobState.PENDING) == 2
    assert [info.descriptor for info in await subject.scan()] == [first, second]
    levels = (await subject.shard.stats(subject.queue, [1], subject.now_ms, None, 1000)).levels
    assert (levels[1].ready, levels[1].scheduled, levels[1].waiting) == (1, 0, 1)
    assert await subject.shard.count_ready(subject.queue, [1], 10, subject.now_ms) == [1]


async def test_a_chain_goes_through_several_queues(subject: Subject) -> None:
    other = await subject.beside("post")
    first = await store(subject, b"1", serialize_key="k")
    second = await store(other, b"2", serialize_key="k")
    third = await store(subject, b"3", serialize_key="k")
    assert await claims(other) == []
    assert (await other.info(second)).waits_for == first
    assert await claims(subject) == [b"1"]
    await subject.succeed(first)
    assert await claims(subject) == []
    assert await claims(other) == [b"2"]
    assert (await subject.info(third)).waits_for == second
    await other.fail(second, permanent=True)
    assert await claims(subject) == [b"3"]


async def test_a_job_that_comes_in_while_the_first_one_ends_is_handed_out(crowd: Crowd) -> None:
    one, *others = crowd
    for number in range(20):
        key = new_name("key")
        await offer(one, b"first", serialize_key=key)
        first = await one.claimed()
        await at_once(
            lambda first=first: one.succeed(first.descriptor),
            *[lambda key=key, each=each: offer(each, b"behind", serialize_key=key) for each in 2 * others],
        )
        for _ in 2 * others:
            behind = await one.claim(10)
            assert [job.body for job in behind] == [b"behind"], f"in turn {number}"
            await one.succeed(behind[0].descriptor)


async def by_success(subject: Subject, descriptor: str) -> None:
    await subject.succeed((await subject.claimed()).descriptor)


async def by_success_not_kept(subject: Subject, descriptor: str) -> None:
    await subject.claimed()
    await subject.ack_with(descriptor, True, keep_succeeded=False)


async def by_failure(subject: Subject, descriptor: str) -> None:
    await subject.claimed()
    await subject.fail(descriptor, permanent=True)


async def by_crash_budget(subject: Subject, descriptor: str) -> None:
    await subject.claimed()
    subject.tick(TIMEOUT_MS + 1)
    await subject.expire(budget=1)


async def by_disconnect(subject: Subject, descriptor: str) -> None:
    await subject.expire_disconnected(await subject.claimed(), budget=1)


async def by_cancel(subject: Subject, descriptor: str) -> None:
    assert await subject.cancel(descriptor) == [CancelOutcome.CANCELLED]


async def by_delete(subject: Subject, descriptor: str) -> None:
    assert await subject.delete(JobState.PENDING, limit=1) == 1


async def by_listed_delete(subject: Subject, descriptor: str) -> None:
    assert await subject.delete_listed(JobState.PENDING, descriptor) == 1


async def by_delete_in_progress(subject: Subject, descriptor: str) -> None:
    await subject.claimed()
    assert await subject.delete_listed(JobState.IN_PROGRESS, descriptor) == 1


async def by_move(subject: Subject, descriptor: str) -> None:
    await subject.move(await subject.claimed(), "mail:s2:p1:1")


async def by_stopped_failure(subject: Subject, descriptor: str) -> None:
    await subject.claimed()
    await stop(subject, descriptor)
    assert await subject.fail(descriptor) is AckOutcome.CANCELLED


async def by_stopped_requeue(subject: Subject, descriptor: str) -> None:
    job = await subject.claimed()
    await stop(subject, descriptor)
    assert await subject.requeue(job) == 1


async def by_expiry(subject: Subject, descriptor: str) -> None:
    subject.tick(60_000)
    counts = await subject.shard.expire_jobs(10, subject.now_ms, EVERYWHERE)
    assert counts == {subject.queue: 1}


EVERYWHERE = PerQueue(NO_RULES)

Way = Callable[[Subject, str], Awaitable[None]]
WAYS: list[Way] = [
    by_success,
    by_success_not_kept,
    by_failure,
    by_crash_budget,
    by_disconnect,
    by_cancel,
    by_delete,
    by_listed_delete,
    by_delete_in_progress,
    by_move,
    by_stopped_failure,
    by_stopped_requeue,
    by_expiry,
]


@pytest.mark.parametrize("end", WAYS, ids=lambda way: way.__name__)
async def test_every_end_frees_the_next_one_in_its_step(subject: Subject, end: Way) -> None:
    first = await store(subject, b"1", serialize_key="k", expires_at_ms=START_MS + 60_000)
    await store(subject, b"2", serialize_key="k")
    await end(subject, first)
    assert await claims(subject) == [b"2"]


async def test_a_retry_a_requeue_and_a_lapsed_claim_leave_it_the_first(subject: Subject) -> None:
    first = await store(subject, b"1", serialize_key="k", attempts_allowed=9)
    await store(subject, b"2", serialize_key="k")
    await subject.claimed()
    assert await subject.fail(first, retry_delay_ms=1000) is AckOutcome.RETRIED
    assert await claims(subject) == []
    subject.tick(1000)
    job = await subject.claimed()
    assert await subject.requeue(job) == 1
    assert (await subject.claimed()).body == b"1"
    assert await subject.checkpoint(first, move_to_pending=True)
    assert (await subject.claimed()).body == b"1"
    subject.tick(TIMEOUT_MS + 1)
    await subject.expire()
    assert (await subject.claimed()).body == b"1"


async def test_the_end_of_one_that_waits_leaves_the_others_in_order(subject: Subject) -> None:
    first, second, _ = [
        each.descriptor
        for each in await offer_all(subject, *[offer_of(body, serialize_key="k") for body in (b"1", b"2", b"3")])
    ]
    assert await subject.cancel(second) == [CancelOutcome.CANCELLED]
    assert await claims(subject) == [b"1"]
    await subject.succeed(first)
    assert await claims(subject) == [b"3"]


async def test_ends_of_a_whole_chain_in_one_call(subject: Subject) -> None:
    offered = await offer_all(subject, *[offer_of(serialize_key=key) for key in "aaabbc"])
    outcomes = await subject.cancel(*[each.descriptor for each in offered])
    assert outcomes == [CancelOutcome.CANCELLED] * 6
    assert await slots(subject) == []
    assert await subject.shard.has_chains(["a", "b", "c"]) == [False] * 3
    assert await subject.count(JobState.PENDING) == 0


async def test_a_retry_by_an_operator_takes_a_place_at_the_end(subject: Subject) -> None:
    first = await store(subject, b"1", serialize_key="k")
    await store(subject, b"2", serialize_key="k")
    await by_failure(subject, first)
    await store(subject, b"3", serialize_key="k")
    assert await subject.retry_failed() == 1
    order = []
    for _ in range(3):
        (job,) = await subject.claim(10)
        order.append(job.body)
        await subject.succeed(job.descriptor)
    assert order == [b"2", b"3", b"1"]


async def test_a_replay_takes_a_place_at_the_end_and_a_dead_letter_none(subject: Subject) -> None:
    letters = await subject.beside("letters")
    first = await store(subject, b"1", serialize_key="k", dedupe_key="d")
    await store(subject, b"2", serialize_key="k")
    await subject.claimed()
    await subject.ack_with(first, False, permanent=True, dead_letters=True)
    assert await subject.dead_letter({subject.queue: DeadLetterTarget("letters", 1)}) == {subject.queue: 1}
    (letter,) = await letters.scan()
    assert (letter.serialize_key, letter.dedupe_key, letter.waits_for) == ("k", "d", None)
    assert await claims(subject) == [b"2"]
    (replayed,) = await letters.replay(letter.descriptor)
    assert replayed is not None
    assert (await subject.info(replayed)).serialize_key == "k"
    assert await claims(subject) == []
    (second,) = await subject.scan(JobState.IN_PROGRESS)
    await subject.succeed(second.descriptor)
    assert [job.descriptor for job in await subject.claim(10)] == [replayed]


async def test_those_behind_a_deleted_queue_are_freed_by_prune(subject: Subject) -> None:
    other = await subject.beside("post")
    await offer_all(other, *[offer_of(serialize_key="k", dedupe_key=str(each)) for each in range(5)])
    await store(subject, b"2", serialize_key="k")
    assert await drop_queue(subject.shard, "post", subject.tick(1))
    await subject.prune()
    assert await claims(subject) == [b"2"]
    (job,) = await subject.scan(JobState.IN_PROGRESS)
    await subject.succeed(job.descriptor)
    await subject.prune()
    assert await slots(subject) == []


async def test_the_first_job_of_a_key_is_found(subject: Subject) -> None:
    first, second = [each.descriptor for each in await offer_all(subject, *[offer_of(serialize_key="k")] * 2)]
    assert await found(subject, serialize_key="k") == first
    await subject.cancel(first)
    assert await found(subject, serialize_key="k") == second
    await subject.cancel(second)
    assert await found(subject, serialize_key="k") is None


async def test_chains_that_are_blocked_are_told(subject: Subject) -> None:
    await offer_all(subject, *[offer_of(serialize_key="long")] * 4)
    subject.tick(1000)
    await offer_all(subject, *[offer_of(serialize_key="short")] * 2)
    await store(subject, serialize_key="alone")
    chains = await subject.shard.blocked_chains(5, subject.now_ms)
    assert [(each.serialize_key, each.waiting, each.since_ms) for each in chains] == [
        ("long", 3, START_MS),
        ("short", 1, START_MS + 1000),
    ]
    assert chains[0].first == await found(subject, serialize_key="long")


async def test_a_barrier_keeps_the_first_job_waiting(subject: Subject) -> None:
    first = await offer(subject, b"1", serialize_key="k", behind="b2")
    second = await offer(subject, b"2", serialize_key="k", behind="b2")
    assert (first.outcome, first.ready_at_ms, second.ready_at_ms) == (OfferOutcome.STORED, None, None)
    assert await claims(subject) == []
    assert await subject.shard.list_barriers(10) == [Barrier("k", "b2")]
    assert await subject.shard.lift_barriers([Barrier("k", "b3")], subject.now_ms) == {}
    freed = await subject.shard.lift_barriers([Barrier("k", "b2")], subject.now_ms)
    assert freed == {subject.queue: [START_MS]}
    assert await subject.shard.list_barriers(10) == []
    assert await claims(subject) == [b"1"]
    await subject.succeed(first.descriptor)
    assert await claims(subject) == [b"2"]


async def test_a_barrier_goes_with_the_last_job_behind_it(subject: Subject) -> None:
    descriptor = await store(subject, serialize_key="k", behind="b2")
    assert await subject.cancel(descriptor) == [CancelOutcome.CANCELLED]
    assert await subject.shard.list_barriers(10) == []
    assert await subject.shard.has_chains(["k"]) == [False]


async def test_a_run_after_of_the_first_keeps_the_others_waiting(subject: Subject) -> None:
    await store(subject, b"1", serialize_key="k", run_after_ms=START_MS + 5000)
    await store(subject, b"2", serialize_key="k")
    assert await claims(subject) == []
    subject.tick(5000)
    assert await claims(subject) == [b"1"]
    assert len(await subject.scan(JobState.IN_PROGRESS)) == 1


async def test_the_rules_of_the_queue_decide_what_is_kept(subject: Subject) -> None:
    descriptor = await store(subject, serialize_key="k")
    await subject.claimed()
    await stop(subject, descriptor)
    outcomes = await subject.shard.ack(
        subject.queue, [_failure(descriptor)], subject.now_ms, EndRules(keep_failed=False)
    )
    assert outcomes == [AckOutcome.CANCELLED]
    assert await subject.find(descriptor) is None


def _failure(descriptor: str) -> AckRequest:
    return AckRequest(*key_of(descriptor), False)
