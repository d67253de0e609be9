"""Commands in scripts and services: standard streams that are closed, full or without a reader, and tiny terminals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

import pinlater_workers.cli
from pinlater import Client, Job, JobFilter, JobState
from pinlater.cli import main
from pinlater.data_folder.password import hash_password
from tests.server.command_lines import ARGUMENTS
from tests.server.running import PROGRAM, running
from tests.server.stream_cases import Case, Ended

PASSWORD = "correct horse"
FULL = "standard output failed: No space left on device; what had been done by then stays done"
RULES = """
[[rules]]
who = ["anonymous"]
may = ["enqueue"]
"""

REPEATABLE = ARGUMENTS | {
    "job enqueue": ["mail", "x"],
    "flow create": ["mails", "--stage", "send:mail"],
    "flow add": ["4f1c0b", "send", "1"],
    "queue drain": ["drained", "--no-wait"],
    "queue delete": ["gone", "--yes"],
    "shard drain": ["9"],
    "shard give-up": ["9", "--yes"],
    "schedule delete": ["gone", "--yes"],
    "schedule pause": ["gone"],
    "schedule resume": ["gone"],
    "token create": ["web", "--role", "producer", "--replace"],
    "token revoke": ["gone"],
    "check": [],
}
"""Command lines that may run any number of times."""

ALONE = {
    "completion": ["bash"],
    "admin hash-password": [],
    "serve": ["--print-config"],
    "api openapi": [],
    "access test": ["anonymous", "read", "--rules", "rules.toml"],
    "access check": ["rules.toml"],
    "history check": ["run.jsonl"],
    "history finish": ["run.jsonl", "--out", "finished.jsonl", "--force"],
    "history show": ["run.jsonl", "--call", "1"],
}
"""Of commands that ask no server."""

WORKER = {
    "jobs": ["--app", "shop:app"],
    "retry": ["exponential first=1s factor=2 cap=1h"],
    "schedules": ["--app", "shop:app"],
    "outbox schema": ["--dialect", "sqlite"],
    "outbox status": ["--database", "sqlite:///shop.db"],
    "outbox refused": ["--database", "sqlite:///shop.db"],
    "outbox retry": ["--database", "sqlite:///shop.db", "--all"],
}

ELSEWHERE = {"pinlater api", "pinlater dashboard", "pinlater-worker", "pinlater-worker outbox"} | {
    "pinlater export",
    "pinlater import",
    "pinlater mcp",
    "pinlater shard move",
    "pinlater-worker run-here",
}
"""They go on until they are stopped, or ask an HTTP interface: tests/server/test_program_life.py has them; or they take
stores by their addresses: tests/transfers has these; or run a job: tests/workers/test_start_up_live.py has that.
"""


def leaves(command: click.Command, path: str) -> Iterator[str]:
    """The commands that do something."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from leaves(found, f"{path} {name}")


