"""Tags on the command line: of jobs that are enqueued, and as what jobs are found and changed by."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Client, ExtendedJob
from pinlater.model.job_selection import JobSelection
from tests.server.commands import Shell
from tests.server.running import running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the server; its admin password is there, too."""
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with running(folder) as server:
        yield f"127.0.0.1:{server.port}"


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address) as made:
        yield made


@pytest.fixture
def queue(client: Client, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name)[-64:]
    client.create_queue(name)
    return name


@pytest.fixture
def shell(address: str, folder: Path) -> Shell:
    return Shell(folder, address)


def test_a_job_is_enqueued_with_tags_and_shows_them(shell: Shell, queue: str) -> None:
    out = shell("job", "enqueue", queue, "x", "--tag", "tenant:7", "--tag", "a b", "-o", "jsonl").out
    descriptor = json.loads(out)["descriptor"]
    assert "tags           tenant:7, a b" in shell("job", "get", descriptor).out
    (row,) = json.loads(shell("job", "get", descriptor, "-o", "json").out)
    assert row["tags"] == ["tenant:7", "a b"]
    refused = shell("job", "enqueue", queue, "x", "--tag", "a", "--tag", "a", code=2)
    assert "each tag once" in refused.err


def test_jobs_are_scanned_counted_and_changed_by_tag(shell: Shell, client: Client, queue: str) -> None:
    jobs = [ExtendedJob(b"%d" % n, tags=["odd" if n % 2 else "even", "all"]) for n in range(6)]
    made = [client.enqueue(queue, job) for job in jobs]
    rows = shell("job", "scan", queue, "--state", "ready", "--tag", "odd", "-o", "jsonl").out.splitlines()
    assert [json.loads(row)["descriptor"] for row in rows] == [made[5], made[3], made[1]]
    count = ("job", "count", queue, "--state", "pending", "--tag")
    assert shell(*count, "odd").out.strip() == "3"
    assert shell(*count, "odd", "--tag", "even").out.strip() == "0"
    line = f"queue:{queue} tag:odd state:ready"
    later = json.loads(shell("job", "reschedule", "--filter", line, "--delay", "1h", "--yes", "-o", "json").out)
    assert {(row["descriptor"], row["outcome"]) for row in later} == {(each, "rescheduled") for each in made[1::2]}
    assert shell("job", "count", queue, "--state", "scheduled", "--tag", "all").out.strip() == "3"
    shell("job", "cancel", "--queue", queue, "--tag", "odd", "--yes")
    shell("job", "delete", queue, "--state", "pending", "--tag", "even", "--limit", "2", "--yes")
    (left,) = client.search_jobs(JobSelection(queue)).jobs
    assert left.tags == ["even", "all"]


def test_a_schedule_gives_its_jobs_tags(shell: Shell, client: Client, queue: str) -> None:
    every = ("--queue", queue, "--every", "1h", "--body", "x")
    shell("schedule", "set", "nightly", *every, "--tag", "tenant:7", "--tag", "night")
    assert "tenant:7, night" in shell("schedule", "show", "nightly").out
    (view,) = client.get_schedules(["nightly"]).schedules
    assert view.schedule.tags == ["tenant:7", "night"]
    shell("schedule", "set", "nightly", "--tag", "")
    (view,) = client.get_schedules(["nightly"]).schedules
    assert list(view.schedule.tags) == []
