"""`pinlater-worker outbox` as an operator runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Client, Job
from pinlater_workers.outbox.schema import DIALECTS
from tests.server.running import running
from tests.stores.process import free_port
from tests.workers.command import PROGRAM, WITHIN_S, working
from tests.workers.outbox_stand import OutboxPlace, Shop, until

APP = """
from pinlater_workers import App
from pinlater_workers.outbox import Outbox

app = App(servers=["{server}"])
outbox = Outbox(app)


@app.job(queue="mail")
def send(to: str) -> None:
    print("sent to", to)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("server")) as found:
        address = f"127.0.0.1:{found.port}"
        with Client(address) as client:
            client.create_queue("mail")
        yield address


@pytest.fixture
def place(tmp_path: Path) -> OutboxPlace:
    place = OutboxPlace(f"sqlite:///{tmp_path}/shop.db")
    with place.engine.begin() as connection:
        Shop().outbox.create_table(connection)
    return place


def outbox(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}
    return subprocess.run(
        [PROGRAM, "outbox", *arguments],
        cwd=folder,
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S * 3,
    )


def write(place: OutboxPlace, queue: str, *bodies: bytes, priority: int = 1) -> None:
    with place.engine.begin() as connection:
        Shop().outbox.enqueue_jobs(connection, queue, [Job(body, priority) for body in bodies])


def test_a_relay_hands_over_until_it_is_stopped(server: str, place: OutboxPlace, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP.format(server=server))
    port = free_port()
    with working(
        tmp_path, "outbox", "--database", place.url, "--app", "shop:app", "--http", f"127.0.0.1:{port}"
    ) as relay:
        relay.wait_for("from table pinlater_outbox in sqlite:///")
        write(place, "mail", b"PINLATER/1 application/json\n" + json.dumps({"job": "send", "args": ["ada"]}).encode())
        until(lambda: place.waiting() == 0, "it is handed over")
        write(place, "mail", b"one", b"two", priority=99)
        relay.wait_for("set aside")
        until(lambda: place.waiting("pinlater_outbox_refused") == 2, "they are set aside")
        address = f"http://127.0.0.1:{port}/metrics"
        page = ""

        def both_are_counted() -> bool:
            """They are, once they have been set aside."""
            nonlocal page
            page = urllib.request.urlopen(address, timeout=WITHIN_S).read().decode()
            return "pinlater_outbox_refused_total 2.0" in page

        until(both_are_counted, "they are counted")
        relay.send(signal.SIGTERM)
        assert relay.ended() == 0
        relay.wait_for("ended; 1 jobs handed over")
    values = dict(re.findall(r"^(pinlater_outbox_\S+) (\S+)$", page, re.MULTILINE))
    assert values["pinlater_outbox_handed_over_total"] == "1.0"
    assert values['pinlater_outbox_refused_jobs{queue="mail"}'] == "2.0"
    assert values["pinlater_outbox_away"] == "0.0"
    with working(tmp_path, "--app", "shop:app") as worker:
        worker.wait_for("sent to ada")


def test_once_hands_over_what_is_there_and_ends(server: str, place: OutboxPlace, tmp_path: Path) -> None:
    write(place, "mail", b"1", b"2", b"3")
    file = tmp_path / "shop.url"
    file.write_text(f"{place.url}\n")
    file.chmod(0o644)
    refused = outbox(tmp_path, "status", "--database-file", "shop.url")
    assert (refused.returncode, "chmod 600 shop.url" in refused.stderr) == (2, True)
    file.chmod(0o600)
    for flags, variables in (
        (["--database-file", "shop.url"], {}),
        ([], {"PINLATER_OUTBOX_DATABASE_FILE": "shop.url"}),
    ):
        assert outbox(tmp_path, "status", *flags, **variables).returncode == 0
    for url in ("mysql+pymysql://shop:geheim@127.0.0.1:1/shop", "mysql+pymysql://shop@127.0.0.1:1/?password=geheim"):
        said = outbox(tmp_path, "status", "--database", url).stderr
        assert "say --database-file FILE" in said
        assert "geheim" not in said
    said = outbox(tmp_path, "status", "--database", "mysql+pymysql://shop@127.0.0.1:1/shop?charset=utf8mb4").stderr
    assert "--database-file" not in said
    done = outbox(tmp_path, "--once", "--server", server, PINLATER_OUTBOX_DATABASE=place.url)
    assert (done.returncode, done.stdout, place.waiting()) == (0, "3 jobs handed over\n", 0)


def test_what_stands_before_the_command_counts_too(server: str, place: OutboxPlace, tmp_path: Path) -> None:
    write(place, "mail", b"1")
    command = [PROGRAM, "--log-level", "debug", "--server", server, "outbox", "--once", "--database", place.url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN_S * 3)
    assert (done.returncode, done.stdout) == (0, "1 jobs handed over\n")
    assert "handed over 1 jobs" in done.stderr


def test_a_worker_does_not_import_what_outboxes_need() -> None:
    code = "import sys, pinlater_workers.cli; print([name for name in sys.modules if 'outbox' in name])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=WITHIN_S * 3
    )
    assert done.stdout == "[]\n"


