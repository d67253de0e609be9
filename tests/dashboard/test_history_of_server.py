"""The history of a real server: real jobs that work and fail, processes that are rolled and killed, rules."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from pinlater import Ack, AsyncClient, Client, DequeueRequest, Job
from pinlater.dashboard.history_file import HistoryFile
from pinlater.dashboard.history_recorder import HistoryRecorder
from pinlater.dashboard.job_sampler import JobSampler
from pinlater.dashboard.queue_history import SPANS, History
from pinlater.dashboard.queue_record import QueueRecord, unpack
from pinlater.data_folder.password import read_password_file
from pinlater.model import RequestContext
from tests.server.running import RunningServer, running
from tests.server.test_http_process import ask, port_of
from tests.speed import slower
from tests.workers.command import working

LATER_MS = 60_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running(tmp_path, "--api", "127.0.0.1:0", "--data", "data", "--lease", "1s") as started:
        yield started


JOBS = """
    from pinlater_workers import App, Fail
    app = App(servers=["127.0.0.1:{port}"])

    class Refused(Exception):
        pass

    @app.job(name="send", queue="mail", attempts=1)
    def send(name: str) -> None:
        if name == "nobody":
            raise Refused(name)
        if name == "bad":
            raise ValueError(name)

    @app.job(name="digest", queue="mail", attempts=2)
    def digest(number: int) -> None:
        if number < 0:
            raise Fail("no such digest")
"""


def envelope(job: str, argument: object) -> bytes:
    return b"PINLATER/1 application/json\n" + json.dumps({"job": job, "args": [argument]}).encode()


@asynccontextmanager
async def recorded(client: AsyncClient) -> AsyncIterator[History]:
    """A history that is looked after by hand, with jobs looked at as often as it asks."""
    context = RequestContext("history")
    history = History(client, context, None)
    await history.store.open()

    def sampler(since_ms: int) -> JobSampler:
        """However long its calls take."""
        return JobSampler(client, context, since_ms, every_ms=0, now_s=lambda: 0.0)

    history.recorder = HistoryRecorder(client, context, history.store, new_sampler=sampler)
    await history.recorder.resume()
    try:
        yield history
    finally:
        await history.store.close()


async def until(history: History, queue: str, is_there: Callable[[QueueRecord], bool]) -> QueueRecord:
    """Ask again and again, until it is in the series; what that has in all."""
    ends_s = time.monotonic() + 60
    while True:
        await history.recorder.poll()
        await history.recorder.close_minutes(None)
        series = await history.series(queue, SPANS["1h"], int(time.time() * 1000) + LATER_MS)
        if is_there(series.total):
            return series.total
        assert time.monotonic() < ends_s, series.total
        await asyncio.sleep(0.3)


async def test_jobs_that_work_and_fail_are_in_the_series(server: RunningServer, tmp_path: Path) -> None:
    """By two reasons and of two types, as the worker framework's envelope and the statuses say."""
    (tmp_path / "jobs.py").write_text(textwrap.dedent(JOBS.format(port=server.port)))
    async with AsyncClient(f"127.0.0.1:{server.port}") as client, recorded(client) as history:
        await client.create_queue("mail")
        await history.recorder.poll()
        bodies = [*(envelope("send", name) for name in ["ada"] * 5 + ["nobody"] * 3 + ["bad"] * 2)]
        bodies += [envelope("digest", number) for number in (1, 2, 3, -1)]
        await client.enqueue("mail", [Job(body, attempts_allowed=1) for body in bodies])
        with working(tmp_path, "--app", "jobs:app", "--queues", "mail"):
            whole = await until(
                history, "mail", lambda total: total.succeeded == 8 and total.failed == 6 and total.sampled == 6
            )
        assert whole.counts == (14, 14, 8, 6, 0)
        assert whole.reasons == {"Refused": 3, "ValueError": 2, "Fail": 1}
        assert whole.types == {"send": 5, "digest": 1}
        assert sum(whole.waits.values()) == sum(whole.runs.values()) == 14
        assert max(whole.runs) < max(whole.waits) + 60
        total = await until(history, "", lambda total: total.failed == 6)
        assert total.reasons == whole.reasons


async def test_bodies_and_statuses_of_others_count_as_others_and_claims_that_expire_as_failures(
    server: RunningServer,
) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client, recorded(client) as history:
        await client.create_queue("mail")
        await history.recorder.poll()
        await client.enqueue("mail", [Job(b"plain", attempts_allowed=1)] * 3)
        jobs = await client.dequeue(DequeueRequest("mail", 3, claim_timeout_ms=1_000))
        acks = [Ack(job.descriptor, "it did not work\n", claim_descriptor=job.claim_descriptor) for job in jobs[:2]]
        await client.ack("mail", failed=acks)
        whole = await until(history, "mail", lambda total: total.failed == 3 and total.sampled == 3)
        assert whole.reasons == {"other": 2, "claim expired": 1}
        assert whole.types == {"other": 3}
        assert sum(whole.waits.values()) == 3
        assert sum(whole.runs.values()) == 2


