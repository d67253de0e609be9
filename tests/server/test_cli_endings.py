"""How a command ends: exit codes, one clear line, Ctrl-C, a reader that goes away, and what a terminal shows."""

from __future__ import annotations

import importlib
import os
import pty
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from pinlater import Client, Job
from pinlater.cli import COMMANDS, main
from pinlater.password import hash_password
from tests.faults.proxy import Proxy
from tests.server.commands import Shell
from tests.server.running import PROGRAM, running
from tests.stores.process import free_port

PASSWORD = "correct horse"
WITHIN_S = 20.0
EACH_COMMAND = [
    *(["queue", name] for name in ("create", "list", "stats", "delete")),
    *(["job", name] for name in ("enqueue", "get", "scan", "count", "retry", "cancel", "delete")),
]
ARGUMENTS = {
    "create": ["mail"],
    "delete": ["mail", "--yes"],
    "enqueue": ["mail", "x"],
    "get": ["mail:s1:p1:1790000000000000"],
    "scan": ["mail", "--state", "failed"],
    "count": ["mail", "--state", "failed"],
    "retry": ["mail"],
    "cancel": ["mail:s1:p1:1790000000000000"],
}
JOB_DELETE = ["mail", "--state", "failed"]


def _line(command: list[str]) -> list[str]:
    return [*command, *(JOB_DELETE if command == ["job", "delete"] else ARGUMENTS.get(command[1], []))]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("served")
    with running(folder, "--admin-password-hash", hash_password(PASSWORD)) as server:
        address = f"127.0.0.1:{server.port}"
        with Client(address) as client:
            client.create_queue("mail")
            for _ in range(5):
                client.enqueue("mail", [Job(b"x" * 100, custom_status="y" * 200)] * 1_000)
        yield address


@pytest.fixture
def shell(address: str, tmp_path: Path) -> Shell:
    return Shell(tmp_path, address)


@pytest.mark.parametrize("command", EACH_COMMAND, ids=" ".join)
def test_every_command_has_help_with_examples(tmp_path: Path, command: list[str]) -> None:
    shown = Shell(tmp_path, "").__call__(*command, "--help").out
    assert f"pinlater {' '.join(command)}" in shown.split("Examples:")[1]
    assert "--server" in shown
    assert "--cluster" in shown
    assert "--timeout" in shown
    assert len(COMMANDS) >= 4


@pytest.mark.parametrize("command", EACH_COMMAND, ids=" ".join)
def test_a_server_that_cannot_be_reached_is_one_clear_line(tmp_path: Path, command: list[str]) -> None:
    address = f"127.0.0.1:{free_port()}"
    result = Shell(tmp_path, "")(*_line(command), "--server", address, stdin="password\n", code=3)
    assert re.fullmatch(rf"pinlater: .*{address}: Connect.*\n", result.err)
    assert result.out == ""


def test_all_servers_tried_are_named(tmp_path: Path) -> None:
    one, two = (f"127.0.0.1:{free_port()}" for _ in range(2))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "clusters.toml").write_text(f'[clusters]\nmail = ["{one}", "{two}"]\n')
    shell = Shell(tmp_path, "")
    for result in (
        shell("queue", "list", "--server", one, "--server", two, code=3),
        shell("queue", "list", PINLATER_SERVER=f"{one},{two}", code=3),
        shell("queue", "list", "--cluster", "mail", code=3),
        shell("queue", "list", PINLATER_CLUSTER="mail", code=3),
    ):
        assert one in result.err
        assert two in result.err


