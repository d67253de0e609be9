"""Permits of groups: what the home of a queue counts, and what groups have room for on a shard."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import product

import pytest

from pinlater.backends.base import ENDED_STATES, LIVE_STATES, AckRequest, ClaimKey, ConfigEntry
from pinlater.backends.group_rules import GROUP_RULES_PREFIX
from pinlater.backends.permit_store import FreedPermits, GroupRoom, Permit, PermitAnswer, PermitKey, PermitRequest
from pinlater.errors import QueueNotFound
from pinlater.model import DequeuedJob, new_version
from tests.conformance.bindings import BINDINGS
from tests.conformance.crowd import Crowd
from tests.conformance.stats_pages import NO_JOBS, whole_stats
from tests.conformance.subject import START_MS, Subject, key_of
from tests.conformance.test_group_rules import pause, put_rules, version_above
from tests.conformance.test_groups import grouped, groups_of
from tests.conformance.test_priority_aging import LEVELS, aged

pytestmark = pytest.mark.parametrize("binding", [each.param() for each in BINDINGS if each.has_groups], indirect=True)

CHECK_MS, LONG_MS = 5_000, 60_000


def keys(*ids: int, shard_id: str = "s1", claim: str = "worker:1") -> list[PermitKey]:
    return [PermitKey(shard_id, 1, each, f"{claim}:{each}") for each in ids]


async def take(subject: Subject, *requests: PermitRequest) -> list[PermitAnswer]:
    now_ms = subject.now_ms
    return await subject.shard.take_permits(subject.queue, requests, now_ms + CHECK_MS, now_ms)


async def counts(subject: Subject, *groups: str) -> dict[str, int]:
    return await subject.shard.count_permits(subject.queue, groups)


# -- at the home -------------------------------------------------------------------------------------------------------


async def test_a_group_has_no_more_permits_than_its_limit(subject: Subject) -> None:
    assert await take(subject, PermitRequest("a", keys(1, 2, 3), 2)) == [PermitAnswer(2)]
    assert await take(subject, PermitRequest("a", keys(4), 2), PermitRequest("b", keys(5), 2)) == [
        PermitAnswer(0),
        PermitAnswer(1),
    ]
    assert await counts(subject, "a", "b", "c") == {"a": 2, "b": 1}
    found = await subject.shard.read_permits(subject.queue, [each.holder for each in keys(1, 2, 3, 5)])
    assert sorted(found) == [*[Permit("a", each) for each in keys(1, 2)], Permit("b", keys(5)[0])]


async def test_however_many_ask_at_once_a_group_has_no_more_permits(crowd: Crowd) -> None:
    for number in range(10):
        takes = [
            take(each, PermitRequest(f"g{number}", keys(1, 2, 3, shard_id=f"s{place}"), 7))
            for place, each in enumerate(crowd)
        ]
        answers = await asyncio.gather(*takes)
        assert sum(answer.granted for (answer,) in answers) == 7
        assert await counts(crowd[0], f"g{number}") == {f"g{number}": 7}


async def test_jobs_of_the_same_id_on_two_shards_are_two(subject: Subject) -> None:
    both = [*keys(1), *keys(1, shard_id="s2")]
    assert await take(subject, PermitRequest("a", both, 5)) == [PermitAnswer(2)]
    assert await counts(subject, "a") == {"a": 2}


async def test_a_permit_that_is_taken_back_is_free(subject: Subject) -> None:
    await take(subject, PermitRequest("a", keys(1, 2), 2))
    await subject.shard.end_permits(subject.queue, keys(1))
    assert await take(subject, PermitRequest("a", keys(3, 4), 2)) == [PermitAnswer(1)]
    assert await counts(subject, "a") == {"a": 2}


async def test_the_permit_of_another_claim_stays(subject: Subject) -> None:
    await take(subject, PermitRequest("a", keys(1), 2))
    await take(subject, PermitRequest("a", keys(1, claim="worker:2"), 2))
    assert await subject.shard.end_permits(subject.queue, keys(1)) == {}
    assert await counts(subject, "a") == {"a": 1}
    await subject.shard.end_permits(subject.queue, keys(1, claim="worker:2"))
    assert await counts(subject, "a") == {}


async def test_a_permit_goes_whichever_claim_it_has(subject: Subject) -> None:
    await take(subject, PermitRequest("a", keys(1, 2, claim="worker:2"), 2))
    await subject.shard.end_permits(subject.queue, [PermitKey("s1", 1, 1, "")])
    assert await counts(subject, "a") == {"a": 1}


async def test_a_job_that_is_claimed_again_has_one_permit(subject: Subject) -> None:
    await take(subject, PermitRequest("a", keys(1), 1))
    assert await take(subject, PermitRequest("a", keys(1, claim="worker:2"), 1)) == [PermitAnswer(1)]
    assert await take(subject, PermitRequest("b", keys(1, claim="worker:3"), 1)) == [PermitAnswer(1)]
    assert await counts(subject, "a", "b") == {"b": 1}


async def test_a_job_that_gets_no_permit_keeps_the_one_that_it_has(subject: Subject) -> None:
    """The request may be that of a process that stood still, and the job under a later claim by now."""
    await take(subject, PermitRequest("a", keys(1, claim="worker:2"), 1))
    assert await take(subject, PermitRequest("a", [*keys(2), *keys(1)], 1)) == [PermitAnswer(0)]
    assert await take(subject, PermitRequest("a", [*keys(1, claim="worker:3"), *keys(2)], 1)) == [PermitAnswer(1)]
    assert await take(subject, PermitRequest("b", keys(3, 1), 1)) == [PermitAnswer(1)]
    assert await counts(subject, "a", "b") == {"a": 1, "b": 1}
    found = await subject.shard.read_permits(subject.queue, [each.holder for each in keys(1, 2)])
    assert found == [Permit("a", *keys(1, claim="worker:3"))]


async def test_a_smaller_limit_takes_no_permit_back(subject: Subject) -> None:
    await take(subject, PermitRequest("a", keys(1, 2, 3), 3))
    assert await take(subject, PermitRequest("a", keys(4), 1)) == [PermitAnswer(0)]
    assert await counts(subject, "a") == {"a": 3}


async def test_a_rate_gives_tokens_and_says_when_there_is_one_more(subject: Subject) -> None:
    assert await take(subject, PermitRequest("a", keys(1, 2), per_second=10.0)) == [PermitAnswer(1, 100)]
    subject.tick(40)
    assert await take(subject, PermitRequest("a", keys(2), per_second=10.0)) == [PermitAnswer(0, 60)]
    subject.tick(60)
    assert await take(subject, PermitRequest("a", keys(2), per_second=10.0)) == [PermitAnswer(1)]
    assert await counts(subject, "a") == {}, "without a maximum no permit is needed"


async def test_what_the_maximum_forbids_costs_no_token(subject: Subject) -> None:
    await take(subject, PermitRequest("a", keys(1), 1, 10.0))
    subject.tick(1_000)
    assert await take(subject, PermitRequest("a", keys(2, 3), 1, 10.0)) == [PermitAnswer(0)]
    assert await take(subject, PermitRequest("a", keys(2, 3, 4), 2, 10.0)) == [PermitAnswer(1)]
    await subject.shard.end_permits(subject.queue, keys(1, 2))
    assert await take(subject, PermitRequest("a", keys(2, 3, 4, 5, 6, 7), 9, 10.0)) == [PermitAnswer(4, 100)]


async def test_shards_that_wait_are_told_in_turn(subject: Subject) -> None:
    shard, until_ms = subject.shard, subject.now_ms + LONG_MS
    await take(subject, PermitRequest("a", keys(1, 2, 3), 3))
    for shard_id in ("s2", "s3", "s2"):
        assert await shard.await_permits(subject.queue, shard_id, {"a": 3}, until_ms) == {"a": 0}
    assert await shard.end_permits(subject.queue, keys(1)) == {"a": FreedPermits(1, ["s2", "s3"])}
    assert await shard.end_permits(subject.queue, keys(1)) == {}, "it was taken back before"
    assert await shard.await_permits(subject.queue, "s4", {"a": 3, "b": 2}, until_ms) == {"a": 1, "b": 2}
    assert await shard.end_permits(subject.queue, keys(2, 3)) == {"a": FreedPermits(2, ["s3", "s2", "s4"])}
    assert await shard.await_permits(subject.queue, "s4", {"a": 0}, until_ms) == {}
    await take(subject, PermitRequest("a", keys(1, 2, 3), 3))
    assert await shard.end_permits(subject.queue, keys(1, 2, 3)) == {"a": FreedPermits(3, ["s3", "s2"])}


async def test_a_shard_waits_until_its_time_whatever_else_the_group_does(subject: Subject) -> None:
    shard, queue, request = subject.shard, subject.queue, PermitRequest("a", keys(1, 2), 2, 1_000.0)
    await take(subject, PermitRequest("a", keys(9), per_second=1_000.0))
    for shard_id, for_ms in (("s2", LONG_MS), ("s3", CHECK_MS)):
        await shard.await_permits(queue, shard_id, {"a": 2}, subject.now_ms + for_ms)
    subject.tick(LONG_MS - 100)
    await take(subject, request)
    subject.tick(99)
    await shard.due_permits(queue, 10, subject.now_ms, subject.now_ms)
    assert await shard.end_permits(queue, keys(1)) == {"a": FreedPermits(1, ["s2", "s3"])}
    assert await shard.await_permits(queue, "s3", {"a": 2}, subject.now_ms + LONG_MS) == {"a": 1}
    subject.tick(LONG_MS - 1)
    await shard.due_permits(queue, 10, subject.now_ms, subject.now_ms)
    assert await shard.end_permits(queue, keys(2)) == {"a": FreedPermits(1, ["s3", "s2"])}
    await take(subject, request)
    subject.tick(CHECK_MS)
    await shard.due_permits(queue, 10, subject.now_ms, subject.now_ms)
    assert await shard.end_permits(queue, keys(1)) == {}, "nobody has waited for so long"


async def test_permits_are_checked_when_their_time_comes(subject: Subject) -> None:
    shard, queue = subject.shard, subject.queue
    await take(subject, PermitRequest("a", keys(1, 2), 5))
    assert await shard.due_permits(queue, 10, subject.now_ms, subject.now_ms + LONG_MS) == []
    subject.tick(CHECK_MS)
    await take(subject, PermitRequest("a", keys(3), 5))
    (first,) = await shard.due_permits(queue, 1, subject.now_ms, subject.now_ms + LONG_MS)
    (second,) = await shard.due_permits(queue, 10, subject.now_ms, subject.now_ms + LONG_MS)
    assert sorted([first, second]) == [Permit("a", each) for each in keys(1, 2)]
    assert await shard.due_permits(queue, 10, subject.now_ms, subject.now_ms + LONG_MS) == []
    subject.tick(LONG_MS)
    due = await shard.due_permits(queue, 10, subject.now_ms, subject.now_ms + LONG_MS)
    assert sorted(due) == [Permit("a", each) for each in keys(1, 2, 3)]


async def test_a_bucket_that_was_full_again_may_be_forgotten(subject: Subject) -> None:
    await take(subject, PermitRequest("a", keys(1), per_second=10.0), PermitRequest("b", keys(2), per_second=0.01))
    subject.tick(20_000)
    await subject.shard.due_permits(subject.queue, 10, subject.now_ms, subject.now_ms)
    slow, fast = (PermitRequest(group, keys(3, 4), per_second=rate) for group, rate in (("b", 0.01), ("a", 10.0)))
    assert await take(subject, slow, fast) == [PermitAnswer(0, 80_000), PermitAnswer(1, 100)]


async def test_a_queue_that_is_not_there_has_none(subject: Subject) -> None:
    shard = subject.shard
    for call in (
        shard.take_permits("gone", [PermitRequest("a", keys(1), 1)], 0, subject.now_ms),
        shard.end_permits("gone", keys(1)),
        shard.await_permits("gone", "s1", {"a": 1}, 0),
        shard.read_permits("gone", ["s1:1"]),
        shard.due_permits("gone", 1, 0, 0),
        shard.count_permits("gone", ["a"]),
        shard.put_rooms("gone", {"a": GroupRoom(0, 1)}, subject.now_ms),
    ):
        with pytest.raises(QueueNotFound):
            await call


async def test_permits_go_with_their_queue(subject: Subject) -> None:
    await take(subject, PermitRequest("a", keys(1), 1, 0.1))
    await grouped(subject, "a", 1)
    await subject.shard.put_rooms(subject.queue, {"a": GroupRoom(0, subject.now_ms + LONG_MS)}, subject.now_ms)
    name = GROUP_RULES_PREFIX + subject.queue
    subject.tick(1)
    gone = await version_above(subject, name, subject.queue)
    entries = ConfigEntry(subject.queue, gone, "{}", gone), ConfigEntry(subject.queue, new_version(0, gone), "{}", gone)
    assert await subject.shard.put_config(entries, subject.now_ms) == [True, True]
    assert await counts(subject, "a") == {}
    assert await take(subject, PermitRequest("a", keys(2), 1, 0.1)) == [PermitAnswer(1)]
    await grouped(subject, "a", 1)
    assert len(await claim(subject, 5)) == 1


# -- where jobs are ----------------------------------------------------------------------------------------------------


async def claim(subject: Subject, limit: int, most: int = 100, priorities: Sequence[int] = (1,)) -> list[DequeuedJob]:
    return await subject.claim(limit=limit, priorities=priorities, most_of_group=most)


async def put(subject: Subject, for_ms: int = LONG_MS, **rooms: int) -> list[str]:
    until_ms = subject.now_ms + for_ms
    found = {group: GroupRoom(jobs, until_ms) for group, jobs in rooms.items()}
    return await subject.shard.put_rooms(subject.queue, found, subject.now_ms)


async def test_a_claim_hands_out_no_more_of_a_group_than_the_highest_limit(subject: Subject) -> None:
    await grouped(subject, "a", 10)
    await grouped(subject, "b", 3)
    jobs = await claim(subject, 10, most=2)
    assert [job.group for job in jobs].count("a") == [job.group for job in jobs].count("b") == 2
    assert groups_of(jobs) == {"a": 2, "b": 2}
    assert groups_of(await claim(subject, 10, most=4)) == {"a": 4, "b": 1}


async def test_the_most_of_a_group_counts_over_priorities(subject: Subject) -> None:
    await grouped(subject, "a", 2, priority=1)
    await grouped(subject, "a", 5, priority=2)
    assert len(await claim(subject, 10, most=3, priorities=(1, 2))) == 3
    assert len(await claim(subject, 10, most=9, priorities=(1, 2))) == 4


async def test_groups_behind_many_that_are_at_their_limits_get_the_rest(subject: Subject) -> None:
    for number in range(5):
        await grouped(subject, f"g{number}", 3)
    assert len(await claim(subject, 20, most=1)) == 5
    assert len(await claim(subject, 20, most=2)) == 10


async def test_a_group_without_room_is_passed_over_until_its_time(subject: Subject) -> None:
    await grouped(subject, "a", 3)
    await grouped(subject, "b", 1)
    assert await put(subject, 1_000, a=0) == ["a"]
    assert groups_of(await claim(subject, 10)) == {"b": 1}
    assert list(await subject.shard.count_ready(subject.queue, (1,), 100, subject.now_ms)) == [0]
    subject.tick(1_000)
    assert list(await subject.shard.count_ready(subject.queue, (1,), 100, subject.now_ms)) == [3]
    assert groups_of(await claim(subject, 10)) == {"a": 3}


async def test_where_jobs_age_room_and_the_highest_limit_count_too(subject: Subject) -> None:
    for priority in (1, 2, 3):
        await aged(subject, *[(priority, 10 * priority)] * 4, group="a")
    await put(subject, a=8)
    assert [len(await subject.claim(limit=6, priorities=LEVELS, most_of_group=8)) for _ in range(3)] == [6, 2, 0]
    subject.tick(LONG_MS)
    assert [len(await subject.claim(limit=9, priorities=LEVELS, most_of_group=3)) for _ in range(3)] == [3, 1, 0]


async def test_an_ack_and_a_claim_in_one_step_keep_to_room(subject: Subject) -> None:
    await grouped(subject, "a", 5)
    (job,) = await claim(subject, 1)
    await put(subject, a=3)
    ack = AckRequest(*key_of(job.descriptor), True, claim_descriptor=job.claim_descriptor)
    request = subject.request(limit=9, most_of_group=9)
    _, (jobs,) = await subject.shard.ack_and_claim(subject.queue, [ack], [request], subject.now_ms)
    assert [job.group for job in jobs] == ["a"] * 3


async def test_room_does_not_end_a_pause(subject: Subject) -> None:
    await grouped(subject, "a", 3)
    await put(subject, a=0)
    await pause(subject, "a")
    assert await claim(subject, 9) == []
    assert await put(subject, a=2) == ["a"]
    assert await claim(subject, 9) == []
    subject.tick(1)
    await put_rules(subject)
    assert len(await claim(subject, 9)) == 2


async def test_a_look_shows_the_jobs_of_a_group_that_is_held_back_no_more(subject: Subject) -> None:
    await grouped(subject, "a", 2)
    await put(subject, 1_000, a=0)
    assert await claim(subject, 1) == []
    await grouped(subject, "b", 2)
    shard, queue = subject.shard, subject.queue
    assert groups_of(await shard.peek(queue, (1,), 9, 10_000, subject.now_ms)) == {"b": 2}
    subject.tick(1_000)
    assert groups_of(await shard.peek(queue, (1,), 9, 10_000, subject.now_ms)) == {"a": 2, "b": 2}
    assert groups_of(await shard.peek(queue, (1,), 2, 10_000, subject.now_ms)) == {"a": 1, "b": 1}


async def test_a_group_gets_as_many_as_it_has_room_for(subject: Subject) -> None:
    await grouped(subject, "a", 9)
    await put(subject, a=0)
    assert await claim(subject, 10) == []
    assert await put(subject, a=2) == ["a"]
    assert len(await claim(subject, 1)) == 1
    assert len(await claim(subject, 10)) == 1
    assert await claim(subject, 10) == []
    subject.tick(LONG_MS)
    assert len(await claim(subject, 10)) == 7


async def test_room_comes_to_what_is_left_of_it(subject: Subject) -> None:
    await grouped(subject, "a", 9)
    await put(subject, a=0)
    await put(subject, a=1)
    await put(subject, a=2)
    assert len(await claim(subject, 2)) == 2
    await put(subject, a=1)
    assert len(await claim(subject, 9)) == 2
    await put(subject, a=2)
    await put(subject, a=0)
    assert await claim(subject, 9) == []
    subject.tick(LONG_MS)
    await put(subject, a=2)
    assert len(await claim(subject, 9)) == 2


async def test_room_is_used_over_the_requests_of_one_call(subject: Subject) -> None:
    await grouped(subject, "a", 9)
    await put(subject, a=3)
    requests = [subject.request(limit=2, priorities=priorities, most_of_group=5) for priorities in ((1,), (1, 2), (1,))]
    claims = await subject.shard.claim(subject.queue, requests, subject.now_ms)
    assert [len(jobs) for jobs in claims] == [2, 1, 0]


async def test_claims_of_several_priorities_never_wait_for_each_other_in_a_ring(crowd: Crowd) -> None:
    first = crowd[0]
    for group, priority in product("ab", (1, 2)):
        await grouped(first, group, 50, priority=priority)
    await put(first, a=500, b=500)

    async def claim_at_once(subject: Subject, *priorities: int) -> None:
        requests = [subject.request(priorities=(each,), most_of_group=9) for each in priorities]
        await subject.shard.claim(subject.queue, requests, subject.now_ms)

    for _ in range(20):  # StoreConflict where a store finds such a ring
        claims = [claim_at_once(crowd[0], 1, 2), claim_at_once(crowd[1], 2), claim_at_once(crowd[2], 1, 2)]
        await asyncio.gather(*claims, put(crowd[3], a=500, b=500))


async def test_jobs_without_a_group_have_no_limit(subject: Subject) -> None:
    await grouped(subject, "", 5)
    await grouped(subject, "a", 5)
    assert groups_of(await claim(subject, 20, most=1)) == {"": 5, "a": 1}


async def test_without_limits_no_room_counts(subject: Subject) -> None:
    await grouped(subject, "a", 3)
    await put(subject, a=1)
    jobs = await claim(subject, 10, most=0)
    assert (len(jobs), {job.group for job in jobs}) == (3, {"a"})


async def test_a_request_from_before_a_limit_does_not_keep_groups_from_others(subject: Subject) -> None:
    await grouped(subject, "a", 3)
    requests = [subject.request(limit=1), subject.request(limit=2, most_of_group=5)]
    claims = await subject.shard.claim(subject.queue, requests, subject.now_ms)
    assert [[job.group for job in jobs] for jobs in claims] == [["a"], ["a", "a"]]


async def test_a_group_that_was_held_back_comes_again_where_it_has_limits_no_more(subject: Subject) -> None:
    await grouped(subject, "a", 3)
    await put(subject, 1_000, a=0)
    assert await claim(subject, 10) == []
    subject.tick(1_000)
    assert len(await claim(subject, 10, most=0)) == 3


async def test_groups_without_jobs_get_no_room(subject: Subject) -> None:
    await grouped(subject, "a", 1)
    assert await put(subject, b=2, a=1) == ["a"]
    await grouped(subject, "b", 5)
    assert groups_of(await claim(subject, 10)) == {"a": 1, "b": 5}


async def test_a_group_is_without_room_before_it_has_jobs(subject: Subject) -> None:
    await grouped(subject, "other", 1)
    assert await put(subject, a=0) == []
    await grouped(subject, "a", 1)
    assert groups_of(await claim(subject, 10)) == {"other": 1}


async def test_requeued_jobs_are_found_when_room_comes(subject: Subject) -> None:
    await grouped(subject, "a", 2)
    jobs = await claim(subject, 2)
    await put(subject, a=0)
    claims = [ClaimKey(*key_of(job.descriptor), job.claim_descriptor) for job in jobs]
    assert await subject.shard.requeue(subject.queue, claims, subject.now_ms) == 2
    assert await claim(subject, 2) == []
    assert await put(subject, a=1) == ["a"]
    assert len(await claim(subject, 2)) == 1


async def test_a_named_job_is_claimed_with_its_group(subject: Subject) -> None:
    await grouped(subject, "a", 1)
    (waiting,) = await subject.shard.peek(subject.queue, (1,), 1, 1_000, subject.now_ms)
    request = subject.request(most_of_group=1)
    (answer,) = await subject.shard.claim_listed(subject.queue, [key_of(waiting.descriptor)], request, subject.now_ms)
    assert [each and each.group for each in (answer.job,)] == ["a"]


# -- what is counted ---------------------------------------------------------------------------------------------------


async def limited(subject: Subject, limit: int = 1_000) -> list[tuple[int, int]]:
    """By priority the ready jobs, and those of them whose groups are held back."""
    levels = await whole_stats(subject.shard, subject.queue, (1, 2), subject.now_ms, limit)
    return [(level.ready, level.ready_limited) for level in (levels.get(each, NO_JOBS) for each in (1, 2))]


async def some_groups(subject: Subject) -> None:
    """Jobs of three groups at two priorities, some of one moment, without the rules of tests before."""
    await put_rules(subject)
    for priority in (1, 2):
        await grouped(subject, "a", 4, priority=priority)
        await grouped(subject, "a", 2, priority=priority, run_after_ms=START_MS - 5)
        await grouped(subject, "b", 3, priority=priority, run_after_ms=START_MS - 3)
    await grouped(subject, "c", 2, priority=2)


PAGES = pytest.mark.parametrize("limit", [1, 3, 40, 1_000])


@PAGES
async def test_ready_jobs_of_a_paused_group_count_as_limited_while_it_is(subject: Subject, limit: int) -> None:
    await some_groups(subject)
    await pause(subject, "a", until=str(START_MS + 100))
    assert await limited(subject, limit) == [(9, 0), (11, 0)]  # no claim has come to it
    assert groups_of(await subject.claim(limit=5, priorities=(1, 2))) == {"b": 4, "c": 1}
    assert await limited(subject, limit) == [(6, 6), (9, 6)]
    await grouped(subject, "a", 1)
    await grouped(subject, "b", 2)
    assert await limited(subject, limit) == [(9, 7), (9, 6)]
    subject.now_ms = START_MS + 99
    assert await limited(subject, limit) == [(9, 7), (9, 6)]
    subject.tick(1)
    assert await limited(subject, limit) == [(9, 0), (9, 0)]


@PAGES
async def test_ready_jobs_of_a_group_without_room_count_as_limited_until_it_has_some(
    subject: Subject, limit: int
) -> None:
    await some_groups(subject)
    await put(subject, a=2)
    assert groups_of(await claim(subject, 4)) == {"a": 2, "b": 2}
    assert await limited(subject, limit) == [(5, 4), (11, 0)]
    assert groups_of(await claim(subject, 2, priorities=(2,))) == {"b": 1, "c": 1}
    assert await limited(subject, limit) == [(5, 4), (9, 6)]
    await put(subject, a=1)
    assert await limited(subject, limit) == [(5, 0), (9, 0)]


async def test_limited_jobs_are_counted_by_group(subject: Subject) -> None:
    await some_groups(subject)
    await put(subject, b=1)
    await pause(subject, "a", until=str(START_MS + 100))
    await claim(subject, 2, priorities=(1,))
    shard, queue, names = subject.shard, subject.queue, ["a", "b", "c"]

    async def both() -> dict[str, tuple[int, int]]:
        counted = await shard.count_groups(queue, (1, 2), names, limited_at_ms=subject.now_ms)
        assert counted == await shard.list_groups(queue, (1, 2), "", 9, limited_at_ms=subject.now_ms)
        return {name: (each.ready, each.limited) for name, each in counted.items()}

    one = await shard.count_groups(queue, (1,), names, limited_at_ms=subject.now_ms)
    other = await shard.count_groups(queue, (2,), names, limited_at_ms=subject.now_ms)
    assert {name for name, each in one.items() if each.limited == each.ready} == {"a", "b"}
    assert not any(each.limited for each in other.values())  # no claim has come to that priority
    assert await both() == {
        name: (sum(each[name].ready for each in (one, other) if name in each), one[name].limited if name in one else 0)
        for name in names
    }
    assert not any(each.limited for each in (await shard.count_groups(queue, (1, 2), names)).values())
    subject.now_ms = START_MS + 100
    assert (await both())["a"][1] == 0


async def test_limited_jobs_are_among_the_live_ones(subject: Subject) -> None:
    await some_groups(subject)
    await pause(subject, "a", "b")
    await subject.claim(limit=9, priorities=(1, 2))
    for states, expected in ((LIVE_STATES, [(9, 9), (9, 9)]), (ENDED_STATES, [])):
        levels = await whole_stats(subject.shard, subject.queue, (1, 2), subject.now_ms, 3, states)
        assert [(each.ready, each.ready_limited) for each in levels.values() if each != NO_JOBS] == expected
