"""`pinlater job retry | delete | cancel`, in each format, by queue, by status and by descriptor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pinlater import (
    Ack,
    AckOutcome,
    Client,
    DequeueRequest,
    Job,
    JobFilter,
    JobState,
)
from tests.server.cli_jobs.rows import FORMATS, PASSWORD, UNKNOWN, finish, rows
from tests.server.commands import Shell
from tests.server.terminal import Terminal

# -- changing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_retry_puts_failed_jobs_back(shell: Shell, queue: str, client: Client, format: str) -> None:
    client.enqueue(queue, [Job(b"")] * 5)
    finish(client, queue, fail=5, succeed=0)
    out = shell("job", "retry", queue, "--limit", "2", "--attempts", "4", "--run-after", "+1h", "-o", format).out
    assert out == ("2\n" if format == "table" else '{"changed": 2}\n')
    later = client.scan(JobFilter(queue, JobState.PENDING, future=True)).jobs
    assert [info.attempts_remaining for info in later] == [4, 4]
    assert shell("job", "retry", queue, "--all").out == "3\n"
    assert shell("job", "retry", queue, "--all").out == "0\n"


def test_retry_takes_every_priority_unless_told_otherwise(shell: Shell, queue: str, client: Client) -> None:
    client.enqueue(queue, [Job(b"", 1), Job(b"", 2), Job(b"", 3)])
    finish(client, queue, fail=3, succeed=0)
    assert shell("job", "retry", queue, "--priority", "2").out == "1\n"
    assert shell("job", "retry", queue).out == "2\n"


@pytest.mark.parametrize("format", FORMATS)
def test_delete_removes_jobs_of_one_state_and_priority(shell: Shell, queue: str, client: Client, format: str) -> None:
    client.enqueue(queue, [Job(b"keep")] * 2 + [Job(b"drop")] * 2_100 + [Job(b"drop", 2)])
    arguments = ["job", "delete", queue, "--state", "pending", "--match", "^drop$", "-o", format]
    expected = "{}\n" if format == "table" else '{{"changed": {}}}\n'
    limited = shell(*arguments, "--limit", "50")
    assert limited.out == expected.format(50)
    assert (
        "1 ready, scheduled or waiting job of other priorities is left alone; --priority all means them too"
        in limited.err
    )
    assert "of other priorities" not in shell(*arguments, "--all", "--priority", "1", "--dry-run").err
    assert shell(*arguments, "--all").out == expected.format(2_050)
    assert client.count(JobFilter(queue, JobState.PENDING)) == 3


@pytest.mark.parametrize("format", FORMATS)
def test_cancel_says_what_became_of_each(shell: Shell, queue: str, client: Client, format: str) -> None:
    client.create_queue("mail")
    first, second, third, fourth = client.enqueue(queue, [Job(b"")] * 4)
    finish(client, queue, fail=0, succeed=1)
    client.dequeue(DequeueRequest(queue, 1))
    arguments = ["job", "cancel", first, second, UNKNOWN, "-", "-o", format]
    out = shell(*arguments, stdin=f"{third}\n{fourth}\n", code=5).out
    assert [(row["descriptor"], row["outcome"].upper()) for row in rows(format, out)] == [
        (first, "ENDED"),
        (second, "IN_PROGRESS"),
        (UNKNOWN, "NOT_FOUND"),
        (third, "CANCELLED"),
        (fourth, "CANCELLED"),
    ]
    pending = client.enqueue(queue, Job(b""))
    shell("job", "cancel", pending, "-o", format)


def test_what_is_no_descriptor_is_not_found_and_the_others_are_cancelled(
    shell: Shell, queue: str, client: Client
) -> None:
    good = client.enqueue(queue, [Job(b"")] * 2)
    strange = ["x", "", "a b:s1:p1:1", f"{queue}:s1:p1:x"]
    result = shell("job", "cancel", strange[0], good[0], *strange[1:], good[1], "-o", "jsonl", code=5)
    assert result.err.count("which is no descriptor") == len(strange)
    out = result.out
    assert [(row["descriptor"], row["outcome"]) for row in rows("jsonl", out)] == [
        (strange[0], "not_found"),
        (good[0], "cancelled"),
        *((text, "not_found") for text in strange[1:]),
        (good[1], "cancelled"),
    ]


def test_an_unknown_queue_is_named_with_what_helps(shell: Shell) -> None:
    assert "pinlater queue create nowhere" in shell("job", "enqueue", "nowhere", "x", code=1).err


def test_what_is_not_there_is_one_exit_code_whatever_it_is(shell: Shell) -> None:
    for command in (
        ("queue", "show", "nowhere"),
        ("queue", "stats", "nowhere"),
        ("job", "count", "nowhere", "--state", "pending"),
        ("job", "scan", "nowhere", "--state", "pending"),
        ("shard", "drain", "nowhere", "--no-wait"),
        ("shard", "drain", "nowhere", "--undo"),
        ("shard", "give-up", "nowhere", "--yes"),
        ("flow", "status", "nowhere"),
        ("schedule", "show", "nowhere"),
    ):
        assert "nowhere" in shell(*command, code=1, PINLATER_ADMIN_PASSWORD=PASSWORD).err, command


# -- by the status ---------------------------------------------------------------------------------------------------


def _fail_with(client: Client, queue: str, *statuses: str) -> None:
    client.enqueue(queue, [Job(status.encode()) for status in statuses])
    jobs = client.dequeue(DequeueRequest(queue, len(statuses)))
    client.ack(queue, failed=[Ack(job.descriptor, job.body.decode(), permanent=True) for job in jobs])


@pytest.mark.parametrize("format", FORMATS)
def test_jobs_are_listed_by_what_their_status_says(shell: Shell, client: Client, queue: str, format: str) -> None:
    _fail_with(client, queue, "TimeoutError: slow", "ValueError: no", "TimeoutError: far")
    options = ["--state", "failed", "--status-match", "^Timeout", "-o", format]
    found = rows(format, shell("job", "scan", queue, *options).out)
    assert len(found) == 2
    assert len(rows(format, shell("job", "scan", queue, *options, "--match", "slow").out)) == 1
    assert len(rows(format, shell("job", "scan", queue, *options, "--limit", "1").out)) == 1
    later = ["--state", "scheduled", "--status-match", "^", "-o", "jsonl"]
    assert rows("jsonl", shell("job", "scan", queue, *later).out) == []


def test_jobs_are_changed_by_what_their_status_says(shell: Shell, client: Client, queue: str) -> None:
    _fail_with(client, queue, *["TimeoutError"] * 5, *["ValueError"] * 3)
    by_status = ["--status-match", "^Timeout"]
    assert json.loads(shell("job", "retry", queue, *by_status, "--dry-run", "-o", "json").out)["changed"] == 5
    assert shell("job", "retry", queue, *by_status, "--limit", "2").out == "2\n"
    assert shell("job", "delete", queue, "--state", "failed", *by_status, "--yes").out == "3\n"
    assert shell("job", "delete", queue, "--state", "failed", "--status-match", "nothing", "--yes").out == "0\n"
    deleted = [each for each in client.audit(limit=100) if each.target == queue and each.action == "delete_jobs"]
    assert [each.detail for each in deleted] == [
        "3 jobs, FAILED or CANCELLED or REPLAYED, priority 1, status matches ^Timeout"
    ]
    assert shell("job", "cancel", "--queue", queue, "--status-match", "^Timeout", "--older-than", "1ms").out == "2\n"
    assert client.count(JobFilter(queue, JobState.FAILED)) == 3


@pytest.mark.parametrize("option", ["--match", "--status-match"])
@pytest.mark.parametrize("command", ["cancel --queue", "retry", "delete --state pending", "scan --state pending"])
def test_an_empty_pattern_does_not_mean_all_jobs(
    shell: Shell, client: Client, queue: str, command: str, option: str
) -> None:
    client.enqueue(queue, [Job(b"x")])
    done = shell("job", *command.split(), queue, option, "", code=2)
    assert f"to mean all, leave {option} out" in done.err
    assert client.count(JobFilter(queue, JobState.PENDING)) == 1


def test_no_descriptors_on_standard_input_cancel_nothing(shell: Shell, client: Client, queue: str) -> None:
    client.enqueue(queue, [Job(b"x")])
    assert shell("job", "cancel", "-", stdin="").out == ""
    assert client.count(JobFilter(queue, JobState.PENDING)) == 1


def test_a_pattern_of_a_status_that_is_none_is_named(shell: Shell, queue: str) -> None:
    failed = shell("job", "retry", queue, "--status-match", "(", code=2)
    assert failed.err.startswith("pinlater: --status-match is")


# -- jobs by descriptor --------------------------------------------------------------------------------------------


def _one_of_each(client: Client, queue: str) -> tuple[str, str, str]:
    """A failed job, a ready one, and one that is not there."""
    failed, ready = client.enqueue(queue, [Job(b"fails", 1, None, 1), Job(b"waits", 2)])
    client.dequeue(DequeueRequest(queue, 1))
    assert client.ack(queue, failed=[Ack(failed)]) == [AckOutcome.FAILED]
    return failed, ready, f"{queue}:s1:p1:1790000000000000"


def test_retry_of_a_named_job_is_of_that_job_alone(shell: Shell, queue: str, client: Client) -> None:
    one, two = client.enqueue(queue, [Job(b"", 1, None, 1)] * 2)
    for job in client.dequeue(DequeueRequest(queue, 2)):
        client.ack(queue, failed=[Ack(job.descriptor)])
    result = shell("job", "retry", one, "--attempts", "3")
    assert (result.out, result.err) == ("1\n", "")
    found = client.lookup([one, two])
    assert (found[one].state, found[one].attempts_remaining) == (JobState.PENDING, 3)
    assert found[two].state is JobState.FAILED


@pytest.mark.parametrize("through_stdin", [False, True])
def test_retry_names_what_it_leaves_alone(shell: Shell, queue: str, client: Client, through_stdin: bool) -> None:
    failed, ready, missing = _one_of_each(client, queue)
    named = (failed, ready, missing, "mail:nothing")
    words, stdin = (("-",), "\n".join(named)) if through_stdin else (named, None)
    result = shell("job", "retry", *words, stdin=stdin, code=5)
    assert result.out == "1\n"
    for text in (f"left alone: {ready}: it is ready", f"not found: {missing}", "not found: mail:nothing"):
        assert text in result.err
    assert failed not in result.err


def test_a_dry_run_of_named_jobs_changes_nothing(shell: Shell, queue: str, client: Client) -> None:
    failed, *_ = _one_of_each(client, queue)
    found = json.loads(shell("job", "retry", failed, "--dry-run", "-o", "json").out)
    assert (found["changed"], [each["descriptor"] for each in found["samples"]]) == (1, [failed])
    assert client.lookup([failed])[failed].state is JobState.FAILED


@pytest.mark.parametrize("format", FORMATS)
def test_delete_of_named_jobs_in_any_state(shell: Shell, queue: str, client: Client, format: str) -> None:
    failed, ready, missing = _one_of_each(client, queue)
    assert shell("job", "delete", ready, "--state", "failed", code=5).out == "0\n"
    result = shell("job", "delete", failed, ready, missing, "-o", format, code=5)
    assert result.out == ("2\n" if format == "table" else '{"changed": 2}\n')
    assert client.lookup([failed, ready]) == {}


def test_named_jobs_take_no_filter_and_no_queue_beside_them(shell: Shell, queue: str) -> None:
    for line in (
        ("retry", UNKNOWN, "--newer-than", "2h"),
        ("retry", UNKNOWN, "--limit", "1"),
        ("delete", UNKNOWN, "--priority", "1"),
    ):
        assert "descriptors name each job" in shell("job", *line, code=2).err
    for words in ((queue, UNKNOWN), (queue, queue), (queue, "-")):
        assert "give one QUEUE, or descriptors" in shell("job", "retry", *words, code=2).err
    assert "--state" in shell("job", "delete", queue, code=2).err
    assert "QUEUE" in shell("job", "retry", code=2).err


def test_delete_of_a_named_job_asks_on_a_terminal(address: str, queue: str, client: Client, tmp_path: Path) -> None:
    _, ready, _ = _one_of_each(client, queue)
    for answer, code, left in (("n", 1, 1), ("y", 0, 0)):
        terminal = Terminal(tmp_path, address, "job", "delete", ready)
        terminal.until("Delete 1 job? [y/N]")
        terminal.type(f"{answer}\r")
        assert terminal.ended() == code
        assert len(client.lookup([ready])) == left
