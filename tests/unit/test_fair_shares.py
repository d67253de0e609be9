"""Shares of what callers of an HTTP process have in common: nobody has more than it leaves free to others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.errors import Overloaded
from pinlater.http.fair_shares import FairEntries, FairPlaces


def places(size: int) -> FairPlaces:
    return FairPlaces("things", size, "things", "take fewer", retry_after_ms=500)


def taken(pool: FairPlaces, owner: str) -> int:
    """As many as the owner gets."""
    for number in range(pool.size + 1):
        try:
            pool.take(owner)
        except Overloaded:
            return number
    raise AssertionError("there is no bound")


def test_one_alone_has_half_and_each_that_comes_has_its_share_of_the_rest() -> None:
    pool = places(120)
    assert [taken(pool, owner) for owner in ("ada", "bob", "cem")] == [60, 30, 15]
    assert pool.hits == 3
    with pytest.raises(
        Overloaded, match="this caller has 60 of 120 things already, as many as may be: take fewer"
    ) as e:
        pool.take("ada")
    assert (e.value.limit, e.value.retry_after_ms) == ("things", 500)
    pool.give_back("ada", 50)
    assert taken(pool, "bob") == 17


def test_the_last_place_is_for_who_has_none() -> None:
    pool = places(1)
    pool.take("ada")
    with pytest.raises(Overloaded, match="all callers have 1 of 1 things"):
        pool.take("bob")
    pool.give_back("ada")
    pool.take("bob")


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 40)), max_size=60), st.integers(1, 200))
def test_no_pool_has_more_than_its_size_and_all_of_it_comes_back(calls: list[tuple[str, int]], size: int) -> None:
    pool = places(size)
    held: list[tuple[str, int]] = []
    for owner, amount in calls:
        has_room = pool.has_room(owner, amount)
        try:
            pool.take(owner, amount)
        except Overloaded:
            assert not has_room
        else:
            held.append((owner, amount))
        assert pool.taken == sum(amount for _, amount in held) <= size
    for owner, amount in held:
        pool.give_back(owner, amount)
    assert pool.taken == 0
    pool.take("new", size)


def test_who_keeps_most_makes_room_by_what_it_used_least_lately() -> None:
    pushed: list[int] = []
    kept: FairEntries[int] = FairEntries("things", 5, is_spared=lambda value: value == 1, on_push=pushed.append)
    for number in range(4):
        kept.put("noisy", number, number)
    kept.put("calm", "mine", 100)
    assert kept.get(0) == 0  # used by now
    for number in range(4, 8):
        kept.put("noisy", number, number)
    assert pushed == [2, 3, 0, 4]
    assert sorted(kept) == [1, 5, 6, 7, 100]
    kept.put("calm", "other", 101)
    assert (pushed[-1], kept.hits, len(kept)) == (5, 5, 5)
    kept.forget("noisy")
    assert sorted(kept) == [100, 101]
    assert (kept.pop("mine"), kept.pop("mine")) == (100, None)


def test_what_nobody_may_push_out_stays_beyond_the_bound() -> None:
    kept: FairEntries[int] = FairEntries("things", 2, is_spared=lambda _: True)
    for number in range(3):
        kept.put("ada", number, number)
    assert (len(kept), kept.hits) == (3, 0)
