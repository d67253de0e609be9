"""References in place of bodies: kept and given back as such, counted by what they refer to, and dropped in the step in
which the last job lets go of them.
"""

from __future__ import annotations

from typing import Any

import pytest

from pinlater.backends.base import NO_RULES, SLICE_BYTES, AckOutcome, AckRequest, DeadLetterTarget, EndRules
from pinlater.backends.extended import OfferOutcome, RescheduleRequest
from pinlater.model import ClaimOutcome, Job, JobInfo, JobState, OnDuplicate, RescheduleOutcome
from pinlater.model.body_reference import BodyReference, BodyRule
from tests.conformance.extended_subject import expire_jobs, offer, offer_of, store, with_result
from tests.conformance.subject import DAY_MS, NO_BOUND, START_MS, Subject, key_of
from tests.queues import drop_queue

TARGET = DeadLetterTarget("dead", 5)
DEAD = EndRules(dead_letters=True)
KEPT_NOT = EndRules(keep_succeeded=False, keep_failed=False)


def reference(length: int = 50_000, *, queue: str = "mail") -> BodyReference:
    """Another one each time."""
    return BodyReference.new("files", queue, bytes(length), START_MS, BodyRule.SIZE)


async def dropped(subject: Subject) -> list[bytes]:
    found = await subject.shard.dropped_references(1_000)
    assert all(type(each) is BodyReference for each in found)
    return sorted(found)


async def listed(subject: Subject, *, page: int = 3) -> list[BodyReference]:
    """All references, in pages."""
    found: list[BodyReference] = []
    after = ""
    while True:
        references, after = await subject.shard.list_references(after, page)
        found += references
        if not after:
            return found


async def letter(subject: Subject, body: bytes) -> tuple[Subject, str, JobInfo]:
    """The queue of dead letters, a job that failed, and its copy there."""
    dead = await subject.beside(TARGET.queue)
    descriptor = await subject.job(body)
    await subject.claimed()
    (outcome,) = await subject.ack(AckRequest(*key_of(descriptor), False, permanent=True), rules=DEAD)
    assert outcome is AckOutcome.FAILED
    assert await subject.dead_letter({subject.queue: TARGET}) == {subject.queue: 1}
    (copy,) = await dead.scan(with_body=True)
    return dead, descriptor, copy


# -- kept, and given back ----------------------------------------------------------------------------------------------


async def test_a_reference_comes_back_as_one_and_bytes_as_bytes(subject: Subject) -> None:
    one = reference()
    lookalike = bytes(one)
    descriptors = await subject.enqueue(Job(one), Job(lookalike), Job(b"body"), Job(one[:10]))
    jobs = {job.descriptor: job for job in await subject.claim(4)}
    bodies = [jobs[descriptor].body for descriptor in descriptors]
    assert bodies == [one, lookalike, b"body", one[:10]]
    assert [type(body) is BodyReference for body in bodies] == [True, False, False, False]
    infos = [await subject.info(descriptor) for descriptor in descriptors]
    assert [type(info.body) is BodyReference for info in infos] == [True, False, False, False]


async def test_extended_jobs_may_have_references(subject: Subject) -> None:
    one = reference()
    descriptor = await store(subject, one, dedupe_key="a", expires_at_ms=subject.now_ms + 1_000)
    await store(subject, b"body", dedupe_key="b")
    assert type((await subject.info(descriptor)).body) is BodyReference
    jobs = await subject.claim(2)
    assert [type(job.body) for job in jobs] == [BodyReference, bytes]
    assert jobs[0].body == one


async def test_who_asks_for_a_job_is_told_where_its_body_is(subject: Subject) -> None:
    one = reference()
    descriptors = await subject.enqueue(Job(one), Job(b"body"))
    keys = [key_of(each) for each in descriptors]
    for with_body in (True, False):
        infos = await subject.shard.lookup(subject.queue, keys, with_body=with_body, max_bytes=NO_BOUND)
        assert [info and info.body_stored_at for info in infos] == [one.described, None]
    scanned = {info.descriptor: info for info in await subject.scan()}
    assert [scanned[each].body_stored_at for each in descriptors] == [one.described, None]
    assert [scanned[each].body for each in descriptors] == [None, None]


