"""When a shard is in and when it is out."""

from __future__ import annotations

from pinlater.shards.health import Good, Health, HealthSettings
from pinlater.shards.health_monitor import PING

SETTINGS = HealthSettings(first_pause_ms=1_000, pause_ms=60_000, probes=3, probe_gap_ms=500)


def healthy(settings: HealthSettings = SETTINGS) -> Health:
    health = Health(settings)
    health.admit(0)
    return health


def tripped(now_ms: int = 1_000) -> Health:
    health = healthy()
    health.trip(now_ms)
    return health


def some(health: Health, count: int, *, bad: int) -> bool:
    """So many outcomes, the bad ones spread among the good; whether it went out."""
    went_out = False
    for number in range(count):
        if (number + 1) * bad // count > number * bad // count:
            went_out |= health.failed("enqueue", 0)
        else:
            went_out |= health.succeeded("enqueue", 0)
    return went_out


def test_it_begins_outside() -> None:
    assert not Health().is_healthy


def test_75_good_ones_of_100_are_enough_and_74_are_not() -> None:
    health = healthy()
    assert not some(health, 100, bad=25)
    assert health.good() == Good(75, 100)
    assert some(healthy(), 100, bad=26)


def test_the_window_slides() -> None:
    health = healthy()
    assert not some(health, 100, bad=25)
    assert not some(health, 100, bad=0)
    assert health.good() == Good(100, 100)
    assert not some(health, 100, bad=25)


def test_a_few_outcomes_are_no_verdict() -> None:
    health = healthy()
    assert not some(health, 2, bad=1)
    assert not some(health, 30, bad=15)
    assert health.is_healthy


def test_before_the_window_is_full_more_bad_ones_than_it_may_have_are_enough() -> None:
    health = healthy()
    assert not some(health, 50, bad=25)
    assert health.failed("enqueue", 0)


def test_window_and_bound_are_settings() -> None:
    health = healthy(HealthSettings(window=10, min_good=9, failures_in_a_row=99))
    assert not health.failed("enqueue", 0)
    assert health.failed("enqueue", 0)


def test_three_failures_in_a_row_take_it_out_and_a_success_between_them_does_not_count_them() -> None:
    health = healthy()
    assert not health.failed("enqueue", 0)
    assert not health.failed("enqueue", 0)
    health.succeeded("enqueue", 0)
    assert not health.failed("enqueue", 0)
    assert not health.failed("claim", 0)
    assert health.is_healthy
    assert health.failed("ack", 0)
    assert not health.is_healthy


def test_three_of_one_kind_are_enough_although_pings_between_them_succeed() -> None:
    health = healthy()
    outs = []
    for _ in range(3):
        outs.append(health.failed("enqueue", 0))
        health.succeeded(PING, 0)
    assert outs == [False, False, True]


def test_slow_answers_are_bad_ones_but_no_failures_in_a_row() -> None:
    health = healthy()
    outs = [health.succeeded("claim", 0, is_slow=True) for _ in range(26)]
    assert outs == [False] * 25 + [True]


def test_slow_answers_count_beside_a_failure_and_only_a_good_one_ends_the_row() -> None:
    health = healthy()
    health.succeeded("claim", 0, is_slow=True)
    health.succeeded(PING, 0, is_slow=True)
    assert health.failed("enqueue", 0), "two slow ones, and one that failed"
    health = healthy()
    assert not health.failed("enqueue", 0)
    health.succeeded(PING, 0, is_slow=True)
    health.succeeded(PING, 0)
    assert not health.failed("claim", 0)
    assert not health.succeeded("ack", 0, is_slow=True)
    assert health.succeeded("ack", 0, is_slow=True)


def pause_of(health: Health, now_ms: int) -> int:
    """How long it is left alone that went out now."""
    assert not health.is_healthy
    assert not health.is_due(now_ms, is_alone=False)
    return health.next_probe_ms(is_alone=False) - now_ms


