"""Times of jobs as people say them: what is unambiguous is taken, all else says what to write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from pinlater.schedule import SECONDS_BELOW, SECONDS_FROM, delay_seconds, moment_ms, refuse_seconds


@pytest.mark.parametrize(
    ("said", "seconds"),
    [(0, 0.0), (1.5, 1.5), ("5m", 300.0), ("1h30m", 5400.0), ("250ms", 0.25), ("90", 90.0), (timedelta(days=1), 86400)],
)
def test_a_delay(said: Any, seconds: float) -> None:
    assert delay_seconds(said) == seconds


@pytest.mark.parametrize("said", [-1, "-1s", "soon", "", True, None, float("nan"), float("inf"), timedelta(-1), [1]])
def test_a_delay_that_cannot_be(said: Any) -> None:
    with pytest.raises(ValueError, match=r"^a delay of .*; allowed: 0 seconds or more, a text as in 30s, 10m, 1h30m"):
        delay_seconds(said)


def test_a_moment() -> None:
    assert moment_ms(datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == 1_767_225_600_000
    assert moment_ms(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=1)) == 1_767_225_600_001
    assert [moment_ms(each) for each in (-1, 0, SECONDS_BELOW, 4 * 10**12)] == [-1, 0, SECONDS_BELOW, 4 * 10**12]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (datetime(2026, 1, 1), r"without a time zone; allowed: as in datetime.now\(UTC\)"),
        (1, "a time in January 1970; to wait for so long from now say delay=1"),
        (SECONDS_FROM - 1, "say delay=99999999"),
        (SECONDS_FROM, r"can only be seconds \(those are 1973-03-03, milliseconds 1970-01-02\)"),
        (SECONDS_BELOW - 1, r"as in 99999999999 \* 1000"),
        (1_790_000_000, r"those are 2026-09-21, .*as in 1790000000 \* 1000"),
        (1_790_000_000.5, "allowed: an aware datetime, or milliseconds as an int"),
        (True, "allowed: an aware datetime, or milliseconds as an int"),
        ("2026-01-01", "allowed: an aware datetime, or milliseconds as an int"),
    ],
)
def test_a_moment_that_cannot_be_says_what_to_write(said: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        moment_ms(said)


def test_where_the_name_says_milliseconds_only_seconds_are_refused() -> None:
    for right in (None, -1, 0, 1, SECONDS_FROM - 1, SECONDS_BELOW):
        refuse_seconds(right, "run_after_ms")
    for wrong in (SECONDS_FROM, SECONDS_BELOW - 1):
        with pytest.raises(ValueError, match=r"run_after_ms is .* can only be seconds"):
            refuse_seconds(wrong, "run_after_ms")