async def test_peek_scan_and_claims_of_named_jobs_give_references(subject: Subject) -> None:
    one = reference()
    descriptor = await subject.job(one)
    (peeked,) = await subject.shard.peek(subject.queue, (1,), 10, NO_BOUND, subject.now_ms)
    (scanned,) = await subject.scan(with_body=True)
    (claimed,) = await subject.shard.claim_listed(
        subject.queue, [key_of(descriptor)], subject.request(), subject.now_ms
    )
    assert claimed.job is not None
    for body in (peeked.body, scanned.body, claimed.job.body):
        assert type(body) is BodyReference
        assert body == one


async def test_a_job_keeps_its_reference_from_attempt_to_attempt(subject: Subject) -> None:
    one = reference()
    descriptor = await subject.job(one, attempts_allowed=3)
    await subject.claimed()
    assert await subject.fail(descriptor) is AckOutcome.RETRIED
    await subject.claimed(timeout_ms=10)
    subject.tick(11)
    await subject.expire()
    job = await subject.claimed()
    assert await subject.requeue(job) == 1
    job = await subject.claimed()
    assert type(job.body) is BodyReference
    assert await subject.fail(descriptor, permanent=True) is AckOutcome.FAILED
    assert await subject.retry_failed() == 1
    assert type((await subject.claimed()).body) is BodyReference
    assert await dropped(subject) == []


# -- counted by what they refer to -------------------------------------------------------------------------------------


async def test_bytes_are_those_of_the_bodies(subject: Subject) -> None:
    await subject.enqueue(*[Job(reference(1_000)) for _ in range(5)])
    assert len(await subject.shard.peek(subject.queue, (1,), 10, 2_500, subject.now_ms)) == 2
    assert len(await subject.scan(with_body=True, max_bytes=2_500)) == 2
    assert len(await subject.claim(5, max_bytes=2_500)) == 2
    assert len(await subject.claim(5, max_bytes=10)) == 1


async def test_a_claim_ends_with_a_slice_of_bodies(subject: Subject) -> None:
    await subject.enqueue(*[Job(reference(SLICE_BYTES)) for _ in range(3)])
    requests = [subject.request(1) for _ in range(3)]
    assert len(await subject.shard.claim(subject.queue, requests, subject.now_ms)) == 1


async def test_a_claim_of_named_jobs_ends_with_its_bytes(subject: Subject) -> None:
    descriptors = await subject.enqueue(*[Job(reference(1_000)) for _ in range(3)])
    keys = [key_of(each) for each in descriptors]
    answers = await subject.shard.claim_listed(subject.queue, keys, subject.request(max_bytes=2_500), subject.now_ms)
    assert [answer.outcome for answer in answers] == [ClaimOutcome.CLAIMED] * 2


async def test_a_lookup_leaves_out_what_does_not_fit(subject: Subject) -> None:
    descriptors = await subject.enqueue(*[Job(reference(1_000)) for _ in range(3)])
    keys = [key_of(each) for each in descriptors]
    infos = await subject.shard.lookup(subject.queue, keys, with_body=True, max_bytes=2_500)
    assert [info is not None and info.body is not None for info in infos] == [True, True, False]


# -- dropped with the job ----------------------------------------------------------------------------------------------


async def test_an_ack_that_does_not_keep_the_job_drops_it(subject: Subject) -> None:
    first, second, plain = reference(), reference(), b"body"
    descriptors = await subject.enqueue(Job(first), Job(second), Job(plain))
    await subject.claim(3)
    acks = [AckRequest(*key_of(each), number != 1, permanent=True) for number, each in enumerate(descriptors)]
    await subject.ack(*acks, rules=KEPT_NOT)
    assert await dropped(subject) == sorted([first, second])
    await subject.shard.forget_references([first])
    assert await dropped(subject) == [second]
    assert await listed(subject) == [second]


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED])
async def test_a_job_that_is_kept_drops_it_with_its_removal(subject: Subject, state: JobState) -> None:
    one = reference()
    await subject.job_in(state, one)
    assert await dropped(subject) == []
    assert await listed(subject) == [one]
    subject.tick(8 * DAY_MS)
    await subject.prune()
    assert await dropped(subject) == [one]


@pytest.mark.parametrize("state", list(JobState))
async def test_deleting_jobs_drops_theirs(subject: Subject, state: JobState) -> None:
    first, second = reference(), reference()
    await subject.job_in(state, first)
    assert await subject.delete(state) == 1
    descriptor = await subject.job_in(state, second)
    assert await subject.delete_listed(state, descriptor) == 1
    assert await dropped(subject) == sorted([first, second])


