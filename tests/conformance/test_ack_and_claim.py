"""Acks and a claim in one step: each gets exactly what `ack` and then `claim` would have given (decision 26)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest

from pinlater.backends.base import NO_RULES, SLICE_BYTES, AckOutcome, AckRequest, ClaimRequest, EndRules
from pinlater.errors import QueueNotFound
from pinlater.model import DequeuedJob, Job, JobState
from tests.conformance.crowd import Crowd, at_once, settled
from tests.conformance.subject import ALL, Subject, key_of, new_claim

IGNORED, SUCCEEDED = AckOutcome.IGNORED, AckOutcome.SUCCEEDED
RETRIED, FAILED = AckOutcome.RETRIED, AckOutcome.FAILED

Acks = Callable[[Sequence[DequeuedJob]], list[AckRequest]]
Answers = tuple[list[AckOutcome], list[list[DequeuedJob]]]


def ended(job: DequeuedJob, succeeded: bool = True, *, fenced: bool = True, **fields: object) -> AckRequest:
    """An ack of a job that was handed out."""
    claim = job.claim_descriptor if fenced else ""
    return AckRequest(*key_of(job.descriptor), succeeded, **{"claim_descriptor": claim, **fields})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Situation:
    """Three jobs are in progress and `waiting` ones are pending; the acks that come, and a request per limit."""

    acks: Acks
    outcomes: Sequence[AckOutcome]
    limits: Sequence[int] = (1,)
    waiting: Sequence[Job] = (Job(b"w1"), Job(b"w2", 2), Job(b"w3", 3))
    rules: EndRules = NO_RULES
    quota: int | None = None
    first: Job = field(default_factory=lambda: Job(b"in progress", 1, None, 3, "its status"))


SITUATIONS = {
    "success": Situation(lambda held: [ended(held[0])], [SUCCEEDED]),
    "success without a claim": Situation(lambda held: [ended(held[0], fenced=False)], [SUCCEEDED]),
    "success with a status": Situation(lambda held: [ended(held[0], append_status="done")], [SUCCEEDED]),
    "success that is not kept": Situation(
        lambda held: [ended(held[0])], [SUCCEEDED], rules=EndRules(keep_succeeded=False)
    ),
    "failure to be retried at once": Situation(
        lambda held: [ended(held[0], False, append_status="again")], [RETRIED], limits=(9,)
    ),
    "failure to be retried before now": Situation(
        lambda held: [ended(held[0], False, retry_delay_ms=-5)], [RETRIED], waiting=()
    ),
    "failure to be retried later": Situation(
        lambda held: [ended(held[0], False, retry_delay_ms=10)], [RETRIED], limits=(9,)
    ),
    "last failure": Situation(lambda held: [ended(held[0], False)], [FAILED], first=Job(b"once", attempts_allowed=1)),
    "failure for good": Situation(lambda held: [ended(held[0], False, permanent=True)], [FAILED], waiting=()),
    "failure that is not kept": Situation(
        lambda held: [ended(held[0], False, permanent=True)], [FAILED], rules=EndRules(keep_failed=False)
    ),
    "dead letter": Situation(
        lambda held: [ended(held[0], False, permanent=True)], [FAILED], rules=EndRules(0, True, False, True)
    ),
    "wrong claim": Situation(
        lambda held: [ended(held[0], claim_descriptor=new_claim()), ended(held[1])], [IGNORED, SUCCEEDED]
    ),
    "one job twice": Situation(
        lambda held: [ended(held[0], False), ended(held[0], False)], [RETRIED, IGNORED], limits=(9,)
    ),
    "acks of all kinds": Situation(
        lambda held: [ended(held[0], False), ended(held[1]), ended(held[2], False, permanent=True)],
        [RETRIED, SUCCEEDED, FAILED],
        limits=(1, 2, 9),
    ),
    "several requests": Situation(lambda held: [ended(job) for job in held], [SUCCEEDED] * 3, limits=(2, 1, 1, 1)),
    "a retry for the second request": Situation(
        lambda held: [ended(held[0], False)], [RETRIED], limits=(1, 1), waiting=(Job(b"w1", run_after_ms=5),)
    ),
    "room in the quota": Situation(lambda held: [ended(held[0])], [SUCCEEDED], limits=(9,), quota=3),
    "no room in the quota": Situation(
        lambda held: [ended(held[0], claim_descriptor=new_claim())], [IGNORED], limits=(9,), quota=3
    ),
    "room for several requests": Situation(
        lambda held: [ended(held[0]), ended(held[1], False)], [SUCCEEDED, RETRIED], limits=(1, 1, 1), quota=3
    ),
    "nothing to claim": Situation(lambda held: [ended(job) for job in held], [SUCCEEDED] * 3, waiting=()),
    "no acks": Situation(lambda _: [], [], limits=(2, 2)),
    "no requests": Situation(lambda held: [ended(held[0])], [SUCCEEDED], limits=()),
}


@pytest.mark.parametrize("situation", list(SITUATIONS))
async def test_each_gets_what_the_two_calls_would_give(subject: Subject, situation: str) -> None:
    """One queue goes through the two calls and another through the one, from the same beginnings."""
    given = SITUATIONS[situation]
    twin = await subject.beside("twin")
    acks, requests, before = await prepared(twin, given)
    enforce = given.quota is not None
    outcomes = await twin.shard.ack(twin.queue, acks, twin.now_ms, given.rules)
    claims = await twin.shard.claim(twin.queue, requests, twin.now_ms, enforce_quota=enforce)
    expected = (outcomes, await seen(twin, before, claims))

    acks, requests, before = await prepared(subject, given)
    outcomes, claims = await both(subject, acks, requests, given.rules, enforce_quota=enforce)
    assert (outcomes, await seen(subject, before, claims)) == expected
    assert outcomes == given.outcomes
    for jobs, request in zip(claims, requests, strict=True):
        assert {job.claim_descriptor for job in jobs} <= {request.claim_descriptor}


async def both(
    subject: Subject,
    acks: Sequence[AckRequest],
    requests: Sequence[ClaimRequest],
    rules: EndRules = NO_RULES,
    *,
    enforce_quota: bool = False,
) -> Answers:
    return await subject.shard.ack_and_claim(
        subject.queue, acks, requests, subject.now_ms, rules, enforce_quota=enforce_quota
    )


async def prepared(subject: Subject, given: Situation) -> tuple[list[AckRequest], list[ClaimRequest], list[str]]:
    """Acks, requests, and all jobs of a queue that is at the beginning of a situation."""
    descriptors = await subject.enqueue(given.first, Job(b"second", 2, None, 2), Job(b"third", 3, None, 2))
    held = await subject.claim(3)
    if given.waiting:
        descriptors += await subject.enqueue(*given.waiting)
    if given.quota is not None:
        await subject.quota(given.quota, 1)
    return given.acks(held), [subject.request(limit) for limit in given.limits], descriptors


async def seen(subject: Subject, descriptors: Sequence[str], claims: list[list[DequeuedJob]]) -> object:
    """All that can be seen of the jobs that were handed out, of all others, and of the queue, but for names."""
    handed_out = [
        [
            (
                descriptors.index(job.descriptor),
                job.body,
                job.priority,
                job.attempts_allowed,
                job.attempts_remaining,
                job.run_after_ms,
                job.enqueued_at_ms,
                job.claim_expires_at_ms,
            )
            for job in jobs
        ]
        for jobs in claims
    ]
    infos = []
    for descriptor in descriptors:
        info = await subject.find(descriptor)
        if info is not None:
            info.descriptor, info.claim_descriptor = str(descriptors.index(descriptor)), None
            info.body_stored_at = None
        infos.append(info)
    pending = await subject.shard.peek(subject.queue, ALL, 99, 2**20, subject.now_ms)
    order = [descriptors.index(job.descriptor) for job in pending]
    return handed_out, infos, order, (await subject.quota()).in_progress


async def test_an_ack_frees_room_in_the_quota_for_the_claim_of_the_same_step(subject: Subject) -> None:
    await subject.enqueue(*[Job(b"%d" % number) for number in range(5)])
    await subject.quota(2, 1)
    first, second = await subject.claim_within_quota(9)
    outcomes, (taken,) = await both(subject, [ended(first)], [subject.request(9)], enforce_quota=True)
    assert (outcomes, [job.body for job in taken]) == ([SUCCEEDED], [b"2"])
    outcomes, (none,) = await both(subject, [ended(first)], [subject.request(9)], enforce_quota=True)
    assert (outcomes, none) == ([IGNORED], [])
    outcomes, claims = await both(
        subject, [ended(second), ended(taken[0])], [subject.request(1), subject.request(9)], enforce_quota=True
    )
    assert (outcomes, [len(jobs) for jobs in claims]) == ([SUCCEEDED] * 2, [1, 1])


async def test_a_claim_that_is_not_held_to_the_quota_does_not_ask_for_it(subject: Subject) -> None:
    await subject.enqueue(*[Job(b"")] * 5)
    await subject.quota(1, 1)
    (first,) = await subject.claim_within_quota(9)
    assert len((await both(subject, [ended(first)], [subject.request(3)]))[1][0]) == 3


async def test_acks_for_an_unknown_queue_have_no_effect_anywhere(subject: Subject) -> None:
    descriptor = await subject.job_in(JobState.IN_PROGRESS)
    before = await subject.info(descriptor)
    with pytest.raises(QueueNotFound):
        await both(Subject(subject.shard, "none"), [AckRequest(*key_of(descriptor), True)], [subject.request()])
    assert await subject.info(descriptor) == before


async def test_once_the_bodies_fill_a_slice_no_further_request_is_looked_at_and_all_acks_are_carried_out(
    subject: Subject,
) -> None:
    await subject.enqueue(*[Job(b"")] * 2)
    held = await subject.claim(2)
    await subject.enqueue(*[Job(b"b" * (SLICE_BYTES // 3 + 1))] * 5)
    requests = [subject.request(1) for _ in range(5)]
    outcomes, claims = await both(subject, [ended(job) for job in held], requests)
    assert outcomes == [SUCCEEDED] * 2
    assert [len(jobs) for jobs in claims][:3] == [1, 1, 1]
    assert await subject.count(JobState.IN_PROGRESS) == sum(map(len, claims))


async def test_many_acks_and_many_requests_of_one_step(subject: Subject) -> None:
    await subject.enqueue(*[Job(b"%d" % number, 1 + number % 3, None, 1) for number in range(600)])
    held = await subject.claim(300)
    requests = [subject.request(2) for _ in range(150)]
    outcomes, claims = await both(subject, [ended(job, number % 2 == 0) for number, job in enumerate(held)], requests)
    assert outcomes == [SUCCEEDED, FAILED] * 150
    taken = [job.descriptor for jobs in claims for job in jobs]
    assert len(taken) == len(set(taken)) == 300
    assert not set(taken) & {job.descriptor for job in held}


async def test_steps_at_once_hand_out_each_job_once_and_never_exceed_the_quota(crowd: Crowd) -> None:
    quota, jobs = 7, 80
    await crowd[0].enqueue(*[Job(b"%d" % number, 1 + number % 3) for number in range(jobs)])
    await crowd[0].quota(quota, 1)
    handed_out: list[str] = []
    surely_held: set[str] = set()

    async def work(subject: Subject) -> None:
        """End jobs and claim others in one step, until none is pending; look at each step how many are in progress."""
        held: list[DequeuedJob] = []
        while held or await settled(partial(subject.count, JobState.PENDING)):
            acks = [ended(job) for job in held]
            surely_held.difference_update(job.descriptor for job in held)
            outcomes, (held,) = await settled(partial(both, subject, acks, [subject.request(3)], enforce_quota=True))
            assert outcomes == [SUCCEEDED] * len(acks)
            surely_held.update(job.descriptor for job in held)
            assert len(surely_held) <= quota
            if subject.counts_at_once:
                assert await settled(partial(subject.count, JobState.IN_PROGRESS)) <= quota
            handed_out.extend(job.descriptor for job in held)

    await at_once(*[partial(work, subject) for subject in crowd for _ in range(3)])
    assert len(handed_out) == len(set(handed_out)) == jobs
