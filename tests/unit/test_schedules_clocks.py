"""Schedules where clocks are set, and where something unforeseen comes between."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

import pytest

from pinlater.backends.base import Shard
from pinlater.metrics import Metrics
from pinlater.model import Misfire, ScheduleChange, ScheduleView
from pinlater.schedules.firer import (
    DESCRIBED,
    DESCRIBED_CAUSES,
    DESCRIBED_OF_SHARDS,
    GRACE_MS,
    OTHERS_WAIT_MS,
    RETRY_MS,
    ScheduleFirer,
    UnfiredCause,
)
from pinlater.schedules.record import KNOWN_WITHIN_MS
from pinlater.shards.router import Router
from tests.unit.breaking import HeldClock
from tests.unit.schedule_stand import BEGIN_MS, ME, MINUTE_MS, Member, begin, fired, known, two
from tests.unit.schedule_stand import stores as stores

YEAR_MS = 365 * 86_400_000

pytestmark = [pytest.mark.store("redis"), pytest.mark.store("mysql")]


async def view(at: Member) -> ScheduleView:
    (found,) = (await at.server.service.get_schedules(["poll"])).schedules
    return found


async def minutes(at: Member, count: int) -> list[int]:
    """So many pass, with a turn in each; what was fired meanwhile."""
    before = await fired(at)
    for _ in range(count):
        at.server.clock.tick(MINUTE_MS)
        await at.firer.turn()
    return [time for time in await fired(at) if time not in before]


async def fired_a_year_ahead(at: Member) -> None:
    """By a process that began while its clock was wrong."""
    at.server.clock.tick(YEAR_MS)
    at.duty.up_since = at.server.clock.now_ms()
    await begin(at)
    assert YEAR_MS in await fired(at)
    at.server.clock.tick(-YEAR_MS)
    at.duty.up_since = at.server.clock.now_ms()
    await at.firer.turn()


async def test_a_clock_that_was_ahead_silences_a_schedule_until_an_operator_resumes_it(
    stores: Callable[[], list[Shard]],
) -> None:
    async with two(stores) as (one, other):
        await known(one)
        await fired_a_year_ahead(one)
        assert await minutes(one, 3) == []
        told = await view(other)
        assert "it does not fire before 2027-" in told.trouble
        assert one.firer.describe() == {
            DESCRIBED: [("poll", told.schedule.queue, told.trouble)],
            DESCRIBED_OF_SHARDS: [],
            DESCRIBED_CAUSES: {"poll": UnfiredCause.CLOCK_AHEAD},
        }
        assert told.last_fired_ms == BEGIN_MS + YEAR_MS
        assert told.next_ms == [told.last_fired_ms + MINUTE_MS]
        resumed = await one.server.service.update_schedule(
            ScheduleChange(name="poll", paused=False), "sesame", context=ME
        )
        assert resumed.is_changed
        assert resumed.view.last_fired_ms is None
        assert resumed.view.trouble == ""
        assert await minutes(one, 3) == [4 * MINUTE_MS, 5 * MINUTE_MS, 6 * MINUTE_MS]
        assert one.firer.describe() == {}
        again = await one.server.service.update_schedule(
            ScheduleChange(name="poll", paused=False), "sesame", context=ME
        )
        assert not again.is_changed


async def test_a_schedule_that_was_deleted_and_set_again_begins_anew(stores: Callable[[], list[Shard]]) -> None:
    async with two(stores) as (one, other):
        await known(one)
        await fired_a_year_ahead(one)
        await one.server.service.delete_schedule("poll", "sesame", context=ME)
        await known(one)
        await begin(other)
        made = await view(one)
        assert (made.last_fired_ms, made.trouble) == (None, "")
        one.server.clock.tick(KNOWN_WITHIN_MS)
        assert len(await minutes(one, 3)) == 3
        other.duty.owned = True
        one.server.clock.tick(GRACE_MS)
        assert len(await minutes(other, 1)) == 2


async def test_a_schedule_that_was_made_by_a_clock_ahead_says_so_and_can_be_resumed(
    stores: Callable[[], list[Shard]],
) -> None:
    async with two(stores) as (one, _):
        one.server.clock.tick(YEAR_MS)
        await known(one)
        await begin(one)
        one.server.clock.tick(-YEAR_MS)
        assert await minutes(one, 3) == []
        assert "it does not fire before 2027-" in (await view(one)).trouble
        await one.server.service.update_schedule(ScheduleChange(name="poll", paused=False), "sesame", context=ME)
        one.server.clock.tick(KNOWN_WITHIN_MS)
        assert len(await minutes(one, 3)) == 3


async def test_an_older_generation_fires_nothing_that_a_newer_one_may_have_fired(
    stores: Callable[[], list[Shard]],
) -> None:
    """A process that was stopped for long still knows the schedule as it was."""
    async with two(stores) as (one, other):
        await known(one)
        await begin(one, other)
        await one.server.service.delete_schedule("poll", "sesame", context=ME)
        await known(one)
        one.server.clock.tick(KNOWN_WITHIN_MS)
        assert len(await minutes(one, 2)) == 2
        before = await fired(one)
        other.duty.owned = True
        await other.firer.turn()
        assert await fired(one) == before


@pytest.mark.parametrize(("misfire", "expected"), [(Misfire.SKIP, 0), (Misfire.RUN_ONCE, 1), (Misfire.RUN_ALL, 3)])
async def test_times_that_a_clock_leaps_over_are_misfires(
    stores: Callable[[], list[Shard]], misfire: Misfire, expected: int
) -> None:
    async with two(stores) as (one, _):
        service, clock, steady = one.server.service, one.server.clock, HeldClock()
        firer = ScheduleFirer(service.schedules, service.router, one.duty, clock, Metrics(), lambda *told: None, steady)
        leaping = Member(one.server, one.duty, firer)
        await known(leaping, misfire=misfire, max_catch_up=3)
        await begin(leaping)
        clock.tick(MINUTE_MS)
        steady.tick(MINUTE_MS)
        await firer.turn()
        assert await fired(one) == [MINUTE_MS]
        clock.tick(YEAR_MS)
        await firer.turn()
        within_grace = 1
        assert len(await fired(one)) == 1 + expected + within_grace
        clock.tick(MINUTE_MS)
        steady.tick(MINUTE_MS)
        await firer.turn()
        assert len(await fired(one)) == 1 + expected + within_grace + 1
        await firer.close()


async def test_a_clock_that_is_set_back_brings_times_that_were_left_out(stores: Callable[[], list[Shard]]) -> None:
    async with two(stores) as (one, _):
        await known(one, misfire=Misfire.SKIP, every_ms=7 * MINUTE_MS)
        one.server.clock.tick(YEAR_MS)
        one.duty.up_since = one.server.clock.now_ms()
        await begin(one)
        assert await fired(one) == []
        one.server.clock.tick(-YEAR_MS)
        one.duty.up_since = one.server.clock.now_ms()
        await one.firer.turn()
        assert await minutes(one, 7) == [7 * MINUTE_MS]


class MarksFail:
    """The calls of a router; marks cannot be read, as no error of a store says it, while `fails`. `version` is that of
    the homes, and `homes` where the schedules of the last call are at home.
    """

    def __init__(self, calls: Router) -> None:
        self._calls = calls
        self.fails = False
        self.failed = 0
        self.version = "1"
        self.loses = False
        self.homes: Sequence[str | None] = ()
        self.fire = calls.fire
        self.home_of_schedule = calls.home_of_schedule

    def homes_version(self) -> str:
        return self.version

    def has_lost_homes(self) -> bool:
        return self.loses

    async def last_firings(
        self, schedules: Sequence[str], homes: Sequence[str | None] = (), marks: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        if self.fails:
            self.failed += 1
            raise ValueError("unforeseen")
        self.homes = homes
        return await self._calls.last_firings(schedules, homes, marks)


async def test_an_unforeseen_error_while_marks_are_read_loses_no_schedule(stores: Callable[[], list[Shard]]) -> None:
    async with two(stores) as (one, _):
        service, clock = one.server.service, one.server.clock
        calls = MarksFail(service.router)
        one.duty.owned = False
        firer = ScheduleFirer(service.schedules, calls, one.duty, clock, Metrics(), lambda *told: None)
        failing = Member(one.server, one.duty, firer)
        for name in ("a", "b"):
            await known(failing, name=name)
        await begin(failing)
        clock.tick(MINUTE_MS + OTHERS_WAIT_MS)
        calls.fails = True
        with contextlib.suppress(ValueError):  # unless the firer's own task met it in its turn
            await firer.turn()
        assert (calls.failed, await fired(one)) == (1, [])
        calls.fails = False
        clock.tick(RETRY_MS)
        await firer.turn()
        assert await fired(one) == [MINUTE_MS] * 2
        await firer.close()


async def test_a_mark_comes_to_the_home_from_a_shard_that_will_be_removed(stores: Callable[[], list[Shard]]) -> None:
    async with two(stores) as (one, _):
        await known(one)
        await begin(one)
        assert await minutes(one, 1) == [MINUTE_MS]
        router, name = one.server.service.router, "@schedule/poll"
        home = router.home_of_schedule("poll", "")
        (elsewhere,) = (handle for handle in one.server.members.all if handle.shard.shard_id != home)
        mark = (await router.last_firings([name]))[name]
        assert await elsewhere.shard.last_firings([name]) == [None]
        await router.last_firings([name], [elsewhere.shard.shard_id])
        assert await elsewhere.shard.last_firings([name]) == [mark]


async def test_marks_are_read_again_when_the_homes_change(stores: Callable[[], list[Shard]]) -> None:
    async with two(stores) as (one, _):
        service = one.server.service
        calls = MarksFail(service.router)
        firer = ScheduleFirer(service.schedules, calls, one.duty, one.server.clock, Metrics(), lambda *told: None)
        reading = Member(one.server, one.duty, firer)
        await known(reading)
        await begin(reading)
        assert await minutes(reading, 1) == [MINUTE_MS]
        calls.homes = ()
        await firer.turn()
        assert calls.homes == ()
        calls.version = "2"
        await firer.turn()
        assert calls.homes == [service.router.home_of_schedule("poll", "")]
        assert await minutes(reading, 1) == [2 * MINUTE_MS]
        await firer.close()


AUTUMN_MS = 1_792_886_400_000
"""2026-10-25T00:00Z: 02:00 in Berlin, for the first time of two."""


async def clock_at(at: Member, ms: int) -> None:
    """A turn every ten minutes until then."""
    while at.server.clock.now_ms() < ms:
        at.server.clock.tick(min(10 * MINUTE_MS, ms - at.server.clock.now_ms()))
        await at.firer.turn()


async def hours_fired(*members: Member, from_ms: int) -> list[float]:
    """In hours since then, which server ever did it; each once."""
    found = await fired(members[0])
    return [(BEGIN_MS + time - from_ms) / (60 * MINUTE_MS) for time in found if BEGIN_MS + time >= from_ms]


async def test_an_hour_that_comes_twice_counts_twice_once_no_server_of_an_earlier_version_lives(
    stores: Callable[[], list[Shard]],
) -> None:
    older = ["old/1"]
    async with two(stores, older=older) as (one, other):
        clock = one.server.clock
        clock.tick(AUTUMN_MS - 30 * MINUTE_MS - clock.now_ms())
        one.duty.up_since = other.duty.up_since = clock.now_ms()
        await known(one, cron="*/30 * * * *", every_ms=None, timezone="Europe/Berlin")
        await begin(one, other)
        await clock_at(one, AUTUMN_MS + 95 * MINUTE_MS)
        await other.firer.turn()
        assert await hours_fired(one, from_ms=AUTUMN_MS) == [0, 0.5], "the second pass, as the old server has it"
        assert (await view(other)).next_ms == [AUTUMN_MS + 120 * MINUTE_MS]

        older.clear()
        await clock_at(one, AUTUMN_MS + 100 * MINUTE_MS)
        await other.firer.turn()
        assert await hours_fired(one, from_ms=AUTUMN_MS) == [0, 0.5], "nothing is made up for"
        assert (await view(one)).next_ms == [AUTUMN_MS + 120 * MINUTE_MS]


async def test_both_passes_of_an_hour_fire_each_time_once_whoever_fires(stores: Callable[[], list[Shard]]) -> None:
    async with two(stores) as (one, other):
        clock = one.server.clock
        clock.tick(AUTUMN_MS - 30 * MINUTE_MS - clock.now_ms())
        one.duty.up_since = other.duty.up_since = clock.now_ms()
        await known(one, cron="*/30 * * * *", every_ms=None, timezone="Europe/Berlin")
        await begin(one, other)
        await clock_at(one, AUTUMN_MS + 65 * MINUTE_MS)
        await clock_at(other, AUTUMN_MS + 95 * MINUTE_MS)
        await one.firer.turn()
        await clock_at(one, AUTUMN_MS + 125 * MINUTE_MS)
        assert await hours_fired(one, from_ms=AUTUMN_MS) == [0, 0.5, 1, 1.5, 2]


@pytest.mark.parametrize(("before", "expected"), [(["old/1"], [0, 0.5]), ([], [0, 0.5, 1, 1.5])])
async def test_a_server_that_begins_in_the_second_pass_makes_up_only_for_what_the_cluster_counted(
    stores: Callable[[], list[Shard]], before: list[str], expected: list[float]
) -> None:
    """Where the servers before it were of an earlier version, nothing says from when on both passes count."""
    older = list(before)
    async with two(stores, older=older) as (one, other):
        clock = one.server.clock
        clock.tick(AUTUMN_MS - 30 * MINUTE_MS - clock.now_ms())
        one.duty.up_since = clock.now_ms()
        await known(one, cron="*/30 * * * *", every_ms=None, timezone="Europe/Berlin", misfire=Misfire.RUN_ALL)
        await begin(one)
        await clock_at(one, AUTUMN_MS + 40 * MINUTE_MS)
        older.clear()
        clock.tick(60 * MINUTE_MS)
        other.duty.owned, other.duty.up_since = True, clock.now_ms()
        await begin(other)
        assert await hours_fired(other, from_ms=AUTUMN_MS) == expected
