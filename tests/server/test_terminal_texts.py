"""What strangers put into jobs, names and statuses does nothing to the terminal, or to the log, of who looks at it."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Client, DequeueRequest, Job
from pinlater.data_folder.password import hash_password
from pinlater.model import Ack, ScheduleChange
from tests.server.commands import Shell
from tests.server.running import running
from tests.server.terminal import Terminal

EVIL = "a\x1b[2J\x1b]0;title\x07b\rc\x9b31m\u202egpj.exe\u2066\u200b\x7f\x85\u2028z"
BODY = f"one\n\ttwo {EVIL} ü".encode()
PASSWORD = "secret"
NO_MORE = {"Cc", "Cf", "Zl", "Zp", "Cs"}


def harmless(shown: str) -> bool:
    """Beside the ends of lines, as a terminal has them."""
    return not NO_MORE & {unicodedata.category(each) for each in shown if each not in "\r\n\t"}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("served"), "--admin-password-hash", hash_password(PASSWORD)) as server:
        yield f"127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def descriptor(address: str) -> str:
    """Of a job that failed."""
    with Client(address) as client:
        client.create_queue("mail")
        (made,) = client.enqueue("mail", [Job(BODY, custom_status=EVIL, attempts_allowed=1)])
        client.dequeue(DequeueRequest("mail", 1))
        client.ack("mail", failed=[Ack(made, append_status=EVIL)])
    return made


@pytest.fixture
def shell(address: str, tmp_path: Path) -> Shell:
    return Shell(tmp_path, address)


@pytest.mark.parametrize("format", ["json", "jsonl"])
def test_json_is_harmless_and_equal_when_parsed(shell: Shell, descriptor: str, format: str) -> None:
    out = shell("job", "get", descriptor, "--body", "-o", format).out
    assert harmless(out)
    assert "ü" in out
    parsed = json.loads(out)
    row = parsed[0] if format == "json" else parsed
    assert row["body"].encode() == BODY
    assert row["custom_status"].startswith(EVIL)


def test_tables_and_errors_are_harmless(shell: Shell, descriptor: str) -> None:
    commands = [
        (("job", "get", descriptor), 0),
        (("job", "scan", "mail", "--state", "failed"), 0),
        (("job", "retry", "mail", "--dry-run"), 0),
        (("job", "get", f"mail:s1:p1:{EVIL}"), 5),
        (("queue", "create", EVIL), 2),
        (("job", "scan", "mail", "--state", EVIL), 2),
        (("queue", EVIL), 2),
        (("check", "--warn", EVIL), 3),
    ]
    for arguments, code in commands:
        result = shell(*arguments, code=code)
        assert harmless(result.out + result.err), arguments


@pytest.fixture(scope="module")
def made(address: str) -> str:
    """A schedule with such texts, made by a caller with such a name."""
    with Client(address, source=EVIL) as client:
        client.create_queue("reports")
        change = ScheduleChange(
            name="nightly", queue="reports", every_ms=60_000, made_by=EVIL, serialize_key=EVIL, body=BODY
        )
        client.update_schedule(change, PASSWORD)
    return "nightly"


@pytest.mark.parametrize("format", ["table", "json", "jsonl"])
@pytest.mark.parametrize(
    "command",
    [
        "schedule list",
        "schedule show nightly",
        "audit",
        "queue list",
        "queue show reports",
        "queue stats",
        "cluster status",
        "shard list",
        "worker list",
        "access show",
    ],
)
def test_what_operators_look_at_is_harmless(
    shell: Shell, descriptor: str, made: str, command: str, format: str
) -> None:
    result = shell(*command.split(), "-o", format)
    assert harmless(result.out + result.err)
    if command in ("schedule show nightly", "audit"):
        assert "[2J" in result.out, "it shows what was planted"


def test_a_body_in_a_pipe_is_its_bytes(shell: Shell, descriptor: str) -> None:
    for more in ((), ("--raw",)):
        result = shell("job", "get", descriptor, "--body", *more)
        assert (result.raw, result.err) == (BODY, "")


def test_a_body_on_a_terminal_is_escaped_and_said_to_be(address: str, descriptor: str, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, address, "job", "get", descriptor, "--body")
    assert terminal.ended() == 0
    assert harmless(terminal.shown)
    assert "one\r\n\ttwo a\\x1b[2J" in terminal.shown
    assert "--raw prints it as it is" in terminal.shown


def test_a_body_on_a_terminal_is_raw_where_that_is_asked_for(address: str, descriptor: str, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, address, "job", "get", descriptor, "--body", "--raw")
    assert terminal.ended() == 0
    assert terminal.shown == BODY.decode().replace("\n", "\r\n")


def test_raw_is_for_bodies_alone(shell: Shell, descriptor: str) -> None:
    assert "--raw is for --body" in shell("job", "get", descriptor, "--raw", code=2).err
