"""Commands that remove many jobs: what they say before, what they ask on a terminal, and that scripts go on as ever."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pinlater import Client, Job, JobFilter, JobState
from tests.server.commands import Shell
from tests.server.running import running
from tests.server.terminal import Terminal

ALL = ("--priority", "all", "--all")


@dataclass
class Queue:
    """A queue with 1,200 jobs of priority 1 and three of priority 2, on a server whose folder commands run in."""

    name: str
    client: Client
    folder: Path
    address: str

    def on_terminal(self, *arguments: str) -> Terminal:
        return Terminal(self.folder, self.address, *arguments)

    def in_script(self, *arguments: str, stdin: str = "") -> tuple[str, str]:
        """What is on standard output, and on standard error."""
        result = Shell(self.folder, self.address)(*arguments, stdin=stdin)
        return result.out, result.err

    @property
    def left(self) -> int:
        return self.client.count(JobFilter(self.name, JobState.PENDING))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("served")
    with running(folder) as server:
        yield folder, f"127.0.0.1:{server.port}"


@pytest.fixture
def queue(served: tuple[Path, str], request: pytest.FixtureRequest) -> Iterator[Queue]:
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)[-64:]
    with Client(served[1]) as client:
        client.create_queue(name)
        client.enqueue(name, [Job(b"news")] * 1_200)
        client.enqueue(name, [Job(b"letter", 2)] * 3)
        yield Queue(name, client, *served)


def test_a_terminal_is_told_how_many_jobs_of_what_before_they_are_deleted(queue: Queue) -> None:
    line = ("job", "delete", queue.name, "--state", "pending", *ALL)
    terminal = queue.on_terminal(*line)
    terminal.until(f"Delete 1,203 ready, scheduled or waiting jobs of queue {queue.name}, all priorities? [y/N]")
    terminal.type("n\n")
    assert terminal.ended() == 1
    assert "pinlater: nothing was deleted" in terminal.shown
    assert queue.left == 1_203

    terminal = queue.on_terminal(*line)
    terminal.until("[y/N]")
    terminal.type("y\n")
    assert terminal.ended() == 0
    assert terminal.shown.rstrip().endswith("1203")
    assert queue.left == 0


def test_no_more_jobs_are_removed_than_were_asked_about(queue: Queue) -> None:
    terminal = queue.on_terminal("job", "cancel", "--queue", queue.name, "--match", "letter", "--all")
    terminal.until(
        f"Cancel 3 ready, scheduled or waiting jobs of queue {queue.name}, all priorities, "
        "with a body that matches 'letter'?"
    )
    queue.client.enqueue(queue.name, [Job(b"letter")] * 2)
    terminal.type("y\n")
    assert terminal.ended() == 0
    assert queue.left == 1_202


def test_a_limit_is_asked_about_too_and_leaves_the_rest(queue: Queue) -> None:
    terminal = queue.on_terminal("job", "delete", queue.name, "--state", "pending", "--older-than", "1ms")
    terminal.until("created before 20")
    terminal.until(", and leave the rest? [y/N]")
    assert "Delete 1,000 ready, scheduled or waiting jobs" in terminal.shown
    terminal.type("y\n")
    assert terminal.ended() == 0
    assert queue.left == 203


def test_yes_asks_nothing_and_says_what_is_touched(queue: Queue) -> None:
    terminal = queue.on_terminal("job", "cancel", "--queue", queue.name, "--all", "--yes")
    assert terminal.ended() == 0
    assert (
        f"pinlater: cancelling all ready, scheduled or waiting jobs of queue {queue.name}, all priorities"
        in terminal.shown
    )
    assert "[y/N]" not in terminal.shown
    assert queue.left == 0


@pytest.mark.parametrize("extra", [[], ["--dry-run"]])
def test_nothing_is_asked_where_nothing_would_be_removed(queue: Queue, extra: list[str]) -> None:
    state = "pending" if extra else "failed"
    terminal = queue.on_terminal("job", "delete", queue.name, "--state", state, *ALL, *extra)
    assert terminal.ended() == 0
    assert "[y/N]" not in terminal.shown
    assert queue.left == 1_203


def test_a_script_is_asked_nothing_and_told_what_is_touched(queue: Queue) -> None:
    assert queue.in_script("job", "delete", queue.name, "--state", "pending", "--priority", "2") == (
        "3\n",
        f"pinlater: deleting at most 1,000 ready, scheduled or waiting jobs of queue {queue.name}, priority 2\n",
    )
    assert queue.in_script("job", "cancel", "--queue", queue.name, "--all", stdin="n\n") == (
        "1200\n",
        f"pinlater: cancelling all ready, scheduled or waiting jobs of queue {queue.name}, all priorities\n",
    )


def test_jobs_that_are_named_one_by_one_are_not_asked_about(queue: Queue) -> None:
    descriptor = queue.client.enqueue(queue.name, Job(b"x"))
    terminal = queue.on_terminal("job", "cancel", descriptor)
    assert terminal.ended() == 0
    assert "CANCELLED" in terminal.shown


def test_a_queue_is_deleted_with_a_word_on_what_it_holds(queue: Queue) -> None:
    counts = "1,203 ready or waiting, 0 scheduled, 0 running, 0 succeeded, 0 failed, cancelled or replayed"
    holds = f"pinlater: queue {queue.name} holds {counts}"
    terminal = queue.on_terminal("queue", "delete", queue.name)
    terminal.until(f"Delete queue '{queue.name}' and all its jobs? [y/N]")
    assert holds in terminal.shown
    terminal.type("n\n")
    assert terminal.ended() == 1
    assert queue.in_script("queue", "delete", queue.name, "--yes") == ("", holds + "\n")
    assert queue.name not in queue.client.queue_names()


def test_a_queue_that_does_not_exist_is_said_to_be_so_and_not_asked_about(queue: Queue) -> None:
    terminal = queue.on_terminal("queue", "delete", "nowhere")
    assert terminal.ended() == 0
    assert terminal.shown.strip() == "pinlater: queue nowhere does not exist"