async def test_cancelling_drops_it(subject: Subject) -> None:
    first, second = reference(), reference()
    await subject.cancel(await subject.job(first))
    await subject.cancel(await store(subject, second, dedupe_key="a"))
    assert await dropped(subject) == sorted([first, second])


async def test_deleting_the_queue_drops_all_of_it(subject: Subject) -> None:
    other = await subject.beside("other")
    mine = [reference() for _ in range(7)]
    theirs = reference()
    await other.job(theirs)
    await subject.enqueue(*[Job(each) for each in mine[:5]])
    descriptor = await store(subject, mine[5], serialize_key="k")
    await subject.claim(1)
    done = await subject.claimed()
    assert await subject.succeed(done.descriptor, result=mine[6]) is AckOutcome.SUCCEEDED
    assert descriptor
    await drop_queue(subject.shard, subject.queue, subject.now_ms)
    for _ in range(20):
        await subject.prune(limit=2)
        subject.tick(DAY_MS)
    assert await dropped(subject) == sorted(mine)
    assert type((await other.claimed()).body) is BodyReference


async def test_a_job_that_expired_drops_it_with_its_removal(subject: Subject) -> None:
    one = reference()
    await store(subject, one, expires_at_ms=subject.now_ms + 10)
    subject.tick(11)
    assert await expire_jobs(subject) == 1
    assert await dropped(subject) == []
    subject.tick(8 * DAY_MS)
    await subject.prune()
    assert await dropped(subject) == [one]


async def test_a_job_that_moved_away_drops_it_with_its_removal(subject: Subject) -> None:
    one = reference()
    await subject.job(one)
    assert await subject.move(await subject.claimed(), "mail:s2:p1:1")
    subject.tick(8 * DAY_MS)
    await subject.prune()
    assert await dropped(subject) == [one]


# -- another body ------------------------------------------------------------------------------------------------------


async def reschedule(subject: Subject, descriptor: str, body: bytes) -> None:
    requests = [RescheduleRequest(*key_of(descriptor), body=body)]
    (outcome,) = await subject.shard.reschedule(subject.queue, requests, subject.now_ms)
    assert outcome is RescheduleOutcome.RESCHEDULED


async def replace(subject: Subject, descriptor: str, body: bytes) -> None:
    offered = await offer(subject, body, dedupe_key="a", on_duplicate=OnDuplicate.REPLACE)
    assert (offered.outcome, offered.descriptor) == (OfferOutcome.REPLACED, descriptor)


async def checkpoint(subject: Subject, descriptor: str, body: bytes) -> None:
    claims = await subject.claim()
    assert [job.descriptor for job in claims] == [descriptor]
    assert await subject.checkpoint(descriptor, new_body=body, move_to_pending=True)


WAYS = pytest.mark.parametrize("way", [reschedule, replace, checkpoint])


@WAYS
async def test_a_new_body_drops_the_reference(subject: Subject, way: Any) -> None:
    first, second = reference(), reference()
    descriptor = await store(subject, first, dedupe_key="a")
    await way(subject, descriptor, second)
    assert await dropped(subject) == [first]
    assert type((await subject.info(descriptor)).body) is BodyReference
    await way(subject, descriptor, b"plain")
    assert await dropped(subject) == sorted([first, second])
    assert (await subject.info(descriptor)).body == b"plain"
    assert type((await subject.info(descriptor)).body) is bytes
    third = reference()
    await way(subject, descriptor, third)
    assert (await subject.info(descriptor)).body == third
    assert await listed(subject) == sorted([third, *await dropped(subject)], key=(await listed(subject)).index)
    await subject.cancel(descriptor)
    assert await dropped(subject) == sorted([first, second, third])


@WAYS
async def test_a_reference_that_is_given_to_its_job_again_stays(subject: Subject, way: Any) -> None:
    one = reference()
    descriptor = await store(subject, one, dedupe_key="a")
    await way(subject, descriptor, BodyReference(one))
    assert await dropped(subject) == []
    assert (await subject.info(descriptor)).body == one
    assert await listed(subject) == [one]


