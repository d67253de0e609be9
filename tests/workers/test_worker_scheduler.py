"""Which queues are asked, for how many jobs, and how long the server may wait."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater_workers.worker.scheduler import QUIET_S, ROTATION_WAIT_S, SHARED_WAIT_S, Fetch, FetchScheduler


def limits(polls: list[Fetch]) -> dict[str, int]:
    return {poll.queue: poll.limit for poll in polls}


def quiet(asking: FetchScheduler, slots: int) -> None:
    """Every queue answers that it has nothing."""
    for now_s in (0.0, 1.0, 2.0):
        for poll in asking.next(slots, now_s):
            if poll.wait_s:
                asking.failed(poll, 2.0)
            else:
                asking.answered(poll, 0, now_s)


def test_one_queue_has_one_dequeue_that_waits_as_long_as_it_may() -> None:
    asking = FetchScheduler({"a": 1}, 8, 20.0)
    assert asking.next(8, 0.0) == [Fetch("a", 4, 20.0)]
    assert asking.next(4, 0.0) == []
    assert asking.reserved == 4


def test_while_a_queue_is_busy_slots_are_dealt_by_weight_and_nobody_waits() -> None:
    polls = FetchScheduler({"a": 3, "b": 1}, 16, 20.0).next(8, 0.0)
    assert limits(polls) == {"a": 6, "b": 2}
    assert {poll.wait_s for poll in polls} == {0.0}


def test_one_dequeue_asks_for_half_of_the_slots_and_the_next_for_the_other_half() -> None:
    asking = FetchScheduler({"a": 3, "b": 1}, 10, 20.0)
    polls = {poll.queue: poll for poll in asking.next(10, 0.0)}
    asking.answered(polls["b"], 0, 0.0)
    asking.answered(polls["a"], polls["a"].limit, 0.0)
    (first,) = asking.next(10, 0.01)
    asking.answered(first, 5, 0.01)
    (second,) = asking.next(5, 0.02)
    assert (first.limit, second.limit) == (5, 5)


def test_an_empty_queue_is_asked_again_after_a_while_only() -> None:
    asking = FetchScheduler({"a": 1, "b": 1}, 8, 20.0)
    first, second = asking.next(8, 0.0)
    asking.answered(first, 4, 0.0)
    asking.answered(second, 0, 0.0)
    (only,) = asking.next(4, QUIET_S / 2)
    assert (only.queue, only.limit) == (first.queue, 4)
    asking.answered(only, 4, QUIET_S / 2)
    assert set(limits(asking.next(4, QUIET_S))) == {"a", "b"}


def test_a_busy_queue_that_is_being_asked_keeps_its_share_of_what_is_free() -> None:
    asking = FetchScheduler({"a": 1, "b": 1}, 8, 20.0)
    polls = {poll.queue: poll for poll in asking.next(8, 0.0)}
    asking.answered(polls["b"], 4, 0.0)
    assert limits(asking.next(4, 0.1)) == {"b": 2}


def test_when_all_are_empty_each_waits_with_one_slot_and_its_share_of_the_others() -> None:
    asking = FetchScheduler({"a": 1, "b": 5, "c": 2}, 12, 20.0)
    quiet(asking, 12)
    polls = asking.next(12, 3.0)
    assert limits(polls) == {"a": 2, "b": 7, "c": 3}
    assert {poll.wait_s for poll in polls} == {SHARED_WAIT_S}


def test_more_queues_than_slots_wait_in_rotation() -> None:
    asking = FetchScheduler(dict.fromkeys("abcdef", 1), 6, 20.0)
    quiet(asking, 6)
    seen: set[str] = set()
    for now_s in (3.0, 4.0, 5.0):
        polls = asking.next(2, now_s)
        assert [poll.limit for poll in polls] == [1, 1]
        assert {poll.wait_s for poll in polls} == {ROTATION_WAIT_S}
        seen |= set(limits(polls))
        for poll in polls:
            asking.answered(poll, 0, now_s)
    assert seen == set("abcdef")


def test_a_queue_that_failed_is_left_alone_and_its_slots_are_free_for_others() -> None:
    asking = FetchScheduler({"a": 9, "b": 1}, 14, 20.0)
    for poll in asking.next(8, 0.0):
        asking.failed(poll, 2.0) if poll.queue == "a" else asking.answered(poll, poll.limit, 0.0)
    assert asking.reserved == 0
    assert limits(asking.next(7, 1.0)) == {"b": 7}
    assert set(limits(asking.next(1, 2.5))) == {"a"}


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=1), st.integers(1, 12), st.integers())
def test_never_more_is_asked_for_than_is_free(weights: dict[str, int], slots: int, seed: int) -> None:
    """Whatever the server answers, and in whatever order."""
    rng = random.Random(seed)
    asking = FetchScheduler(weights, slots, 20.0)
    running, now_s = 0, 0.0
    under_way: list[Fetch] = []
    for _ in range(200):
        polls = asking.next(slots - running - asking.reserved, now_s)
        under_way += polls
        assert running + sum(poll.limit for poll in under_way) <= slots
        assert asking.reserved == sum(poll.limit for poll in under_way)
        assert len({poll.queue for poll in under_way}) == len(under_way)
        now_s += rng.random() / 10
        if under_way and rng.random() < 0.7:
            poll = under_way.pop(rng.randrange(len(under_way)))
            if rng.random() < 0.2:
                asking.failed(poll, now_s + rng.random())
            else:
                jobs = rng.choice((0, poll.limit, rng.randint(0, poll.limit)))
                asking.answered(poll, jobs, now_s)
                running += jobs
        running -= rng.randint(0, running)


@pytest.mark.parametrize("slots", [2, 10, 100])
def test_two_busy_queues_share_by_weight_also_when_answers_take_their_time(slots: int) -> None:
    """Jobs of one length; each answer comes a moment after its dequeue."""
    rng = random.Random(slots)
    asking = FetchScheduler({"a": 3, "b": 1}, slots, 20.0)
    had = {"a": 0, "b": 0}
    under_way: list[Fetch] = []
    ends: list[float] = []
    now_s = 0.0
    while sum(had.values()) < 4_000:
        now_s += 0.001
        ends = [end_s for end_s in ends if end_s > now_s]
        for poll in [poll for poll in under_way if rng.random() < 0.5]:
            under_way.remove(poll)
            asking.answered(poll, poll.limit, now_s)
            had[poll.queue] += poll.limit
            ends += [now_s + rng.uniform(0.005, 0.015)] * poll.limit
        under_way += asking.next(slots - len(ends) - asking.reserved, now_s)
    assert had["a"] / had["b"] == pytest.approx(3.0, rel=0.1)
