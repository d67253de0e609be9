"""`pinlater worker list` as a shell sees it, of workers that say who they are by any client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pinlater import Client, DequeueRequest
from pinlater.model import WorkerCommand, WorkerJob, WorkerReport
from pinlater.wire.codec import WireCall, encode_application_exception
from pinlater.wire.message import ApplicationErrorKind
from tests.server.commands import Shell
from tests.server.running import running
from tests.server.test_client_failures import framed, scripted
from tests.server.test_terminal_texts import EVIL, harmless

JOB = "mail:s1:p1:1790000000000001"
SHOP = WorkerReport(
    "a1",
    "shop",
    3_600_000,
    "host-1",
    4711,
    {"mail": 3, "images": 1},
    8,
    2,
    1,
    [WorkerJob(JOB, "send", 125_000), WorkerJob("images:s1:p1:1790000000000002", "crop", 1_000)],
    {"python": "3.11.2", "pinlater": "0.1.0", "app": "2026.11"},
)
IDLE = WorkerReport("a2", "office", 5_000, "host-2", 17, {"letters": 1}, 4, versions={"pinlater": "0.1.0"})


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("served")) as server:
        address = f"127.0.0.1:{server.port}"
        with Client(address) as client:
            client.create_queue("mail")
            client.dequeue(DequeueRequest("mail", 1, worker=SHOP))
            client.checkpoint("letters", [], worker=IDLE)
        yield address


@pytest.fixture
def shell(address: str, tmp_path: Path) -> Shell:
    return Shell(tmp_path, address)


def test_a_table_has_a_row_for_each_worker(shell: Shell) -> None:
    heading, office, shop = shell("worker", "list").out.splitlines()
    assert heading.split() == [
        *("NAME", "HOST", "PID", "QUEUES", "SLOTS", "LONGEST", "VERSION", "UP", "SEEN", "STATE"),
    ]
    assert office.split()[:7] == ["office", "host-2", "17", "letters", "0/4", "-", "0.1.0"]
    assert shop.split()[:6] == ["shop", "host-1", "4711", "mail=3,images", "2/8,", "1"]
    assert shop.split()[-1] == "working"
    assert "  2m" in shop
    assert "  2026.11  1h" in shop


def test_each_running_job_has_a_row_where_that_is_asked_for(shell: Shell) -> None:
    lines = shell("worker", "list", "--running").out.splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["NAME", "HOST", "PID"],
        ["office", "host-2", "17"],
        ["shop", "host-1", "4711"],
        ["shop", "host-1", "4711"],
    ]
    assert lines[2].split()[3:6] == ["mail", JOB, "send"]
    assert lines[2].split()[6].startswith("2m")


@pytest.mark.parametrize("option", [("--queue", "mail"), ("--name", "shop"), ("--queue", "images", "--name", "shop")])
def test_the_list_can_be_of_one_queue_or_name(shell: Shell, option: tuple[str, ...]) -> None:
    assert [each["name"] for each in json.loads(shell("worker", "list", *option, "-o", "json").out)] == ["shop"]


def test_json_has_everything(shell: Shell) -> None:
    (found,) = [json.loads(line) for line in shell("worker", "list", "--name", "shop", "-o", "jsonl").out.splitlines()]
    assert {
        key: found[key] for key in ("id", "slots", "busy_slots", "stuck_slots", "queues", "versions", "is_stopping")
    } == {
        "id": "a1",
        "slots": 8,
        "busy_slots": 2,
        "stuck_slots": 1,
        "queues": {"mail": 3, "images": 1},
        "versions": SHOP.versions,
        "is_stopping": False,
    }
    assert [(job["job_descriptor"], job["job_type"]) for job in found["running"]] == [
        (JOB, "send"),
        ("images:s1:p1:1790000000000002", "crop"),
    ]
    assert found["seen_ms"] - found["started_ms"] == 3_600_000
    assert found["seen_ms"] - found["longest_since_ms"] == found["seen_ms"] - found["running"][0]["since_ms"] == 125_000


def test_a_long_list_is_read_whole_and_no_workers_are_an_empty_table(shell: Shell, address: str) -> None:
    with Client(address) as client:
        for number in range(600):
            report = WorkerReport(f"m{number}", "many", 1, pid=number, queues={"crowd": 1}, slots=1)
            client.checkpoint("crowd", [], worker=report)
        found = json.loads(shell("worker", "list", "--name", "many", "-o", "json").out)
        assert [each["pid"] for each in found] == list(range(600))
        for number in range(600):
            client.checkpoint("crowd", [], worker=WorkerReport(f"m{number}", "many", 2, has_stopped=True))
    none = shell("worker", "list", "--name", "many")
    assert (none.out, none.err) == ("", "pinlater: no such worker reported in the last minute\n")
    assert shell("worker", "list", "--name", "many", "-o", "json").out == "[]\n"


def test_what_workers_say_does_nothing_to_a_terminal(shell: Shell, address: str) -> None:
    report = WorkerReport(
        "evil", EVIL, 1, EVIL, 1, {EVIL: 2}, 1, 1, running=[WorkerJob(EVIL, EVIL, 1)], versions={"app": EVIL}
    )
    with Client(address) as client:
        client.checkpoint("mail", [], worker=report)
        for options in ((), ("--running",), ("-o", "json"), ("-o", "jsonl")):
            out = shell("worker", "list", *options).out
            assert harmless(out)
            assert "gpj.exe" in out
        report.up_ms, report.has_stopped = 2, True
        client.checkpoint("mail", [], worker=report)


async def test_a_server_of_before_is_told_apart(tmp_path: Path) -> None:
    def older(call: WireCall) -> bytes:
        kind = ApplicationErrorKind.UNKNOWN_METHOD
        return framed(encode_application_exception(call.name, call.seqid, kind, f"there is no method {call.name!r}"))

    async with scripted(older) as (address, _):
        told = await asyncio.to_thread(Shell(tmp_path, address), "worker", "list", code=1)
    assert told.err.splitlines() == [
        "pinlater: UNKNOWN_METHOD: this server is of an earlier version, which keeps no list of workers"
    ]


def test_workers_are_commanded_by_name_host_and_app(shell: Shell, address: str) -> None:
    with Client(address) as client:
        for number in (1, 2):
            report = WorkerReport(
                f"c{number}", "print", 1_000, "host-9", number, {"mail": 1}, 1, is_quiet=False if number == 1 else None
            )
            client.heartbeat("mail", [], worker=report)
        assert rows(shell("worker", "quiet", "host-9:1", "nobody:7", code=5).out) == [
            ["print", "host-9", "1", "taken", "c1"],
            ["-", "-", "-", "not", "known", "nobody:7"],
        ]
        answers = client.heartbeat("mail", [], worker=replace(report, id="c1", pid=1, up_ms=2_000, is_quiet=True))
        assert answers.command is not None
        assert answers.command.command is WorkerCommand.QUIET
        assert [row for row in rows(shell("worker", "list", "--name", "print").out) if row[-1] == "quiet"]
        assert rows(shell("worker", "stop", "--host", "host-9", "--app", "print", code=5).out) == [
            ["print", "host-9", "1", "taken", "c1"],
            ["print", "host-9", "2", "too", "old", "c2"],
        ]
        (found,) = json.loads(shell("worker", "resume", "c1", "-o", "json").out)
        assert (found["outcome"], found["name"]) == ("taken", "print")
        assert "no such worker" in shell("worker", "quiet", "--host", "nowhere").err
        for wrong in ([], ["c1", "--all"], ["c1", "--host", "h"]):
            shell("worker", "quiet", *wrong, code=2)
        for number in (1, 2):
            client.heartbeat("mail", [], worker=replace(report, id=f"c{number}", up_ms=9_000, has_stopped=True))


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()[1:]]
