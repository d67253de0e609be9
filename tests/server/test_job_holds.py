"""Why a pending job does not run: each reason at a real server, in the words that other faces show too."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pinlater import Client, DequeueRequest, ExtendedJob, Job, OnDuplicate, ReplaceRunning
from pinlater.data_folder.password import hash_password
from pinlater.errors import RequestInvalid
from pinlater.model.job_holds import HoldReason, JobHold
from pinlater.model.workers import WorkerReport
from tests.server.commands import Shell
from tests.server.running import running
from tests.stores.places import Places
from tests.stores.process import free_port

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Its address, and that of its HTTP interface."""
    folder = tmp_path_factory.mktemp("served")
    with running(folder, "--api", "127.0.0.1:0", "--admin-password-hash", hash_password(PASSWORD)) as started:
        address = f"127.0.0.1:{started.port}"
        yield address, str(started.wait_for("api_ready")["address"]).rstrip("/")


@pytest.fixture(scope="module")
def client(server: tuple[str, str]) -> Iterator[Client]:
    with Client(server[0], source="ada@laptop") as made:
        yield made


@pytest.fixture
def queue(client: Client, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"\W", "_", request.node.name)[-64:]
    client.create_queue(name)
    return name


def the_hold(client: Client, descriptor: str) -> JobHold:
    (hold,) = client.explain_jobs([descriptor])
    assert hold.descriptor == descriptor
    return hold


def settings(client: Client, queue: str, **values: str) -> None:
    client.update_queue(queue, PASSWORD, set=values)


def report(queue: str, instance: str = "run-1", **more: int) -> WorkerReport:
    return WorkerReport(instance, "mailer", 1, queues={queue: 1}, **more)


def test_a_job_whose_time_is_to_come(client: Client, queue: str) -> None:
    (job,) = client.enqueue(queue, [Job(b"", run_after_ms=1_900_000_000_000)])
    hold = the_hold(client, job)
    assert (hold.reason, hold.until_ms) == (HoldReason.NOT_DUE, 1_900_000_000_000)
    assert hold.text == "It is not due before 2030-03-17T17:46:40Z."


def test_a_job_behind_another_one_of_its_key(client: Client, queue: str) -> None:
    first, second = client.enqueue(queue, [ExtendedJob(b"", serialize_key="account-9") for _ in range(2)])
    hold = the_hold(client, second)
    assert (hold.reason, hold.behind) == (HoldReason.BEHIND_JOB, first)
    assert hold.text == f"It waits for {first}, which is before it in its serialize key."


def test_a_job_that_is_newer_than_the_running_one_of_its_key(client: Client, queue: str) -> None:
    newer = ExtendedJob(b"", dedupe_key="a", on_duplicate=OnDuplicate.REPLACE, replace_running=ReplaceRunning.ENQUEUE)
    (first,) = client.enqueue(queue, [newer])
    assert client.dequeue(DequeueRequest(queue, 1, wait_ms=9_000))
    (second,) = client.enqueue(queue, [newer])
    hold = the_hold(client, second)
    assert (hold.reason, hold.behind) == (HoldReason.BEHIND_JOB, first)
    assert hold.text == f"It waits for {first}, which runs under its dedupe key."


def test_a_paused_queue_by_whom_since_when_until_when_and_why(client: Client, queue: str) -> None:
    (job,) = client.enqueue(queue, [Job(b"")])
    until_ms = int(time.time() * 1000) + 3_600_000
    settings(client, queue, paused="true", paused_why="the provider is down", paused_until=str(until_ms))
    hold = the_hold(client, job)
    assert (hold.reason, hold.until_ms) == (HoldReason.PAUSED, until_ms)
    assert re.fullmatch(r"Its queue is paused by ada@laptop since \S+Z until \S+Z: the provider is down\.", hold.text)
    settings(client, queue, paused="false", max_jobs_per_second="0/s")
    assert the_hold(client, job).text == "Its queue hands out no jobs: its rate is 0."


def test_a_maximum_in_progress_that_is_reached(client: Client, queue: str) -> None:
    settings(client, queue, max_in_progress="1")
    client.enqueue(queue, [Job(b"")])
    assert client.dequeue(DequeueRequest(queue, 1, wait_ms=9_000))  # the quota of a shard comes a moment later
    (job,) = client.enqueue(queue, [Job(b"")])
    hold = the_hold(client, job)
    assert hold.reason is HoldReason.MAX_IN_PROGRESS
    assert hold.text == "Its queue has reached its maximum of 1 job in progress."