def test_a_server_that_does_not_answer_ends_at_the_timeout(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        begun_s = time.monotonic()
        assert "no answer within" in shell("queue", "list", "--timeout", "500ms", "--server", server, code=3).err
        assert time.monotonic() - begun_s < 5
        unknown = shell("job", "enqueue", "mail", "x", "--timeout", "500ms", "--server", server, code=4)
        assert "may have been carried out" in unknown.err


def test_ctrl_c_ends_a_command_that_waits(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        command = shell.start("queue", "list", "--server", server)
        silent.accept()[0].close()
        connection, _ = silent.accept()
        with connection:
            connection.recv(1)
            command.send_signal(signal.SIGINT)
            out, err = command.communicate(timeout=WITHIN_S)
    assert (command.returncode, out, err) == (130, b"", b"pinlater: interrupted\n")


def test_ctrl_c_while_a_command_is_loaded_ends_it_quietly(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(name: str) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["queue", "list"])
    assert ended.value.code == 130
    assert capfd.readouterr() == ("", "")


def test_ctrl_c_amid_many_jobs_says_how_many_are_stored(shell: Shell, address: str) -> None:
    with Proxy(int(address.rpartition(":")[2])) as proxy:
        command = shell.start("job", "enqueue", "mail", "--lines", "--server", f"127.0.0.1:{proxy.port}")
        assert command.stdin is not None
        assert command.stdout is not None
        command.stdin.write(b"line\n" * 1_001)
        command.stdin.flush()
        first = command.stdout.read(1)
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=WITHIN_S)
    assert command.returncode == 130
    assert len((first + out).split()) == 1_000
    assert err == b"pinlater: 1,000 jobs enqueued before that\npinlater: interrupted\n"


def test_a_full_disk_is_one_line(shell: Shell) -> None:
    with open("/dev/full", "w") as full, shell.start("queue", "list", stdout=full) as command:
        _, err = command.communicate(timeout=WITHIN_S)
    assert command.returncode == 1
    assert err == b"pinlater: standard input or output failed: No space left on device\n"


@pytest.mark.parametrize("format", ["table", "json", "jsonl"])
def test_a_reader_that_goes_away_is_no_error_message(shell: Shell, format: str) -> None:
    command = shell.start("job", "scan", "mail", "--state", "pending", "--all", "-o", format)
    assert command.stdout is not None
    assert command.stderr is not None
    command.stdout.readline()
    command.stdout.close()
    assert command.wait(WITHIN_S) == 141
    assert command.stderr.read() == b""
    command.stderr.close()
    assert command.stdin is not None
    command.stdin.close()


def test_a_status_cannot_forge_lines_or_move_the_cursor_of_a_table(shell: Shell, address: str) -> None:
    with Client(address) as client:
        client.create_queue("forged")
        client.enqueue("forged", Job(b"", custom_status="a\nb\x1b[2J"))
    out = shell("job", "scan", "forged", "--state", "pending").out
    assert r"a\nb\x1b[2J" in out
    assert len(out.splitlines()) == 2


# -- on a terminal -------------------------------------------------------------------------------------------------


class Terminal:
    """A command whose standard streams are a terminal."""

    def __init__(self, folder: Path, address: str, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        environment = {"PATH": os.environ["PATH"], "PINLATER_SERVER": address, "HOME": str(folder)}
        self._process = subprocess.Popen(
            [PROGRAM, *arguments], cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self.shown = ""

    def until(self, text: str) -> None:
        """Reads until `text` is shown."""
        deadline_s = time.monotonic() + WITHIN_S
        while text not in self.shown:
            assert time.monotonic() < deadline_s, self.shown
            assert self._read(), self.shown

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def ended(self) -> int:
        """Reads to the end; the exit code."""
        while self._read():
            pass
        os.close(self._ours)
        return self._process.wait(WITHIN_S)

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], WITHIN_S)[0]:
            return False
        try:
            data = os.read(self._ours, 65_536)
        except OSError:
            return False
        self.shown += data.decode()
        return bool(data)


def test_a_terminal_is_asked_for_confirmation_and_password(address: str, tmp_path: Path) -> None:
    with Client(address) as client:
        client.create_queue("asked")
        terminal = Terminal(tmp_path, address, "queue", "delete", "asked")
        terminal.until("Delete queue 'asked' and all its jobs? [y/N]")
        terminal.type("n\n")
        assert terminal.ended() == 1
        assert "nothing was deleted" in terminal.shown
        assert "asked" in client.queue_names()

        terminal = Terminal(tmp_path, address, "queue", "delete", "asked")
        terminal.until("[y/N]")
        terminal.type("y\n")
        terminal.until("Admin password")
        terminal.type(PASSWORD + "\n")
        assert terminal.ended() == 0
        assert PASSWORD not in terminal.shown
        assert "asked" not in client.queue_names()


def test_a_terminal_shows_how_far_many_jobs_have_come(address: str, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"line\n" * 3_000)
    terminal = Terminal(tmp_path, address, "job", "enqueue", "mail", "--lines", "--file", "lines", "-o", "jsonl")
    assert terminal.ended() == 0
    assert re.search(r"\r[1-3],000 jobs enqueued", terminal.shown)
    assert terminal.shown.count('"descriptor"') == 3_000


def test_a_terminal_without_a_body_is_told_what_to_do(address: str, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, address, "job", "enqueue", "mail")
    assert terminal.ended() == 2
    assert "no body" in terminal.shown