def test_a_roll_and_a_kill_lose_and_double_nothing(server: RunningServer, tmp_path: Path) -> None:
    path = tmp_path / "data" / "history.sqlite"
    port_of(server)
    with Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("mail")
        client.enqueue("mail", [Job(b"x")] * 10)
        roll(server, path, lambda record: record.enqueued == 10)
        client.enqueue("mail", [Job(b"x")] * 5)
        time.sleep(2)
        begun = len(server.events)
        os.kill([each["api"] for each in server.events if each["event"] == "api_ready"][-1], signal.SIGKILL)
        server.wait_for("api_replaced", after=begun)
        client.enqueue("mail", [Job(b"x")] * 3)
        roll(server, path, lambda record: record.enqueued == 18)
    assert server.stop() == 0
    assert recorded_in(path).enqueued == 18
    assert not any(event["event"] == "history_failed" for event in server.events)


def roll(
    server: RunningServer,
    path: Path,
    is_there: Callable[[QueueRecord], bool],
    happens: Callable[[], object] = lambda: None,
) -> QueueRecord:
    """New processes, until an old one has written that. It asks every five seconds; `happens`: before each round."""
    for _ in range(10):
        happens()
        begun = len(server.events)
        time.sleep(6)
        server.send(signal.SIGHUP)
        server.wait_for("api_ready", after=begun)
        ends_s = time.monotonic() + 4 * slower(time.monotonic)
        while time.monotonic() < ends_s:
            if path.exists() and is_there(recorded_in(path)):
                return recorded_in(path)
            time.sleep(0.3)
    raise AssertionError(recorded_in(path))


def recorded_in(path: Path) -> QueueRecord:
    """All of the queue mail."""
    file = HistoryFile(path, is_writer=False)
    try:
        whole = QueueRecord()
        for records in file.recent().values():
            if "mail" in records:
                whole.merge(unpack(records["mail"]))
        for record in file.hours("mail", 0, 2**31).values():
            whole.merge(record)
        return whole
    finally:
        file.close()


def test_pages_show_the_charts(server: RunningServer, tmp_path: Path) -> None:
    port = port_of(server)
    with Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("mail")
    password = read_password_file(tmp_path / "data" / "admin-password")
    status, made = ask(port, "POST", "/dashboard/links", **{"X-Admin-Password": password})
    assert status == 201
    _, headers = opened(port, json.loads(made)["path"])
    for span in ("1h", "30d", "nonsense"):
        status, page = ask(port, "GET", f"/dashboard/queues/mail?span={span}", Cookie=headers)
        text = page.decode()
        assert status == 200
        assert text.count("<figure") >= 7
        assert "style=" not in text
    status, page = ask(port, "GET", "/dashboard", Cookie=headers)
    assert (status, page.count(b"<figure")) == (200, 2)


def opened(port: int, path: str) -> tuple[int, str]:
    """Open a one-time link; the cookie of the session."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status, str(answer.headers["Set-Cookie"]).partition(";")[0]
    finally:
        connection.close()


# -- rules -------------------------------------------------------------------------------------------------------------


RULES = """
[[rules]]
who = ["anonymous"]
may = ["operate", "enqueue", "consume"]
"""


@pytest.mark.parametrize(("role", "sees_types"), [("", False), ('[roles.history]\nmay = ["read"]\n', True)])
def test_under_rules_the_http_process_reads_as_history_and_no_bodies_unless_they_say_so(
    tmp_path: Path, role: str, sees_types: bool
) -> None:
    (tmp_path / "rules.toml").write_text(role + RULES)
    with running(
        tmp_path, "--api", "127.0.0.1:0", "--data", "data", "--lease", "1s", "--rules", "rules.toml"
    ) as server:
        port_of(server)
        server.wait_for("history_recorded")
        with Client(f"127.0.0.1:{server.port}") as client:
            client.create_queue("mail")

            def one_fails() -> None:
                client.enqueue("mail", [Job(envelope("send", "x"), attempts_allowed=1)])
                (job,) = client.dequeue(DequeueRequest("mail", 1))
                failed = "attempt 1 of 1: KeyError: 'x' [y]\n"
                client.ack("mail", failed=[Ack(job.descriptor, failed, claim_descriptor=job.claim_descriptor)])

            path = tmp_path / "data" / "history.sqlite"  # a count may come after the new processes: it is not sampled
            found = roll(server, path, lambda record: record.sampled > 0, one_fails)
        assert set(found.reasons) == {"KeyError"}
        assert set(found.types) == ({"send"} if sees_types else set())
