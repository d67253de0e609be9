"""How tables look on a terminal and in a pipe: colours, times, and options that stand before the command."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Ack, Client, DequeueRequest, Job
from tests.server.commands import Shell
from tests.server.running import running
from tests.server.terminal import Terminal

RED, BOLD = "\x1b[31m", "\x1b[1m"
ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{12}Z")
SCAN = ("job", "scan", "mail", "--state", "failed")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with one job that failed."""
    with running(tmp_path_factory.mktemp("served")) as server:
        address = f"127.0.0.1:{server.port}"
        with Client(address) as client:
            client.create_queue("mail")
            client.enqueue("mail", [Job(b"")])
            (job,) = client.dequeue(DequeueRequest("mail", 1))
            client.ack("mail", failed=[Ack(job.descriptor, permanent=True)])
        yield address


@pytest.fixture
def shell(address: str, tmp_path: Path) -> Shell:
    return Shell(tmp_path, address)


def on_terminal(folder: Path, address: str, *arguments: str, **variables: str) -> str:
    terminal = Terminal(folder, address, *arguments, columns=200, **variables)
    assert terminal.ended() == 0
    return terminal.shown


def test_a_pipe_gets_whole_times_and_no_colour_unless_they_are_asked_for(shell: Shell) -> None:
    plain = shell(*SCAN).out
    assert len(ISO.findall(plain)) == 2
    assert "\x1b" not in plain
    asked = shell(*SCAN, "--time", "age", "--color", "always").out
    assert not ISO.search(asked)
    assert re.search(r"now|[0-9]+s ago", asked)
    assert f"{RED}failed" in asked
    (job,) = [
        json.loads(line) for line in shell(*SCAN, "-o", "jsonl", "--time", "age", "--color", "always").out.splitlines()
    ]
    assert isinstance(job["updated_at_ms"], int)


def test_a_terminal_gets_ages_and_colours_unless_they_are_not_wanted(address: str, tmp_path: Path) -> None:
    shown = on_terminal(tmp_path, address, *SCAN)
    assert f"{RED}failed" in shown
    assert f"{BOLD}DESCRIPTOR" in shown
    assert not ISO.search(shown)
    assert "\x1b" not in on_terminal(tmp_path, address, *SCAN, NO_COLOR="1")
    assert "\x1b" not in on_terminal(tmp_path, address, *SCAN, TERM="dumb")
    assert "\x1b" not in on_terminal(tmp_path, address, *SCAN, "--color", "never")
    assert len(ISO.findall(on_terminal(tmp_path, address, *SCAN, "--time", "iso"))) == 2


def test_colours_make_no_column_wider(shell: Shell) -> None:
    plain = shell(*SCAN).out
    assert re.sub(r"\x1b\[[0-9;]*m", "", shell(*SCAN, "--color", "always").out) == plain


@pytest.mark.parametrize("place", range(3))
def test_options_may_stand_before_the_command(address: str, tmp_path: Path, place: int) -> None:
    words = ["queue", "stats", "mail"]
    line = [*words[:place], "--server", address, "--output=json", *words[place:]]
    shown = Shell(tmp_path, "127.0.0.1:1")(*line).out
    assert json.loads(shown)[0]["failed"] == 1


def test_an_option_that_the_command_lacks_is_refused_there(shell: Shell) -> None:
    assert "No such option '--server'" in shell("--server", "127.0.0.1:1", "completion", "bash", code=2).err
    assert "No such option '--match'" in shell("--match", "x", "queue", "list", code=2).err
