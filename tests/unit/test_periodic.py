"""What is done again and again, whatever the clock of the machine does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from pinlater.beat import Beat
from pinlater.maintenance.periodic import TOGETHER, Every, Periodic
from tests.simulation import virtual_time
from tests.simulation.scheduler import Scheduler

FAST = 10
BOUND_S = 5


class Run:
    """Counts its runs; where it is told to, each raises, or waits for its gate."""

    def __init__(self, *, error: Exception | None = None) -> None:
        self.times = 0
        self.error = error
        self.gate = asyncio.Event()
        self.gate.set()
        self._progress = asyncio.Event()

    async def __call__(self) -> None:
        self.times += 1
        self._progress.set()
        if self.error is not None:
            raise self.error
        await self.gate.wait()

    async def until(self, times: int) -> None:
        async with asyncio.timeout(BOUND_S):
            while self.times < times:
                self._progress.clear()
                await self._progress.wait()


@asynccontextmanager
async def running(scheduler: AsyncIOScheduler | None = None, /, **runs: Run) -> AsyncIterator[Periodic]:
    periodic = Periodic(scheduler)
    for name, run in runs.items():
        periodic.every(FAST, name, run)
    periodic.start()
    try:
        yield periodic
    finally:
        for run in runs.values():
            run.gate.set()
        await periodic.close()
        await periodic.close()


async def test_each_runs_again_and_again_also_one_that_is_added_later() -> None:
    first, later = Run(), Run()
    async with running(first=first) as periodic:
        await first.until(2)
        periodic.every(FAST, "later", later)
        await later.until(3)
        await first.until(first.times + 2)


async def test_one_that_is_taken_away_runs_no_more_and_can_be_added_again() -> None:
    gone, other = Run(), Run()
    async with running(gone=gone, other=other) as periodic:
        await gone.until(1)
        periodic.end("gone")
        times = gone.times
        await other.until(other.times + 5)
        assert gone.times == times
        periodic.every(FAST, "gone", gone)
        await gone.until(times + 1)


async def test_one_that_is_added_again_waits_for_its_run_of_before() -> None:
    slow, other = Run(), Run()
    slow.gate.clear()
    async with running(slow=slow, other=other) as periodic:
        await slow.until(1)
        periodic.end("slow")
        periodic.every(FAST, "slow", slow)
        await other.until(other.times + 5)
        assert slow.times == 1
        slow.gate.set()
        await slow.until(3)


async def test_one_that_joins_others_does_not_begin_with_their_next_run() -> None:
    late, other = Run(), Run()
    scheduler = AsyncIOScheduler(timezone="UTC")
    async with running(scheduler, other=other) as periodic:
        periodic.every(3_600_000, "late", late)
        await other.until(other.times + 5)
        assert len(scheduler.get_jobs()) == 1
        assert late.times == 0


async def test_a_frequent_one_does_not_wait_for_those_it_joins() -> None:
    frequent = Run()
    async with running() as periodic:
        periodic.every(3_600_000, "hourly", Run())
        periodic.every(FAST, "frequent", frequent)
        await frequent.until(3)


def virtually(seconds: float, begin: Callable[[Periodic], None], then: Callable[[], None] = lambda: None) -> None:
    """Twice so many seconds in virtual time; `then` is called after the first half."""

    async def run() -> None:
        periodic = Periodic(Scheduler())  # type: ignore[arg-type]
        begin(periodic)
        periodic.start()
        loop = asyncio.get_running_loop()
        over = loop.create_future()
        loop.call_later(seconds, then)
        loop.call_later(2 * seconds, over.set_result, None)
        await over
        await periodic.close()

    virtual_time.run(run(), seed=1)


def test_those_that_share_wake_ups_run_as_often_as_they_should() -> None:
    intervals = {"queues": 500, "leases": 3_450, "alarms": 5_000}
    runs = {name: Run() for name in intervals}

    def begin(periodic: Periodic) -> None:
        for name, run in runs.items():
            periodic.every(intervals[name], name, run)

    virtually(50, begin)
    assert {name: abs(run.times * intervals[name] - 100_000) < 8_000 for name, run in runs.items()} == dict.fromkeys(
        intervals, True
    )


def test_one_that_rests_runs_ten_times_less_often_and_at_once_when_it_rests_no_more() -> None:
    run = Run()
    rests, times = True, []

    def end_rest() -> None:
        nonlocal rests
        rests = False
        times.append(run.times)

    virtually(50, lambda periodic: periodic.every(1_000, "maintenance", run, rests=lambda: rests), end_rest)
    assert times in ([4], [5])
    assert run.times - times[0] >= 49


async def test_one_that_would_run_too_often_with_others_has_wake_ups_of_its_own() -> None:
    scheduler = AsyncIOScheduler(timezone="UTC")
    async with running(scheduler) as periodic:
        periodic.every(500, "queues", Run())
        periodic.every(200, "quotas", Run())
        assert len(scheduler.get_jobs()) == 2


async def test_a_clock_that_is_set_back_does_not_stop_the_schedule() -> None:
    run = Run()
    scheduler = AsyncIOScheduler(timezone="UTC")
    async with running(scheduler, run=run):
        for job in scheduler.get_jobs():
            job.modify(next_run_time=datetime.now(UTC) + timedelta(hours=1))
        await run.until(run.times + 3)


async def test_some_begin_together_and_many_are_spread_over_an_interval() -> None:
    scheduler = AsyncIOScheduler(timezone="UTC")
    periodic = Periodic(scheduler)
    before = datetime.now(UTC)
    periodic.start()
    for number in range(10 * TOGETHER):
        periodic.every(3_600_000, str(number), Run())
    after = datetime.now(UTC)
    firsts = {job.next_run_time for job in scheduler.get_jobs()}
    await periodic.close()
    assert len(firsts) == 10
    assert max(firsts) - min(firsts) > timedelta(minutes=5)
    assert before + timedelta(minutes=30) <= min(firsts)
    assert max(firsts) <= after + timedelta(minutes=90)


async def test_runs_that_a_leap_of_the_clock_left_out_are_not_made_up_for() -> None:
    second = timedelta(seconds=1)
    now = datetime.now(UTC)
    next_run = Every(second, Beat()).get_next_fire_time(now - timedelta(days=7), now)
    assert now + second / 2 <= next_run <= now + 1.5 * second


def test_processes_that_begin_at_one_time_have_beats_of_their_own() -> None:
    beats = [Beat() for _ in range(20)]
    pauses = {beat.pause_s(1.0, 7.0) for beat in beats}
    assert len(pauses) == len(beats)
    assert min(pauses) >= 0.5
    assert max(pauses) <= 1.5


def test_work_of_each_second_falls_on_beats_of_each_half_second() -> None:
    beat = Beat()
    fast_s = 7.0 + beat.pause_s(0.5, 7.0)
    slow_s = 7.0 + beat.pause_s(1.0, 7.0)
    assert round((slow_s - fast_s) / 0.5, 6) % 1.0 == 0.0


async def test_an_error_changes_nothing() -> None:
    run = Run(error=ValueError("a surprise"))
    async with running(run=run):
        await run.until(3)


async def test_a_run_that_takes_long_is_not_begun_twice_nor_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    slow, other = Run(), Run()
    slow.gate.clear()
    async with running(slow=slow, other=other):
        await slow.until(1)
        await other.until(other.times + 5)
        assert slow.times == 1
    assert caplog.records == []


async def test_closing_waits_for_what_is_under_way_and_begins_nothing_more() -> None:
    run = Run()
    run.gate.clear()
    async with running(run=run) as periodic:
        await run.until(1)
        closing = asyncio.create_task(periodic.close())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not closing.done()
        run.gate.set()
        await closing
        assert run.times == 1


async def test_one_that_never_began_can_be_closed() -> None:
    await Periodic().close()
