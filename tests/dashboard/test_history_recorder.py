"""The recorder: what becomes of totals that servers tell, minute by minute, over restarts, gaps and set clocks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pinlater.dashboard.history_recorder import HistoryRecorder
from pinlater.dashboard.job_sampler import JobSampler
from pinlater.dashboard.queue_history import SPANS, History, Series
from pinlater.errors import UnknownError
from pinlater.model import JobState, LevelView
from tests.dashboard.history_stand import CONTEXT, MINUTE_MS, START_MS, Servers, pass_minutes, recorder

SEND = b'PINLATER/1 application/json\n{"job": "send"}'


class Stand:
    """Servers, the recorder that asks them, and what pages would show."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.servers = Servers()
        self.servers.process()
        self.recorder: HistoryRecorder
        self.history: History

    async def open(self) -> None:
        self.history = History(self.servers.api, CONTEXT, self.path)
        self.recorder = await recorder(self.servers, self.history.store)

    async def killed(self) -> None:
        """Another process takes over after this one was killed: what it did not write is lost with it."""
        await self.history.store.close()
        await self.open()

    async def series(self, queue: str = "", span: str = "1h") -> Series:
        return await self.history.series(queue, SPANS[span], self.servers.now_ms)

    async def counts(self, queue: str = "", place: str = "enqueued", span: str = "1h") -> dict[int, int]:
        """By minutes (or steps) since the start; those with nothing are left out."""
        found = {
            (point.start_ms - START_MS) // MINUTE_MS: getattr(point.record, place)
            for point in (await self.series(queue, span)).points
            if point.record is not None
        }
        return {minute: jobs for minute, jobs in found.items() if jobs}


@pytest.fixture(params=["file", "memory"])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stand]:
    yield from opened(tmp_path / "history.sqlite" if request.param == "file" else None)


@pytest.fixture
def in_file(tmp_path: Path) -> Iterator[Stand]:
    yield from opened(tmp_path / "history.sqlite")


def opened(path: Path | None) -> Iterator[Stand]:
    stand = Stand(path)
    asyncio.run(stand.open())
    yield stand
    asyncio.run(stand.history.store.close())


async def test_a_minute_has_what_was_counted_in_it(at: Stand) -> None:
    await at.recorder.poll()
    await pass_minutes(at.servers, at.recorder, 0.5)
    at.servers.count("mail", 10, 8, 5, 2, 1)
    at.servers.count("sms", 3)
    await pass_minutes(at.servers, at.recorder, 1)
    at.servers.count("mail", 1)
    await pass_minutes(at.servers, at.recorder, 1)
    assert await at.counts("mail") == {0: 10, 1: 1}
    assert await at.counts("sms") == {0: 3}
    assert await at.counts() == {0: 13, 1: 1}
    (point,) = [each for each in (await at.series("mail")).points if each.start_ms == START_MS]
    assert point.record is not None
    assert point.record.counts == (10, 8, 5, 2, 1)


async def test_what_was_counted_over_the_end_of_a_minute_is_shared(at: Stand) -> None:
    await at.recorder.poll()
    await pass_minutes(at.servers, at.recorder, 50 / 60)
    at.servers.count("mail", 100)
    await pass_minutes(at.servers, at.recorder, 1.5, step_ms=20_000)
    assert await at.counts("mail") == {0: 50, 1: 50}


async def test_totals_of_before_are_nobodys_and_those_of_young_processes_count(at: Stand) -> None:
    at.servers.process("old/1", START_MS - 10 * MINUTE_MS)
    at.servers.count("mail", 1000, name="old/1")
    at.servers.count("mail", 7)
    await at.recorder.poll()
    await pass_minutes(at.servers, at.recorder, 1.5)
    at.servers.process("new/1")
    at.servers.count("mail", 20, name="new/1")
    at.servers.count("mail", 5, name="old/1")
    await pass_minutes(at.servers, at.recorder, 1)
    assert await at.counts() == {0: 7, 1: 25}


async def test_a_process_that_began_anew_counts_from_nothing(at: Stand) -> None:
    at.servers.count("mail", 30)
    await at.recorder.poll()
    await pass_minutes(at.servers, at.recorder, 1.5)
    at.servers.process("a/1")
    at.servers.count("mail", 4)
    await pass_minutes(at.servers, at.recorder, 2)
    assert await at.counts() == {0: 30, 1: 4}


