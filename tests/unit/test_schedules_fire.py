"""The firing of schedules by two servers over each kind of store, with a clock under control."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pinlater.backends.base import ConfigEntry, Shard
from pinlater.backends.extended import Offered
from pinlater.errors import NothingStored, RequestInvalid
from pinlater.metrics import Metrics
from pinlater.model import DequeueRequest, ExtendedJob, Misfire, ScheduleChange, new_version
from pinlater.schedules.firer import (
    DESCRIBED,
    DESCRIBED_CAUSES,
    DESCRIBED_OF_SHARDS,
    GRACE_MS,
    MAX_FIRING,
    MOST_CHARS,
    OTHERS_WAIT_MS,
    ScheduleFirer,
    UnfiredCause,
)
from pinlater.schedules.record import changed
from pinlater.shards.router import Router
from tests.unit.schedule_stand import BEGIN_MS, ME, MINUTE_MS, Member, begin, fired, known, two
from tests.unit.schedule_stand import stores as stores

pytestmark = [pytest.mark.store("redis"), pytest.mark.store("mysql")]


async def test_a_time_fires_once_by_its_owner_and_nothing_early(stores: Callable[[], list[Shard]]) -> None:
    async with two(stores) as (one, other):
        await known(one)
        await begin(one, other)
        one.server.clock.tick(MINUTE_MS - 1)
        await one.firer.turn()
        assert await fired(one) == []
        one.server.clock.tick(1)
        await other.firer.turn()
        assert await fired(one) == [], "the others leave it to the owner first"
        await one.firer.turn()
        assert await fired(one) == [MINUTE_MS]
        assert one.ready == [("mail", 1, 0)]
        one.server.clock.tick(OTHERS_WAIT_MS)
        await other.firer.turn()
        await one.firer.turn()
        assert await fired(one) == [MINUTE_MS]
        (view,) = (await other.server.service.get_schedules(["poll"])).schedules
        assert (view.last_fired_ms, view.next_ms) == (BEGIN_MS + MINUTE_MS, [BEGIN_MS + 2 * MINUTE_MS])


async def test_others_fire_what_the_owner_did_not_and_two_at_once_fire_once(
    stores: Callable[[], list[Shard]],
) -> None:
    async with two(stores) as (one, other):
        await known(one)
        await begin(one, other)
        one.server.clock.tick(MINUTE_MS + OTHERS_WAIT_MS)
        await other.firer.turn()
        assert await fired(one) == [MINUTE_MS]
        (job,) = await one.server.service.dequeue(DequeueRequest("mail", 1), context=ME)
        await one.server.service.cancel("mail", [job.descriptor], running=True, context=ME)
        await one.firer.turn()
        assert await fired(one) == [], "its job is gone, and its time does not come again"
        other.duty.owned = True
        one.server.clock.tick(MINUTE_MS)
        await other.firer.turn()
        await one.firer.turn()
        assert await fired(one) == [2 * MINUTE_MS]


async def test_a_home_that_is_out_comes_late_and_misses_nothing(stores: Callable[[], list[Shard]]) -> None:
    async with two(stores) as (one, other):
        await known(one)
        await begin(one, other)
        home = one.server.service.router.home_of_schedule("poll", "")
        number = int(home or "1")
        for each in (one, other):
            each.server.lose(number)
        for _ in range(5):
            one.server.clock.tick(MINUTE_MS)
            await one.firer.turn()
            await other.firer.turn()
        (view,) = (await one.server.service.get_schedules(["poll"])).schedules
        assert f"shard {number}" in view.trouble or "cannot be used" in view.trouble
        for each in (one, other):
            await each.server.find(number)
        one.server.clock.tick(2_000)
        await one.firer.turn()
        await other.firer.turn()
        assert await fired(one) == [MINUTE_MS * number for number in range(1, 6)]


async def shown(at: Member) -> tuple[int | None, bool]:
    """The minute of the last firing, and whether the home is said to be out."""
    (view,) = (await at.server.service.get_schedules(["poll"])).schedules
    last_ms = view.last_fired_ms
    return last_ms and (last_ms - BEGIN_MS) // MINUTE_MS, "where it is at home, cannot be used" in view.trouble


async def test_no_older_last_firing_is_shown_where_the_shard_with_the_latest_does_not_answer(
    stores: Callable[[], list[Shard]],
) -> None:
    async with two(stores) as (one, other):
        router = one.server.service.router
        await known(one)
        await begin(one, other)
        first = router.home_of_schedule("poll", "")
        key = next(f"k{n}" for n in range(99) if router.home_of_schedule("poll", f"k{n}") not in (first, None))
        second = int(router.home_of_schedule("poll", key) or "")

        one.server.clock.tick(MINUTE_MS)
        await one.firer.turn()
        assert await shown(other) == (1, False)
        await known(one, serialize_key=key)
        one.server.clock.tick(MINUTE_MS)
        await one.firer.turn()

        other.server.lose(second)
        assert await shown(other) == (None, True), "the mark of its former home is older"
        await other.server.find(second)
        other.server.lose(int(first or ""))
        assert await shown(other) == (2, False), "it fired at its home since its key was changed"

        one.server.lose(second)
        await known(one, serialize_key="")
        assert await shown(one) == (None, False), "nor is that of a home to which it came back"
        await one.server.find(second)
        assert await shown(one) == (2, False)


@pytest.mark.parametrize(
    ("misfire", "expected"),
    [
        (Misfire.SKIP, [10, 11]),
        (Misfire.RUN_ONCE, [8, 10, 11]),
        (Misfire.RUN_ALL, [6, 7, 8, 10, 11]),
    ],
)
async def test_a_cluster_that_was_down_applies_the_misfire_rule(
    stores: Callable[[], list[Shard]], misfire: Misfire, expected: list[int]
) -> None:
    async with two(stores) as (one, other):
        await known(one, misfire=misfire, max_catch_up=3)
        one.server.clock.tick(8 * MINUTE_MS + 30_000 + GRACE_MS)
        other.duty.up_since = other.server.clock.now_ms()  # nobody ran before
        other.duty.owned = True
        await begin(other)
        await other.firer.turn()
        other.server.clock.tick(2 * MINUTE_MS - 30_000)
        await other.firer.turn()
        assert await fired(other) == [MINUTE_MS * number for number in sorted({*expected, 9})]


async def test_pauses_ends_and_changes_count_from_when_they_are_made(stores: Callable[[], list[Shard]]) -> None:
    async with two(stores) as (one, _):
        await known(one, end_ms=BEGIN_MS + 10 * MINUTE_MS, jitter_ms=5_000)
        await begin(one)
        one.server.clock.tick(MINUTE_MS)
        await one.firer.turn()
        service = one.server.service
        await service.update_schedule(ScheduleChange(name="poll", paused=True), "sesame", context=ME)
        one.server.clock.tick(3 * MINUTE_MS)
        await one.firer.turn()
        await service.update_schedule(ScheduleChange(name="poll", paused=False), "sesame", context=ME)
        await one.firer.turn()
        one.server.clock.tick(MINUTE_MS)
        await one.firer.turn()
        one.server.clock.tick(20 * MINUTE_MS)
        await one.firer.turn()
        assert await fired(one) == [MINUTE_MS * number for number in (1, 5, 6, 7, 8, 9)]
        (view,) = (await service.get_schedules(["poll"])).schedules
        assert "it has ended" in view.trouble
        await service.delete_schedule("poll", "sesame", context=ME)
        await one.firer.turn()
        assert not (await service.get_schedules()).schedules


async def test_a_queue_that_is_gone_is_not_made_up_for_when_it_is_made_again(
    stores: Callable[[], list[Shard]],
) -> None:
    async with two(stores) as (one, _):
        await known(one)
        await begin(one)
        await one.server.service.delete_queue("mail", "sesame", context=ME)
        for _ in range(5):
            one.server.clock.tick(MINUTE_MS)
            await one.firer.turn()
        (view,) = (await one.server.service.get_schedules(["poll"])).schedules
        assert "'mail' is not there" in view.trouble
        await one.server.service.create_queue("mail")
        one.server.clock.tick(MINUTE_MS)
        await one.firer.turn()
        assert await fired(one) == [5 * MINUTE_MS, 6 * MINUTE_MS]


async def test_without_schedules_there_is_no_task(stores: Callable[[], list[Shard]]) -> None:
    async with two(stores) as (one, _):
        one.firer.start()
        assert not one.firer.is_running
        await known(one)
        assert one.firer.is_running


async def test_what_cannot_be_reached_for_a_moment_is_tried_again(stores: Callable[[], list[Shard]]) -> None:
    async with two(stores) as (one, _):
        await known(one)
        await begin(one)
        for way in one.server.ways:
            way.failures["enqueue_extended"].append(NothingStored("busy"))
        one.server.clock.tick(MINUTE_MS)
        await one.firer.turn()
        (view,) = (await one.server.service.get_schedules(["poll"])).schedules
        assert await fired(one) == []
        assert view.last_fired_ms is None
        one.server.clock.tick(1_000)
        await one.firer.turn()
        assert await fired(one) == [MINUTE_MS]


class FailsUnforeseen:
    """The calls of a router; the firings of one schedule fail as no error of a store does, while `fails`."""

    def __init__(self, calls: Router, schedule: str) -> None:
        self._calls = calls
        self._schedule = schedule
        self.fails = True
        self.last_firings = calls.last_firings
        self.home_of_schedule = calls.home_of_schedule
        self.homes_version = calls.homes_version
        self.has_lost_homes = calls.has_lost_homes

    async def fire(self, queue: str, job: ExtendedJob, schedule: str, mark: str, now_ms: int) -> Offered:
        if self.fails and schedule == self._schedule:
            raise ValueError("unforeseen")
        return await self._calls.fire(queue, job, schedule, mark, now_ms)


async def test_an_unforeseen_error_of_one_stops_neither_it_nor_the_others(stores: Callable[[], list[Shard]]) -> None:
    async with two(stores) as (one, _):
        service, clock = one.server.service, one.server.clock
        calls = FailsUnforeseen(service.router, "@schedule/bad")
        firer = ScheduleFirer(service.schedules, calls, one.duty, clock, Metrics(), lambda *told: None)
        failing = Member(one.server, one.duty, firer)
        await known(failing, name="bad")
        await known(failing, name="good")
        await begin(failing)
        clock.tick(MINUTE_MS)
        await firer.turn()
        assert await fired(one) == [MINUTE_MS]
        calls.fails = False
        clock.tick(MINUTE_MS)
        await firer.turn()
        assert await fired(one) == [MINUTE_MS] * 2 + [2 * MINUTE_MS] * 2
        await firer.close()


async def test_a_zone_that_a_server_does_not_know_is_said_and_the_others_fire(
    stores: Callable[[], list[Shard]],
) -> None:
    async with two(stores) as (one, _):
        await known(one)
        record = one.server.service.schedules.get("poll")
        assert record is not None
        gone = replace(
            record, schedule=replace(record.schedule, every_ms=None, cron="* * * * *", timezone="Mars/Olympus")
        )
        entry = ConfigEntry("@schedule/gone", new_version(BEGIN_MS), gone.text())
        for handle in one.server.members.all:
            await handle.shard.put_config([entry], BEGIN_MS)
        await begin(one)
        one.server.clock.tick(MINUTE_MS)
        await one.firer.turn()
        assert await fired(one) == [MINUTE_MS]
        (view,) = (await one.server.service.get_schedules(["gone"])).schedules
        assert "timezone is 'Mars/Olympus'" in view.trouble
        assert one.firer.describe() == {
            DESCRIBED: [("gone", "mail", view.trouble[:MOST_CHARS])],
            DESCRIBED_OF_SHARDS: [],
            DESCRIBED_CAUSES: {"gone": UnfiredCause.TIMETABLE},
        }
        await one.server.service.delete_schedule("gone", "sesame", context=ME)
        assert one.firer.describe() == {}


async def test_many_that_are_due_at_once_fire_once_each_with_few_calls_under_way(
    stores: Callable[[], list[Shard]],
) -> None:
    async with two(stores) as (one, _):
        names = [f"many-{number}" for number in range(300)]
        entries = []
        for name in names:
            change = ScheduleChange(name=name, queue="mail", every_ms=MINUTE_MS)
            record = changed(None, change, "me", BEGIN_MS)
            entries.append(ConfigEntry(record.entry_name, new_version(BEGIN_MS), record.text()))
        for handle in one.server.members.all:
            await handle.shard.put_config(entries, BEGIN_MS)
        calls = CountsCalls(one.server.service.router)
        firer = ScheduleFirer(
            one.server.service.schedules, calls, one.duty, one.server.clock, Metrics(), lambda *told: None
        )
        many = Member(one.server, one.duty, firer)
        await begin(many)
        one.server.clock.tick(MINUTE_MS)
        await firer.turn()
        await firer.turn()
        assert await fired(one) == [MINUTE_MS] * len(names)
        assert 1 < calls.most <= MAX_FIRING
        await firer.close()


class CountsCalls:
    """The calls of a router; `most` of its firings were under way at once."""

    def __init__(self, calls: Router) -> None:
        self._calls = calls
        self._under_way = self.most = 0
        self.last_firings = calls.last_firings
        self.home_of_schedule = calls.home_of_schedule
        self.homes_version = calls.homes_version
        self.has_lost_homes = calls.has_lost_homes

    async def fire(self, queue: str, job: ExtendedJob, schedule: str, mark: str, now_ms: int) -> Offered:
        self._under_way += 1
        self.most = max(self.most, self._under_way)
        try:
            return await self._calls.fire(queue, job, schedule, mark, now_ms)
        finally:
            self._under_way -= 1


async def test_a_zone_that_is_no_place_is_refused_and_goes_on_where_it_is_stored(
    stores: Callable[[], list[Shard]],
) -> None:
    async with two(stores) as (one, _):
        await known(one)
        with pytest.raises(RequestInvalid, match="servers may differ"):
            await known(one, cron="* * * * *", every_ms=None, timezone="localtime")
        record = one.server.service.schedules.get("poll")
        assert record is not None
        before = replace(record, schedule=replace(record.schedule, every_ms=None, cron="* * * * *", timezone="Factory"))
        entry = ConfigEntry("@schedule/poll", new_version(BEGIN_MS, record.version), before.text())
        for handle in one.server.members.all:
            await handle.shard.put_config([entry], BEGIN_MS)
        await begin(one)
        one.server.clock.tick(2 * MINUTE_MS)
        await one.firer.turn()
        assert len(await fired(one)) == 2
        await known(one, cron=None, every_ms=None, priority=2)
