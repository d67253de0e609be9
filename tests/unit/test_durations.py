"""Durations: what is written is read back, and one form is the same everywhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.cli.times import duration_option, parse_moment_ms
from pinlater.dashboard.job_actions import when_ms
from pinlater.dashboard.queue_actions import PAUSE_LENGTH
from pinlater.durations import (
    age_text,
    duration_text,
    parse_duration,
    parse_duration_ms,
    seconds_text,
    spaced,
    stored_duration_text,
)
from pinlater.job_filters.job_filter import LENGTH
from pinlater.model import MAX_TIME_MS
from pinlater.schedule import delay_seconds
from pinlater.setting_kinds import Duration
from pinlater_workers.jobs.retry import Delays
from pinlater_workers.jobs.retry_text import parse_policy
from pinlater_workers.settings_table import duration as duration_key

FORMS = {
    "1h30m": 5_400_000,
    "1.5h": 5_400_000,
    "5400s": 5_400_000,
    "90m": 5_400_000,
    "1 h 30 m": 5_400_000,
    "90s": 90_000,
    "1m30s": 90_000,
    "1s250ms": 1_250,
    "2d": 172_800_000,
    "  2 d ": 172_800_000,
    "0.1d": 8_640_000,
    "30m1h": 5_400_000,
}


def first_delay_ms(text: str) -> float:
    policy = parse_policy(f"delays {''.join(text.split())}")
    assert isinstance(policy, Delays)
    return policy.delays[0] * 1000


READERS: dict[str, Callable[[str], float]] = {
    "the parser of milliseconds": lambda text: parse_duration_ms(text, 0, MAX_TIME_MS),
    "the parser of seconds": lambda text: parse_duration(text) * 1000,
    "options of the command line": duration_option,
    "times of the command line": lambda text: parse_moment_ms(f"+{text}", 0),
    "settings of servers": Duration(0, MAX_TIME_MS).parse,
    "filters of jobs": LENGTH.parse,
    "times of the dashboard": lambda text: when_ms(f"+{text}", 0) or 0,
    "pauses of the dashboard": PAUSE_LENGTH.parse,
    "delays of clients": lambda text: delay_seconds(text) * 1000,
    "settings of workers": lambda text: duration_key("limit", 0, MAX_TIME_MS).parse(text) * 1000,
    "retry policies": first_delay_ms,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("text", FORMS)
def test_a_form_is_the_same_everywhere(text: str, reader: str) -> None:
    assert READERS[reader](text) == FORMS[text]


@pytest.mark.parametrize("text", ["", "soon", "5 sec", "-5s", "s", "5S", "1h30", "1.s", ".5s", "1h-30m", "\u0665s"])
def test_what_is_no_duration_is_refused_with_forms_that_are(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no duration; allowed: 1ms to 1h, as in 250ms, 90s, 1h30m, 2d$"):
        parse_duration_ms(text, 1, 3_600_000)


@pytest.mark.parametrize("text", ["0s", "61m", "9" * 15 + "d"])
def test_bounds_are_in_the_text(text: str) -> None:
    with pytest.raises(ValueError, match="is out of range; allowed: 1ms to 1h, as in"):
        parse_duration_ms(text, 1, 3_600_000)


def test_the_unit_of_a_bare_number_is_that_of_the_caller() -> None:
    assert [parse_duration_ms("10", 0, MAX_TIME_MS, bare=unit) for unit in ("ms", "s", "m")] == [10, 10_000, 600_000]
    assert duration_option("10") == 10_000
    assert parse_duration(10) == parse_duration("10") == 10.0
    with pytest.raises(ValueError, match="no duration"):
        parse_duration_ms("10", 0, MAX_TIME_MS)


@given(st.integers(0, MAX_TIME_MS))
def test_what_is_written_is_read_back(ms: int) -> None:
    for text in (duration_text(ms), stored_duration_text(ms)):
        assert parse_duration_ms(text, 0, MAX_TIME_MS) == ms
    assert parse_duration_ms(spaced(duration_text(ms)).replace("min", "m"), 0, MAX_TIME_MS) == ms
    assert 0 <= ms - parse_duration_ms(age_text(ms), 0, ms) < max(1000, ms / 24)


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_an_age_never_goes_back(one: int, other: int) -> None:
    first, second = sorted((one, other))
    assert parse_duration(age_text(first)) <= parse_duration(age_text(second))


@given(st.integers(0, 10**9), st.integers(0, 999_999), st.sampled_from(["ms", "s", "m", "h", "d"]))
def test_fractions_have_no_error_of_floats(whole: int, millionths: int, unit: str) -> None:
    unit_ms = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}[unit]
    text, exact_ms = f"{whole}.{millionths:06d}{unit}", Fraction(whole * 10**6 + millionths, 10**6) * unit_ms
    assert parse_duration_ms(text, 0, 10**18) == math.floor(exact_ms + Fraction(1, 2))
    assert parse_duration(text) == float(exact_ms / 1000)


@given(st.integers(0, 10**11))
def test_seconds_are_read_back(ms: int) -> None:
    assert parse_duration(seconds_text(ms / 1000)) == ms / 1000
