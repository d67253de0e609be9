"""What the many hosts of one deploy do at the same moment, over two servers of two processes and two shards."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pinlater import Client
from pinlater.model import ScheduleChange
from pinlater_workers import App
from tests.cluster.conftest import PASSWORD, TwoServers

pytestmark = [pytest.mark.slow]
HOSTS = 16
SETTINGS = {
    "max_jobs_per_second": "100",
    "claim_timeout": "90s",
    "succeeded_ttl": "2h",
    "failed_ttl": "3h",
    "max_attempts": "9",
    "max_body": "1000",
    "max_pending": "1000",
    "max_in_progress": "50",
}


def at_once(cluster: TwoServers, call: Callable[[Client, int], object]) -> None:
    """By each host with a client of its own, from one moment on. Each must end well."""
    begin = threading.Barrier(HOSTS)

    def host(number: int) -> None:
        with Client(cluster.addresses[number % 2], timeout=60.0) as client:
            client.queue_names()
            begin.wait(60)
            call(client, number)

    with ThreadPoolExecutor(HOSTS) as threads:
        list(threads.map(host, range(HOSTS)))


def test_queues_settings_and_schedules_of_many_hosts(cluster: TwoServers) -> None:
    at_once(cluster, lambda client, _: client.create_queue("deployed"))
    at_once(cluster, lambda client, _: client.update_queue("deployed", PASSWORD, set=SETTINGS))
    at_once(cluster, lambda client, _: client.update_queue("deployed_too", PASSWORD, set=SETTINGS, create=True))
    change = ScheduleChange(name="deployed", queue="deployed", cron="*/5 * * * *", body=b"x", timezone="Europe/Berlin")
    at_once(cluster, lambda client, _: client.update_schedule(change, PASSWORD))
    # what no two of them have in common
    at_once(
        cluster, lambda client, host: client.update_queue("deployed", PASSWORD, set={"max_attempts": str(host + 1)})
    )
    at_once(cluster, lambda client, host: client.create_queue(f"deployed_{host}"))
    # each a setting of its own, of one queue: none undoes another's
    own = [{key: value} for key, value in SETTINGS.items()]
    at_once(cluster, lambda client, host: client.update_queue("deployed_1", PASSWORD, set=own[host % len(own)]))
    with cluster.client() as client:
        first, other, of_hosts = client.get_queues(["deployed", "deployed_too", "deployed_1"])
        assert {key: other.settings[key].value for key in SETTINGS} == {
            key: first.settings[key].value if key != "max_attempts" else "9" for key in SETTINGS
        }
        assert {key: of_hosts.settings[key].value for key in SETTINGS} == {
            key: other.settings[key].value for key in SETTINGS
        }
        assert [view.schedule.cron for view in client.get_schedules(queue="deployed").schedules] == ["*/5 * * * *"]
        assert {f"deployed_{host}" for host in range(HOSTS)} <= client.queue_names()
        for name in ("deployed_too", *(f"deployed_{host}" for host in range(HOSTS))):
            client.delete_queue(name, PASSWORD)
    at_once(cluster, lambda client, _: client.delete_schedule("deployed", PASSWORD))
    at_once(cluster, lambda client, _: client.delete_queue("deployed", PASSWORD))


def test_producers_that_come_before_anybody_has_created_their_queue(cluster: TwoServers) -> None:
    apps = [App(servers=[cluster.addresses[host % 2]], create_queues=True) for host in range(HOSTS)]
    with ThreadPoolExecutor(HOSTS) as threads:
        handles = list(threads.map(lambda app: app.job(queue="early")(print).enqueue(), apps))
    with cluster.client() as client:
        assert len(client.lookup(handles)) == HOSTS
        client.delete_queue("early", PASSWORD)
    for app in apps:
        app.close()


APP = """
from pinlater_workers import App
app = App()
for number in range(6):
    app.job(name=f"deployed_{number}", queue="deployed", cron=EXPRESSION)(lambda: None)
"""


def test_schedules_that_many_hosts_apply(cluster: TwoServers, tmp_path: Path) -> None:
    """All of them, then all of them anew, and then none."""
    with cluster.client() as client:
        client.create_queue("deployed")
        for app, expected in (
            (APP.replace("EXPRESSION", "'0 3 * * *'"), {"0 3 * * *"}),
            (APP.replace("EXPRESSION", "'0 4 * * *'"), {"0 4 * * *"}),
            ("from pinlater_workers import App\napp = App()\n", set()),
        ):
            (tmp_path / "deployed_app.py").write_text(app)
            begun = [apply(cluster, tmp_path, host) for host in range(4)]
            for process in begun:
                output, _ = process.communicate(timeout=500)
                assert process.returncode == 0, output
            views = client.get_schedules(made_by="deploy").schedules
            assert {view.schedule.cron for view in views} == expected
            assert len(views) == (6 if expected else 0)
        client.delete_queue("deployed", PASSWORD)


def apply(cluster: TwoServers, folder: Path, host: int) -> subprocess.Popen[str]:
    words = ("schedules", "--app", "deployed_app:app", "--server", cluster.addresses[host % 2], "--made-by", "deploy")
    return subprocess.Popen(
        [sys.executable, "-c", "from pinlater_workers.cli import main; main()", *words, "--apply"],
        cwd=folder,
        env={**os.environ, "PINLATER_ADMIN_PASSWORD": PASSWORD},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
