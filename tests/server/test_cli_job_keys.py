"""Jobs by key, and what else few jobs have, on the command line."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import (
    Ack,
    Client,
    DequeueRequest,
    ExtendedJob,
    Heartbeat,
    Job,
    JobFilter,
    JobState,
    KeyRef,
    RescheduleJob,
)
from tests.server.commands import Shell
from tests.server.running import running

NOT_THERE = "mail:s1:p1:1790000000000000"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("served")) as server:
        yield f"127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Client]:
    with Client(address) as made:
        yield made


@pytest.fixture
def queue(client: Client, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name)[-64:]
    client.create_queue(name)
    return name


@pytest.fixture
def shell(address: str, tmp_path: Path) -> Shell:
    return Shell(tmp_path, address)


def test_a_named_job_is_kept_replaced_or_rejected(shell: Shell, client: Client, queue: str) -> None:
    def enqueue(body: str, *options: str) -> dict[str, str]:
        out = shell("job", "enqueue", queue, body, "--dedupe-key", "a", *options, "-o", "jsonl").out
        return dict(json.loads(out))

    first = enqueue("1", "--expires", "1h", "--claim-timeout", "30s", "--dedupe-for", "kept")
    assert first["outcome"] == "stored"
    assert enqueue("2") == {**first, "outcome": "kept"}
    assert enqueue("22", "--on-duplicate", "replace") == {**first, "outcome": "replaced"}
    refused = shell("job", "enqueue", queue, "3", "--dedupe-key", "a", "--on-duplicate", "reject", code=1)
    assert first["descriptor"] in refused.err
    shown = shell("job", "get", "--queue", queue, "--key", "a").out
    for text in (first["descriptor"], "dedupe key     a", "claim time-out 30s", "expires  ", "  22"):
        assert text in shown
    (row,) = json.loads(shell("job", "get", "--queue", queue, "--key", "a", "-o", "json").out)
    assert (row["dedupe_key"], row["claim_timeout_ms"]) == ("a", 30_000)
    assert "not found: b" in shell("job", "get", "--queue", queue, "--key", "b", code=5).err
    assert client.count(JobFilter(queue, JobState.PENDING)) == 1


def test_a_newer_job_follows_the_one_that_runs_and_is_postponed_up_to_a_bound(
    shell: Shell, client: Client, queue: str
) -> None:
    def enqueue(*options: str) -> str:
        named = ("--dedupe-key", "a", "--on-duplicate", "replace", *options)
        return str(json.loads(shell("job", "enqueue", queue, "x", *named, "-o", "jsonl").out)["descriptor"])

    first = enqueue("--run-after", "+1s", "--replace-within", "10s")
    assert enqueue("--run-after", "+1h", "--replace-within", "10s") == first
    info = client.lookup([first])[first]
    assert info.run_after_ms == info.created_at_ms + 10_000
    client.reschedule(queue, [RescheduleJob(first, run_after_ms=0)])
    assert client.dequeue(DequeueRequest(queue, 1, wait_ms=9_000))
    newer = enqueue("--replace-running", "cancel")
    assert newer != first
    shown = shell("job", "get", first).out
    assert f"successor      {newer}" in shown
    assert "to stop, by    " in shown
    (row,) = json.loads(shell("job", "get", "--queue", queue, "--key", "a", "-o", "json").out)
    assert (row["descriptor"], row["successor"]) == (first, newer)
    assert f"waits for      {first}" in shell("job", "get", newer).out


@pytest.mark.parametrize(
    "arguments",
    [
        ("enqueue", "q", "x", "--on-duplicate", "replace"),
        ("enqueue", "q", "x", "--dedupe-key", "a", "--replace-running", "cancel"),
        ("enqueue", "q", "x", "--dedupe-key", "a", "--on-duplicate", "keep", "--replace-within", "10s"),
        ("enqueue", "q", "x", "--dedupe-key", "a", "--on-duplicate", "replace", "--replace-within", "0s"),
        ("enqueue", "q", "x", "--dedupe-for", "1h"),
        ("enqueue", "q", "--lines", "--dedupe-key", "a"),
        ("enqueue", "q", "x", "--expires", "soon"),
        ("get",),
        ("get", "--key", "a"),
        ("cancel", "--running", "--queue", "q"),
        ("cancel", "--serialize-key", "a", "--queue", "q"),
        ("cancel", "--key", "a", "--queue", "q", "--dry-run"),
        ("reschedule", NOT_THERE),
        ("reschedule", "--delay", "1h"),
        ("reschedule", NOT_THERE, "--delay", "1h", "--run-at", "+1h"),
        ("wait",),
    ],
)
def test_what_means_nothing_is_a_wrong_command_line(shell: Shell, arguments: tuple[str, ...]) -> None:
    assert "Error: " in shell("job", *arguments, code=2).err


def test_jobs_in_order(shell: Shell, client: Client, queue: str) -> None:
    out = shell("job", "enqueue", queue, "--lines", "--serialize-key", "account", stdin="1\n2\n").out
    first, second = out.split()
    assert f"waits for      {first}" in shell("job", "get", second).out
    shown = shell("job", "get", "--queue", queue, "--serialize-key", "account", "-o", "jsonl").out
    assert json.loads(shown)["descriptor"] == first
    assert client.lookup(queue, keys=[KeyRef("", "account")]).keys() == {first}


def test_pending_jobs_get_another_time_and_body(shell: Shell, client: Client, queue: str) -> None:
    named = shell("job", "enqueue", queue, "1", "--dedupe-key", "a", "-o", "jsonl").out
    descriptor = json.loads(named)["descriptor"]
    by_key = shell("job", "reschedule", "--queue", queue, "--key", "a", "--delay", "2h", "--body", "-", stdin="new").out
    assert by_key.split() == ["JOB", "OUTCOME", "a", "RESCHEDULED"]
    info = client.lookup([descriptor], include_body=True)[descriptor]
    assert (info.body, info.run_after_ms > info.created_at_ms + 7_000_000) == (b"new", True)
    changed = ("job", "reschedule", descriptor, "--attempts", "9", "--if-updated-at")
    assert "CHANGED" in shell(*changed, "2026-01-01T00:00:00Z", code=5).out
    shell(*changed, str(info.updated_at_ms))
    assert client.lookup([descriptor])[descriptor].attempts_allowed == 9
    gone = shell("job", "reschedule", NOT_THERE, "nonsense", "--attempts", "9", code=5)
    assert (gone.out.count("NOT_FOUND"), "nonsense" in gone.err) == (2, True)
    last, first = [
        entry.detail for entry in client.audit() if (entry.action, entry.target) == ("reschedule_jobs", queue)
    ]
    assert last == f"1 job, gets attempts 9, of {descriptor}"
    assert first.startswith("1 job, runs after 20")
    assert first.endswith(f", another body, of {descriptor}")
    assert "CANCELLED" in shell("job", "cancel", "--queue", queue, "--key", "a").out
    assert "NOT_FOUND" in shell("job", "cancel", "--queue", queue, "--key", "a", code=5).out


def test_what_runs_is_asked_to_stop(shell: Shell, client: Client, queue: str) -> None:
    client.enqueue(queue, Job(b""))
    (job,) = client.dequeue(DequeueRequest(queue, 1))
    assert "IN_PROGRESS" in shell("job", "cancel", job.descriptor, code=5).out
    assert "REQUESTED" in shell("job", "cancel", "--running", job.descriptor).out
    client.heartbeat(queue, [Heartbeat(job.descriptor, job.claim_descriptor, 0.415, "page 5")])
    shown = shell("job", "get", job.descriptor).out
    assert "progress       41% page 5" in shown
    assert "to stop, by    " in shown
    client.ack(queue, failed=[Ack(job.descriptor, claim_descriptor=job.claim_descriptor)])
    shown = shell("job", "get", job.descriptor).out
    assert re.search(r"^state +cancelled$", shown, re.MULTILINE)
    assert "cancelled by   " in shown
    assert shell("job", "wait", job.descriptor, code=5).out.split()[6:8] == [job.descriptor, "cancelled"]


def test_the_end_of_a_job_is_waited_for(shell: Shell, client: Client, queue: str) -> None:
    descriptor = client.enqueue(queue, Job(b""))
    assert "not ended" in shell("job", "wait", descriptor, "--timeout", "100ms", code=5).err
    assert "not found" in shell("job", "wait", NOT_THERE, "nonsense", code=5).err

    def work() -> None:
        (job,) = client.dequeue(DequeueRequest(queue, 1))
        client.ack(queue, [Ack(job.descriptor, claim_descriptor=job.claim_descriptor, result=b"\xffdone")])

    worker = threading.Timer(0.2, work)
    worker.start()
    assert shell("job", "wait", descriptor, "--result").raw == b"\xffdone"
    worker.join()
    row = json.loads(shell("job", "wait", "-", "-o", "jsonl", stdin=f"{descriptor}\n").out)
    assert (row["state"], row["result"], row["result_encoding"]) == ("succeeded", "/2RvbmU=", "base64")
    shown = shell("job", "get", descriptor).out
    assert "result         5 bytes, in hexadecimal\n  ff646f6e65\n" in shown


def test_a_retry_names_the_jobs_that_it_left_alone(shell: Shell, client: Client, queue: str) -> None:
    for number in range(12):
        client.enqueue(queue, [ExtendedJob(b"%d" % number, dedupe_key="a")])
        (job,) = client.dequeue(DequeueRequest(queue, 1))
        client.ack(queue, failed=[Ack(job.descriptor, permanent=True)])
    (live,) = client.enqueue(queue, [ExtendedJob(b"live", dedupe_key="a")])
    told = shell("job", "retry", queue, "--all")
    assert told.out.split() == ["0"]
    assert told.err.count("left alone: ") == 10
    assert f"its dedupeKey has another live job, {live}" in told.err
    assert "2 other jobs" in told.err
