"""The periodic job of the examples: in memory for a day, and on a real server for some rounds."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from pinlater import Client, JobState
from pinlater_workers import testing
from pinlater_workers.envelope import read_envelope
from tests.server.running import running
from tests.workers.command import until, working

EXAMPLES = Path(__file__).parents[2] / "workers" / "examples"


@pytest.fixture
def periodic(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("periodic")


def test_it_reports_every_hour_for_a_day(periodic: ModuleType) -> None:
    with testing.in_memory(periodic.app) as jobs:
        periodic.disk_usage.enqueue("/", 3600.0)
        jobs.run_for(86_400)
    (run,) = jobs.runs
    assert run.state is JobState.PENDING
    assert run.reschedules == run.times == 25
    assert run.attempts == 0
    assert run.status.startswith(f"rescheduled: round {run.times}: ")
    envelope = read_envelope(run.body)
    assert envelope.kwargs["round"] == run.times + 1
    assert envelope.kwargs["before"] > 0


def test_a_round_that_fails_is_tried_again(periodic: ModuleType) -> None:
    run = testing.run(periodic.disk_usage, "/no/such/path", 60.0)
    assert (run.state, run.delays_s) == (JobState.FAILED, [5, 30])
    assert "in disk_usage)" in run.status


def test_periods_are_those_of_the_clock(periodic: ModuleType) -> None:
    assert periodic.until_next(10, 1234.5) == 5.5
    assert periodic.until_next(10, 1230.0) == 10


def test_a_worker_runs_round_after_round(tmp_path: Path) -> None:
    with running(tmp_path) as server, Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("reports")
        environment = {**os.environ, "PINLATER_SERVER": f"127.0.0.1:{server.port}"}
        begun = subprocess.run(
            [sys.executable, str(EXAMPLES / "periodic.py"), "/", "--every", "0.05", "--rounds", "4"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        descriptor = begun.stdout.strip()
        with working(EXAMPLES, "--app", "periodic:app", "--server", f"127.0.0.1:{server.port}") as worker:
            worker.ready()
            until(lambda: client.lookup([descriptor])[descriptor].state is JobState.SUCCEEDED, descriptor)
        info = client.lookup([descriptor])[descriptor]
    assert [line.split(":")[-2].strip() for line in info.custom_status.splitlines()] == [
        "round 4",
        "round 3",
        "round 2",
        "round 1",
    ]
    assert info.attempts_remaining == info.attempts_allowed == 3
