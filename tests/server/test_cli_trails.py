"""What a job went through, as the command line and clients see it: its attempts and what was logged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import (
    Ack,
    AttemptOutcome,
    Client,
    DequeueRequest,
    Heartbeat,
    Job,
    JobProgress,
    JobState,
    LogLine,
    ReportingAck,
)
from pinlater.model import RequestContext
from tests.server.commands import Shell
from tests.server.running import running


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("served")) as server:
        yield f"127.0.0.1:{server.port}"


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address) as made:
        yield made


@pytest.fixture
def shell(address: str, tmp_path: Path) -> Shell:
    return Shell(tmp_path, address)


def test_the_attempts_of_a_job_are_shown_with_their_workers(client: Client, shell: Shell) -> None:
    client.create_queue("tried")
    made, other = client.enqueue("tried", [Job(b"x", 1, attempts_allowed=6), Job(b"y", 2)])
    for worker in ("web-1:47", "web-2:11"):
        client.dequeue(DequeueRequest("tried", 1), context=RequestContext(worker))
        client.ack("tried", failed=[Ack(made, "no\n", permanent=worker == "web-2:11")])
    attempts = client.lookup([made], include_trail=True)[made].attempts
    assert attempts is not None
    assert [(each.number, each.outcome, each.worker) for each in attempts] == [
        (1, AttemptOutcome.FAILED, "web-1:47"),
        (2, AttemptOutcome.FAILED, "web-2:11"),
    ]
    assert client.lookup([made])[made].attempts is None
    page = shell("job", "get", made).out
    assert "attempts       2 of 6\n" in page
    rows = [line.split() for line in page.splitlines() if line.endswith(("web-1:47", "web-2:11"))]
    assert [(row[0], row[-2], row[-1]) for row in rows[-2:]] == [
        ("1", "failed", "web-1:47"),
        ("2", "failed", "web-2:11"),
    ]
    (info,) = json.loads(shell("job", "get", made, "--trail", "-o", "json").out)
    assert [each["worker"] for each in info["attempts"]] == ["web-1:47", "web-2:11"]
    assert "attempts" not in json.loads(shell("job", "get", made, "-o", "jsonl").out)
    assert shell("job", "get", made, other, "--trail", code=2).err


def test_a_log_is_shown_and_followed_until_its_job_has_ended(client: Client, shell: Shell) -> None:
    client.create_queue("logs")
    (made,) = client.enqueue("logs", [Job(b"x")])
    (job,) = client.dequeue(DequeueRequest("logs", 1))
    nothing_yet = shell("job", "log", made)
    assert (nothing_yet.out, "it has logged nothing" in nothing_yet.err) == ("", True)
    client.heartbeat("logs", [Heartbeat(made, job.claim_descriptor, log_lines=[LogLine("begun\x1b[2J", 1)])])
    assert shell("job", "log", made).out == "1970-01-01T00:00:00.001Z   1  begun\\x1b[2J\n"
    with shell.start("job", "log", made, "--follow", "-o", "jsonl") as followed:
        assert followed.stdout is not None
        assert json.loads(followed.stdout.readline())["text"] == "begun\x1b[2J"
        said = JobProgress(1.0, "all")
        client.ack(
            "logs", [ReportingAck(made, "", 0, job.claim_descriptor, progress=said, log_lines=[LogLine("over")])]
        )
        assert [json.loads(line)["text"] for line in followed.stdout] == ["over"]
        assert followed.wait(timeout=60) == 0
    info = client.lookup([made], include_trail=True)[made]
    assert info.progress is not None
    assert info.progress[:2] == (1.0, "all")
    assert [(line.text, line.attempt) for line in info.log_lines or ()] == [("begun\x1b[2J", 1), ("over", 1)]
    assert "  1  over\n" in shell("job", "get", made).out
    for nothing in ("logs:s1:p1:1790000000000000", "nonsense"):
        assert "not found" in shell("job", "log", nothing, code=5).err


def test_a_report_that_names_no_claim_or_another_one_is_not_kept(client: Client) -> None:
    client.create_queue("fenced")
    (made,) = client.enqueue("fenced", [Job(b"x")])
    client.dequeue(DequeueRequest("fenced", 1))
    said = {"progress": JobProgress(0.5, "half"), "log_lines": [LogLine("mine")]}
    client.ack("fenced", failed=[ReportingAck(made, "", 0, "web:1:1:1:other", **said)])
    client.ack("fenced", failed=[ReportingAck(made, **said)])
    info = client.lookup([made], include_trail=True)[made]
    assert (info.state, info.progress, list(info.log_lines or ())) == (JobState.PENDING, None, [])
