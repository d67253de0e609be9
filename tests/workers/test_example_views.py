"""The example of batches: in memory, and on a real server."""

from __future__ import annotations

import importlib
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from pinlater import Client, JobFilter, JobState
from pinlater_workers import testing
from pinlater_workers.jobs.context import JobContext
from pinlater_workers.middleware import Middleware
from tests.server.running import running
from tests.workers.command import until, working

EXAMPLES = Path(__file__).parents[2] / "workers" / "examples"


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("VIEWS_DB", str(tmp_path / "views.db"))
    return importlib.import_module("views")


def test_views_are_stored_and_what_is_no_path_fails_alone(views: ModuleType) -> None:
    with testing.in_memory(views.app) as jobs:
        for path in ("/home", "/about", "nowhere", "/home"):
            views.store_views.enqueue(views.View(path))
        jobs.run_all()
    assert views.counts() == {"/home": 2, "/about": 1}
    states = [run.state for run in jobs.runs]
    assert states == [JobState.SUCCEEDED, JobState.SUCCEEDED, JobState.FAILED, JobState.SUCCEEDED]
    assert jobs.runs[2].status.startswith("attempt 1 of 11: Fail: 'nowhere' is no path [")


class FailsOnce(Middleware):
    """The first attempt fails when all of it is done."""

    has_failed = False

    def after(self, context: JobContext, result: object) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise ConnectionError


def test_a_view_whose_job_runs_twice_is_counted_once(views: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views.app, "middleware", [FailsOnce()])
    with testing.in_memory(views.app) as jobs:
        views.store_views.enqueue(views.View("/home"))
        jobs.run_all()
    assert jobs.runs[0].times == 2
    assert views.counts() == {"/home": 1}


def test_where_the_database_fails_the_others_are_tried_again(views: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "views.db").mkdir()
    with testing.in_memory(views.app) as jobs:
        views.store_views.enqueue(views.View("/home"))
        views.store_views.enqueue(views.View("nowhere"))
        jobs.run_for(4)
        assert [run.state for run in jobs.runs] == [JobState.PENDING, JobState.FAILED]
        assert isinstance(jobs.runs[0].errors[0], sqlite3.OperationalError)
        (tmp_path / "views.db").rmdir()
        jobs.run_all()
    assert views.counts() == {"/home": 1}


def test_a_worker_stores_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIEWS_DB", str(tmp_path / "views.db"))
    with running(tmp_path) as server, Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("views")
        monkeypatch.setenv("PINLATER_SERVER", f"127.0.0.1:{server.port}")

        def run(*arguments: str) -> str:
            command = [sys.executable, str(EXAMPLES / "views.py"), *arguments]
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout

        run("/home", "/about", "/home", "nowhere")
        with working(EXAMPLES, "--app", "views:app", "--server", f"127.0.0.1:{server.port}") as worker:
            worker.ready()
            until(lambda: client.count(JobFilter("views", JobState.SUCCEEDED)) == 3, "all stored")
            until(lambda: client.count(JobFilter("views", JobState.FAILED)) == 1, "one refused")
        assert run("--count") == "/home 2\n/about 1\n"