def test_out_it_is_probed_only_after_the_pause() -> None:
    health = tripped(1_000)
    assert pause_of(health, 1_000) == 1_000
    assert not health.is_due(1_999, is_alone=False)
    assert health.is_due(2_000, is_alone=False)


def test_the_pause_doubles_up_to_its_bound_while_probes_fail() -> None:
    health, now_ms, pauses = tripped(0), 0, []
    for _ in range(8):
        pauses.append(pause_of(health, now_ms))
        now_ms = health.next_probe_ms(is_alone=False)
        health.trip(now_ms)
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]


def test_a_bound_below_the_first_pause_bounds_that_too() -> None:
    health = Health(HealthSettings(first_pause_ms=1_000, pause_ms=200))
    health.trip(1_000)
    assert pause_of(health, 1_000) == 200


def test_a_pause_that_serves_nobody_is_short_and_its_failures_make_the_next_one_no_longer() -> None:
    health = tripped(0)
    health.trip(1_000)
    health.trip(3_000)
    for now_ms in (3_000, 4_000, 5_000, 6_000):
        assert pause_of(health, now_ms) == 4_000
        assert health.next_probe_ms(is_alone=True) == now_ms + 1_000
        assert health.is_due(now_ms + 1_000, is_alone=True)
        health.trip(now_ms + 1_000)


def test_told_twice_of_one_failure_it_does_not_wait_for_longer() -> None:
    health = tripped(5_000)
    health.trip(5_000)
    health.trip(5_100)
    assert pause_of(health, 5_100) == 1_000


def test_one_that_goes_out_again_and_again_is_left_alone_for_ever_longer() -> None:
    health, now_ms, pauses = tripped(0), 0, []
    for _ in range(8):
        pauses.append(pause_of(health, now_ms))
        now_ms = health.next_probe_ms(is_alone=False) + 59_000
        health.admit(now_ms - 59_000)
        health.trip(now_ms)
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]


def test_one_that_was_in_for_as_long_as_the_longest_pause_begins_with_the_first_again() -> None:
    health = tripped(0)
    health.trip(1_000)
    health.admit(3_000)
    health.trip(63_000)
    assert pause_of(health, 63_000) == 1_000


def test_a_clock_that_is_set_back_does_not_make_the_pause_longer() -> None:
    health = tripped(10_000_000)
    assert health.is_due(6_400_000, is_alone=False)
    health.probe_succeeded(6_400_000)
    assert not health.is_due(6_400_499, is_alone=False)
    assert health.is_due(5_000_000, is_alone=False)


def test_it_comes_back_after_some_probes_that_succeed_a_little_apart() -> None:
    health = tripped(1_000)
    assert not health.is_probing
    assert not health.probe_succeeded(2_000)
    assert health.is_probing
    assert health.next_probe_ms(is_alone=False) == 2_500
    assert not health.probe_succeeded(2_500)
    assert health.probe_succeeded(3_000)
    assert not health.is_healthy, "who asked decides when"
    health.admit(3_000)
    assert health.is_healthy
    assert not health.is_probing


def test_a_probe_that_fails_costs_a_longer_pause_and_the_probes_begin_anew() -> None:
    health = tripped(1_000)
    health.probe_succeeded(2_000)
    health.probe_succeeded(2_500)
    health.trip(3_000)
    assert not health.is_probing
    assert health.next_probe_ms(is_alone=False) == 5_000
    assert not health.probe_succeeded(5_000)


def test_it_comes_back_with_nothing_held_against_it() -> None:
    health = healthy()
    some(health, 40, bad=20)
    health.failed("enqueue", 0)
    health.failed("enqueue", 0)
    health.trip(0)
    health.admit(1_000)
    assert health.good() == Good(0, 0)
    assert not health.failed("enqueue", 2_000)
    assert not health.failed("enqueue", 2_000)


def test_the_late_end_of_an_earlier_call_changes_nothing_while_it_is_out() -> None:
    health = tripped()
    assert not health.succeeded("claim", 0)
    assert not health.failed("claim", 0)
    assert not health.is_healthy
    assert health.good() == Good(0, 0)
