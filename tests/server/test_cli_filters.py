"""`--filter` of the commands about jobs: one line in the dashboard's language, over any queues."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Ack, Client, DequeueRequest, Job, JobFilter, JobState
from tests.server.commands import Shell
from tests.server.running import running
from tests.server.terminal import Terminal


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("served")) as server:
        yield f"127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Client]:
    with Client(address) as made:
        yield made


@pytest.fixture
def shell(address: str, tmp_path: Path) -> Shell:
    return Shell(tmp_path, address)


def queues_with_failures(client: Client, name: str) -> tuple[str, str]:
    """Two queues, with a failure by a time-out and one by a wrong value in each, and a job that is ready."""
    names = f"{name}-one", f"{name}-two"
    for queue in names:
        client.create_queue(queue)
        client.enqueue(queue, [Job(b"")] * 2)
        first, second = client.dequeue(DequeueRequest(queue, 2))
        lines = "attempt 1 of 2: ReadTimeout: no answer\n", "attempt 1 of 2: ValueError: no\n"
        failed = [Ack(job.descriptor, line, permanent=True) for job, line in zip((first, second), lines, strict=True)]
        client.ack(queue, failed=failed)
        client.enqueue(queue, [Job(b"ready")])
    return names


def found(shell: Shell, line: str) -> list[dict[str, str]]:
    return [json.loads(each) for each in shell("job", "get", "--filter", line, "-o", "jsonl").out.splitlines()]


def test_get_shows_what_a_filter_finds_in_any_queue(client: Client, shell: Shell) -> None:
    one, two = queues_with_failures(client, "shown")
    line = f"queue:{one},{two} error:*Timeout*"
    assert [job["descriptor"].partition(":")[0] for job in found(shell, line)] == [one, two]
    assert {job["state"] for job in found(shell, f"queue:{two} state:ready")} == {"pending"}
    shown = shell("job", "get", "--filter", f"queue:{one}", "--limit", "2")
    assert len(shown.out.splitlines()) == 1 + 2
    assert "more may match than these 2 jobs; --limit shows more" in shown.err
    assert (
        "no jobs are like queue:shown-one state:running"
        in shell("job", "get", "--filter", f"queue:{one} state:running").err
    )


def test_a_filter_retries_and_deletes_in_several_queues(client: Client, shell: Shell) -> None:
    one, two = queues_with_failures(client, "changed")
    line = f"queue:{one},{two} error:*Timeout*"
    counted = shell("job", "retry", "--filter", line, "--dry-run")
    assert counted.out.splitlines()[0] == "2"
    retried = shell("job", "retry", "--filter", line, "--attempts", "3")
    assert retried.out == "2\n"
    assert f"retrying at most 1,000 failed jobs that {line} finds" in retried.err
    assert len(found(shell, f"queue:{one},{two} state:ready")) == 4
    assert shell("job", "delete", "--filter", f"queue:{one},{two} state:failed").out == "2\n"
    assert shell("job", "cancel", "--filter", f"queue:{one}").out == "2\n"
    assert [job["descriptor"].partition(":")[0] for job in found(shell, f"queue:{one},{two}")] == [two, two]
    assert shell("job", "retry", "--filter", f"queue:{one},{two}").out == "0\n"


def test_a_limit_holds_over_all_queues(client: Client, shell: Shell) -> None:
    one, two = queues_with_failures(client, "bounded")
    assert shell("job", "retry", "--filter", f"queue:{one},{two}", "--limit", "3").out == "3\n"
    assert len(found(shell, f"queue:{one},{two} state:failed")) == 1


def test_a_filter_reschedules_pending_jobs(client: Client, shell: Shell) -> None:
    one, two = queues_with_failures(client, "later")
    line = f"queue:{one},{two}"
    rows = shell("job", "reschedule", "--filter", line, "--delay", "1h", "-o", "jsonl").out.splitlines()
    assert [json.loads(row)["outcome"] for row in rows] == ["rescheduled"] * 2
    assert len(found(shell, f"{line} state:scheduled")) == 2
    none = shell("job", "reschedule", "--filter", f"{line} state:failed", "--delay", "1h")
    assert f"no pending jobs are like {line} state:failed" in none.err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["retry", "--filter", "queue:mail colour:red"], "there is no field 'colour'"),
        (["retry", "--filter", "queue:mail state:ready"], "Retry is for jobs that are failed, cancelled"),
        (["delete", "--filter", "queue:mail"], "put state: into the filter"),
        (["retry", "mail", "--filter", "queue:mail"], "--filter says which jobs are meant; leave"),
        (["delete", "--filter", "queue:mail", "--state", "failed"], "leave --state out"),
        (["cancel", "--filter", "queue:mail", "--queue", "mail", "--key", "a"], "leave --queue out"),
        (["retry", "--filter", " "], "it is empty"),
        (["retry"], "give a QUEUE, descriptors, or --filter"),
        (["get"], "or --filter"),
    ],
)
def test_a_filter_that_cannot_be_meant_is_refused(shell: Shell, arguments: list[str], why: str) -> None:
    assert why in " ".join(shell("job", *arguments, code=2).err.split())


def test_on_a_terminal_the_jobs_are_counted_and_it_is_asked(client: Client, address: str, tmp_path: Path) -> None:
    one, two = queues_with_failures(client, "asked")
    line = f"queue:{one},{two} error:*Timeout*"
    terminal = Terminal(tmp_path, address, "job", "retry", "--filter", line)
    terminal.until(f"Retry 2 failed jobs that {line} finds? [y/N]")
    terminal.type("n\n")
    assert terminal.ended() == 1
    assert "nothing was retried" in terminal.shown
    failed = JobFilter(one, JobState.FAILED)
    assert client.count(failed) == 2
    terminal = Terminal(tmp_path, address, "job", "retry", one)
    terminal.until("Retry 2 failed jobs of queue asked-one, all priorities? [y/N]")
    terminal.type("y\n")
    assert terminal.ended() == 0
    assert client.count(failed) == 0
