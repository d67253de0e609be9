"""What operators wait for and watch: draining to zero, changes in many slices, passwords, and a live picture."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pinlater import Ack, Client, DequeueRequest, Job
from tests.cluster.conftest import PASSWORD, WITHIN_S, Command, TwoServers, eventually
from tests.server.commands import Shell
from tests.server.terminal import Terminal

pytestmark = pytest.mark.store("redis")


@pytest.fixture(scope="module")
def client(cluster: TwoServers) -> Iterator[Client]:
    with cluster.client() as made:
        yield made


@pytest.fixture
def shell(cluster: TwoServers, tmp_path: Path) -> Shell:
    return Shell(tmp_path, ",".join(cluster.addresses))


@contextmanager
def working(cluster: TwoServers, queue: str) -> Iterator[None]:
    """A worker that does whatever comes."""
    stopped = threading.Event()

    def work() -> None:
        with cluster.client() as client:
            while not stopped.is_set():
                jobs = client.dequeue(DequeueRequest(queue, 100, wait_ms=100))
                client.ack(queue, succeeded=[Ack(job.descriptor) for job in jobs])

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        stopped.set()
        worker.join(WITHIN_S)


def draining(folder: Path, shell: Shell) -> Terminal:
    """`queue drain mail`, when it shows what is left."""
    terminal = Terminal(folder, shell.server, "queue", "drain", "mail")
    terminal.until("Admin password")
    terminal.type(PASSWORD + "\n")
    terminal.until("50 ready, 1 scheduled, 0 waiting, 0 running")
    return terminal


def test_a_drained_queue_refuses_jobs_and_ends_at_zero(
    cluster: TwoServers, client: Client, shell: Shell, tmp_path: Path
) -> None:
    client.create_queue("mail")
    client.enqueue("mail", [Job(b"x")] * 50)
    client.enqueue("mail", Job(b"later", run_after_ms=2**52))
    terminal = draining(tmp_path, shell)
    terminal.type("\x03")
    assert terminal.ended() == 130
    assert "queue mail is left draining" in terminal.shown

    terminal = draining(tmp_path, shell)
    assert shell("job", "cancel", "--queue", "mail", "--match", "^later$").out == "1\n"
    with working(cluster, "mail"):
        assert terminal.ended() == 0
    assert "queue mail is drained" in terminal.shown


def test_a_shard_is_drained_when_workers_have_emptied_it(cluster: TwoServers, client: Client, command: Command) -> None:
    client.create_queue("shards")
    for _ in range(10):
        client.enqueue("shards", [Job(b"x")] * 5)
    with working(cluster, "shards"):
        assert command("shard", "drain", "2").stderr.endswith("pinlater: shard 2 is drained\n")
    (row,) = [row for row in json.loads(command("shard", "list", "-o", "json").stdout) if row["id"] == "2"]
    assert (row["dequeue_only"], row["jobs"]) == (True, 0)
    command("shard", "drain", "2", "--undo")


def test_a_shard_that_does_not_become_empty_says_which_queue_holds_it_up(
    cluster: TwoServers, client: Client, shell: Shell, command: Command, tmp_path: Path
) -> None:
    client.create_queue("left")
    eventually(lambda: ":s2:" in client.enqueue("left", Job(b"x")))
    terminal = Terminal(tmp_path, shell.server, "shard", "drain", "2")
    terminal.until("Admin password")
    terminal.type(PASSWORD + "\n")
    terminal.until(" of left")
    terminal.type("\x03")
    assert terminal.ended() == 130
    command("shard", "drain", "2", "--undo")
    command("job", "cancel", "--queue", "left", "--all")


def test_a_change_of_many_jobs_goes_slice_by_slice_to_its_limit(client: Client, command: Command) -> None:
    client.create_queue("many")
    for _ in range(5):
        client.enqueue("many", [Job(b"x", 2)] * 500)
    dry = command("job", "delete", "many", "--state", "pending", "--priority", "all", "--dry-run")
    assert dry.stdout.splitlines()[0] == "1000"
    assert "more may match; --all counts them all" in dry.stderr
    assert command("job", "cancel", "--queue", "many", "--all", "--dry-run").stdout.splitlines()[0] == "2500"
    assert command("job", "delete", "many", "--state", "pending", "--all").stdout == "0\n"
    assert command("job", "cancel", "--queue", "many", "--limit", "1700").stdout == "1700\n"
    assert command("job", "delete", "many", "--state", "pending", "--priority", "2", "--all").stdout == "800\n"


def test_a_change_needs_the_password_once(command: Command) -> None:
    line = ["queue", "pause", "--defaults"]
    resume = ["queue", "resume", "--defaults"]
    assert "no admin password" in command(*line, code=2, PINLATER_ADMIN_PASSWORD=None).stderr
    assert "password" in command(*line, code=1, PINLATER_ADMIN_PASSWORD="wrong").stderr.lower()
    command(*line, stdin=PASSWORD + "\n", PINLATER_ADMIN_PASSWORD=None)
    command(*resume, stdin=PASSWORD + "\n", PINLATER_ADMIN_PASSWORD=None)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("queue set mail", "KEY=VALUE"),
        ("queue set mail max_attempts", "not KEY=VALUE"),
        ("queue set mail max_attempts=1 max_attempts=2", "twice"),
        ("queue set mail mood=good", "allowed"),
        ("queue unset", "NAME"),
        ("queue set-rate mail 1/s 2/s", "one RATE"),
        ("queue pause", "NAME"),
        ("queue pause mail --defaults", "not both"),
        ("queue pause mail --for 1h --until +1h", "not both"),
        ("queue pause mail --until 2020-01-01T00:00:00Z", "2020-01-01T00:00:00.000Z is over already"),
        ("queue set mail paused=true paused_until=5", "a time to come"),
        ("queue show mail --defaults", "not both"),
        ("queue replay mail --rate 0/s", "never end"),
        ("queue replay mail --rate fast", "no rate"),
        ("queue replay mail --state succeeded", "pending, failed"),
        ("job retry mail --priority none", "or all"),
        ("job cancel", "--queue"),
        ("job cancel mail:s1:p1:1790000000000000 --queue mail", "not both"),
        ("job cancel mail:s1:p1:1790000000000000 --match x", "need --queue"),
        ("job cancel --queue mail --match (", "RE2 pattern"),
    ],
)
def test_a_wrong_command_line_is_explained(client: Client, command: Command, line: str, says: str) -> None:
    client.create_queue("mail")
    assert says in command(*line.split(), code=2).stderr


def test_top_is_drawn_again_and_again_and_leaves_the_terminal_as_it_was(
    cluster: TwoServers, client: Client, tmp_path: Path
) -> None:
    client.create_queue("shown")
    for end in ("q", "\x03"):
        terminal = Terminal(tmp_path, ",".join(cluster.addresses), "top", "--interval", "100ms")
        terminal.until("shown ")
        terminal.shown = ""
        terminal.until("2/2 shards in")
        terminal.until("shown ")
        terminal.type(end)
        assert terminal.ended() == 0
        assert re.search(r"\x1b\[Hpinlater 127", terminal.shown)
        assert terminal.shown.endswith("\x1b[?25h\x1b[?1049l")