def test_no_worker_and_then_one_that_is_busy_with_the_place_in_line(client: Client, queue: str) -> None:
    low, _, high = client.enqueue(queue, [Job(b"", 3), Job(b"", 2), Job(b"", 1)])
    assert the_hold(client, low).text == "No worker polls its queue."
    assert the_hold(client, low).reason is HoldReason.NO_WORKER
    client.heartbeat(queue, [], worker=report(queue, slots=4, busy_slots=4))
    hold = the_hold(client, low)
    assert (hold.reason, hold.jobs_before) == (HoldReason.IN_LINE, 2)
    assert hold.text == "It is number 3 in line of its queue, and all 4 slots of its worker are busy."
    assert the_hold(client, high).text.startswith("It is the next in line of its queue, and all 4 slots")


def test_a_job_that_has_come_up_in_a_queue_whose_jobs_age(client: Client, queue: str) -> None:
    settings(client, queue, priority_aging="10m")
    now_ms = int(time.time() * 1000)

    def due(priority: int, minutes: int) -> str:
        return client.enqueue(queue, [Job(b"", priority, now_ms - minutes * 60_000 - 5_000)])[0]

    low, last = due(3, 14), due(3, 1)
    for priority, minutes in ((1, 1), (1, 90), (2, 1), (2, 11), (2, 19), (3, 22), (3, 16)):
        due(priority, minutes)
    client.heartbeat(queue, [], worker=report(queue, "run-2", slots=4, busy_slots=4))
    hold = the_hold(client, low)
    assert (hold.reason, hold.jobs_before) == (HoldReason.IN_LINE, 6)
    assert re.search(
        r"It is number 7 in line .* busy\. It counts as priority 2: it has been due for 14m\d+s\.", hold.text
    )
    assert "counts as" not in the_hold(client, last).text
    first = client.dequeue(DequeueRequest(queue, 7))
    assert sorted(job.priority for job in first) == [1, 1, 2, 2, 3, 3, 3]
    assert low in [job.descriptor for job in first]


def test_a_rate_with_the_place_in_line_and_about_when(client: Client, queue: str) -> None:
    settings(client, queue, max_jobs_per_second="30/m")
    jobs = [client.enqueue(queue, [Job(b"", run_after_ms=1_700_000_000_000 + place)])[0] for place in range(10)]
    hold = the_hold(client, jobs[9])
    assert (hold.reason, hold.jobs_before) == (HoldReason.RATE_LIMITED, 9)
    assert hold.text == "Its queue is limited to 30/m: it is number 10 in line, about 20s to go."


def test_a_shard_that_is_out(tmp_path: Path, sqlite_places: Places) -> None:
    stores = ("--store", f"1={sqlite_places.fresh()}", "--store", f"2=redis://127.0.0.1:{free_port()}/0")
    with running(tmp_path, *stores) as server, Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("mail")
        (here,) = client.enqueue("mail", [Job(b"")])
        away = "mail:s2:p1:1790000000000000"
        out, alone = client.explain_jobs([away, here])
        assert (out.reason, alone.reason) == (HoldReason.SHARD_OUT, HoldReason.NO_WORKER)
        assert out.text.startswith("Its shard 2 is out: ")
        assert f"pinlater: {out.text}" in Shell(tmp_path, f"127.0.0.1:{server.port}")("job", "get", away, code=1).err


def test_what_is_not_pending_or_not_there_has_no_reason_and_too_many_are_refused(client: Client, queue: str) -> None:
    client.enqueue(queue, [Job(b"")])
    (taken,) = client.dequeue(DequeueRequest(queue, 1))
    gone = f"{queue}:s1:p1:1790000000000000"
    assert client.explain_jobs([taken.descriptor, gone, "no descriptor"]) == []
    with pytest.raises(RequestInvalid, match="at most 100"):
        client.explain_jobs([f"{queue}:s1:p1:{1_790_000_000_000_000 + place}" for place in range(101)])


def test_the_command_line_and_http_say_the_same_sentence(
    server: tuple[str, str], client: Client, queue: str, tmp_path: Path
) -> None:
    (job,) = client.enqueue(queue, [Job(b"")])
    settings(client, queue, paused="true", paused_why="tests")
    text = the_hold(client, job).text
    assert f"why it waits   {text}" in Shell(tmp_path, server[0])("job", "get", job).out.splitlines()
    answer = httpx.get(f"{server[1]}/v1/jobs/{job}/hold").json()
    assert (answer["hold"]["reason"], answer["hold"]["text"]) == ("paused", text)
