"""Who is it? Asked of nobody, the same for all, and moved only where it must."""

from __future__ import annotations

from collections import Counter

from pinlater.shards.rendezvous import rendezvous_pick

KEYS = [str(number) for number in range(2_000)]
FIVE = ["a/1", "a/2", "b/1", "b/2", "c/1"]


def owners(candidates: list[str]) -> dict[str, str | None]:
    return {key: rendezvous_pick(key, candidates) for key in KEYS}


def test_nobody_is_chosen_from_nobody_and_the_only_one_has_it_all() -> None:
    assert rendezvous_pick("1", []) is None
    assert set(owners(["a/1"]).values()) == {"a/1"}


def test_the_order_of_the_candidates_does_not_matter() -> None:
    assert owners(FIVE) == owners(FIVE[::-1])


def test_everybody_gets_about_the_same() -> None:
    counts = Counter(owners(FIVE).values())
    assert set(counts) == set(FIVE)
    assert all(300 < count < 500 for count in counts.values())


def test_when_one_goes_only_what_was_its_own_moves_and_to_all_of_the_others() -> None:
    before, after = owners(FIVE), owners(FIVE[1:])
    moved = {key for key in KEYS if before[key] != after[key]}
    assert moved == {key for key in KEYS if before[key] == FIVE[0]}
    assert {after[key] for key in moved} == set(FIVE[1:])


def test_when_one_comes_it_takes_from_all_and_nothing_else_moves() -> None:
    before, after = owners(FIVE[1:]), owners(FIVE)
    moved = {key for key in KEYS if before[key] != after[key]}
    assert {after[key] for key in moved} == {FIVE[0]}
    assert {before[key] for key in moved} == set(FIVE[1:])
