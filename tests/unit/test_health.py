"""When a shard is in and when it is out."""

from __future__ import annotations

from pinlater.shards.health import Health


def tripped(now_ms: int = 1_000) -> Health:
    health = Health(failures_to_trip=2, pause_ms=500)
    health.call_failed(now_ms)
    assert health.call_failed(now_ms)
    return health


def test_failures_in_a_row_take_it_out_and_a_success_between_them_does_not_count_them() -> None:
    health = Health(failures_to_trip=2)
    assert not health.call_failed(0)
    health.call_succeeded()
    assert not health.call_failed(0)
    assert health.is_in
    assert health.call_failed(0)
    assert not health.is_in


def test_out_it_may_be_probed_only_after_the_pause() -> None:
    health = tripped(1_000)
    assert not health.may_probe(1_499)
    assert health.may_probe(1_500)


def test_a_failed_probe_costs_another_pause() -> None:
    health = tripped(1_000)
    assert not health.probe_failed(1_500)
    assert not health.may_probe(1_999)
    assert health.may_probe(2_000)


def test_a_probe_that_succeeds_brings_it_back_with_a_clean_record() -> None:
    health = tripped()
    assert health.probe_succeeded()
    assert health.is_in
    assert not health.call_failed(2_000)


def test_the_late_success_of_an_earlier_call_does_not_bring_it_back() -> None:
    health = tripped()
    health.call_succeeded()
    assert not health.is_in


def test_pings_that_fail_take_it_out_too() -> None:
    health = Health(failures_to_trip=2)
    assert not health.probe_failed(0)
    assert health.probe_failed(0)
