"""The times of cron expressions where clocks are set, of intervals, and what is no timetable."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from pinlater.model import Schedule
from pinlater.timetable import (
    CronTimetable,
    Firings,
    IntervalTimetable,
    TimetableInvalid,
    checked_zone,
    cron_warnings,
    jitter_ms,
    zone_names,
)


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)


def texts(found: list[int], zone: str) -> list[str]:
    return [datetime.fromtimestamp(each // 1000, ZoneInfo(zone)).strftime("%d %H:%M%z") for each in found]


def after(cron: str, zone: str, begin: str, limit: int) -> list[str]:
    return texts(Firings(Schedule(name="x", cron=cron, timezone=zone), 0).next(ms(begin), limit), zone)


@pytest.mark.parametrize(
    ("cron", "zone", "begin", "expected"),
    [
        # forward: 02:00 to 03:00 does not exist on the 29th
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00Z", ["28 02:30+0100", "29 03:00+0200", "30 02:30+0200"]),
        ("0 2,3 * * *", "Europe/Berlin", "2026-03-28T22:00Z", ["29 03:00+0200", "30 02:00+0200"]),
        ("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:10Z", ["29 01:30+0100", "29 03:00+0200", "29 03:30+0200"]),
        ("15 * * * *", "Europe/Berlin", "2026-03-29T00:00Z", ["29 01:15+0100", "29 03:15+0200"]),
        ("30 2 * * *", "America/New_York", "2026-03-08T00:00Z", ["08 03:00-0400", "09 02:30-0400"]),
        # back: 02:00 to 03:00 comes twice on the 25th
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", ["25 02:30+0200", "26 02:30+0100"]),
        ("*/30 * * * *", "Europe/Berlin", "2026-10-25T00:00Z", ["25 02:30+0200", "25 02:00+0100", "25 02:30+0100"]),
        ("30 1 * * *", "America/New_York", "2026-11-01T00:00Z", ["01 01:30-0400", "02 01:30-0500"]),
        # begun in the middle of the hour that comes again
        ("*/20 * * * *", "Europe/Berlin", "2026-10-25T01:10Z", ["25 02:20+0100", "25 02:40+0100", "25 03:00+0100"]),
        # half an hour, both ways; 02:00 to 02:30 does not exist, 01:30 to 02:00 comes twice
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T10:00Z", ["04 02:30+1100", "05 02:15+1100"]),
        ("*/30 * * * *", "Australia/Lord_Howe", "2026-10-03T15:10Z", ["04 02:30+1100", "04 03:00+1100"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T10:00Z", ["05 01:45+1100", "06 01:45+1030"]),
        (
            "*/30 * * * *",
            "Australia/Lord_Howe",
            "2026-04-04T14:10Z",
            ["05 01:30+1100", "05 01:30+1030", "05 02:00+1030"],
        ),
        # midnight itself does not exist, and a whole day
        ("0 0 * * *", "Africa/Cairo", "2026-04-23T12:00Z", ["24 01:00+0300", "25 00:00+0300"]),
        ("0 6 * * *", "Pacific/Apia", "2011-12-29T20:00Z", ["31 00:00+1400", "31 06:00+1400"]),
        # zones of half and three quarter hours
        ("0 3 * * *", "Asia/Kolkata", "2026-01-01T00:00Z", ["02 03:00+0530", "03 03:00+0530"]),
        ("30 */6 * * *", "Asia/Kathmandu", "2026-01-01T00:00Z", ["01 06:30+0545", "01 12:30+0545"]),
        # days: the last Friday, weekdays, Sunday by both its numbers, names
        ("0 9 * * 5L", "UTC", "2026-01-01T00:00Z", ["30 09:00+0000", "27 09:00+0000"]),
        ("0 9 * * 7", "UTC", "2026-01-01T00:00Z", ["04 09:00+0000", "11 09:00+0000"]),
        ("@weekly", "UTC", "2026-01-01T00:00Z", ["04 00:00+0000", "11 00:00+0000"]),
        ("0 0 L * *", "UTC", "2028-02-02T00:00Z", ["29 00:00+0000", "31 00:00+0000"]),
        ("0 0 29 feb *", "UTC", "2026-01-01T00:00Z", ["29 00:00+0000", "29 00:00+0000"]),
    ],
)
def test_times_where_clocks_are_set_and_days_that_are_odd(
    cron: str, zone: str, begin: str, expected: list[str]
) -> None:
    assert after(cron, zone, begin, len(expected)) == expected


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe"])
@pytest.mark.parametrize("cron", ["30 2 * * *", "7 1-3 * * *", "0 0-23 * * *", "0 0 * * 0"])
def test_over_a_year_of_changes_times_only_go_forward_and_are_found_from_both_sides(zone: str, cron: str) -> None:
    times = CronTimetable(cron, zone)
    at_ms, end_ms = ms("2026-01-01T00:00Z"), ms("2027-01-01T00:00Z")
    walls: set[datetime] = set()
    while True:
        following = times.after(at_ms)
        assert following is not None
        if following >= end_ms:
            break
        assert following > at_ms
        assert times.latest(following) == times.latest(following + 999) == following
        assert times.latest(following - 1) in (None, at_ms) or not walls
        at_ms = following
        wall = datetime.fromtimestamp(at_ms // 1000, ZoneInfo(zone)).replace(tzinfo=None)
        assert wall not in walls, "a time of the wall clock came twice"
        walls.add(wall)
    if cron == "30 2 * * *":
        assert len({wall.date() for wall in walls}) == len(walls) == 365, "every day had its time"


def is_due(cron: str, wall: datetime) -> bool:
    """By the fields minute, hour and day of the month, each a list, a step of all, or all."""
    values = (wall.minute, wall.hour, wall.day)
    for value, field in zip(values, cron.split(), strict=False):
        whole, _, step = field.partition("/")
        if whole != "*" and value not in map(int, whole.split(",")):
            return False
        if step and value % int(step):
            return False
    return True


@pytest.mark.parametrize(
    ("zone", "begin"),
    [
        ("Europe/Berlin", "2026-10-24"),
        ("Europe/Berlin", "2026-03-28"),
        ("Australia/Lord_Howe", "2026-04-03"),
        ("Australia/Lord_Howe", "2026-10-02"),
        ("Africa/Cairo", "2026-10-28"),  # 23:00 to midnight comes twice
        ("Africa/Cairo", "2026-04-22"),
        ("Antarctica/Troll", "2026-10-23"),  # two hours
        ("Africa/Casablanca", "2026-02-13"),
        ("Asia/Pyongyang", "2015-08-13"),
        ("Pacific/Apia", "2011-12-28"),
    ],
)
def test_each_real_minute_whose_wall_time_matches_counts_where_no_hour_is_named(zone: str, begin: str) -> None:
    """Counted out minute by minute."""
    place, first = ZoneInfo(zone), datetime.fromisoformat(begin).replace(tzinfo=UTC)
    minutes = [first + timedelta(minutes=each) for each in range(4 * 1440)]
    walls = [each.astimezone(place) for each in minutes]
    for cron in ("* * * * *", "*/15 * * * *", "7 */2 * * *", "0 * 30,31 * *", "*/25 */5 * * *"):
        expected = [
            round(each.timestamp() * 1000) for each, wall in zip(minutes, walls, strict=True) if is_due(cron, wall)
        ]
        times = CronTimetable(cron, zone)
        found = []
        at_ms = times.after(ms(f"{begin}T00:00Z") - 1)
        while at_ms is not None and at_ms < ms(f"{begin}T00:00Z") + 4 * 86_400_000:
            found.append(at_ms)
            at_ms = times.after(at_ms)
        assert found == expected, (cron, "forward")
        back = []
        at_ms = times.latest(ms(f"{begin}T00:00Z") + 4 * 86_400_000 - 1)
        while at_ms is not None and at_ms >= ms(f"{begin}T00:00Z"):
            back.append(at_ms)
            at_ms = times.latest(at_ms - 1)
        assert back[::-1] == expected, (cron, "back")


def test_the_second_pass_counts_from_a_moment_on_and_never_where_none_is_said() -> None:
    night, half_past = "2026-10-25T00:20Z", ms("2026-10-25T01:20Z")
    for from_ms, expected in (
        (0, ["02:30+0200", "02:00+0100", "02:30+0100", "03:00+0100"]),
        (half_past, ["02:30+0200", "02:30+0100", "03:00+0100"]),
        (None, ["02:30+0200", "03:00+0100"]),
    ):
        times = CronTimetable("*/30 * * * *", "Europe/Berlin", both_passes_from_ms=from_ms)
        at_ms, found = ms(night), []
        while not found or not found[-1].endswith("03:00+0100"):
            following = times.after(at_ms)
            assert following is not None
            assert times.latest(following) == times.latest(following + 60_000) == following
            assert times.latest(following - 1) == (at_ms if found else ms("2026-10-25T00:00Z"))
            at_ms = following
            found += [text[3:] for text in texts([following], "Europe/Berlin")]
        assert found == expected


def test_times_beyond_the_last_year_are_none_and_no_error() -> None:
    for cron in ("* * * * *", "0 3 * * *"):
        times = CronTimetable(cron, "Europe/Berlin")
        assert times.after(2**53 - 1) is None
        assert times.latest(2**53 - 1) is not None


def test_an_interval_counts_from_its_start_whenever_it_is_asked() -> None:
    times = IntervalTimetable(600_000, 100)
    assert [times.after(0), times.after(100), times.after(600_099), times.after(600_100)] == [
        100,
        600_100,
        600_100,
        1_200_100,
    ]
    assert [times.latest(100), times.latest(600_099)] == [100, 100]


def test_nothing_fires_before_the_start_or_from_the_end_on() -> None:
    firings = Firings(Schedule(name="x", every_ms=1_000, start_ms=5_000, end_ms=8_000), 0)
    assert firings.next(0, 10) == [5_000, 6_000, 7_000]
    assert firings.latest(9_000, 0) == 7_000
    assert firings.latest(4_999, 0) is None
    assert firings.latest(9_000, 7_000) is None


@pytest.mark.parametrize(
    ("cron", "zone", "says"),
    [
        ("", "UTC", "five fields"),
        ("* * * *", "UTC", "five fields"),
        ("* * * * * *", "UTC", "five fields"),
        ("60 * * * *", "UTC", "Bad minute"),
        ("0 24 * * *", "UTC", "Bad hour"),
        ("0 0 30 2 *", "UTC", "Bad day-of-month"),
        ("0 0 * * mon-", "UTC", "Bad day-of-week"),
        ("@often", "UTC", "five fields"),
        ("0 0 * * *", "Europe/Berln", "time zone"),
        ("0 0 * * *", "../etc/passwd", "time zone"),
        ("0 0 * * *", "", "time zone"),
        ("0 0 * * *", "localtime", "servers may differ"),
        ("0 0 * * *", "posixrules", "servers may differ"),
        ("0 0 * * *", "Factory", "nobody has chosen"),
        ("0 0 * * *", "right/Europe/Berlin", "leap seconds"),
    ],
)
def test_what_is_no_timetable_is_named_and_what_would_be(cron: str, zone: str, says: str) -> None:
    with pytest.raises(TimetableInvalid, match=says):
        CronTimetable(cron, checked_zone(zone))


def test_jitter_is_within_its_bound_and_the_same_for_whoever_asks() -> None:
    schedule = Schedule(name="x", every_ms=1_000, jitter_ms=500)
    found = [jitter_ms(schedule, time_ms) for time_ms in range(0, 200_000, 1_000)]
    assert found == [jitter_ms(schedule, time_ms) for time_ms in range(0, 200_000, 1_000)]
    assert 0 <= min(found) < 100
    assert 400 < max(found) <= 500
    assert jitter_ms(Schedule(name="x", every_ms=1_000), 5) == 0


@pytest.mark.parametrize(
    ("cron", "begin", "expected"),
    [
        ("0 0 29 2 *", "2026-01-01T00:00Z", ["2028-02-29", "2032-02-29", "2036-02-29"]),
        ("0 0 29 2 *", "2096-01-01T00:00Z", ["2096-02-29", "2104-02-29", "2108-02-29"]),  # 2100 has none
        ("0 0 L 2 *", "2027-01-01T00:00Z", ["2027-02-28", "2028-02-29", "2029-02-28"]),
        ("0 0 31 * *", "2026-11-30T00:00Z", ["2026-12-31", "2027-01-31", "2027-03-31"]),
        ("0 0 1 1 *", "2026-12-31T23:59:59Z", ["2027-01-01", "2028-01-01", "2029-01-01"]),
    ],
)
def test_days_that_few_years_or_months_have(cron: str, begin: str, expected: list[str]) -> None:
    firings = Firings(Schedule(name="x", cron=cron), 0)
    found = firings.next(ms(begin), 3)
    assert [datetime.fromtimestamp(each // 1000, UTC).strftime("%Y-%m-%d") for each in found] == expected
    assert firings.latest(found[2] - 1, 0) == found[1]
    assert firings.latest(found[0], 0) == found[0]


def test_the_last_minute_of_a_year_is_followed_by_the_first_of_the_next() -> None:
    found = after("* * * * *", "Europe/Berlin", "2026-12-31T22:58:30Z", 3)
    assert found == ["31 23:59+0100", "01 00:00+0100", "01 00:01+0100"]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati"])
@pytest.mark.parametrize("cron", ["* * * * *", "0 0 1 1 *"])
def test_beyond_the_calendar_there_is_no_next_time_and_the_last_one_is_found(zone: str, cron: str) -> None:
    timetable = CronTimetable(cron, zone)
    for beyond_ms in (253_402_300_799_999, 253_402_300_800_000, 2**53 - 1):
        assert timetable.after(beyond_ms) is None
        latest_ms = timetable.latest(beyond_ms)
        assert latest_ms is not None
        assert beyond_ms - latest_ms > 0
        assert timetable.after(latest_ms - 1) == latest_ms


@pytest.mark.parametrize(
    ("cron", "warned"),
    [
        ("*/90 * * * *", ["*/90 in the field minute is the same as 0"]),
        ("0 */24 * * *", ["*/24 in the field hour is the same as 0"]),
        (
            "0-20/30,40 9-17/9 * * *",
            ["0-20/30 in the field minute is the same as 0", "9-17/9 in the field hour is the"],
        ),
        ("0 0 */31 */12 */8", ["*/31 in the field day of", "*/12 in the field month", "*/8 in the field day of the w"]),
        ("*/59 */23 */30 */11 1-5/4", []),
        ("@hourly", []),
        ("nonsense", []),
    ],
)
def test_steps_that_leave_their_field_at_once_are_warned_of(cron: str, warned: list[str]) -> None:
    found = cron_warnings(cron)
    assert [text[: len(says)] for text, says in zip(found, warned, strict=True)] == warned


def test_zones_to_choose_from_are_places() -> None:
    assert "Europe/Berlin" in zone_names()
    assert not {"localtime", "posixrules", "Factory"} & set(zone_names())