async def test_several_changes_of_one_job_in_a_call(subject: Subject) -> None:
    first, second, third = reference(), reference(), reference()
    descriptor = await subject.job(first)
    requests = [RescheduleRequest(*key_of(descriptor), body=body) for body in (second, b"plain", third)]
    await subject.shard.reschedule(subject.queue, requests, subject.now_ms)
    assert await dropped(subject) == sorted([first, second])
    assert (await subject.claimed()).body == third


async def test_an_offer_that_stores_nothing_drops_nothing(subject: Subject) -> None:
    one, other = reference(), reference()
    await store(subject, one, dedupe_key="a")
    assert (await offer(subject, other, dedupe_key="a")).outcome is OfferOutcome.KEPT
    assert await dropped(subject) == []
    assert await listed(subject) == [one]


async def test_an_offer_that_replaces_one_of_the_same_call(subject: Subject) -> None:
    first, second = reference(), reference()
    offers = [offer_of(first, dedupe_key="a"), offer_of(second, dedupe_key="a", on_duplicate=OnDuplicate.REPLACE)]
    await subject.shard.enqueue_extended(subject.queue, offers, subject.now_ms)
    assert await dropped(subject) == [first]
    assert (await subject.claimed()).body == second


# -- results -----------------------------------------------------------------------------------------------------------


async def test_a_result_may_be_a_reference(subject: Subject) -> None:
    one = reference(1_000)
    descriptor = await subject.job()
    plain = await subject.job()
    await subject.claim(2)
    assert await subject.succeed(descriptor, result=one) is AckOutcome.SUCCEEDED
    assert await subject.succeed(plain, result=bytes(one)) is AckOutcome.SUCCEEDED
    info, other = await with_result(subject, descriptor), await with_result(subject, plain)
    assert info is not None
    assert other is not None
    assert [type(info.result), type(other.result)] == [BodyReference, bytes]
    assert info.result == other.result == one
    keys = [key_of(descriptor), key_of(plain)]
    infos = await subject.shard.lookup(subject.queue, keys, with_body=False, max_bytes=1_010, with_result=True)
    assert [each and each.result for each in infos] == [one, None]
    assert await listed(subject) == [one]
    subject.tick(3_600_001)
    await subject.prune()
    assert await dropped(subject) == [one]


async def test_a_result_outlives_its_job(subject: Subject) -> None:
    body, result = reference(), reference()
    descriptor = await subject.job(body)
    await subject.claimed()
    ack = AckRequest(*key_of(descriptor), True, result=result)
    assert await subject.ack(ack, rules=KEPT_NOT) == [AckOutcome.SUCCEEDED]
    assert await dropped(subject) == [body]
    info = await with_result(subject, descriptor)
    assert info is not None
    assert type(info.result) is BodyReference
    subject.tick(3_600_001)
    await subject.prune()
    assert await dropped(subject) == sorted([body, result])


async def test_results_of_a_deleted_queue_are_dropped_by_their_time_at_the_latest(subject: Subject) -> None:
    """Also where nothing else of the queue was left long before."""
    results = [reference() for _ in range(3)]
    for result, rules in zip(results, (NO_RULES, KEPT_NOT, NO_RULES), strict=True):
        descriptor = await subject.job()
        await subject.claimed()
        assert await subject.ack(AckRequest(*key_of(descriptor), True, result=result), rules=rules)
    await drop_queue(subject.shard, subject.queue, subject.now_ms)
    while await subject.prune(limit=2, tombstones_before="9" * 16):
        pass
    assert sorted(await listed(subject)) == sorted(results)
    subject.tick(3_600_001)
    for _ in results:
        await subject.prune(limit=1)
    assert await dropped(subject) == sorted(results)


async def test_deleting_a_job_drops_its_result(subject: Subject) -> None:
    body, result = reference(), reference()
    descriptor = await subject.job(body)
    await subject.claimed()
    assert await subject.succeed(descriptor, result=result) is AckOutcome.SUCCEEDED
    assert await subject.delete(JobState.SUCCEEDED) == 1
    assert await dropped(subject) == sorted([body, result])


# -- shared ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["original", "letter"])
async def test_a_dead_letter_shares_the_reference(subject: Subject, first: str) -> None:
    one = reference()
    dead, descriptor, copy = await letter(subject, one)
    assert type(copy.body) is BodyReference
    assert copy.body == one
    assert copy.body_stored_at == one.described
    removals = [lambda: subject.delete_listed(JobState.FAILED, descriptor), lambda: dead.cancel(copy.descriptor)]
    for number, remove in enumerate(removals if first == "original" else reversed(removals)):
        assert await dropped(subject) == []
        await remove()
        assert await dropped(subject) == ([] if number == 0 else [one])


