"""Groups on the command line: jobs are enqueued with one, and handed out by turns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Client
from tests.server.commands import Shell
from tests.server.running import running


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with running(tmp_path) as server:
        yield Shell(tmp_path, f"127.0.0.1:{server.port}")


def test_the_flood_of_a_group_is_not_the_wait_of_another(shell: Shell) -> None:
    """As docs/fairness.md shows it."""
    with Client(shell.server) as client:
        client.create_queue("mail")
        for number in range(20):
            shell("job", "enqueue", "mail", f"a {number}", "--group", "acme")
        made = json.loads(shell("job", "enqueue", "mail", "b 1", "--group", "betty", "-o", "jsonl").out)["descriptor"]
        assert "group          betty" in shell("job", "get", made).out
        (row,) = json.loads(shell("job", "get", made, "-o", "json").out)
        assert row["group"] == "betty"
        assert shell("job", "count", "mail", "--state", "ready").out.strip() == "21"
        assert b"b 1" in [job.body for job in client.dequeue("mail", limit=3)]
    refused = shell("job", "enqueue", "mail", "x", "--group", "x" * 256, code=2)
    assert "group is 'xxx" in refused.err
    assert "1 to 255 bytes of UTF-8" in refused.err


def test_the_jobs_of_a_group_are_cancelled_by_a_filter(shell: Shell) -> None:
    shell("queue", "create", "filtered")
    for group in ("acme", "acme", "acme2"):
        shell("job", "enqueue", "filtered", "x", "--group", group)
    line = ("job", "cancel", "--filter", "queue:filtered group:acme", "--yes", "-o", "json")
    assert json.loads(shell(*line).out)["changed"] == 2
    assert json.loads(shell(*line).out)["changed"] == 0


def test_a_schedule_gives_its_jobs_a_group(shell: Shell) -> None:
    with Client(shell.server) as client:
        client.create_queue("mail")
        every = ("--queue", "mail", "--every", "1h", "--body", "x")
        shell("schedule", "set", "nightly", *every, "--group", "acme")
        assert "acme" in shell("schedule", "show", "nightly").out
        (view,) = client.get_schedules(["nightly"]).schedules
        assert view.schedule.group == "acme"
        shell("schedule", "set", "nightly", "--group", "")
        (view,) = client.get_schedules(["nightly"]).schedules
        assert view.schedule.group == ""
