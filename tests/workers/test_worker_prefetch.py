"""How many jobs a worker wants at hand, in which order they begin, and when they are handed back."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from pinlater.model import DequeuedJob
from pinlater_workers.jobs.running_job import RunningJob
from pinlater_workers.worker.prefetch import MOST, RECENT, TURNS, JobsAtHand, PrefetchPlan

NONE: Counter[str] = Counter()


def claimed(number: int = 0, *, priority: int = 1, run_after_ms: int = 0, attempts: int = 3) -> DequeuedJob:
    return DequeuedJob(f"q:s1:p1:{1790000000000000 + number}", b"", priority, attempts, attempts, run_after_ms, 0)


def waiting(number: int = 0, *, priority: int = 1, run_after_ms: int = 0, queue: str = "q") -> RunningJob:
    return RunningJob(claimed(number, priority=priority, run_after_ms=run_after_ms), queue, None, 0.0, 0.0)


def plan_after(ended: int, run_s: float, *, slots: int = 8, wait_s: float = 0.05) -> PrefetchPlan:
    """Of one queue, of which so many jobs have ended, each after so long."""
    plan = PrefetchPlan({"q": 1}, slots, wait_s)
    plan.took("q", [claimed()])
    plan.ended("q", run_s, ended)
    return plan


def test_a_fresh_queue_begins_with_none_and_grows_with_what_has_ended() -> None:
    plan = PrefetchPlan({"q": 1}, 8, 0.05)
    plan.took("q", [claimed()])
    assert plan.next(NONE) == {}
    plan.ended("q", 0.0001, 4)
    assert plan.next(NONE) == {"q": 4}
    plan.ended("q", 0.0001, 20)
    assert plan.next(NONE) == {"q": 24}


def test_as_many_are_wanted_as_the_slots_begin_in_half_of_the_longest_wait() -> None:
    plan = plan_after(10_000, 0.001)
    assert plan.next(NONE) == {"q": 200}
    assert plan.next(Counter(q=150)) == {"q": 50}
    assert plan.next(Counter(q=200)) == {}


def test_jobs_that_take_long_are_not_fetched_ahead() -> None:
    assert plan_after(1_000, 1.0).next(NONE) == {}


def test_never_more_than_a_thousand_also_of_jobs_that_take_no_time() -> None:
    assert plan_after(10**6, 0.0).next(NONE) == {"q": MOST}
    assert plan_after(10**6, 0.0).next(Counter(q=MOST - 10)) == {"q": 10}


def test_a_wait_of_nothing_switches_it_off() -> None:
    assert plan_after(10_000, 0.001, wait_s=0.0).next(NONE) == {}


def test_the_mean_counts_and_not_what_most_jobs_take() -> None:
    plan = plan_after(10_000, 0.001)
    for _ in range(100):
        plan.ended("q", 0.001, 99)
        plan.ended("q", 0.101, 1)
    assert 60 < plan.next(NONE)["q"] < 160


def test_jobs_that_have_become_slow_are_noticed_within_some_hundred() -> None:
    plan = plan_after(10_000, 0.001)
    for _ in range(400):
        plan.ended("q", 0.1, 1)
    assert plan.next(NONE).get("q", 0) <= 2


def test_a_queue_whose_jobs_were_handed_back_begins_anew() -> None:
    plan = plan_after(10_000, 0.001)
    plan.handed_back("q")
    assert plan.next(NONE) == {}
    plan.ended("q", 0.001, 8)
    assert plan.next(NONE) == {"q": 8}


def test_a_job_with_a_single_attempt_is_not_put_at_risk() -> None:
    """A worker that is killed costs those at hand an attempt too."""
    plan = plan_after(10_000, 0.001)
    plan.took("q", [claimed(attempts=1)])
    assert plan.next(NONE) == {}


def test_it_is_asked_again_when_half_have_begun_or_at_the_end_where_there_were_no_more() -> None:
    plan = plan_after(10_000, 0.001)
    plan.next(NONE)
    assert not plan.wants_more(101)
    assert plan.wants_more(100)
    plan.ran_dry()
    assert not plan.wants_more(1)
    assert plan.wants_more(0)


def test_each_queue_is_asked_as_if_alone_and_one_that_brings_nothing_does_not_count() -> None:
    plan = PrefetchPlan({"a": 3, "b": 1, "slow": 4}, 8, 0.05)
    for queue, run_s in (("a", 0.001), ("b", 0.001), ("slow", 0.02)):
        plan.took(queue, [claimed()])
        plan.ended(queue, run_s, 10_000)
    assert plan.next(NONE) == {"a": 19, "b": 19, "slow": 10}
    for _ in range(RECENT):
        for queue in ("a", "b"):
            plan.took(queue, [claimed()])
        plan.next(NONE)
    assert plan.next(NONE) == {"a": 200, "b": 200}


def test_queues_grow_together_so_that_the_part_of_each_is_no_more_than_have_ended() -> None:
    plan = PrefetchPlan({"a": 3, "b": 1}, 8, 0.05)
    for queue, ended in (("a", 40), ("b", 5)):
        plan.took(queue, [claimed()])
        plan.ended(queue, 0.001, ended)
    assert plan.next(NONE) == {"a": 20, "b": 20}


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(1, 1000), min_size=1),
    st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0, 100), st.integers(1, 1000)), max_size=30),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 300)),
)
@example({"a": 1}, [("a", 5e-324, 1)], {})
def test_at_hand_are_never_more_than_their_slots_begin_in_time(
    weights: dict[str, int], ends: list[tuple[str, float, int]], at_hand: dict[str, int]
) -> None:
    plan = PrefetchPlan(weights, 8, 0.05)
    means: dict[str, float] = {}
    for queue, run_s, times in ends:
        if queue in weights:
            plan.took(queue, [claimed()])
            plan.ended(queue, run_s, times)
            means.setdefault(queue, run_s)
            means[queue] = min(means[queue], run_s)
    here = Counter({queue: count for queue, count in at_hand.items() if queue in weights})
    wanted = plan.next(here)
    assert here.total() + max(wanted.values(), default=0) <= max(MOST, here.total())
    assert all(means[queue] * count <= 8 * 0.05 / 2 + 1e-9 for queue, count in wanted.items())
    assert all(count > 0 for count in wanted.values())


def test_jobs_begin_in_order_of_priority_and_time_whenever_they_came() -> None:
    rng = random.Random(1)
    hand = JobsAtHand()
    jobs = [waiting(number, priority=rng.randint(1, 3), run_after_ms=rng.randint(0, 50)) for number in range(200)]
    for start in range(0, 200, 20):
        hand.add(sorted(jobs[start : start + 20], key=_in_order))
    assert [_in_order(running) for running in hand.take(1_000)] == sorted(map(_in_order, jobs))


def test_a_job_that_waits_for_the_longest_wait_while_none_begins_is_taken_out() -> None:
    hand = JobsAtHand()
    early, late = waiting(1), waiting(2)
    hand.add([early])
    for _ in range(TURNS // 2):
        assert hand.turn() == []
    hand.add([late])
    overdue = [hand.turn() for _ in range(TURNS)]
    assert [running for each in overdue for running in each] == [early]
    assert list(hand) == [late]


def test_as_many_as_begin_in_that_time_may_wait_but_not_twice_as_long() -> None:
    """Sixteen begin in a turn: at a pace that will do they all begin; then the pace falls to one a turn."""
    hand = JobsAtHand()
    hand.add([waiting(number) for number in range(100)])
    for _ in range(TURNS):
        hand.take(16)
        assert hand.turn() == []
    began, handed_back = 16 * TURNS, 0
    for turn in range(TURNS):
        began += len(hand.take(1))
        handed_back += len(hand.turn())
        if turn == 0:
            assert handed_back == 0
    assert len(hand) == 0
    assert began + handed_back == 100


def test_what_is_lost_is_taken_out_and_what_stops_hands_all_back() -> None:
    hand = JobsAtHand()
    jobs = [waiting(number, queue="ab"[number % 2]) for number in range(5)]
    hand.add(jobs)
    assert hand.of() == Counter(a=3, b=2)
    assert hand.discard(jobs[2])
    assert not hand.discard(jobs[2])
    assert jobs[2] not in hand
    assert hand.take_all() == [jobs[0], jobs[1], jobs[3], jobs[4]]
    assert len(hand) == 0


def _in_order(running: RunningJob) -> tuple[int, int]:
    return running.job.priority, running.job.run_after_ms