async def test_a_letter_that_goes_back_shares_it_too(subject: Subject) -> None:
    one = reference()
    dead, descriptor, copy = await letter(subject, one)
    (new,) = await dead.replay(copy.descriptor)
    assert new is not None
    job = await subject.claimed()
    assert (job.descriptor, type(job.body), job.body) == (new, BodyReference, one)
    await subject.delete_listed(JobState.FAILED, descriptor)
    assert await dropped(subject) == []
    await subject.ack(AckRequest(*key_of(new), True), rules=KEPT_NOT)
    assert await dropped(subject) == [one]


async def test_a_letter_that_goes_with_a_retry_lets_go_of_its_share(subject: Subject) -> None:
    one = reference()
    _, descriptor, _ = await letter(subject, one)
    assert await subject.retry_listed(descriptor) == 1
    assert await dropped(subject) == []
    job = await subject.claimed()
    assert (job.descriptor, job.body) == (descriptor, one)
    await subject.ack(AckRequest(*key_of(descriptor), True), rules=KEPT_NOT)
    assert await dropped(subject) == [one]


async def test_a_replayed_job_that_is_pruned_lets_go_of_its_share(subject: Subject) -> None:
    one = reference()
    dead, _, copy = await letter(subject, one)
    (new,) = await dead.replay(copy.descriptor)
    subject.tick(DAY_MS)
    assert await subject.prune(failed_ttl_ms=0) == {subject.queue: 1}
    assert await dropped(subject) == []
    await subject.claimed()
    await subject.ack(AckRequest(*key_of(new or ""), True), rules=KEPT_NOT)
    assert await dropped(subject) == [one]


async def test_a_body_that_is_shared_is_replaced_for_one_job_alone(subject: Subject) -> None:
    one = reference()
    dead, descriptor, copy = await letter(subject, one)
    await reschedule(dead, copy.descriptor, b"plain")
    assert await dropped(subject) == []
    assert (await subject.info(descriptor)).body == one
    await subject.delete_listed(JobState.FAILED, descriptor)
    assert await dropped(subject) == [one]


# -- all of them -------------------------------------------------------------------------------------------------------


async def test_every_reference_is_listed(subject: Subject) -> None:
    many = [reference() for _ in range(25)]
    descriptors = await subject.enqueue(*[Job(each) for each in many])
    other = await subject.beside("other")
    more = reference()
    await store(other, more, dedupe_key="a", serialize_key="b")
    await subject.cancel(descriptors[0])
    assert set(await listed(subject)) == {*many, more}
    await subject.shard.forget_references([many[0]])
    assert set(await listed(subject)) == {*many[1:], more}


async def test_a_reference_that_wanders_while_they_are_listed_is_on_a_page(subject: Subject) -> None:
    dead = await subject.beside(TARGET.queue)
    many = [reference() for _ in range(12)]
    descriptors = await subject.enqueue(*[Job(each, attempts_allowed=1) for each in many])
    await subject.claim(12)
    await subject.ack(*[AckRequest(*key_of(each), False) for each in descriptors], rules=DEAD)
    found: set[bytes] = set()
    after, turn = "", 0
    while True:
        references, after = await subject.shard.list_references(after, 2)
        found |= set(references)
        if not after:
            break
        turn += 1
        if turn == 1:
            await subject.dead_letter({subject.queue: TARGET})
            assert await subject.delete(JobState.FAILED) == 12
        if turn == 2:
            letters = [info.descriptor for info in await dead.scan()]
            assert None not in await dead.replay(*letters)
    assert found == set(many)


async def test_all_that_were_dropped_come_up_in_their_turns(subject: Subject) -> None:
    many = [reference() for _ in range(40)]
    for descriptor in await subject.enqueue(*[Job(each) for each in many]):
        await subject.cancel(descriptor)
    found: set[bytes] = set()
    for _ in range(2_000):
        some = await subject.shard.dropped_references(5)
        assert 0 < len(some) <= 5
        found |= set(some)
        if len(found) == 40:
            break
    assert found == set(many)
    await subject.shard.forget_references([each for each in many if each in found])
    assert await dropped(subject) == []
