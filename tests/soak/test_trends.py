"""What counts as growing: a leak, whatever noise lies on it; and no single sample, nor what fills at first."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.soak.ledger import Journal, Latencies, Ledger
from tests.soak.trends import Bound, Sample, Trend, from_life_to_life, over_the_run, within_lives

BOUND = Bound(8.0, 0.05, "a test says so")
EVERY_S = 5.0
MINUTE_S = 60.0


def life(begins_s: float, minutes: float, of_minute: Callable[[float], float]) -> list[Sample]:
    """Samples of one process, by its age."""
    number = round(minutes * MINUTE_S / EVERY_S)
    ages = [each * EVERY_S for each in range(number)]
    return [Sample(begins_s + age_s, of_minute(age_s / MINUTE_S)) for age_s in ages]


def noisy(value: float, dice: random.Random) -> float:
    """With a burst in one sample of twenty."""
    return value + dice.uniform(0, 3) + (40 if dice.random() < 0.05 else 0)


def judged(trend: Trend | None) -> bool:
    assert trend is not None
    return trend.is_flat


def test_noise_and_bursts_are_flat_and_a_leak_below_them_is_not() -> None:
    dice = random.Random(7)
    steady = life(0, 60, lambda _: noisy(100, dice))
    leaking = life(0, 60, lambda minute: noisy(100 + minute / 2, dice))
    assert judged(over_the_run("memory", "MiB", steady, 0, BOUND))
    assert not judged(over_the_run("memory", "MiB", leaking, 0, BOUND))


def test_a_leak_shows_in_lives_that_are_shorter_than_a_third_of_the_run() -> None:
    dice = random.Random(7)
    lives = [life(600 * number, 10, lambda minute: noisy(100 + 3 * minute, dice)) for number in range(6)]
    whole = [sample for each in lives for sample in each]
    assert judged(over_the_run("memory", "MiB", whole, 0, BOUND))
    assert not judged(within_lives("memory", "MiB", lives, BOUND))


def test_processes_are_compared_with_earlier_ones_of_their_age() -> None:
    ages = (10, 3, 2, 10, 2, 10, 10, 10, 10)
    lives = [life(600 * number, minutes, lambda minute: 100 + 5 * minute) for number, minutes in enumerate(ages)]
    assert judged(from_life_to_life("memory", "MiB", lives, BOUND))
    heavier = [life(600 * number, 10, lambda _, more=3 * number: 100 + more) for number in range(9)]  # type: ignore[misc]
    assert not judged(from_life_to_life("memory", "MiB", heavier, BOUND))
    assert from_life_to_life("memory", "MiB", heavier[:5], BOUND) is None


def test_one_life_of_many_that_grew_is_no_leak_and_a_short_one_says_nothing() -> None:
    lives = [life(600 * number, 10, lambda _: 100.0) for number in range(5)]
    odd = life(3_000, 10, lambda minute: 100 + 5 * minute)
    short = life(3_600, 2, lambda minute: 100 + 100 * minute)
    assert judged(within_lives("memory", "MiB", [*lives, odd, short], BOUND))


def test_what_a_process_needs_at_first_is_no_growth() -> None:
    lives = [life(0, 10, lambda minute: 40 + 60 * min(1.0, minute))]
    assert judged(within_lives("memory", "MiB", lives, BOUND))
    filling = life(0, 30, lambda minute: 1_000 * min(1.0, minute / 5))
    assert judged(over_the_run("rows", "", filling, 5 * MINUTE_S, BOUND))
    assert not judged(over_the_run("rows", "", life(0, 12, lambda minute: 1_000 * min(1.0, minute / 5)), 0, BOUND))


def test_too_few_samples_are_not_judged() -> None:
    assert over_the_run("memory", "MiB", life(0, 0.5, lambda _: 1.0), 0, BOUND) is None
    assert within_lives("memory", "MiB", [life(0, 0.5, lambda _: 1.0)], BOUND) is None


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(Latencies(60))


def test_a_job_is_owed_from_its_answer_until_it_has_ended(ledger: Ledger) -> None:
    first, early, lost, unknown = (ledger.number("mail") for _ in range(4))
    ledger.read([f"done {early}"])
    ledger.stored("mail", [first, early, lost])
    ledger.read([f"done {first}", f"done {first}"])
    assert ledger.owed == {lost: "mail"}
    assert (ledger.unknown, ledger.again, ledger.faults) == (1, 1, [])
    ledger.read([f"done {unknown}"])
    assert ledger.unknown == 0
    assert (ledger.given["mail"], ledger.ended["mail"]) == (3, 3)


def test_a_job_that_must_not_run_or_that_nobody_sent_is_a_fault(ledger: Ledger) -> None:
    cancelled, kept = ledger.number("later"), ledger.number("keyed")
    ledger.void(cancelled)
    ledger.read([f"done {cancelled}", f"done {kept}", "done 99"])
    ledger.void(kept)
    assert len(ledger.faults) == 3


def test_a_line_that_is_half_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    with path.open("a") as file:
        for text, whole in (("done 1\ndone ", ["done 1"]), ("2\n", ["done 2"]), ("", [])):
            file.write(text)
            file.flush()
            assert list(journal.new_lines()) == whole
    journal.close()
