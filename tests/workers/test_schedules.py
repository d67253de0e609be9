"""The schedules of jobs: how they are declared, how they fire in tests, and how they come to a cluster."""

from __future__ import annotations

import asyncio
import logging
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pinlater import AsyncClient, Client
from pinlater.data_folder.password import hash_password
from pinlater.model import Misfire, ScheduleChange
from pinlater_workers import App, testing
from pinlater_workers.cli import main
from pinlater_workers.cli.applied_schedules import tend_schedules
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.jobs.job_schedule import schedule_of
from tests.server.running import RunningServer, running
from tests.workers.command import until, working


def test_a_job_says_its_schedule() -> None:
    app = App()

    @app.job(queue="reports", cron="0 3 * * *", timezone="Europe/Berlin", misfire="skip", attempts=5, jitter="30s")
    def nightly(day: str = "yesterday") -> None: ...

    @app.job(queue="feeds", every="10m", serialize="all")
    def poll() -> None: ...

    @app.job(queue="feeds")
    def plain() -> None: ...

    found = schedule_of(nightly, "shop")
    assert found is not None
    assert (found.name, found.queue, found.cron, found.timezone) == ("nightly", "reports", "0 3 * * *", "Europe/Berlin")
    assert (found.misfire, found.attempts_allowed, found.jitter_ms, found.made_by) == (Misfire.SKIP, 5, 30_000, "shop")
    assert found.body == nightly.body()
    other = schedule_of(poll)
    assert other is not None
    assert (other.cron, other.every_ms, other.serialize_key) == ("", 600_000, "all")
    assert schedule_of(plain) is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cron": "61 * * * *"}, "Bad minute"),
        ({"cron": "* * *"}, "five fields"),
        ({"cron": "0 3 * * *", "timezone": "Europe/Berln"}, "the name of a time zone"),
        ({"cron": "0 3 * * *", "timezone": "localtime"}, "the name of a time zone"),
        ({"cron": "0 3 * * *", "every": "10m"}, "one of them"),
        ({"every": "10ms"}, "1s"),
        ({"timezone": "UTC"}, "goes with cron or every"),
        ({"every": "1m", "misfire": "perhaps"}, "skip, run_once or run_all"),
    ],
)
def test_what_is_no_schedule_is_refused_where_it_stands(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        App().job(queue="reports", **options)(lambda: None)


def test_a_job_that_wants_arguments_can_have_no_schedule() -> None:
    app = App()

    @app.job(queue="reports", every="1m")
    def greedy(what: str) -> None: ...

    with pytest.raises(ConfigurationError, match="cannot be called without arguments"):
        schedule_of(greedy)


def test_schedules_fire_as_the_virtual_clock_goes_on() -> None:
    app = App()
    hours: list[int] = []

    @app.job(queue="reports", cron="0 */6 * * *")
    def quarter() -> None:
        hours.append(datetime.fromtimestamp(app.clock.now_ms() / 1000, UTC).hour)

    @app.job(queue="reports", every="8h")
    def often() -> None: ...

    with testing.in_memory(app) as jobs:
        jobs.run_all()
        assert jobs.runs == []
        jobs.run_for(86_400)
        assert sorted(hours) == [0, 6, 12, 18]
        assert len(jobs.of(often)) == 3
        jobs.clock.advance(86_400)
        jobs.run_all()
        assert len(jobs.of(quarter)) == 8
        assert len(jobs.of(often)) == 6
        assert jobs.pending == []


# -- pinlater-worker schedules

PASSWORD = "secret"
APP = """
from pinlater_workers import App
app = App()

@app.job(queue="reports", cron="0 3 * * *", timezone="Europe/Berlin")
def nightly(): ...

@app.job(queue="reports", every="10m")
def poll(): ...
"""


@pytest.fixture
def server(tmp_path: Path) -> Any:
    with running(tmp_path, "--admin-password-hash", hash_password(PASSWORD)) as found:
        yield found


def said(folder: Path, server: RunningServer, source: str, *more: str, code: int = 0) -> Result:
    name = f"app_{abs(hash(source))}"
    (folder / f"{name}.py").write_text(source)
    words = ["schedules", "--app", f"{name}:app", "--server", f"127.0.0.1:{server.port}", "--made-by", "shop", *more]
    result = CliRunner().invoke(main, words, env={"PINLATER_ADMIN_PASSWORD": PASSWORD})
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_the_cluster_gets_what_the_app_says_and_keeps_what_others_made(
    tmp_path: Path, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with Client(servers=[f"127.0.0.1:{server.port}"]) as client:
        client.create_queue("reports")
        client.update_schedule(ScheduleChange(name="by_hand", queue="reports", every_ms=60_000), PASSWORD)

        def names() -> dict[str, str]:
            return {each.schedule.name: each.schedule.made_by for each in client.get_schedules().schedules}

        shown = said(tmp_path, server, APP).stdout
        assert "+ nightly  queue reports, at 0 3 * * * Europe/Berlin" in shown
        assert "+ poll  queue reports, every 10m" in shown
        assert names() == {"by_hand": ""}, "nothing is changed without --apply"

        assert "applied: 2 set, 0 removed" in said(tmp_path, server, APP, "--apply").stdout
        assert names() == {"by_hand": "", "nightly": "shop", "poll": "shop"}
        assert "no difference in 2 schedules" in said(tmp_path, server, APP, "--apply").stdout

        client.update_schedule(ScheduleChange(name="nightly", paused=True), PASSWORD)
        later = APP.replace("0 3 * * *", "0 4 * * *").replace("poll", "by_hand")
        changed = said(tmp_path, server, later, "--apply", code=1)
        assert "~ nightly  cron: 0 3 * * * -> 0 4 * * *" in changed.stdout
        assert "- poll" in changed.stdout
        assert "by_hand was made by an operator" in changed.stderr
        assert names() == {"by_hand": "", "nightly": "shop"}
        (view,) = client.get_schedules(["nightly"]).schedules
        assert (view.schedule.cron, view.schedule.paused) == ("0 4 * * *", True)

        evil = "shop\x1b[2J\nno difference in 2 schedules"
        client.update_schedule(ScheduleChange(name="by_hand", made_by=evil), PASSWORD)
        taken = said(tmp_path, server, later, code=1)
        assert r"by_hand was made by shop\x1b[2J\nno difference" in taken.stderr
        client.update_schedule(ScheduleChange(name="nightly", serialize_key="\x1b[2J"), PASSWORD)
        differs = said(tmp_path, server, later, code=1)
        assert r"serialize_key: \x1b[2j -> none" in differs.stdout


def test_the_password_of_a_server_on_this_machine_is_found_in_its_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "found_app.py").write_text(APP)
    with running(tmp_path) as server, Client(servers=[f"127.0.0.1:{server.port}"]) as client:
        client.create_queue("reports")
        words = ["schedules", "--app", "found_app:app", "--server", f"127.0.0.1:{server.port}", "--apply"]
        refused = CliRunner().invoke(main, words)
        assert refused.exit_code == 2
        assert "nor on standard input" in refused.stderr
        applied = CliRunner().invoke(main, [*words, "--data", str(tmp_path / "pinlater-data")])
        assert "applied: 2 set, 0 removed" in applied.stdout, applied.output


# -- the start of a worker


def app_of(server: RunningServer, every: str = "10m") -> App:
    app = App(servers=[f"127.0.0.1:{server.port}"])

    @app.job(queue="reports", cron="0 3 * * *")
    def nightly() -> None: ...

    @app.job(queue="reports", every=every)
    def poll() -> None: ...

    return app


async def tend(app: App, *, apply: bool = False) -> None:
    await tend_schedules(app, "--app shop:app", apply=apply)
    await app.close_async()


async def test_a_worker_says_which_schedules_the_cluster_lacks_and_applies_them_where_it_is_told(
    server: RunningServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("PINLATER_ADMIN_PASSWORD", PASSWORD)
    async with AsyncClient(servers=[f"127.0.0.1:{server.port}"]) as client:
        await client.create_queue("reports")
        await tend(app_of(server))
        (said,) = caplog.messages
        assert "not in effect, so the cluster does not enqueue their jobs as declared: nightly, poll. " in said
        assert "pinlater-worker schedules --app shop:app --apply, or start workers with --apply-schedules" in said
        assert (await client.get_schedules()).schedules == []
        await asyncio.gather(*(tend(app_of(server), apply=True) for _ in range(4)))
        assert {each.schedule.made_by for each in (await client.get_schedules()).schedules} == {"shop:app"}
        caplog.clear()
        await tend(app_of(server))
        assert caplog.messages == []
        await tend(app_of(server, every="20m"))
        assert "as declared: poll. " in caplog.messages[0]
        await client.update_schedule(ScheduleChange(name="poll", made_by="another"), PASSWORD)
        caplog.clear()
        await tend(app_of(server))
        assert caplog.messages == [], "who made it is no matter where it does what the app says"
        await tend(app_of(server), apply=True)
        assert caplog.messages[0].startswith("schedule poll was made by another, and is left alone; ")


def test_a_worker_without_a_password_says_so_and_runs_jobs_until_it_is_begun_with_one(
    tmp_path: Path, server: RunningServer
) -> None:
    (tmp_path / "shop.py").write_text(f"{APP}\n@app.job(queue='reports')\ndef now(): print('it ran')\n")
    words = ("--app", "shop:app", "--server", f"127.0.0.1:{server.port}", "--create-queues", "--apply-schedules")
    with Client(servers=[f"127.0.0.1:{server.port}"]) as client:
        with working(tmp_path, *words) as worker:
            refused = worker.event("not applied yet")
            assert refused["level"] == "error"
            assert "no admin password: neither in a file (" in refused["message"]
            until(lambda: "reports" in client.queue_names(), "a queue that the worker creates")
            client.enqueue("reports", b'PINLATER/1 application/json\n{"job":"now","args":[],"kwargs":{}}')
            worker.wait_for("it ran")
            worker.send(signal.SIGTERM)
            assert worker.ended() == 0
        assert client.get_schedules().schedules == []
        with working(tmp_path, *words, before=["env", f"PINLATER_ADMIN_PASSWORD={PASSWORD}"]) as worker:
            worker.wait_for("applied: 2 set, 0 removed")
            assert {each.schedule.name for each in client.get_schedules().schedules} == {"nightly", "poll"}
