"""Aging between priorities: a job counts one priority higher for each so much time since its run_after."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence

import pytest

from pinlater.backends.aged_levels import Level, levels_of
from pinlater.backends.base import AckRequest
from pinlater.errors import QueueNotFound
from pinlater.model import DequeuedJob, Job, JobState
from tests.conformance.extended_subject import expire_jobs, offer_all, offer_of, store
from tests.conformance.reference_life import place_by
from tests.conformance.subject import START_MS, Subject, key_of

ALL = (1, 2, 3)
AGING_MS = 100
LEVELS = levels_of(ALL, AGING_MS)


async def aged(subject: Subject, *jobs: tuple[int, int], group: str = "") -> list[str]:
    """Enqueue jobs of these priorities, that have been due for so long."""
    offers = [
        offer_of(f"{priority}:{ago_ms}".encode(), priority=priority, run_after_ms=START_MS - ago_ms, group=group)
        for priority, ago_ms in jobs
    ]
    return [each.descriptor for each in await offer_all(subject, *offers)]


def bodies(jobs: Iterable[DequeuedJob]) -> list[str]:
    return [bytes(job.body).decode() for job in jobs]


async def claim(subject: Subject, limit: int, levels: Sequence[Level] = LEVELS) -> list[str]:
    return bodies(await subject.claim(limit, priorities=levels))


async def test_a_job_comes_up_by_one_priority_for_each_time_that_it_waits(subject: Subject) -> None:
    await aged(subject, (1, 5), (2, 99), (2, 100), (3, 199), (3, 200), (3, 99))
    assert await claim(subject, 10) == ["3:200", "2:100", "1:5", "3:199", "2:99", "3:99"]


async def test_at_one_level_the_order_is_by_run_after_and_age(subject: Subject) -> None:
    await aged(subject, (2, 230), (1, 220), (3, 240), (2, 220), (1, 250), (3, 220), (1, 1))
    assert await claim(subject, 4) == ["1:250", "3:240", "2:230", "1:220"]
    assert await claim(subject, 4) == ["2:220", "3:220", "1:1"]


async def test_no_job_goes_above_the_first_priority(subject: Subject) -> None:
    await aged(subject, (1, 1_000), (3, 1_100), (2, 900), (2, 1_050))
    assert await claim(subject, 4) == ["3:1100", "2:1050", "1:1000", "2:900"]


async def test_a_flood_of_the_first_priority_does_not_keep_a_job_of_the_last_for_ever(subject: Subject) -> None:
    low = await subject.job(b"low", priority=3)
    for _ in range(6):
        subject.tick(30)
        await subject.enqueue(*[Job(b"high", 1) for _ in range(3)])
        assert low not in [job.descriptor for job in await subject.claim(1, priorities=LEVELS)]
    subject.tick(30)
    await subject.enqueue(*[Job(b"high", 1) for _ in range(3)])
    taken = await subject.claim(1, priorities=LEVELS)
    assert [job.descriptor for job in taken] == [low]
    assert taken[0].priority == 3


async def test_a_claim_of_some_levels_hands_out_what_is_at_these(subject: Subject) -> None:
    await aged(subject, (1, 5), (2, 99), (2, 100), (3, 150), (3, 200), (3, 99))
    assert await claim(subject, 10, LEVELS[:1]) == ["3:200", "2:100", "1:5"]
    assert await claim(subject, 10, LEVELS[:1]) == []
    assert await claim(subject, 10, LEVELS[:2]) == ["3:150", "2:99"]
    assert await claim(subject, 10) == ["3:99"]


async def test_only_jobs_of_the_priorities_asked_for_are_handed_out(subject: Subject) -> None:
    await aged(subject, (1, 5), (2, 300), (3, 300), (3, 1))
    assert await claim(subject, 10, levels_of((1, 3), AGING_MS)) == ["3:300", "1:5", "3:1"]
    assert await claim(subject, 10, levels_of((1,), AGING_MS)) == []
    assert await claim(subject, 10, levels_of((), AGING_MS)) == []
    assert await claim(subject, 10) == ["2:300"]


async def test_a_claim_without_aging_is_strict(subject: Subject) -> None:
    await aged(subject, (3, 100_000), (2, 100_000), (1, 0))
    assert await claim(subject, 10, ALL) == ["1:0", "2:100000", "3:100000"]


async def test_ready_jobs_are_counted_by_level(subject: Subject) -> None:
    await aged(subject, (1, 5), (2, 99), (2, 100), (3, 199), (3, 200), (3, 99), (3, -5), (1, -5))
    assert await subject.shard.count_ready(subject.queue, LEVELS, 10, subject.now_ms) == [3, 2, 1]
    assert await subject.shard.count_ready(subject.queue, LEVELS[:2], 10, subject.now_ms) == [3, 2]
    assert await subject.shard.count_ready(subject.queue, LEVELS, 2, subject.now_ms) == [2, 2, 0]
    assert await subject.shard.count_ready(subject.queue, levels_of((2, 3), AGING_MS), 10, subject.now_ms) == [2, 2, 1]


async def test_requests_of_one_call_each_have_their_own_levels(subject: Subject) -> None:
    await aged(subject, (1, 5), (2, 100), (3, 200), (1, 4), (2, 1))
    requests = [subject.request(1, priorities=each) for each in (LEVELS, ALL, LEVELS[:1], ALL)]
    answers = await subject.shard.claim(subject.queue, requests, subject.now_ms)
    assert [bodies(jobs) for jobs in answers] == [["3:200"], ["1:5"], ["2:100"], ["1:4"]]


async def test_a_claim_behind_acks_and_one_within_a_quota_go_by_level(subject: Subject) -> None:
    (descriptor, *_) = await aged(subject, (1, 500), (1, 5), (2, 100), (3, 200), (3, 1))
    await subject.claimed()
    request = subject.request(2, priorities=LEVELS)
    acks = [AckRequest(*key_of(descriptor), True)]
    _, (jobs,) = await subject.shard.ack_and_claim(subject.queue, acks, [request], subject.now_ms)
    assert bodies(jobs) == ["3:200", "2:100"]
    await subject.shard.set_quota(subject.queue, 3, 1, subject.now_ms)
    assert bodies(await subject.claim_within_quota(5, priorities=LEVELS)) == ["1:5"]


async def test_a_look_shows_what_a_claim_would_hand_out(subject: Subject) -> None:
    await aged(subject, (1, 5), (2, 99), (2, 100), (3, 199), (3, 200), (3, 99), (1, 100))
    for levels in (LEVELS[:1], LEVELS[:2], LEVELS):
        seen = await subject.shard.peek(subject.queue, levels, 4, 1_000, subject.now_ms)
        assert bodies(seen) == await claim(subject, 4, levels)


async def test_bodies_that_do_not_fit_keep_the_order(subject: Subject) -> None:
    offers = [
        offer_of(bytes([priority]) * 10, priority=priority, run_after_ms=START_MS - ago_ms)
        for priority, ago_ms in ((1, 1), (2, 100), (3, 300), (2, 90))
    ]
    await offer_all(subject, *offers)
    taken = await subject.claim(4, priorities=LEVELS, max_bytes=25)
    assert [job.priority for job in taken] == [3, 2]
    assert [job.priority for job in await subject.claim(4, priorities=LEVELS, max_bytes=5)] == [1]


async def test_a_job_whose_time_is_over_is_passed_over(subject: Subject) -> None:
    await store(subject, b"over", priority=3, run_after_ms=START_MS - 300, expires_at_ms=START_MS + 1)
    await aged(subject, (1, 5), (2, 100), (3, 150))
    subject.tick(5)
    assert await subject.shard.count_ready(subject.queue, LEVELS, 10, subject.now_ms) == [2, 1, 0]
    seen = await subject.shard.peek(subject.queue, LEVELS, 10, 1_000, subject.now_ms)
    assert bodies(seen) == ["2:100", "1:5", "3:150"]
    assert await claim(subject, 2) == ["2:100", "1:5"]
    assert await claim(subject, 10) == ["3:150"]
    assert await expire_jobs(subject) == 1


async def test_a_queue_that_is_not_there_is_refused(subject: Subject) -> None:
    with pytest.raises(QueueNotFound):
        await subject.shard.count_ready("unknown", LEVELS, 1, subject.now_ms)
    with pytest.raises(QueueNotFound):
        await subject.shard.peek("unknown", LEVELS, 1, 1, subject.now_ms)
    with pytest.raises(QueueNotFound):
        await subject.shard.claim("unknown", [subject.request(priorities=LEVELS)], subject.now_ms)


@pytest.mark.parametrize("seed", range(3))
async def test_calls_by_chance_keep_the_order(subject: Subject, seed: int) -> None:
    rng = random.Random(seed)
    waiting: dict[str, tuple[int, int, int]] = {}
    for _ in range(12):
        new = [Job(b"", rng.randint(1, 3), rng.choice([None, START_MS - rng.randint(0, 400)])) for _ in range(6)]
        for descriptor, job in zip(await subject.enqueue(*new), new, strict=True):
            run_after_ms = subject.now_ms if job.run_after_ms is None else job.run_after_ms
            waiting[descriptor] = job.priority, run_after_ms, key_of(descriptor).id
        levels = LEVELS[: rng.randint(1, 3)]
        place = place_by(levels, subject.now_ms)
        places = {each: (place(*at), id_) for each, (*at, id_) in waiting.items()}
        ready = sorted((each for each, at in places.items() if at[0] is not None), key=places.__getitem__)
        limit = rng.randint(1, 9)
        assert sum(await subject.shard.count_ready(subject.queue, levels, 500, subject.now_ms)) == len(ready)
        taken = [job.descriptor for job in await subject.claim(limit, priorities=levels)]
        assert taken == ready[:limit]
        for descriptor in taken:
            del waiting[descriptor]
        subject.tick(rng.choice([0, 20, 90]))
    assert await subject.count(JobState.PENDING) == len(waiting)


async def test_claimers_at_once_take_all_jobs_and_never_one_twice(crowd: Sequence[Subject]) -> None:
    (first, *_) = crowd
    await aged(first, *[(priority, 90 * number) for number in range(10) for priority in ALL])
    taken: list[str] = []
    while len(taken) < 30:
        claims = [subject.claim(3, priorities=LEVELS) for subject in crowd]
        found = [job.descriptor for jobs in await asyncio.gather(*claims) for job in jobs]
        assert found
        taken += found
    assert len(set(taken)) == 30
