"""A team records a run in which its server is killed, and `pinlater history` judges what callers were answered."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from pinlater import Client, JobFilter, JobState
from pinlater.cli import main
from pinlater.history.history_files import files_in
from tests.faults.operated import Operated
from tests.server.commands import Shell
from tests.workers.command import until, working

pytestmark = [pytest.mark.slow]
JOBS = 300
KILLED_AT = 100
BY_HAND = "reports"
"""A queue, and the caller of its calls: its claims end by their time-out alone, since no connection holds them."""

PROGRAM = f"""\
from pinlater import PinLaterError
from pinlater_workers import App

app = App()


@app.job(queue="mail", attempts=3, retry="constant delay=50ms retries=2")
def send(number: int) -> int:
    if number % 10 == 0:
        raise ValueError(number)
    return number


if __name__ == "__main__":
    for number in range({JOBS}):
        try:
            send.enqueue(number)
        except PinLaterError:
            pass  # the server was killed meanwhile; it may be stored
"""
Line = dict[str, Any]


class Run(NamedTuple):
    """A run that was recorded and finished: the command in its folder, and the file that has all of it."""

    shell: Shell
    file: Path

    def lines(self) -> list[Line]:
        return [json.loads(line) for line in self.file.read_text().splitlines()]

    def judged(self, lines: list[Line], code: int) -> dict[str, Any]:
        """What `check` says of a history of these lines."""
        changed = self.file.with_name("changed.jsonl")
        changed.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        said = self.shell("history", "check", str(changed), "-o", "json", code=code).out
        verdict: dict[str, Any] = json.loads(said)
        return verdict


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("history")
    server = Operated(folder, ["--claim-timeout", "2s", "--maintenance-interval", "200ms", "--log-level", "warning"])
    address = f"127.0.0.1:{server.port}"
    shell = Shell(folder, address)
    try:
        through_a_kill(folder, server, address)
        said = shell("history", "finish", "runs", "--within", "20s", "--out", "all.jsonl").err
        assert not said or "; 0 have not ended" in said
        yield Run(shell, folder / "all.jsonl")
    finally:
        server.stop()


def through_a_kill(folder: Path, server: Operated, address: str) -> None:
    """A producer and a worker of the framework record, whose code knows nothing of it, and the server is killed."""
    (folder / "jobs.py").write_text(PROGRAM)
    recorded = {"PINLATER_SERVER": address, "PINLATER_HISTORY": str(folder / "runs")}
    with Client(address, history="", timeout=60) as client:

        def count(state: JobState) -> int:
            return client.count(JobFilter("mail", state))

        client.create_queue("mail")
        with working(folder, "--app", "jobs:app", **recorded) as worker:
            worker.ready()
            producer = subprocess.Popen([sys.executable, "jobs.py"], cwd=folder, env={**os.environ, **recorded})
            until(lambda: count(JobState.SUCCEEDED) >= KILLED_AT, "jobs succeed")
            asyncio.run(server.kill_all())
            assert producer.wait(60) == 0
            later = JobFilter("mail", JobState.PENDING, future=True)
            until(
                lambda: not count(JobState.PENDING) + count(JobState.IN_PROGRESS) + client.count(later), "all jobs end"
            )
    with Client(address, history=str(folder / "runs"), source=BY_HAND) as client:
        client.create_queue(BY_HAND)
        client.enqueue(BY_HAND, [b"%d" % number for number in range(10)])
        halves = [client.dequeue(BY_HAND, 5) for _ in range(2)]
        for half in halves:
            client.ack(BY_HAND, half)
    assert len(files_in([folder / "runs"])) >= 3


def test_what_callers_were_answered_through_a_kill_of_the_server_is_explained(run: Run) -> None:
    said = run.shell("history", "check", str(run.file)).out
    assert said.startswith("explained: ")
    verdict = json.loads(run.shell("history", "check", str(run.file), "-o", "json").out)
    assert verdict["explained"]
    assert verdict["is_over"]
    assert verdict["jobs"] >= JOBS - 10
    assert {"enqueueJobs", "dequeueJobs"} <= set(verdict["judged"])


def test_the_parts_are_judged_as_one(run: Run) -> None:
    assert run.shell("history", "check", "runs").out.startswith("explained: ")


def by_hand(lines: list[Line], method: str) -> list[tuple[Line, Line]]:
    """Begins and ends of these calls."""
    begins = {line["call"]: line for line in lines if line.get("by") == BY_HAND and line["method"] == method}
    return [(begins[line["call"]], line) for line in lines if "answer" in line and line["call"] in begins]


def test_a_job_that_was_handed_out_twice_is_not_explained(run: Run) -> None:
    lines = run.lines()
    (first, second) = [end["answer"] for _, end in by_hand(lines, "dequeueJobs")]
    name, body = next(iter(first["jobs"].items()))
    (claim, *_) = {each["claimDescriptor"] for each in second["jobMetadata"].values()}
    second["jobs"][name] = body
    second["jobMetadata"][name] = first["jobMetadata"][name] | {"claimDescriptor": claim}
    verdict = run.judged(lines, code=1)
    assert ("twice", name) in {(each["rule"], each["subject"]) for each in verdict["violations"]}


def test_an_ack_whose_answer_was_falsified_is_not_explained(run: Run) -> None:
    """IGNORED is said of a success under a claim that stands."""
    lines = run.lines()
    begin, end = by_hand(lines, "ackJobs")[0]
    name = begin["args"]["request"]["jobsSucceeded"][0]["jobDescriptor"]
    end["answer"]["outcomes"][0] = 0
    verdict = run.judged(lines, code=1)
    assert [(each["rule"], each["subject"]) for each in verdict["violations"]] == [("ack", name)]


def test_the_story_of_a_job_is_shown(run: Run) -> None:
    _, end = by_hand(run.lines(), "dequeueJobs")[0]
    name = next(iter(end["answer"]["jobs"]))
    rows = json.loads(run.shell("history", "show", str(run.file), "--job", name, "-o", "json").out)
    story = [("enqueue", "STORED"), ("claim", ""), ("success", "SUCCEEDED"), ("end", "")]
    assert [(row["did"], row["outcome"]) for row in rows] == story
    shown = run.shell("history", "show", str(run.file), "--call", str(rows[0]["call"])).out
    begin, end = map(json.loads, shown.splitlines())
    assert name in end["answer"]["jobDescriptors"]
    assert begin["method"] == "enqueueJobs"
    assert "no call of the history" in run.shell("history", "show", str(run.file), "--job", "mail:s1:p1:1", code=1).err
    assert "has no call 0" in run.shell("history", "show", str(run.file), "--call", "0", code=1).err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["check", "jobs.py"], "jobs.py, line 1: "),
        (["check", "missing.jsonl"], "missing.jsonl"),
        (["check", "broken.jsonl"], "broken.jsonl, line 2: "),
        (["check"], "FILE"),
        (["show", "all.jsonl"], "--job DESCRIPTOR or --call N"),
        (["finish", "runs", "--out", "all.jsonl"], "--force"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_command_line_says_so(run: Run, arguments: list[str], why: str) -> None:
    broken = run.file.with_name("broken.jsonl")
    broken.write_text('{"pinlater_history": 1}\n{"call": 1}\nand more\n'.replace('{"call": 1}', "{"))
    assert why in run.shell("history", *arguments, code=2).err


@pytest.mark.parametrize("command", ["check", "finish", "show"])
def test_every_command_has_help_with_examples(command: str) -> None:
    shown = CliRunner().invoke(main, ["history", command, "--help"])
    assert f"pinlater history {command}" in shown.output.split("Examples:")[1]
    assert "..." not in CliRunner().invoke(main, ["history", "--help"]).output.split("Commands:")[1]


def test_jobs_that_have_not_ended_are_stuck_unless_the_history_stays_open(run: Run) -> None:
    run.shell("job", "enqueue", "mail", "--body", "late", "--run-after", "+1h", PINLATER_HISTORY="later")
    said = run.shell("history", "finish", "later", "--out", "later.jsonl").err
    assert "1 job looked up; 1 have not ended" in said
    assert "stuck" in run.shell("history", "check", "later.jsonl", code=1).out
    run.shell("history", "finish", "later", "--out", "open.jsonl", "--open")
    run.shell("history", "check", "open.jsonl")
