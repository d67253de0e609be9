"""What keys mean where two things meet, and the order of serialize keys under several servers."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

from pinlater.backends.base import DeadLetterTarget
from pinlater.backends.extended import HeartbeatRequest, Offered, OfferOutcome, RescheduleRequest
from pinlater.model import (
    AckOutcome,
    CancelOutcome,
    DequeuedJob,
    HeartbeatOutcome,
    JobState,
    OnDuplicate,
    RescheduleOutcome,
)
from tests.conformance.crowd import Crowd, at_once, settled
from tests.conformance.extended_subject import expire_jobs, found, offer, offer_all, offer_of, stop, store
from tests.conformance.subject import START_MS, TIMEOUT_MS, Subject, claim_key_of, key_of
from tests.queues import drop_queue, make_queue

KEPT = OfferOutcome.KEPT
QUEUES = ("mail", "post", "bulk")
CHAINS = 6
LENGTH = 20


async def ended(subject: Subject, **fields: object) -> str:
    """A job that was handed out and failed."""
    descriptor = await store(subject, **fields)
    assert (await subject.claimed()).descriptor == descriptor
    assert await subject.fail(descriptor, permanent=True) is AckOutcome.FAILED
    return descriptor


async def test_an_earlier_job_of_a_key_takes_nothing_of_a_later_one_with_it(subject: Subject) -> None:
    deleted, pruned = await ended(subject, dedupe_key="d"), await ended(subject, dedupe_key="d")
    live = await store(subject, dedupe_key="d")
    assert await subject.delete_listed(JobState.FAILED, deleted) == 1
    assert await found(subject, "d") == live
    assert await subject.prune(failed_ttl_ms=-1) == {subject.queue: 1}
    assert await subject.find(pruned) is None
    assert await offer(subject, dedupe_key="d") == Offered(KEPT, live)


async def test_a_job_that_expired_while_it_waited_is_freed_to_nobody(subject: Subject) -> None:
    first = await store(subject, b"1", serialize_key="k")
    second = await store(subject, b"2", serialize_key="k", expires_at_ms=START_MS + 1000)
    await store(subject, b"3", serialize_key="k")
    await subject.claimed()
    subject.tick(1000)
    assert await subject.claim(10) == []
    assert await subject.succeed(first) is AckOutcome.SUCCEEDED
    assert await subject.claim(10) == []
    assert await expire_jobs(subject) == 1
    assert (await subject.info(second)).state is JobState.FAILED
    assert [job.body for job in await subject.claim(10)] == [b"3"]


async def test_a_key_is_taken_until_its_expired_job_has_ended(subject: Subject) -> None:
    descriptor = await store(subject, dedupe_key="d", expires_at_ms=START_MS + 1000)
    subject.tick(1000)
    assert await offer(subject, dedupe_key="d") == Offered(KEPT, descriptor)
    assert await expire_jobs(subject) == 1
    assert (await offer(subject, dedupe_key="d")).outcome is OfferOutcome.STORED


async def test_a_dead_letter_that_is_retried_where_it_is_has_no_key(subject: Subject) -> None:
    letters = await subject.beside("letters")
    descriptor = await store(subject, dedupe_key="d", serialize_key="k")
    await subject.claimed()
    await subject.ack_with(descriptor, False, permanent=True, dead_letters=True)
    await subject.dead_letter({subject.queue: DeadLetterTarget("letters", 1)})
    (letter,) = await letters.claim()
    assert await letters.fail(letter.descriptor, permanent=True) is AckOutcome.FAILED
    await store(letters, dedupe_key="d", serialize_key="k")
    assert await letters.retry_listed(letter.descriptor) == 1
    assert await subject.shard.has_chains(["k"]) == [True]
    assert len(await letters.claim(10)) == 2


async def test_a_place_stays_whatever_is_changed_of_a_job(subject: Subject) -> None:
    first = await store(subject, b"1", serialize_key="k")
    second = await store(subject, b"2", serialize_key="k", dedupe_key="d")
    await store(subject, b"3", serialize_key="k")
    replaced = await offer(subject, b"two", serialize_key="k", dedupe_key="d", on_duplicate=OnDuplicate.REPLACE)
    assert replaced == Offered(OfferOutcome.REPLACED, second)
    changes = [RescheduleRequest(*key_of(first), run_after_ms=START_MS + 500)]
    changes.append(RescheduleRequest(*key_of(second), run_after_ms=START_MS - 500))
    outcomes = await subject.shard.reschedule(subject.queue, changes, subject.now_ms)
    assert outcomes == [RescheduleOutcome.RESCHEDULED] * 2
    assert await subject.claim(10) == []
    subject.tick(500)
    for body in (b"1", b"two", b"3"):
        (job,) = await subject.claim(10)
        assert job.body == body
        await subject.succeed(job.descriptor)


async def test_a_heartbeat_and_a_checkpoint_each_begin_anew(subject: Subject) -> None:
    descriptor = await subject.job()
    job = await subject.claimed()
    assert await subject.checkpoint(descriptor, run_after_ms=START_MS + 9_000)
    assert (await subject.info(descriptor)).claim_expires_at_ms == START_MS + 9_000 + TIMEOUT_MS
    beats = [HeartbeatRequest(*claim_key_of(job), fraction=0.5)] * 2
    answers = await subject.shard.heartbeat(subject.queue, beats, subject.tick(10))
    assert [answer.outcome for answer in answers] == [HeartbeatOutcome.OK] * 2
    info = await subject.info(descriptor)
    assert (info.claim_expires_at_ms, info.run_after_ms) == (subject.now_ms + TIMEOUT_MS, START_MS + 9_000)
    assert await subject.checkpoint(descriptor, new_body=b"new")
    info = await subject.info(descriptor)
    assert (info.body, info.progress and info.progress.fraction) == (b"new", 0.5)


async def test_windows_give_way_to_what_counts_here(subject: Subject) -> None:
    for key in ("live", "window", "past"):
        await ended(subject, dedupe_key=key, dedupe_for_ms=1000)
    windows = await subject.shard.list_windows(10, "", subject.now_ms)
    assert len(windows) == 3
    await subject.shard.drop_windows(windows)
    window = await ended(subject, dedupe_key="window", dedupe_for_ms=500)
    past = await ended(subject, dedupe_key="past")
    live = await store(subject, dedupe_key="live")
    assert await found(subject, "past") == past
    await subject.shard.drop_windows(windows)
    assert [await found(subject, key) for key in ("live", "window", "past")] == [live, window, past]
    await subject.shard.put_windows(windows, subject.now_ms)
    assert [await found(subject, key) for key in ("live", "window")] == [live, window]
    assert (await offer(subject, dedupe_key="past")).outcome is KEPT
    subject.tick(500)
    assert (await offer(subject, dedupe_key="window")).outcome is OfferOutcome.STORED
    assert (await offer(subject, dedupe_key="past")).outcome is KEPT


async def test_keys_of_a_call_of_which_one_is_taken(subject: Subject) -> None:
    first = await store(subject, dedupe_key="b", serialize_key="k")
    stored = OfferOutcome.STORED
    for pairs, outcomes, ready in (
        ([("a", "j"), ("b", "k"), ("c", "k")], [stored, KEPT, stored], [START_MS, None, None]),
        ([("d", "m"), ("e", "k"), ("f", "n")], [stored, stored, stored], [START_MS, None, START_MS]),
    ):
        offers = [offer_of(dedupe_key=dedupe, serialize_key=serialize) for dedupe, serialize in pairs]
        offered = await offer_all(subject, *offers)
        assert [each.outcome for each in offered] == outcomes
        assert [each.ready_at_ms for each in offered] == ready
        again = await offer_all(subject, *offers)
        assert [(each.outcome, each.descriptor) for each in again] == [(KEPT, each.descriptor) for each in offered]
    assert await found(subject, "b", "k") == first
    assert await subject.shard.has_chains(["j", "k", "m", "n"]) == [True] * 4


async def test_the_key_of_a_job_that_waits_is_taken(subject: Subject) -> None:
    await store(subject, dedupe_key="a", serialize_key="k")
    waiting = await store(subject, dedupe_key="b", serialize_key="k")
    assert await offer(subject, dedupe_key="b", serialize_key="k") == Offered(KEPT, waiting)


async def test_a_replacement_of_a_job_of_the_same_call_that_was_there_before(subject: Subject) -> None:
    first = await store(subject, b"1", dedupe_key="a")
    again = offer_of(b"3", dedupe_key="a", on_duplicate=OnDuplicate.REPLACE)
    offered = await offer_all(subject, offer_of(b"2", dedupe_key="a"), again)
    assert [(each.outcome, each.descriptor) for each in offered] == [(KEPT, first), (OfferOutcome.REPLACED, first)]
    assert [job.body for job in await subject.claim(10)] == [b"3"]


async def test_a_resend_takes_no_other_key(subject: Subject) -> None:
    first = await store(subject, dedupe_key="a", send_id="s")
    assert (await offer(subject, dedupe_key="b", send_id="s")).descriptor == first
    assert await found(subject, "b") is None


async def test_a_key_names_its_last_job_also_behind_its_window(subject: Subject) -> None:
    descriptor = await ended(subject, dedupe_key="d", dedupe_for_ms=1000)
    subject.tick(2000)
    await subject.prune()
    assert await found(subject, "d") == descriptor
    assert (await offer(subject, dedupe_key="d")).outcome is OfferOutcome.STORED


async def test_a_job_expires_while_it_waits(subject: Subject) -> None:
    first = await store(subject, serialize_key="k")
    waiting = await store(subject, serialize_key="k", expires_at_ms=START_MS + 1000)
    subject.tick(1000)
    assert await expire_jobs(subject) == 1
    assert (await subject.info(waiting)).state is JobState.FAILED
    assert (await subject.claimed()).descriptor == first
    assert await subject.shard.blocked_chains(10, subject.now_ms) == []


async def test_those_that_a_deleted_queue_holds_up_come_before_its_other_jobs(subject: Subject) -> None:
    other = await subject.beside("post")
    await other.job()
    await store(other, serialize_key="k")
    await store(subject, b"2", serialize_key="k")
    assert await drop_queue(subject.shard, "post", subject.tick(1))
    await subject.prune(limit=1)
    assert [job.body for job in await subject.claim(10)] == [b"2"]


async def test_whoever_becomes_the_first_behind_a_barrier_waits_for_it(subject: Subject) -> None:
    first, _ = [await store(subject, serialize_key="k", behind="b2") for _ in range(2)]
    assert await subject.cancel(first) == [CancelOutcome.CANCELLED]
    assert await subject.claim(10) == []


async def test_keys_that_begin_alike_are_others(subject: Subject) -> None:
    pairs = [("b", "a"), ("ab", ""), ("", "ab"), ("1:b", ""), ("b", "1:"), ("@b", "ü🦆"), ("b\0", "a")]
    offers = [offer_of(dedupe_key=dedupe, serialize_key=serialize) for dedupe, serialize in pairs]
    offered = await offer_all(subject, *offers)
    assert [each.outcome for each in offered] == [OfferOutcome.STORED] * len(pairs)
    for (dedupe, serialize), each in zip(pairs, offered, strict=True):
        assert await found(subject, dedupe, serialize) == each.descriptor
    assert await offer_all(subject) == []


async def test_one_at_a_time_and_in_order_whatever_becomes_of_the_jobs(crowd: Crowd) -> None:
    """Over three queues, while workers fail, requeue, die and are asked to stop."""
    for queue in QUEUES:
        await make_queue(crowd[0].shard, queue, START_MS)
    rest = {f"{chain}:{place}": 1 for chain in range(CHAINS) for place in range(LENGTH)}
    running: set[str] = set()
    begun: dict[str, list[int]] = defaultdict(list)
    claims: Counter[str] = Counter()

    def at(subject: Subject, queue: str) -> Subject:
        return Subject(subject.shard, queue)

    async def fill(chain: int) -> None:
        for place in range(LENGTH):
            subject = at(crowd[(chain + place) % len(crowd)], QUEUES[(chain + place) % len(QUEUES)])
            body = f"{chain}:{place}"
            fields = {"serialize_key": str(chain), "attempts_allowed": 5}
            descriptor = await settled(lambda: store(subject, body.encode(), **fields))  # noqa: B023
            if place % 9 == 8 and await settled(lambda: subject.cancel(descriptor)) == [CancelOutcome.CANCELLED]:  # noqa: B023
                rest.pop(body, None)

    async def run(subject: Subject, job: DequeuedJob) -> None:
        body = job.body.decode()
        chain, place = body.split(":")
        assert chain not in running, f"two jobs of {chain} at once"
        running.add(chain)
        begun[chain].append(int(place))
        claims[body] += 1
        is_first, number = claims[body] == 1, int(place)
        await asyncio.sleep(0)
        running.remove(chain)  # before the step that frees the next one
        if number % 5 == 1 and is_first:
            assert await settled(lambda: subject.fail(job.descriptor)) is AckOutcome.RETRIED
        elif number % 5 == 2 and is_first:
            assert await settled(lambda: subject.requeue(job)) == 1
        elif number % 5 == 3 and is_first:
            silent = subject.silent(job, START_MS)
            call = subject.shard.expire_disconnected
            assert (await settled(lambda: call(subject.queue, [silent], START_MS))).retried == 1
        elif number % 7 == 6:
            rest.pop(body, None)
            assert await settled(lambda: stop(subject, job.descriptor)) is CancelOutcome.REQUESTED
            assert await settled(lambda: subject.fail(job.descriptor)) is AckOutcome.CANCELLED
        else:
            rest.pop(body, None)
            succeeds = number % 4 != 0
            outcome = await settled(lambda: subject.ack_one(job.descriptor, succeeds, permanent=True))
            assert outcome is (AckOutcome.SUCCEEDED if succeeds else AckOutcome.FAILED)

    async def work(number: int, subject: Subject) -> None:
        turn = number
        while rest:
            turn += 1
            mine = at(subject, QUEUES[turn % len(QUEUES)])
            for job in await settled(lambda: mine.claim(3)):  # noqa: B023
                await run(mine, job)
            await asyncio.sleep(0)

    async with asyncio.timeout(60):
        await at_once(
            *[lambda chain=chain: fill(chain) for chain in range(CHAINS)],
            *[lambda number=number, each=each: work(number, each) for number, each in enumerate(crowd)],
        )
    for chain, places in begun.items():
        assert places == sorted(places), f"out of order in {chain}"
        assert set(places) >= {place for place in range(LENGTH) if place % 9 != 8}
    assert await crowd[0].shard.key_slots() == []
