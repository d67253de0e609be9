"""What `pinlater-worker` says before anything runs: mistakes and what to do about them, tables of delays and jobs."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from pinlater_workers import App
from pinlater_workers.app.settings import worker_settings
from pinlater_workers.cli import main
from pinlater_workers.cli.run import with_queues
from pinlater_workers.cli.sidecars import what_runs

BROKEN = """
def begin():
    return 1 / 0

begin()
"""
APP = """
from pinlater_workers import App
from pinlater_workers.jobs.retry import Constant, Never

app = App(servers=["127.0.0.1:1"])
empty = App(servers=["127.0.0.1:1"])
number = 5

@app.job(
    queue="mail", attempts=3, retry="linear step=10s", retry_on={KeyError: Never()}, time_limit="90s", pool="process"
)
def send(to: str) -> None: ...

@app.job(queue="reports", priority=3, encoding="msgpack")
async def report() -> None: ...
"""


@pytest.fixture(autouse=True)
def _as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with an app, and nothing left of what the command sets up for its process."""
    root = logging.getLogger()
    handlers, level, path, environment = root.handlers[:], root.level, sys.path[:], dict(os.environ)
    levels = {name: logging.getLogger(name).level for name in ("asyncio", "aiohttp.access")}
    (tmp_path / "cli_shop.py").write_text(APP, encoding="utf-8")
    (tmp_path / "cli_broken.py").write_text(BROKEN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    yield
    root.handlers[:], sys.path[:] = handlers, path
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
    for name in [name for name in sys.modules if name.startswith("cli_")]:
        del sys.modules[name]
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    timers = [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
    assert not timers, "the process would be ended soon"


def answer(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no app: give --app MODULE:NAME, or --config FILE"),
        (("--app", "cli_shop"), "allowed: MODULE:NAME"),
        (("--app", "cli_nowhere:app"), "importing cli_nowhere failed"),
        (("--app", "cli_shop:shop"), "cli_shop has no shop"),
        (("--app", "cli_shop:ap"), "cli_shop has no ap (did you mean app?)"),
        (("--app", "cli_shop:number"), "is 'cli_shop:number', a int; allowed: an App"),
        (("--app", "cli_shop:empty"), "the app has no jobs: decorate a function with @app.job(queue=...)"),
        (("--app", "cli_shop:app", "--config", "jobs.toml"), "both --app and --config are given"),
        (("--config", "nowhere.toml"), "nowhere.toml cannot be read: No such file or directory"),
        (("--app", "cli_shop:app", "--queues", "mail=0"), "the command line: queues is 'mail=0'"),
        (("--app", "cli_shop:app", "--concurrency", "0"), "concurrency is 0; allowed: 1 to 10000"),
        (("--app", "cli_shop:app", "--queues", ""), "queues is '': it names no queue; left out, it means all"),
        (("--app", "cli_shop:app", "--lease", "soon"), "lease is 'soon'; allowed: 3s to 1d"),
        (("--app", "cli_shop:app", "--lease", "2"), "lease is '2'; allowed: 3s to 1d"),
        (("--app", "cli_shop:app", "--pool", "fibers"), "allowed: thread, process or async"),
        (("--app", "cli_shop:app", "--http", "9012"), "allowed: HOST:PORT"),
        (("--app", "cli_shop:app", "--server", "a:b:c:d"), "a:b:c:d"),
        (("--app", "cli_shop:app", "--cluster", "nowhere"), "clusters.toml"),
        (("jobs", "--app", "cli_nowhere:app"), "importing cli_nowhere failed"),
        (("retry", "exponential"), "it needs first=...\n"),
        (("retry", "os:getcwd"), "the policy fails for an example, Exception: TypeError"),
        (("retry", "never", "--app", "cli_shop:app"), "--app and --config want --job NAME"),
        (("retry", "--app", "cli_shop:app", "--job", "sent"), "there is no job 'sent'; `pinlater-worker jobs` lists"),
    ],
)
def test_a_mistake_is_said_with_what_is_right(arguments: tuple[str, ...], said: str) -> None:
    done = answer(*arguments)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_queue_without_jobs_is_named_with_the_one_that_may_be_meant(caplog: pytest.LogCaptureFixture) -> None:
    app = App(servers=["127.0.0.1:1"])
    app.job(queue="thumbnails")(print_nothing)
    with_queues(app, worker_settings({"queues": ["thumbnials", "thumbnails"]}, "a test"))
    assert "queue thumbnials (did you mean thumbnails?): what comes there will be requeued" in caplog.text


def print_nothing() -> None: ...


def test_the_end_says_what_becomes_of_jobs_that_run() -> None:
    assert what_runs(0, 30.0) == ""
    assert what_runs(2, 30.0) == "; 2 run and have 30 s to end, a second SIGTERM hurries"
    assert what_runs(2, 0.0) == "; 2 run and are requeued"


def test_an_app_that_fails_when_it_is_imported_shows_the_end_of_its_traceback() -> None:
    done = answer("--app", "cli_broken:app")
    assert done.exit_code == 2
    assert "line 3, in begin\n    return 1 / 0" in done.stderr
    assert done.stderr.rstrip().split("\n")[-1].startswith("pinlater-worker: --app is 'cli_broken:app': importing")


def test_the_delays_of_a_policy_are_a_table() -> None:
    done = answer("retry", "exponential first=1s factor=3 retries=3 jitter=0.2")
    assert done.exit_code == 0
    assert done.stdout.split("\n") == [
        "ATTEMPT  COMES AFTER  ALL WAITS",
        "      1  -            -",
        "      2  1s           1s",
        "      3  3s           4s",
        "      4  9s           13s",
        "4 attempts; each wait is up to 20% shorter or longer",
        "",
    ]


def test_without_a_policy_it_is_the_default_one() -> None:
    lines = answer("retry").stdout.split("\n")
    assert lines[6] == "      6  50s          2m30s"
    assert lines[12] == "11 attempts; each wait is up to 10% shorter or longer"


def test_the_policies_of_a_job_are_shown_with_those_for_its_exceptions() -> None:
    lines = answer("retry", "--app", "cli_shop:app", "--job", "send").stdout.split("\n")
    assert lines[3] == "      3  20s          30s"
    assert lines[4].startswith("3 attempts;")
    assert lines[6] == "for KeyError:"
    assert lines[9] == "1 attempt, no retry"


def test_the_jobs_of_an_app_are_a_table_of_what_counts() -> None:
    rows = [line.split("  ") for line in answer("jobs", "--app", "cli_shop:app").stdout.rstrip().split("\n")]
    cells = [[cell.strip() for cell in row if cell] for row in rows]
    assert cells[0] == ["JOB", "QUEUE", "ATTEMPTS", "RETRY", "LIMIT", "PRIORITY", "POOL", "ENCODING", "BATCH"]
    assert cells[1] == ["report", "reports", "11", "default", "1h", "3", "event loop", "msgpack", "-"]
    assert cells[2] == ["send", "mail", "3", "linear step=10s; KeyError: never", "1m30s", "1", "process", "json", "-"]


def test_help_has_examples_and_the_exit_codes() -> None:
    for arguments in (["--help"], ["jobs", "--help"], ["retry", "--help"]):
        assert "Examples:" in answer(*arguments).stdout
    assert "Exit codes:" in answer("--help").stdout
    assert "[default: 30s]" in answer("--help").stdout
    assert all(option.help for option in main.params if isinstance(option, click.Option))
