"""Slots go to queues by weight, whatever the rest does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pinlater_workers.worker.scheduler import WeightedFair

WEIGHTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 20), min_size=1)


@given(WEIGHTS, st.lists(st.integers(0, 40), max_size=30))
def test_all_slots_are_dealt_and_each_queue_has_its_share_within_a_slot(
    weights: dict[str, int], deals: list[int]
) -> None:
    turns = WeightedFair(weights)
    had = dict.fromkeys(weights, 0)
    for slots in deals:
        allocated = turns.allocate(weights, slots)
        assert sum(allocated.values()) == slots
        for queue, count in allocated.items():
            had[queue] += count
    total = sum(weights.values())
    for queue, weight in weights.items():
        assert abs(had[queue] - sum(deals) * weight / total) <= 1 + len(weights) * weight / total


@given(WEIGHTS, st.data())
def test_only_takers_get_slots_and_what_others_are_due_stays_free(weights: dict[str, int], data: st.DataObject) -> None:
    waiters = data.draw(st.sets(st.sampled_from(sorted(weights))))
    slots = data.draw(st.integers(0, 40))
    alike = WeightedFair(weights).allocate(weights, slots)
    allocated = WeightedFair(weights).allocate(weights, slots, waiters)
    assert allocated == {queue: count for queue, count in alike.items() if queue in waiters}


def test_a_queue_that_was_not_asked_for_long_saves_up_no_turns() -> None:
    turns = WeightedFair({"a": 1, "b": 1})
    for _ in range(1_000):
        turns.allocate(["a"], 1)
    had = [turns.allocate(["a", "b"], 1) for _ in range(10)]
    assert sum(allocated.get("a", 0) for allocated in had) == 5


def test_slots_that_brought_no_job_do_not_count() -> None:
    turns = WeightedFair({"a": 1, "b": 1})
    for _ in range(50):
        turns.unused("b", turns.allocate(["a", "b"], 10)["b"])
    had = [turns.allocate(["a", "b"], 1) for _ in range(10)]
    assert sum(allocated.get("b", 0) for allocated in had) == 5
