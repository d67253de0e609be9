"""What a worker says of itself for the list of workers, and when."""

from __future__ import annotations

import math
from dataclasses import replace as replaced

import msgspec
import pytest

from pinlater.model import UnknownType, WorkerJob, WorkerReport
from pinlater_workers import App
from pinlater_workers.app.settings import WorkerSettings, worker_settings
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.heartbeat.messages import (
    Alive,
    HeartbeatEntry,
    RunningEntry,
    UnknownEntry,
    WorkerState,
    read_by_process,
)
from pinlater_workers.heartbeat.reports import MAX_RUNNING, REPORT_S, RETRY_S, SILENT_S, ReportSchedule

STATE = WorkerState(
    "a1",
    "shop",
    "host-1",
    7,
    100.0,
    {"mail": 3, "images": 1},
    8,
    1,
    0,
    [RunningEntry("mail:s1:p1:1790000000000001", "send", 190.0)],
    {"python": "3.11.2"},
    job_types=["render", "send"],
    unknown_types=[UnknownEntry("mail", "resize", 3, 190.0)],
)
NOW_S = 200.0


def changed(**fields: object) -> WorkerState:
    return msgspec.structs.replace(STATE, **fields)


def watched(descriptor: str, good_s: float) -> HeartbeatEntry:
    return HeartbeatEntry(1, "mail", descriptor, "claim", good_s, good_s, math.inf, 0, "render")


@pytest.fixture
def schedule() -> ReportSchedule:
    return ReportSchedule()


def test_a_report_says_what_the_worker_said_in_times_since(schedule: ReportSchedule) -> None:
    schedule.tell(STATE, NOW_S)
    assert schedule.take(NOW_S + 1.5, NOW_S + 1.5, ()) == WorkerReport(
        "a1",
        "shop",
        101_500,
        "host-1",
        7,
        {"mail": 3, "images": 1},
        8,
        1,
        0,
        [WorkerJob("mail:s1:p1:1790000000000001", "send", 11_500)],
        {"python": "3.11.2"},
        job_types=("render", "send"),
        unknown_types=[UnknownType("mail", "resize", 3, 11_500)],
    )


def test_nothing_is_due_before_the_worker_has_said_anything(schedule: ReportSchedule) -> None:
    assert (schedule.due_s, schedule.take(NOW_S, NOW_S, ()), schedule.has_stopped) == (math.inf, None, False)


def test_a_report_is_due_at_once_where_a_worker_starts_or_stops_and_else_every_ten_seconds(
    schedule: ReportSchedule,
) -> None:
    schedule.tell(STATE, NOW_S)
    assert schedule.due_s == NOW_S
    schedule.take(NOW_S, NOW_S, ())
    schedule.tell(changed(busy_slots=5), NOW_S + 1)
    assert schedule.due_s == NOW_S + REPORT_S
    schedule.tell(changed(is_stopping=True), NOW_S + 2)
    assert schedule.due_s == NOW_S + 2
    schedule.take(NOW_S + 2, NOW_S + 2, ())
    schedule.tell(changed(is_stopping=True, has_stopped=True), NOW_S + 3)
    assert (schedule.due_s, schedule.has_stopped) == (NOW_S + 3, True)
    last = schedule.take(NOW_S + 3, NOW_S + 3, ())
    assert last is not None
    assert (last.is_stopping, last.has_stopped, schedule.due_s) == (True, True, math.inf)


def test_a_report_that_no_server_took_is_due_again_soon(schedule: ReportSchedule) -> None:
    schedule.tell(STATE, NOW_S)
    schedule.take(NOW_S, NOW_S, ())
    schedule.failed(NOW_S + 1)
    assert schedule.due_s == NOW_S + 1 + RETRY_S


def test_a_worker_that_says_nothing_any_more_is_silent_and_its_claims_tell_what_it_runs(
    schedule: ReportSchedule,
) -> None:
    schedule.tell(STATE, NOW_S)
    claims = [
        watched("mail:s1:p1:1790000000000003", NOW_S + 0.2),
        watched("mail:s1:p1:1790000000000002", NOW_S + 0.1),
        watched("mail:s1:p1:1790000000000001", NOW_S + 0.3),  # told again: a connection broke
        watched("mail:s1:p1:1790000000000000", NOW_S - 50),  # its result is on its way
    ]
    awake = schedule.take(NOW_S + SILENT_S, NOW_S + 1, claims)
    assert awake is not None
    assert (awake.silent_ms, awake.busy_slots, len(awake.running)) == (0, 1, 1)
    silent = schedule.take(NOW_S + SILENT_S + 1, NOW_S + 1, claims)
    assert silent is not None
    assert (silent.silent_ms, silent.busy_slots) == (SILENT_S * 1000, 3)
    assert [(job.job_descriptor[-1], job.job_type, job.running_ms) for job in silent.running] == [
        ("1", "send", 16_000),
        ("2", "render", 5_900),
        ("3", "render", 5_800),
    ]


def test_a_silent_worker_is_not_said_to_run_more_than_it_has_slots_for(schedule: ReportSchedule) -> None:
    schedule.tell(changed(stuck_slots=2), NOW_S)
    claims = [watched(f"mail:s1:p1:{1790000000000010 + number}", NOW_S + 1) for number in range(20)]
    report = schedule.take(NOW_S + 60, NOW_S, claims)
    assert report is not None
    assert (len(report.running), report.busy_slots) == (6, 6)
    schedule.tell(changed(slots=5_000), NOW_S)
    claims = [watched(f"mail:s1:p1:{1790000000000010 + number}", NOW_S + 1) for number in range(500)]
    report = schedule.take(NOW_S + 60, NOW_S, claims)
    assert report is not None
    assert len(report.running) == MAX_RUNNING


def test_a_process_of_the_version_before_reads_what_this_worker_says() -> None:
    """It knows neither the state in a sign of life, nor the type in an entry."""

    class AliveBefore(msgspec.Struct, tag="Alive"):
        pass

    class EntryBefore(msgspec.Struct, array_like=True):
        number: int
        queue: str

    encode = msgspec.msgpack.encode
    assert msgspec.msgpack.decode(encode(Alive(STATE)), type=AliveBefore) == AliveBefore()
    assert msgspec.msgpack.decode(encode(watched("d", 1.0)), type=EntryBefore) == EntryBefore(1, "mail")
    assert read_by_process(encode(AliveBefore())) == Alive(None)


def test_names_and_versions_are_texts_of_bounded_length() -> None:
    assert worker_settings({"name": "mailer-1"}, "here").name == "mailer-1"
    for wrong in ("", "x" * 101, 5):
        with pytest.raises(ConfigurationError, match="allowed: 1 to 100 characters"):
            worker_settings({"name": wrong}, "here")
    assert replaced(WorkerSettings(), name="x").name == "x"
    assert (App(version="2026.11").version, App().version) == ("2026.11", "")