LINES = {f"pinlater {name}": arguments for name, arguments in (REPEATABLE | ALONE).items()}
LINES |= {f"pinlater-worker {name}": arguments for name, arguments in WORKER.items()}
ALL = [*leaves(main, "pinlater"), *leaves(pinlater_workers.cli.main, "pinlater-worker")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("shop")
    (folder / "rules.toml").write_text(RULES)
    (folder / "run.jsonl").write_text(
        '{"pinlater_history": 1}\n'
        '{"call": 1, "by": "me", "at_ms": 1, "method": "createQueue", "args": {"name": "mail"}}\n'
        '{"call": 1, "at_ms": 2, "answer": null}\n'
    )
    (folder / "shop.py").write_text(
        "from pinlater_workers import App\n"
        "from pinlater_workers.outbox import Outbox\n"
        "app = App()\n"
        "@app.job(queue='mail', name='send')\n"
        "def send(to: str) -> None: ...\n"
        "import sqlite3\n"
        "Outbox(app).create_table(sqlite3.connect('shop.db'))\n"
    )
    return folder


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home: Path = tmp_path_factory.mktemp("served")
    with running(home, "--admin-password-hash", hash_password(PASSWORD)) as server:
        address = f"127.0.0.1:{server.port}"
        with Client(address) as client:
            for queue in ("mail", "drained", "once"):
                client.create_queue(queue)
            client.enqueue("mail", [Job(b"x" * 100, custom_status="y" * 200)] * 50)
        yield address


def run(folder: Path, address: str, cases: Sequence[Case], **variables: str) -> list[Ended]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}
    environment |= {"PINLATER_SERVER": address, "PINLATER_ADMIN_PASSWORD": PASSWORD, "HOME": str(folder)}
    environment |= {"PYTHONPATH": str(Path(__file__).parents[2])} | variables
    program = [sys.executable, "-m", "tests.server.stream_cases"]
    ended = subprocess.run(
        program, input=json.dumps(cases), cwd=folder, env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return [Ended(*each) for each in json.loads(ended.stdout)]


def test_every_command_is_here() -> None:
    assert set(ALL) - ELSEWHERE == LINES.keys()


CONDITIONS = {
    "usual": Case([]),
    "out closed": Case([], {"1": "closed"}),
    "out full": Case([], {"1": "full"}),
    "in and err closed": Case([], {"0": "closed", "2": "closed"}),
    "out and err broken": Case([], {"1": "broken", "2": "broken"}),
    "terminal of a column": Case([], {}, 1),
}
READS = {"pinlater admin hash-password"}
"""They need standard input."""

PARTS = 4
"""The table is tested in so many tests."""

VERDICTS = {"pinlater check"}
"""Their exit code is their answer."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_a_command_ends_by_what_it_did_and_by_its_output_alone(part: int, folder: Path, address: str) -> None:
    names = sorted(LINES)[part::PARTS]
    cases = {
        (name, condition): each._replace(line=[*name.split(), *LINES[name]])
        for name in names
        for condition, each in CONDITIONS.items()
        if not (each.columns and name in READS)
    }
    results = dict(zip(cases, run(folder, address, [*cases.values()]), strict=True))
    for name in names:
        ended = {condition: each for (of, condition), each in results.items() if of == name}
        usual = ended["usual"]
        assert not any("Traceback" in each.err + each.out for each in ended.values()), ended
        if name in READS:
            continue
        prints = bool(usual.out)
        expected = dict.fromkeys(CONDITIONS, usual.code)
        if prints and name not in VERDICTS:
            expected |= {"out full": 1, "out and err broken": 141}
        assert {condition: each.code for condition, each in ended.items()} == expected, (name, ended)
        assert bool(ended["in and err closed"].out) == prints
        if prints:
            assert ended["out full"].err.count(FULL) == (name not in VERDICTS)


HELP = [["pinlater", "--version"], ["pinlater-worker", "--version"], *[[*name.split(), "--help"] for name in ALL]]


@pytest.mark.parametrize(("condition", "code"), [("closed", 0), ("full", 1), ("broken", 141)])
def test_help_and_version_end_by_their_output(condition: str, code: int, folder: Path) -> None:
    results = run(folder, "", [Case(line, {"1": condition}) for line in HELP])
    assert {each.code for each in results} == {code}
    assert {each.err.partition(": ")[2] for each in results} == ({f"{FULL}\n"} if condition == "full" else {""})


def test_mistakes_keep_their_exit_code_where_nobody_hears_of_them(folder: Path) -> None:
    lines = (["pinlater", "nonsense"], ["pinlater", "job", "enqueue"], ["pinlater-worker", "--nonsense"])
    unreachable = ["pinlater", "queue", "list", "--server", "127.0.0.1:1"]
    for streams in ({"2": "closed"}, {"2": "full"}, {"2": "broken"}):
        results = run(folder, "", [*(Case(line, streams) for line in lines), Case(unreachable, streams)])
        assert [each.code for each in results] == [2, 2, 2, 3]


def test_words_are_completed_by_their_output(folder: Path) -> None:
    variables = {"_PINLATER_COMPLETE": "bash_complete", "COMP_WORDS": "pinlater ", "COMP_CWORD": "1"}
    cases = [Case(["pinlater"], streams) for streams in ({}, {"1": "closed"}, {"1": "full"}, {"1": "broken"})]
    assert [each.code for each in run(folder, "", cases, **variables)] == [0, 0, 1, 141]


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&- >&- 2>&-", "0<&- 1>&-"])
def test_a_job_is_stored_once_by_a_script_that_closes_streams(redirection: str, folder: Path, address: str) -> None:
    """In a process of its own, as Python begins without them."""
    with Client(address) as client:
        pending = JobFilter("once", JobState.PENDING)
        before = client.count(pending)
        line = f'"{PROGRAM}" job enqueue once x --server {address} {redirection}'
        ended = subprocess.run(["sh", "-c", line], capture_output=True, cwd=folder)
        assert (ended.returncode, b"Traceback" in ended.stderr) == (0, False)
        assert client.count(pending) == before + 1


def test_a_closed_standard_input_is_no_empty_one(folder: Path, address: str) -> None:
    line = f'"{PROGRAM}" job enqueue mail --server {address} <&-'
    ended = subprocess.run(["sh", "-c", line], capture_output=True, text=True, cwd=folder)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "pinlater: standard input failed: Bad file descriptor\n"


def test_what_is_printed_once_is_had_as_json(folder: Path, address: str) -> None:
    token = ["pinlater", "token", "create", "web", "--role", "producer", "--replace"]
    may = ["pinlater", "access", "test", "anonymous", "read", "--rules", "rules.toml"]
    plain, made, refused, allowed = run(
        folder,
        address,
        [
            Case(token),
            Case([*token, "-o", "json"]),
            Case([*token, "-o", "json", "--output", "web.token"]),
            Case([*may, "-o", "json"]),
        ],
    )
    assert plain.out.startswith("plt_")
    answer = json.loads(made.out)
    assert (answer["name"], answer["token"][:4], len(answer["token"])) == ("web", "plt_", len(plain.out.strip()))
    assert refused.code == 2
    assert "with the file nothing is printed" in refused.err
    assert (allowed.code, json.loads(allowed.out)["allowed"]) == (1, False)
    hashed = [PROGRAM, "admin", "hash-password", "-o", "json"]
    assert json.loads(subprocess.run(hashed, input=b"pw\n", capture_output=True).stdout)["hash"].startswith("scrypt:")
