"""Whatever a server is given as a secret, and however it is written: it is told to nobody, by no way out."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pinlater import Client, DequeueRequest, Job, JobFilter, JobState, PinLaterError
from pinlater.data_folder.password import hash_password
from tests.server.planted import LIVE, MISTAKEN, REFUSED, Marks, Search, family, toml
from tests.server.running import BY_EXEC, RunningServer, running
from tests.stores.process import StoreServer, free_port

PASSWORD = "open sesame"
DOWN = "127.0.0.1:1"
PAGES = ("/", "/readyz", "/livez", "/metrics", "/none")
COMMANDS = (
    ("check",),
    ("check", "--crit", "shards-out=0"),
    ("cluster", "status"),
    ("cluster", "status", "-o", "json"),
    ("shard", "list", "-o", "jsonl"),
    ("shard", "health"),
    ("top", "--once"),
    ("audit", "-o", "jsonl"),
    ("queue", "list"),
    ("queue", "create", "letters"),
    ("queue", "show", "letters"),
    ("queue", "stats", "letters"),
    ("queue", "pause", "letters"),
    ("queue", "delete", "letters", "--yes"),
    ("job", "enqueue", "letters", "x"),
    ("job", "scan", "letters", "--state", "pending"),
    ("job", "get", "letters:s1:p1:1790000000000000"),
)


@pytest.fixture
def marks() -> Marks:
    return Marks()


def places(folder: Path, urls: list[str]) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """The same stores by flags, in the environment, and in a file in two ways: arguments and variables."""
    yield "flags", [f"--store={url}" for url in urls], {}
    yield "variable", [], {"PINLATER_STORE": ",".join(urls)}
    for name, text in (("tables", toml(urls)), ("list", f"store = [{', '.join(map(repr, urls))}]\n")):
        file = folder / f"{name}.toml"
        file.write_text(text)
        yield name, ["--config", str(file)], {}


def test_a_start_with_mistakes_tells_no_secret(tmp_path: Path, marks: Marks) -> None:
    search = Search(marks)
    for place, arguments, variables in places(tmp_path, marks.urls(MISTAKEN)):
        for more in ((), ("--print-config",)):
            ended = search.command("serve", *more, *arguments, folder=tmp_path, variables=variables)
            assert ended.returncode == 2, (place, ended)
            assert ended.stderr.count("pinlater: store") >= len(MISTAKEN) - 1, (place, ended.stderr)
    file = tmp_path / "other.toml"
    keys = ("password", "admin-password", "admin-password-hash", "stores", "http", "statsd", "data-dir")
    file.write_text("".join(f'{key} = "u:{marks.new(key)}@h"\n' for key in keys) + "[[store]]\n")
    with file.open("a") as more_text:
        more_text.write(f'url = "redis://h/0"\npassword = "{marks.new("a key of a store")}"\n')
    assert search.command("serve", "--config", str(file), folder=tmp_path).returncode == 2
    assert search.leaks() == []


@pytest.mark.parametrize("what", REFUSED)
def test_a_start_that_is_refused_tells_no_secret(tmp_path: Path, marks: Marks, what: str) -> None:
    search = Search(marks)
    (url,) = marks.urls({what: REFUSED[what]}, DOWN)
    for level in ("--log-format=human", "--log-format=json"):
        ended = search.command("serve", "--port=0", "--http=none", level, f"--store=1={url}", folder=tmp_path)
        assert ended.returncode in (1, 2), ended
        assert "cannot start" in ended.stderr or "pinlater: store" in ended.stderr, ended
    assert search.leaks() == []


def test_secrets_are_printed_where_they_are_asked_for_and_only_there(tmp_path: Path, marks: Marks) -> None:
    hashed = hash_password(PASSWORD)
    search = Search(marks, {hashed: "hash", hashed.split(":")[-1]: "key of the hash"})
    file = tmp_path / "all.toml"
    file.write_text(f'admin-password-hash = "{hashed}"\n' + toml(marks.urls(LIVE, DOWN)))
    search.command("serve", "--config", str(file), "--print-config", folder=tmp_path)
    assert search.leaks() == []
    shown = search.command("serve", "--config", str(file), "--print-config", "--show-secrets", folder=tmp_path)
    assert hashed in shown.stdout
    assert all(mark in shown.stdout for mark in marks.meant_for)
    assert len(search.leaks()) >= len(LIVE), "and the search finds what is there"


def ask_everything(search: Search, port: int) -> None:
    """Every call of the interface, of which most fail; whatever comes of it is searched."""
    with Client(f"127.0.0.1:{port}", timeout=1.0) as client:
        calls: list[Callable[[], object]] = [
            lambda: client.create_queue("mail"),
            lambda: client.queue_names(),
            lambda: client.enqueue("mail", [Job(b"body")]),
            lambda: client.enqueue("unknown", [Job(b"body")]),
            lambda: client.dequeue(DequeueRequest("mail", 10)),
            lambda: client.lookup(["mail:s2:p1:1790000000000000", "mail:s3:p1:1790000000000000"]),
            lambda: client.count(JobFilter("mail", JobState.PENDING)),
            lambda: client.cancel("mail", ["mail:s2:p1:1790000000000000"]),
            lambda: client.get_queues([]),
            lambda: client.update_queue("mail", PASSWORD, set={"paused": "true"}),
            lambda: client.update_queue("mail", "wrong", set={"paused": "true"}),
            lambda: client.update_shard("2", PASSWORD, dequeue_only=True),
            lambda: client.cluster_status(),
            lambda: client.audit(),
            lambda: client.delete_queue("mail", "wrong"),
            lambda: client.delete_queue("mail", PASSWORD),
        ]
        for number, call in enumerate(calls):
            try:
                search.text(f"answer of call {number}", call())
            except PinLaterError as error:
                search.error(f"error of call {number}", error)


def look_at_pages(search: Search, server: RunningServer) -> None:
    address = server.wait_for("http_ready")["address"].rstrip("/")
    for path in PAGES:
        try:
            with urllib.request.urlopen(address + path, timeout=60) as response:
                search.text(path, response.read(), response.headers)
        except urllib.error.HTTPError as error:
            with error:
                search.text(path, error.read(), error.headers)


def run_commands(search: Search, server: RunningServer, folder: Path) -> None:
    wrong = search.marks.new("the admin password of a command")
    for command in COMMANDS:
        variables = {"PINLATER_SERVER": f"127.0.0.1:{server.port}", "PINLATER_ADMIN_PASSWORD": PASSWORD}
        search.command(*command, "--timeout", "1s", folder=folder, variables=variables)
        if command[1:2] in (("pause",), ("delete",)):
            search.command(
                *command, "--timeout", "1s", folder=folder, variables={**variables, "PINLATER_ADMIN_PASSWORD": wrong}
            )


@contextlib.contextmanager
def configured(file: Path, config: str, urls: list[str], has_sqlite: bool, statsd: socket.socket) -> Iterator[None]:
    """The file of a server, which is not among those that are searched."""
    statsd.bind(("127.0.0.1", 0))
    config += f'statsd = "127.0.0.1:{statsd.getsockname()[1]}"\n'
    file.write_text(config + toml([*urls, *(["sqlite:///jobs.db"] if has_sqlite else [])]))
    yield
    file.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("has_sqlite", [True, False], ids=["one shard is in", "all shards are out"])
def test_a_server_whose_stores_are_away_tells_no_secret(
    tmp_path: Path, marks: Marks, redis_server: StoreServer, mysql_server: StoreServer, has_sqlite: bool
) -> None:
    urls = marks.urls(LIVE, DOWN)
    urls += marks.urls({"refused by redis": f"redis://:{{}}@127.0.0.1:{redis_server.port}/0"})
    urls += marks.urls({"refused by mysql": f"mysql+pymysql://nobody@127.0.0.1:{mysql_server.port}/db?password={{}}"})
    hashed = hash_password(PASSWORD)
    search = Search(marks, {hashed: "hash", hashed.split(":")[-1]: "key of the hash"})
    file = tmp_path / "server.toml"
    config = f'admin-password-hash = "{hashed}"\nlog-level = "debug"\noverflow = "10MiB"\n'
    config += f'health-pause = "1s"\nprocesses = {1 if has_sqlite else 2}\n'
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as statsd,
        configured(file, config, urls, has_sqlite, statsd),
        running(
            tmp_path, "--config", str(file), port=None, before=BY_EXEC, PINLATER_PORT="0", PINLATER_HTTP="127.0.0.1:0"
        ) as server,
    ):
        ask_everything(search, server.port)
        look_at_pages(search, server)
        run_commands(search, server, tmp_path)
        search.processes(family(server.process.pid))
        file.write_text(file.read_text() + "".join(f'[[store]]\nurl = "{url}"\n' for url in marks.urls(MISTAKEN)))
        server.send(signal.SIGHUP)
        server.wait_for("roll_refused")
        os.kill(family(server.process.pid)[-1], signal.SIGKILL)
        server.wait_for("worker_replaced")
        server.stop()
        search.text("log", *server.events)
        assert server.process.stdout is not None
        search.text("stdout", server.process.stdout.read())
        while select.select([statsd], [], [], 0)[0]:
            search.text("statsd", statsd.recv(65_536))
    search.files(tmp_path)
    assert search.leaks() == []
    assert {
        "/",
        "/readyz",
        "log",
        "statsd",
        "error of call 5",
        "/proc/PID/cmdline",
        "pinlater check",
    } <= search.looked_at.keys()


def test_a_password_on_the_command_line_is_warned_of_and_not_handed_on(tmp_path: Path, marks: Marks) -> None:
    search = Search(marks)
    (url,) = marks.urls({"flag": LIVE["mysql password="]}, DOWN)
    arguments = ("--store", f"1={url}", "--store", "2=sqlite:///jobs.db")
    with running(tmp_path, *arguments, before=BY_EXEC) as server:
        warning = server.wait_for("password_in_process_list")
        assert server.port
        _, *children = family(server.process.pid)
        assert children
        search.processes(children)
        server.stop()
        search.text("log", *server.events)
    assert "PINLATER_STORE" in warning["hint"]
    assert "--config" in warning["hint"]
    assert search.leaks() == []


@pytest.mark.parametrize("way", ["variable", "file"])
def test_a_password_that_is_not_on_the_command_line_is_no_reason_to_warn(
    tmp_path: Path, marks: Marks, way: str
) -> None:
    search = Search(marks)
    (url,) = marks.urls({"hidden": LIVE["redis user"]}, f"127.0.0.1:{free_port()}")
    stores = [f"1={url}", "2=sqlite:///jobs.db"]
    file = tmp_path / "stores.toml"
    file.write_text(f"store = {stores}\n")
    file.chmod(0o600)
    arguments = ("--config", "stores.toml") if way == "file" else ()
    variables = {} if way == "file" else {"PINLATER_STORE": ",".join(stores)}
    with running(tmp_path, *arguments, before=BY_EXEC, **variables) as server:
        assert server.port
        search.processes(family(server.process.pid))
        server.stop()
        warned = [event["event"] for event in server.events]
        assert not {"password_in_process_list", "secrets_readable"} & set(warned)
        search.text("log", *server.events)
    assert search.leaks() == []


def test_a_file_with_a_password_that_others_can_read_is_warned_of(tmp_path: Path, marks: Marks) -> None:
    search = Search(marks)
    (url,) = marks.urls({"hidden": LIVE["redis user"]}, f"127.0.0.1:{free_port()}")
    file = tmp_path / "stores.toml"
    file.write_text(f"store = {[f'1={url}', '2=sqlite:///jobs.db']}\n")
    file.chmod(0o644)
    with running(tmp_path, "--config", "stores.toml") as server:
        assert "chmod 600 stores.toml" in server.wait_for("secrets_readable")["hint"]
        assert server.port
        server.stop()
        search.text("log", *server.events)
    assert search.leaks() == []


@pytest.mark.parametrize(
    "address", ["rediss://127.0.0.1:1/0?ssl_keyfile={}", "mysql+pymysql://u@127.0.0.1:1/d?ssl_key={}"]
)
def test_the_key_for_a_store_that_others_can_read_is_refused(tmp_path: Path, address: str) -> None:
    key = tmp_path / "me.key"
    key.touch(0o644)
    key.chmod(0o644)
    with running(tmp_path, "--store", f"1={address.format(key)}") as server:
        assert server.ended() == 1
        assert f"chmod 600 {key}" in str(server.events)
