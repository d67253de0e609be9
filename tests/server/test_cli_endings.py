"""How a command ends: exit codes, one clear line, Ctrl-C, a reader that goes away, and what a terminal shows."""

from __future__ import annotations

import importlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import click
import pytest
from click.testing import CliRunner

from pinlater import Client, Job
from pinlater.cli import COMMANDS, OF_THE_SERVER, main
from pinlater.cli.exit_codes import EXIT_UNREACHABLE
from pinlater.data_folder.password import hash_password
from tests.faults.proxy import Proxy
from tests.server.command_lines import ARGUMENTS
from tests.server.commands import Shell
from tests.server.running import running
from tests.server.terminal import Terminal
from tests.speed import slower
from tests.stores.process import free_port

PASSWORD = "correct horse"
WITHIN_S = 60.0


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


@pytest.mark.parametrize("command", [*ARGUMENTS, "check"])
def test_every_command_has_help_with_examples(command: str) -> None:
    shown = CliRunner().invoke(main, [*command.split(), "--help"])
    assert shown.exit_code == 0
    assert f"pinlater {command}" in shown.output.split("Examples:")[1]
    assert "--server" in shown.output
    assert "--cluster" in shown.output
    assert "--timeout" in shown.output


@pytest.mark.parametrize("group", sorted({name.split()[0] for name in ARGUMENTS if " " in name} | {"admin"}))
def test_the_summary_of_every_command_fits_into_its_line(group: str) -> None:
    shown = CliRunner().invoke(main, [group, "--help"]).output
    assert "..." not in shown.split("Commands:")[1].split("Examples:")[0]


def test_every_command_is_tested_here() -> None:
    without_a_server = {
        "serve",
        "api",
        "admin",
        "completion",
        "dashboard",  # of the HTTP interface: tests/dashboard/test_entry.py
        "export",  # of stores: tests/transfers
        "history",  # of files: test_history.py
        "import",
        "mcp",  # its tools say it: test_cli_mcp.py
    }
    found = {"check"}
    for name in COMMANDS.keys() - without_a_server:
        command = main.get_command(click.Context(main), name)
        is_group = isinstance(command, click.Group)
        found |= {f"{name} {each}" for each in command.list_commands(click.Context(command))} if is_group else {name}
    assert found - {"access check", "access test", "shard move"} == {*ARGUMENTS, "check"}


@pytest.mark.parametrize("command", ARGUMENTS)
def test_a_server_that_cannot_be_reached_is_one_clear_line(command: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    line = [*command.split(), *ARGUMENTS[command], "--server", address]
    result = CliRunner().invoke(main, line, input="password\n", env={"PINLATER_ADMIN_PASSWORD": None})
    assert result.exit_code == 3
    assert re.fullmatch(rf"pinlater: .*{address}: Connection refused; is it running\? .*\n", result.stderr)
    assert result.stdout == ""


def test_a_check_without_a_server_knows_nothing() -> None:
    address = f"127.0.0.1:{free_port()}"
    result = CliRunner().invoke(main, ["check", "--server", address])
    assert (result.exit_code, result.stderr) == (3, "")
    assert re.fullmatch(rf"PINLATER UNKNOWN - .*{address}: Connect.*\n", result.stdout)
    wrong = CliRunner().invoke(main, ["check", "--server", address, "--warn", "mood=3"])
    assert (wrong.exit_code, wrong.stdout[:18]) == (3, "PINLATER UNKNOWN -")
    assert CliRunner().invoke(main, ["check", "--nonsense"]).exit_code == 3


def test_the_command_is_a_module_too(tmp_path: Path) -> None:
    """For who has not put its folder on the PATH."""
    for module, name in (("pinlater", "pinlater"), ("pinlater_workers", "pinlater-worker")):
        done = subprocess.run(
            [sys.executable, "-m", module, "--nonsense"], capture_output=True, text=True, cwd=tmp_path
        )
        assert (done.returncode, f"Usage: {name} " in done.stderr) == (2, True), done.stderr


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    done = Shell(tmp_path, "")("token", "create", "a", "--role", "viewer", "--output", "nowhere/a.token", code=1)
    assert "nowhere/a.token: No such file or directory" in done.err


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
        assert time.monotonic() - begun_s < slower(time.monotonic) * 5
        unknown = shell("job", "enqueue", "mail", "x", "--timeout", "500ms", "--server", server, code=4)
        assert "may have been carried out" in unknown.err
        keyed = ("job", "enqueue", "mail", "x", "--dedupe-key", "k", "--timeout", "500ms", "--server", server)
        assert "no answer to enqueueJobs" in shell(*keyed, code=3).err


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
    assert err == b"pinlater: standard output failed: No space left on device; what had been done by then stays done\n"


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


def test_a_port_that_is_not_pinlaters_is_said_to_be_none(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        answering = threading.Thread(target=answer)
        answering.start()
        told = Shell(tmp_path, address)("queue", "list", code=1).err
        answering.join()
    assert told.startswith(f"pinlater: {address} is no port of a PinLater server: it speaks HTTP; ")


def test_a_status_cannot_forge_lines_or_move_the_cursor_of_a_table(shell: Shell, address: str) -> None:
    with Client(address) as client:
        client.create_queue("forged")
        client.enqueue("forged", Job(b"", custom_status="a\rb\x1b[2J"))
    out = shell("job", "scan", "forged", "--state", "pending").out
    assert r"... b\x1b[2J" in out
    assert len(out.splitlines()) == 2


# -- on a terminal -------------------------------------------------------------------------------------------------


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


def test_what_talks_to_a_server_needs_nothing_that_only_a_server_needs() -> None:
    names = sorted(COMMANDS.keys() - {"serve", "api", "export", "import"})
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({OF_THE_SERVER!r})); "
        "from pinlater.cli import main; import click; "
        f"[main.get_command(click.Context(main), name) for name in {names!r}]"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("command", [["job", "wait", "mail:s1:p1:1790000000000000"], ["flow", "wait", "f" * 32]])
def test_the_timeout_of_what_waits_bounds_the_connection_too(command: list[str]) -> None:
    """To a server that is silent; where nothing is said calls have ten seconds."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        result = CliRunner().invoke(main, [*command, "--timeout", "1s", "--server", address])
    assert result.exit_code == EXIT_UNREACHABLE
    waited = re.search(r"no answer within ([0-9.]+) s", result.output)
    assert waited is not None, result.output
    assert float(waited[1]) <= 1.0