def test_once_fails_with_a_line_where_no_server_is(place: OutboxPlace, tmp_path: Path) -> None:
    write(place, "mail", b"1")
    done = outbox(tmp_path, "--once", "--server", f"127.0.0.1:{free_port()}", "--database", place.url)
    assert (done.returncode, done.stdout, place.waiting()) == (1, "", 1)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("pinlater-worker: ")]
    assert "127.0.0.1" in line


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_schema_is_printed(dialect: str, tmp_path: Path) -> None:
    done = outbox(tmp_path, "schema", "--dialect", dialect, "--table", "shop_outbox")
    assert (done.returncode, done.stdout.count("CREATE TABLE IF NOT EXISTS shop_outbox")) == (0, 3)
    if dialect == "sqlite":
        with sqlite3.connect(tmp_path / "new.db") as connection:
            connection.executescript(done.stdout)
            assert connection.execute("SELECT COUNT(*) FROM shop_outbox_refused").fetchone() == (0,)
        connection.close()


def test_status_refused_and_retry_tell_and_mend(server: str, place: OutboxPlace, tmp_path: Path) -> None:
    where = ["--database", place.url]
    empty = outbox(tmp_path, "status", *where)
    assert "no relay was ever here" in empty.stdout
    write(place, "mail", b"good")
    write(place, "mail", b"bad", b"worse", priority=99)
    write(place, "nobody", b"early")
    waiting = json.loads(outbox(tmp_path, "status", "-o", "json", *where).stdout)
    assert [(each["queue"], each["waiting"]) for each in waiting["queues"]] == [("mail", 3), ("nobody", 1)]
    assert outbox(tmp_path, "--once", "--server", server, *where).returncode == 0
    told = outbox(tmp_path, "status", *where).stdout
    assert re.search(r"^mail +0 +- +2$", told, re.MULTILINE), told
    assert re.search(r"^nobody +1 +\S+ +0$", told, re.MULTILINE), told
    assert "1 jobs handed over in all" in told
    listed = outbox(tmp_path, "refused", *where).stdout
    assert listed.count("priority") == 2
    found = json.loads(outbox(tmp_path, "refused", "-o", "json", "--queue", "mail", *where).stdout)
    assert [(job["queue"], job["job"], job["size"]) for job in found] == [("mail", "-", 3), ("mail", "-", 5)]
    assert len({job["key"] for job in found}) == 2
    assert outbox(tmp_path, "retry", *where, str(found[0]["id"])).stdout == "1 jobs wait again\n"
    assert outbox(tmp_path, "retry", *where, "--queue", "nobody").stdout == "0 jobs wait again\n"
    assert outbox(tmp_path, "retry", *where, "--all").stdout == "1 jobs wait again\n"
    assert (place.waiting(), place.waiting("pinlater_outbox_refused")) == (3, 0)
    wrong = outbox(tmp_path, "retry", *where)
    assert (wrong.returncode, "give IDs, --queue QUEUE or --all" in wrong.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["status"], 2, "no database: give --database-file FILE or --database URL, or set PINLATER_OUTBOX_DATABASE"),
        (["status", "--database", "nonsense"], 2, "allowed: as in postgresql+psycopg://"),
        (
            ["status", "--database", "sqlite:///{folder}/empty.db"],
            1,
            "`pinlater-worker outbox schema` prints the tables",
        ),
        (["--database", "sqlite:///{folder}/empty.db", "--poll", "soon"], 2, "'soon' is no duration"),
        (["--database", "sqlite:///{folder}/empty.db", "--cluster", "nobody"], 2, "clusters.toml"),
        (["--database", "sqlite:///{folder}/empty.db", "--http", "nowhere"], 2, "allowed: HOST:PORT"),
        (["--database", "django:default"], 2, "DJANGO_SETTINGS_MODULE"),
        (["schema", "--dialect", "sqlite", "--table", "a b"], 2, "allowed: 1 to 40 letters"),
        (["--database", "sqlite:///{folder}/empty.db", "--batch", "0"], 2, "1<=x<=10000"),
    ],
)
def test_what_is_wrong_is_a_line_that_says_what_to_do(
    arguments: list[str], code: int, says: str, tmp_path: Path
) -> None:
    done = outbox(tmp_path, *[each.format(folder=tmp_path) for each in arguments])
    assert done.returncode == code, done.stderr
    assert says in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_a_password_in_a_url_is_in_no_line(tmp_path: Path, server: str) -> None:
    url = f"mysql+pymysql://shop:very-secret@127.0.0.1:{free_port()}/shop"
    done = outbox(tmp_path, "--once", "--server", server, PINLATER_OUTBOX_DATABASE=url)
    assert done.returncode == 1
    assert "very-secret" not in done.stdout + done.stderr
    with working(tmp_path, "outbox", "--server", server, "--database", url) as relay:
        relay.wait_for("cannot be used")
        relay.send(signal.SIGTERM)
        assert relay.ended() == 0
    assert "very-secret" not in "".join(relay.lines)