async def test_a_recorder_that_is_killed_loses_nothing_and_counts_nothing_twice(in_file: Stand) -> None:
    at = in_file
    await at.recorder.poll()
    at.servers.count("mail", 10)
    await pass_minutes(at.servers, at.recorder, 1.5)  # one minute is written, half of one is not
    at.servers.count("mail", 5)
    await pass_minutes(at.servers, at.recorder, 0.25)
    await at.killed()
    assert await at.counts() == {0: 10}
    at.servers.count("mail", 2)
    await pass_minutes(at.servers, at.recorder, 1.5)
    assert sum((await at.counts()).values()) == 17


async def test_the_next_process_goes_on_within_the_minute(in_file: Stand) -> None:
    at = in_file
    await at.recorder.poll()
    at.servers.count("mail", 10)
    await pass_minutes(at.servers, at.recorder, 0.5)
    await at.recorder.close_minutes(None)  # as it does when it stops
    await at.killed()
    at.servers.count("mail", 5)
    await pass_minutes(at.servers, at.recorder, 1)
    assert await at.counts() == {0: 15}


async def test_what_was_counted_while_nobody_asked_for_long_is_in_no_minute_and_the_gap_is_one(at: Stand) -> None:
    at.servers.count("mail", 1)
    await at.recorder.poll()
    await pass_minutes(at.servers, at.recorder, 2)
    at.servers.count("mail", 500)
    at.servers.now_ms += 20 * MINUTE_MS
    await at.recorder.poll()
    at.servers.count("mail", 3)
    await pass_minutes(at.servers, at.recorder, 1.5)
    assert await at.counts() == {0: 1, 22: 3}
    points = {(each.start_ms - START_MS) // MINUTE_MS: each.record for each in (await at.series("mail")).points}
    assert [minute for minute in range(-35, 24) if points.get(minute) is not None] == [0, 1, 2, 22]


async def test_servers_that_are_away_or_tell_no_totals_make_a_gap_and_say_so(at: Stand) -> None:
    await at.recorder.poll()
    at.servers.error = UnknownError("nobody there")
    await pass_minutes(at.servers, at.recorder, 1)
    assert "nobody there" in at.recorder.problem
    at.servers.error, at.servers.tells_counters = None, False
    await at.recorder.poll()
    assert "earlier version" in at.recorder.problem
    at.servers.tells_counters = True
    at.servers.count("mail", 4)
    await pass_minutes(at.servers, at.recorder, 1.5)
    assert at.recorder.problem == ""
    assert sum((await at.counts()).values()) == 4


async def test_a_clock_that_is_set_back_begins_anew(at: Stand) -> None:
    await at.recorder.poll()
    at.servers.count("mail", 6)
    await pass_minutes(at.servers, at.recorder, 40)
    at.servers.now_ms -= 30 * MINUTE_MS
    await at.recorder.poll()
    at.servers.count("mail", 2)
    await pass_minutes(at.servers, at.recorder, 1.5)
    assert await at.counts() == {0: 6, 10: 2}


# -- jobs that wait ----------------------------------------------------------------------------------------------------


async def test_jobs_that_wait_are_shown_as_they_were_while_nothing_changes(at: Stand) -> None:
    at.servers.levels["mail"] = LevelView(1, ready=4, scheduled=2, in_progress=1, oldest_ready_ms=START_MS - 60_000)
    await at.recorder.poll()
    await pass_minutes(at.servers, at.recorder, 3)
    at.servers.levels["mail"] = LevelView(1, ready=9)
    await pass_minutes(at.servers, at.recorder, 0.5)
    at.servers.levels["mail"] = LevelView(1)
    await pass_minutes(at.servers, at.recorder, 2.5)
    records = [each.record for each in (await at.series("mail")).points if each.record is not None]
    assert [record.ready for record in records] == [4, 4, 4, 9, 0, 0]
    assert [record.oldest_s for record in records][:3] == [110, 170, 230]
    assert sum("mail" in minute for minute in at.history.store.recent.values()) == 3


async def test_a_queue_that_is_deleted_has_no_jobs_any_more(at: Stand) -> None:
    at.servers.levels["mail"] = LevelView(1, scheduled=5)
    await at.recorder.poll()
    await pass_minutes(at.servers, at.recorder, 2)
    del at.servers.levels["mail"]
    await pass_minutes(at.servers, at.recorder, 3)
    records = [each.record for each in (await at.series("mail")).points if each.record is not None]
    assert [record.scheduled for record in records] == [5, 5, 5, 0, 0]


# -- hours -------------------------------------------------------------------------------------------------------------


async def test_minutes_become_hours_and_both_are_shown(at: Stand) -> None:
    at.servers.levels["mail"] = LevelView(1, scheduled=5)
    await at.recorder.poll()
    for _ in range(3 * 60):
        at.servers.count("mail", 2, 0, 1)
        await pass_minutes(at.servers, at.recorder, 1, step_ms=30_000)
    assert sum((await at.counts("mail", span="6h")).values()) == 2 * 180
    assert await at.counts("mail", span="7d") == {0: 120, 60: 120, 120: 120}
    assert sum((await at.counts(span="30d")).values()) == 2 * 180
    assert sum((await at.counts("mail", span="24h")).values()) == 2 * 180
    hours = [each for each in (await at.series("mail", "7d")).points if each.record is not None]
    assert [(each.minutes, each.record.scheduled) for each in hours if each.record] == [(60, 5)] * 3
    assert len(await at.counts("mail")) == 60
    line = at.history.sparklines(["mail", "sms"], at.servers.now_ms)
    assert line["mail"].done == [1] * 60
    assert line["sms"].done == [0] * 60


async def test_failures_of_the_last_hour_are_counted_by_queue(at: Stand) -> None:
    await at.recorder.poll()
    for _ in range(65):
        at.servers.count("mail", 0, 0, 0, 2)
        at.servers.count("sms", 1)
        await pass_minutes(at.servers, at.recorder, 1, step_ms=30_000)
    assert at.history.failed_in_hour(at.servers.now_ms) == {"mail": 120}
    assert at.history.failed_in_hour(at.servers.now_ms + 59 * 60_000) == {"mail": 2}


async def test_an_hour_that_was_put_away_is_there_after_a_restart(in_file: Stand) -> None:
    at = in_file
    await at.recorder.poll()
    at.servers.levels["idle"] = LevelView(1, scheduled=1)
    for _ in range(70):
        at.servers.count("mail", 1)
        await pass_minutes(at.servers, at.recorder, 1, step_ms=30_000)
    await at.killed()
    assert len(await at.counts("mail")) == 60
    assert at.history.sparklines(["mail"], at.servers.now_ms)["mail"].done == [0] * 60
    assert sum((await at.counts("mail", span="24h")).values()) == 70
    assert (await at.series("mail", "24h")).since_ms is not None


# -- who may look ------------------------------------------------------------------------------------------------------


async def test_where_only_some_queues_may_be_read_these_are_recorded(at: Stand) -> None:
    at.servers.readable = {"mail"}
    at.servers.count("mail", 1)
    at.servers.count("secret", 50)
    await at.recorder.poll()
    at.servers.count("mail", 4)
    at.servers.count("secret", 60)
    await pass_minutes(at.servers, at.recorder, 1.5)
    assert await at.counts() == {0: 5}
    assert await at.counts("secret") == {}
    assert "only the 1 queues" in at.recorder.problem
    at.servers.readable = set()
    await at.recorder.poll()
    assert "role history" in at.recorder.problem


# -- samples -----------------------------------------------------------------------------------------------------------


async def test_failures_are_told_by_reason_and_type_and_reach_the_number_that_failed(at: Stand) -> None:
    await at.recorder.poll()
    await pass_minutes(at.servers, at.recorder, 0.5)
    for _ in range(3):
        at.servers.failed(
            "mail", "attempt 1 of 1: KeyError: 'a' [x]\n", b'PINLATER/1 application/json\n{"job": "send"}'
        )
    at.servers.failed("mail", "attempt 1 of 1: ConnectionError: no [x]\n")
    at.servers.count("mail", 0, 8, 0, 8)
    await pass_minutes(at.servers, at.recorder, 1)
    total = (await at.series("mail")).total
    assert total.reasons == {"KeyError": 6, "ConnectionError": 2}
    assert total.types == {"send": 6, "other": 2}
    assert (total.sampled, total.failed) == (4, 8)
    assert (await at.series()).total.reasons == total.reasons


async def test_bodies_that_may_not_be_seen_give_no_types(at: Stand) -> None:
    at.servers.shows_bodies = False
    await at.recorder.poll()
    at.servers.now_ms += 1_000
    at.servers.failed("mail", "attempt 1 of 1: KeyError: 'a' [x]\n")
    at.servers.count("mail", 0, 1, 0, 1)
    await pass_minutes(at.servers, at.recorder, 1.5)
    total = (await at.series("mail")).total
    assert (total.reasons, total.types) == ({"KeyError": 1}, {})
    assert at.recorder.sampler is not None
    assert not at.recorder.sampler.may_see_bodies


async def test_a_job_is_looked_at_once_and_only_where_something_happens(at: Stand) -> None:
    await at.recorder.poll()
    at.servers.levels["idle"] = LevelView(1, scheduled=3)
    for _ in range(5):
        at.servers.now_ms += 1_000
        at.servers.ended("mail", JobState.SUCCEEDED, ran_ms=400)
        at.servers.count("mail", 1, 1, 1)
        await at.recorder.poll()
    await pass_minutes(at.servers, at.recorder, 2)
    total = (await at.series("mail")).total
    assert sum(total.runs.values()) == sum(total.waits.values()) == 5
    assert at.servers.calls.count("scan mail SUCCEEDED") == 5
    assert not any("idle" in call for call in at.servers.calls)


async def test_failures_that_are_counted_later_than_their_jobs_are_looked_at(at: Stand) -> None:
    await at.recorder.poll()
    at.servers.now_ms += 1_000
    at.servers.ended("mail", JobState.SUCCEEDED)
    at.servers.failed("mail", "attempt 1 of 1: KeyError: 'a' [x]\n")
    at.servers.count("mail", 2, 2, 1)
    await pass_minutes(at.servers, at.recorder, 0.25)
    at.servers.count("mail", 0, 0, 0, 1)
    await pass_minutes(at.servers, at.recorder, 1.5)
    assert (await at.series("mail")).total.reasons == {"KeyError": 1}


async def test_failures_between_two_recorders_are_looked_at(in_file: Stand) -> None:
    at = in_file
    await at.recorder.poll()
    await pass_minutes(at.servers, at.recorder, 0.5)
    await at.recorder.close_minutes(None)  # as it does when it stops
    await at.killed()
    at.servers.now_ms += 1_000
    at.servers.failed("mail", "attempt 1 of 1: KeyError: 'a' [x]\n")
    at.servers.count("mail", 0, 1, 0, 1)
    await pass_minutes(at.servers, at.recorder, 1.5)
    total = (await at.series("mail")).total
    assert (total.sampled, total.failed) == (1, 1)


async def test_where_no_ended_jobs_are_kept_those_that_run_tell_how_long_they_waited(at: Stand) -> None:
    await at.recorder.poll()
    at.servers.now_ms += 1_000
    at.servers.ended("mail", JobState.IN_PROGRESS)
    at.servers.count("mail", 5, 5, 5)
    await pass_minutes(at.servers, at.recorder, 1.5)
    total = (await at.series("mail")).total
    assert sum(total.waits.values()) == 1
    assert not total.runs


async def test_recording_that_fails_for_good_is_told_once_and_shown(at: Stand) -> None:
    tries: list[int] = []

    def broken(since_ms: int) -> JobSampler:
        tries.append(since_ms)
        raise ZeroDivisionError("for good")

    failing = HistoryRecorder(at.servers.api, CONTEXT, at.history.store, every_s=0.001, new_sampler=broken)
    with capture_logs() as lines:
        failing.start()
        async with asyncio.timeout(60):
            while len(tries) < 5:
                at.servers.now_ms += 1
                await asyncio.sleep(0.005)
        await failing.stop()
    assert failing.problem == "recording fails; the log says why (history_failed)"
    assert [line["event"] for line in lines].count("history_failed") == 1
