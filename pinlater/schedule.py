"""The time before which a job does not run, from a delay, a datetime, or milliseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from pinlater.durations import parse_duration

Delay = float | str | timedelta
"""Seconds, a text as in "30s" or "1h30m", or a timedelta."""

SECONDS_FROM = 10**8
SECONDS_BELOW = 10**11
"""A whole number from the one to below the other can only be seconds: as those it is a time from 1973 to 5138, as
milliseconds one from 1970 to 1973, before there were jobs.
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def delay_seconds(delay: Delay) -> float:
    """Seconds. ValueError: no duration, or a negative one."""
    try:
        return parse_duration(delay)
    except ValueError:
        raise ValueError(
            f"a delay of {delay!r:.100}; allowed: 0 seconds or more, a text as in 30s, 10m, 1h30m, or a timedelta"
        ) from None


def moment_ms(moment: datetime | int) -> int:
    """Milliseconds since 1970 of what somebody named as the time of a job. ValueError: a time without a zone, or a
    number that can only be meant as something else.
    """
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ValueError(f"run_after is {moment}, without a time zone; allowed: as in datetime.now(UTC)")
        return -((_EPOCH - moment) // timedelta(milliseconds=1))  # rounded up: not before the time that was named
    if isinstance(moment, bool) or not isinstance(moment, int):
        raise ValueError(f"run_after is {moment!r:.100}; allowed: an aware datetime, or milliseconds as an int")
    if 0 < moment < SECONDS_FROM:
        raise ValueError(
            f"run_after is {moment}, which as milliseconds is a time in January 1970; to wait for so long from now say "
            f"delay={moment}, in seconds; at once is 0"
        )
    refuse_seconds(moment, "run_after")
    return moment


def utc_moment(ms: int) -> datetime | None:
    """A time of the interface on the calendar; None where it is beyond it, before the year 1 or after 9999."""
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None


def zone_moment(ms: int, zone: tzinfo) -> datetime | None:
    """The same in a time zone."""
    moment = utc_moment(ms)
    try:
        return None if moment is None else moment.astimezone(zone)
    except OverflowError:  # it is another year there
        return None


def utc_text(ms: int, form: str = "%Y-%m-%dT%H:%M:%SZ") -> str:
    """A time as people read it; the bare number where it is beyond the calendar.

    >>> utc_text(1_790_000_000_000), utc_text(2**53 - 1)
    ('2026-09-21T14:13:20Z', '9007199254740991')
    """
    moment = utc_moment(ms)
    return str(ms) if moment is None else moment.strftime(form)


def refuse_seconds(time_ms: object, name: str) -> None:
    """ValueError: a number where milliseconds are wanted that can only be seconds."""
    if isinstance(time_ms, int) and SECONDS_FROM <= time_ms < SECONDS_BELOW:
        as_ms, as_s = (f"{datetime.fromtimestamp(time_ms / unit, UTC):%Y-%m-%d}" for unit in (1000, 1))
        raise ValueError(
            f"{name} is {time_ms}, which can only be seconds (those are {as_s}, milliseconds {as_ms}); allowed: "
            f"milliseconds since 1970, as in {time_ms} * 1000"
        )
