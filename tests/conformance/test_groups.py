"""Groups of jobs: fair shares of the hand-outs of a queue."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import pytest

from pinlater.backends.aged_levels import Level, levels_of
from pinlater.backends.base import STORED_STATES, AckRequest, ClaimRequest, ScanRequest
from pinlater.backends.extended import Offer, RescheduleRequest
from pinlater.backends.group_store import GroupCounts, ReadyCounts
from pinlater.errors import QueueNotFound
from pinlater.model import (
    CancelOutcome,
    ClaimOutcome,
    DequeuedJob,
    ExtendedJob,
    JobState,
    OnDuplicate,
    RescheduleOutcome,
)
from tests.conformance.bindings import BINDINGS
from tests.conformance.extended_subject import expire_jobs, offer, offer_all, offer_of, store
from tests.conformance.reference_turns import RefTurns, Waiting
from tests.conformance.subject import START_MS, Subject, key_of
from tests.queues import drop_queue, make_queue

pytestmark = pytest.mark.parametrize("binding", [each.param() for each in BINDINGS if each.has_groups], indirect=True)

LONGEST = "ü" * 127 + "x"


async def grouped(subject: Subject, group: str, count: int, **fields: object) -> list[str]:
    """Enqueue jobs of a group, in one call; their bodies are the group and a number."""
    offers = [offer_of(f"{group}{number}".encode(), group=group, **fields) for number in range(count)]
    return [each.descriptor for each in await offer_all(subject, *offers)]


def bodies(jobs: Iterable[DequeuedJob]) -> list[str]:
    return [bytes(job.body).decode() for job in jobs]


def groups_of(jobs: Iterable[DequeuedJob]) -> Counter[str]:
    return Counter(body.rstrip("0123456789") for body in bodies(jobs))


async def test_groups_take_turns_whatever_each_has_waiting(subject: Subject) -> None:
    await grouped(subject, "a", 200)
    await grouped(subject, "b", 3)
    taken = await subject.claim(limit=6)
    assert groups_of(taken) == {"a": 3, "b": 3}
    assert [body for body in bodies(taken) if body[0] == "b"] == ["b0", "b1", "b2"]
    await grouped(subject, "c", 1)
    assert groups_of(await subject.claim(limit=2))["c"] == 1


@pytest.mark.parametrize("aging_ms", [None, 60_000])
async def test_only_a_queue_without_groups_gives_what_is_to_be_fetched_ahead(
    subject: Subject, aging_ms: int | None
) -> None:
    def requests() -> list[ClaimRequest]:
        levels: Sequence[Level] = (1,) if aging_ms is None else levels_of((1,), aging_ms)
        return [subject.request(limit=limit, prefetch=4, priorities=levels) for limit in (6, 5)]

    for number in range(20):
        await subject.job(f"plain{number}".encode())
    assert [len(jobs) for jobs in await subject.shard.claim(subject.queue, requests(), subject.now_ms)] == [6, 5]
    await grouped(subject, "a", 20)
    assert [len(jobs) for jobs in await subject.shard.claim(subject.queue, requests(), subject.now_ms)] == [2, 1]
    _, claims = await subject.shard.ack_and_claim(subject.queue, [], requests(), subject.now_ms)
    assert [len(jobs) for jobs in claims] == [2, 1]


async def test_a_job_behind_a_flood_is_handed_out_behind_one_job_of_each_group(subject: Subject) -> None:
    for group in "abcd":
        await grouped(subject, group, 50)
    await subject.claim(limit=37)
    await grouped(subject, "late", 1)
    assert "late0" in bodies(await subject.claim(limit=5))


async def test_within_a_group_the_order_is_by_run_after_and_age(subject: Subject) -> None:
    for number, ago_ms in enumerate((0, 5, 0, 9, 5)):
        await store(subject, f"a{number}".encode(), group="a", run_after_ms=START_MS - ago_ms)
    taken = [job for _ in range(5) for job in [await subject.claimed()]]
    assert bodies(taken) == ["a3", "a1", "a4", "a0", "a2"]


async def test_jobs_without_a_group_are_a_group_of_their_own(subject: Subject) -> None:
    for number in range(20):
        await subject.job(f"plain{number}".encode())
    await grouped(subject, "a", 20)
    taken = await subject.claim(limit=10)
    assert groups_of(taken) == {"plain": 5, "a": 5}
    assert [body for body in bodies(taken) if body[0] == "p"] == [f"plain{number}" for number in range(5)]


async def test_priorities_count_before_groups_and_each_has_turns_of_its_own(subject: Subject) -> None:
    await grouped(subject, "a", 10, priority=2)
    await grouped(subject, "b", 10, priority=2)
    await grouped(subject, "a", 4, priority=1)
    assert groups_of(await subject.claim(limit=4)) == {"a": 4}
    assert groups_of(await subject.claim(limit=6)) == {"a": 3, "b": 3}


async def test_a_group_that_was_away_gets_no_credit(subject: Subject) -> None:
    await grouped(subject, "b", 1)
    await subject.claim()
    await grouped(subject, "a", 100)
    await subject.claim(limit=50)
    await grouped(subject, "b", 100)
    assert groups_of(await subject.claim(limit=9)) == {"a": 4, "b": 5}


async def test_a_group_with_one_job_at_a_time_is_served_no_more_often_than_others(subject: Subject) -> None:
    await grouped(subject, "a", 100)
    taken: Counter[str] = Counter()
    await grouped(subject, "b", 1)
    for _ in range(40):
        (job,) = await subject.claim()
        taken += groups_of([job])
        if groups_of([job])["b"]:
            await grouped(subject, "b", 1)
    assert taken == {"a": 20, "b": 20}


async def test_where_the_jobs_of_a_group_end_within_a_claim_all_others_take_its_place(subject: Subject) -> None:
    for group in "bc":
        await grouped(subject, group, 20)
    assert groups_of(await subject.claim(limit=2)) == {"b": 1, "c": 1}
    await grouped(subject, "a", 1)
    assert groups_of(await subject.claim(limit=3)) == {"a": 1, "b": 1, "c": 1}


async def test_a_claim_takes_all_there_is_whatever_the_groups(subject: Subject) -> None:
    await grouped(subject, "a", 3)
    await grouped(subject, "b", 150)
    await subject.job(b"plain")
    assert len(await subject.claim(limit=1_000)) == 154
    assert await subject.claim(limit=1_000) == []


async def test_jobs_come_into_line_when_they_are_due(subject: Subject) -> None:
    await grouped(subject, "a", 30)
    await grouped(subject, "b", 2, run_after_ms=START_MS + 10)
    assert groups_of(await subject.claim(limit=10)) == {"a": 10}
    subject.tick(10)
    assert groups_of(await subject.claim(limit=4)) == {"a": 2, "b": 2}


async def test_a_retry_keeps_the_group_and_is_charged_again(subject: Subject) -> None:
    await grouped(subject, "a", 30)
    await grouped(subject, "b", 1)
    first, second = await subject.claim(limit=2)
    of_b = first if groups_of([first])["b"] else second
    assert await subject.fail(of_b.descriptor)
    assert (await subject.info(of_b.descriptor)).group == "b"
    assert groups_of(await subject.claim(limit=2)) == {"a": 1, "b": 1}


async def test_a_requeue_gives_the_turn_back(subject: Subject) -> None:
    await grouped(subject, "a", 30)
    await grouped(subject, "b", 30)
    taken = await subject.claim(limit=20)
    assert groups_of(taken) == {"a": 10, "b": 10}
    assert await subject.requeue(*[job for job in taken if groups_of([job])["b"]]) == 10
    assert groups_of(await subject.claim(limit=10)) == {"b": 10}


async def test_turns_that_went_back_are_no_credit_for_whoever_comes_then(subject: Subject) -> None:
    await grouped(subject, "a", 40)
    taken = await subject.claim(limit=20)
    await grouped(subject, "b", 10)
    assert groups_of(await subject.claim()) == {"b": 1}
    assert await subject.requeue(*taken) == 20
    assert groups_of(await subject.claim(limit=5)) == {"a": 5}
    await grouped(subject, "c", 30)
    assert groups_of(await subject.claim(limit=14)) == {"a": 14}
    assert groups_of(await subject.claim(limit=5)) == {"a": 2, "b": 1, "c": 2}


async def test_what_leaves_its_line_is_not_charged(subject: Subject) -> None:
    jobs = await grouped(subject, "a", 10)
    await grouped(subject, "b", 10)
    await subject.claim(limit=2)
    left = [each for each in jobs if (await subject.info(each)).state is JobState.PENDING]
    outcomes = await subject.shard.cancel(subject.queue, [key_of(each) for each in left[:5]], subject.now_ms)
    assert set(outcomes) == {CancelOutcome.CANCELLED}
    assert groups_of(await subject.claim(limit=4)) == {"a": 2, "b": 2}
    assert groups_of(await subject.claim(limit=100)) == {"a": 2, "b": 7}


async def test_counts_say_how_many_groups_wait(subject: Subject) -> None:
    shard, queue, now_ms = subject.shard, subject.queue, subject.now_ms
    assert type(await shard.count_ready(queue, (1, 2), 10, now_ms)) is list
    for group in "abc":
        await grouped(subject, group, 20)
    ready = await shard.count_ready(queue, (1, 2), 10, now_ms)
    assert isinstance(ready, ReadyCounts)
    assert ready == [10, 0]
    assert (ready.weights[0], ready.weights[1]) == (3, 0)
    await subject.claim(limit=58)
    ready = await shard.count_ready(queue, (1, 2), 10, now_ms)
    assert isinstance(ready, ReadyCounts)
    assert (list(ready), ready.weights[0]) == ([2, 0], 2)


async def test_jobs_in_line_are_counted_and_shown_as_pending(subject: Subject) -> None:
    shard, queue, now_ms = subject.shard, subject.queue, subject.now_ms
    (first, *_) = await grouped(subject, "a", 3)
    await grouped(subject, LONGEST, 2, priority=2)
    await subject.job()
    assert await shard.count_ready(queue, (1, 2, 3), 100, now_ms) == [4, 2, 0]
    assert await shard.count_ready(queue, (1, 2), 2, now_ms) in ([2, 2], [4, 2])
    assert await shard.count(queue, JobState.PENDING, (1, 2, 3), False, now_ms) == 6
    assert await shard.next_due([queue], (1, 2, 3)) == {queue: START_MS}
    page = await shard.stats(queue, (1, 2, 3), now_ms, None, 1_000)
    assert {level: (counts.ready, counts.oldest_ready_ms) for level, counts in page.levels.items()} == {
        1: (4, START_MS),
        2: (2, START_MS),
    } | {level: (0, None) for level in page.levels if level == 3}
    info = await subject.info(first)
    assert (info.state, info.group, info.run_after_ms) == (JobState.PENDING, "a", START_MS)
    request = ScanRequest(STORED_STATES[JobState.PENDING], (1, 2, 3), False, 100)
    found = await shard.scan(queue, request, now_ms)
    assert Counter(each.group for each in found) == {"a": 3, LONGEST: 2, None: 1}
    assert len(await shard.peek(queue, (1, 2, 3), 100, 2**20, now_ms)) == 6
    assert groups_of(await shard.peek(queue, (1,), 2, 2**20, now_ms))["a"] >= 1


async def test_a_claim_of_named_jobs_takes_them_out_of_line(subject: Subject) -> None:
    first, second, _ = await grouped(subject, "a", 3)
    answers = await subject.shard.claim_listed(
        subject.queue, [key_of(second), key_of(first), key_of(second)], subject.request(), subject.now_ms
    )
    assert [each.outcome for each in answers] == [
        ClaimOutcome.CLAIMED,
        ClaimOutcome.CLAIMED,
        ClaimOutcome.IN_PROGRESS,
    ]
    assert bodies(await subject.claim()) == ["a2"]


async def test_a_reschedule_takes_a_job_out_of_line_and_back(subject: Subject) -> None:
    first, second = await grouped(subject, "a", 2)
    requests = [RescheduleRequest(*key_of(first), run_after_ms=START_MS + 5, body=b"later")]
    assert await subject.shard.reschedule(subject.queue, requests, subject.now_ms) == [RescheduleOutcome.RESCHEDULED]
    await subject.shard.reschedule(
        subject.queue, [RescheduleRequest(*key_of(second), attempts_allowed=7)], subject.now_ms
    )
    (job,) = await subject.claim(limit=10)
    assert (job.descriptor, job.attempts_allowed) == (second, 7)
    assert (await subject.info(first)).group == "a"
    subject.tick(5)
    assert bodies(await subject.claim(limit=10)) == ["later"]


async def test_a_replaced_job_keeps_its_group(subject: Subject) -> None:
    standing = await store(subject, b"old", group="a", dedupe_key="k")
    await offer(subject, b"new", group="b", dedupe_key="k", on_duplicate=OnDuplicate.REPLACE)
    await offer(
        subject, b"late", group="b", dedupe_key="k", on_duplicate=OnDuplicate.REPLACE, run_after_ms=START_MS + 5
    )
    assert await subject.claim() == []
    assert (await subject.info(standing)).group == "a"
    subject.tick(5)
    assert bodies(await subject.claim(limit=5)) == ["late"]


async def test_a_job_whose_time_is_over_leaves_its_line(subject: Subject) -> None:
    await store(subject, b"a0", group="a", expires_at_ms=START_MS + 5)
    await grouped(subject, "b", 1)
    subject.tick(5)
    assert await subject.shard.count_ready(subject.queue, (1,), 10, subject.now_ms) == [1]
    assert bodies(await subject.claim(limit=5)) == ["b0"]
    assert await expire_jobs(subject) == 1
    await grouped(subject, "a", 1)
    assert bodies(await subject.claim()) == ["a0"]


async def test_a_job_whose_time_is_over_takes_no_turn(subject: Subject) -> None:
    await grouped(subject, "a", 20)
    for number in range(4):
        await store(subject, f"over{number}".encode(), group="b", expires_at_ms=START_MS + 5)
    await grouped(subject, "b", 3)
    await store(subject, b"over", group="c", expires_at_ms=START_MS + 5)
    subject.tick(5)
    assert groups_of(await subject.claim(limit=2)) == {"a": 1, "b": 1}
    assert groups_of([*await subject.claim(), *await subject.claim()]) == {"a": 1, "b": 1}
    assert groups_of(await subject.claim(limit=30)) == {"a": 18, "b": 1}


async def test_jobs_of_one_serialize_key_wait_for_their_chain_first(subject: Subject) -> None:
    await store(subject, b"a0", group="a", serialize_key="s")
    await store(subject, b"b0", group="b", serialize_key="s")
    (first,) = await subject.claim(limit=5)
    assert await subject.claim(limit=5) == []
    await subject.succeed(first.descriptor)
    assert bodies(await subject.claim(limit=5)) == ["b0"]


async def test_deleted_jobs_leave_their_lines(subject: Subject) -> None:
    await grouped(subject, "a", 5)
    (listed,) = await grouped(subject, "b", 1)
    shard, queue = subject.shard, subject.queue
    assert await shard.delete_listed(queue, JobState.PENDING, [key_of(listed)], subject.now_ms) == 1
    assert await shard.delete_jobs(queue, JobState.PENDING, 1, 3, subject.now_ms) == 3
    assert len(await subject.claim(limit=10)) == 2
    assert await shard.count_ready(queue, (1, 2, 3), 10, subject.now_ms) == [0, 0, 0]


async def test_a_queue_made_anew_has_nothing_of_the_groups_before(subject: Subject) -> None:
    await grouped(subject, "a", 10)
    await grouped(subject, "b", 1)
    assert groups_of(await subject.claim(limit=2)) == {"a": 1, "b": 1}
    await drop_queue(subject.shard, subject.queue, subject.now_ms)
    await make_queue(subject.shard, subject.queue, subject.tick(1_000))
    assert await subject.claim(limit=5) == []
    for number in range(4):
        await subject.job(f"plain{number}".encode())
    assert bodies(await subject.claim()) == ["plain0"]
    await grouped(subject, "b", 1)
    assert bodies(await subject.claim(limit=2)) == ["plain1", "b0"]


async def test_large_bodies_cost_turns_only_where_they_are_handed_out(subject: Subject) -> None:
    for group in "ab":
        for number in range(4):
            await store(subject, f"{group}{number}".encode() + b" " * 5_000, group=group)
    taken = [bytes(job.body)[:2] for _ in range(4) for job in await subject.claim(limit=10, max_bytes=10_004)]
    assert Counter(body[:1] for body in taken[:4]) == {b"a": 2, b"b": 2}
    assert len(taken) == 8


# -- a walk ------------------------------------------------------------------------------------------------------------

GROUPS = ("", "a", "b", "c", "quiet")


class Walk:
    """Calls by chance, with the reference beside them."""

    def __init__(self, subject: Subject, seed: int) -> None:
        self.subject = subject
        self.rng = random.Random(seed)
        self.turns: defaultdict[int, RefTurns] = defaultdict(RefTurns)
        self.claimed: dict[int, tuple[DequeuedJob, Waiting]] = {}

    async def step(self) -> None:
        common, rare = (self.enqueue, self.claim), (self.end, self.requeue, self.cancel, self.reschedule)
        await self.rng.choice((*common, *common, *rare))()
        self.subject.tick(self.rng.choice((0, 0, 1, 3)))

    async def enqueue(self) -> None:
        rng, subject = self.rng, self.subject
        group = rng.choice(GROUPS)
        offers = [
            Offer(
                ExtendedJob(
                    b"x",
                    rng.choice((1, 1, 2)),
                    subject.now_ms + rng.choice((-2, 0, 0, 0, 2)),
                    attempts_allowed=9,
                    group=group if rng.random() < 0.8 else rng.choice(GROUPS),
                    claim_timeout_ms=50_000,
                )
            )
            for _ in range(rng.choice((1, 1, 2, 9)))
        ]
        for each, offered in zip(offers, await offer_all(subject, *offers), strict=True):
            job = each.job
            waiting = Waiting(job.run_after_ms or 0, key_of(offered.descriptor).id, job.group)
            self.turns[job.priority].enqueued(waiting, subject.now_ms)

    async def claim(self) -> None:
        limit = self.rng.choice((1, 2, 5, 20))
        jobs = await self.subject.claim(limit=limit, priorities=(1, 2))
        left = limit
        for priority in (1, 2):
            if not left:
                break
            own = [job for job in jobs if job.priority == priority]
            taken = self.turns[priority].claim([key_of(job.descriptor).id for job in own], self.subject.now_ms)
            self.claimed |= {waiting.id: (job, waiting) for job, waiting in zip(own, taken, strict=True)}
            left -= len(own)
            waits = bool(self.turns[priority].lines.keys() - self.turns[priority].paused)
            assert left == 0 or not waits, "a slot stays empty, and jobs are in line"

    def _some_claimed(self) -> list[tuple[DequeuedJob, Waiting]]:
        ids = self.rng.sample(sorted(self.claimed), min(len(self.claimed), self.rng.choice((1, 3))))
        return [self.claimed.pop(each) for each in ids]

    async def end(self) -> None:
        for job, waiting in self._some_claimed():
            succeeded = self.rng.random() < 0.5
            await self.subject.ack(AckRequest(*key_of(job.descriptor), succeeded))
            if not succeeded and job.attempts_remaining > 1:
                waiting.run_after_ms = self.subject.now_ms
                self.turns[job.priority].outside[waiting.id] = waiting

    async def requeue(self) -> None:
        some = self._some_claimed()
        assert await self.subject.requeue(*[job for job, _ in some]) == len(some)
        for job, waiting in some:
            self.turns[job.priority].requeued(waiting)

    def _some_pending(self) -> tuple[int, int] | None:
        found = [
            (priority, job.id)
            for priority, turns in sorted(self.turns.items())
            for job in (*turns.outside.values(), *(each for line in turns.lines.values() for each in line))
        ]
        return self.rng.choice(sorted(found)) if found else None

    async def cancel(self) -> None:
        named = self._some_pending()
        if named is not None:
            outcomes = await self.subject.shard.cancel(self.subject.queue, [_key(named)], self.subject.now_ms)
            assert outcomes == [CancelOutcome.CANCELLED]
            self.turns[named[0]].left(named[1])

    async def reschedule(self) -> None:
        named = self._some_pending()
        if named is not None:
            time_ms = self.subject.now_ms + self.rng.choice((-1, 0, 4))
            request = RescheduleRequest(*named, run_after_ms=time_ms)
            await self.subject.shard.reschedule(self.subject.queue, [request], self.subject.now_ms)
            waiting = self.turns[named[0]].left(named[1])
            waiting.run_after_ms = time_ms
            self.turns[named[0]].outside[waiting.id] = waiting

    async def finish(self) -> None:
        """All that is there is handed out in the end."""
        self.subject.tick(10)
        while any(turns.all_jobs for turns in self.turns.values()):
            before = sum(turns.all_jobs for turns in self.turns.values())
            await self.claim()
            assert sum(turns.all_jobs for turns in self.turns.values()) < before


def _key(named: Sequence[int]) -> tuple[int, int]:
    priority, job_id = named
    return key_of(f"q:s1:p{priority}:{job_id}")


@pytest.mark.parametrize("seed", range(4))
async def test_calls_by_chance_keep_the_turns(subject: Subject, seed: int) -> None:
    walk = Walk(subject, seed)
    for _ in range(120):
        await walk.step()
    await walk.finish()


async def test_jobs_in_line_are_counted_by_group(subject: Subject) -> None:
    await grouped(subject, "a", 3, priority=1)
    first_ms = subject.now_ms
    subject.tick(5)
    await grouped(subject, "a", 2, priority=2)
    await grouped(subject, "b", 1, priority=2)
    shard, queue = subject.shard, subject.queue
    counts = await shard.count_groups(queue, (1, 2, 3), ["b", "none", "a"])
    assert counts == {"a": GroupCounts(5, first_ms), "b": GroupCounts(1, subject.now_ms)}
    assert await shard.count_groups(queue, (1, 2), ["a"], 2) == {"a": GroupCounts(4, first_ms)}
    assert await shard.count_groups(queue, (3,), ["a"]) == {}
    with pytest.raises(QueueNotFound):
        await shard.count_groups("gone", (1,), ["a"])
