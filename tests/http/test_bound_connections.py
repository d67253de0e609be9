"""Claims that are bound to a caller's connection to the HTTP interface: real sockets, bare and through a proxy."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from pinlater import AsyncClient
from tests.faults.proxy import Proxy
from tests.server.http_site import RunningSite, http_site
from tests.server.running import RunningServer, running
from tests.stores.places import Places

PATIENCE_S = 60.0
LONG_MS = 600_000
"""Of a claim that nothing but its connection ends within a test."""

BOUND = {"release_on_disconnect": True, "claim_timeout_ms": LONG_MS}


class Connection:
    """One TCP connection to the interface."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)

    def begin(self, path: str, body: Any, verb: str = "POST", **headers: str) -> None:
        self._http.request(verb, path, json.dumps(body), {"Content-Type": "application/json", **headers})

    def send(self, path: str, body: Any, verb: str = "POST", **headers: str) -> tuple[int, Any]:
        self.begin(path, body, verb, **headers)
        with self._http.getresponse() as response:
            text = response.read()
        return response.status, json.loads(text) if text else None

    def done(self, path: str, body: Any, **headers: str) -> Any:
        status, answer = self.send(path, body, **headers)
        assert status < 300, answer
        return answer

    def close(self) -> None:
        self._http.close()


class Stand:
    """A server with two processes, a queue, and connections to its HTTP interface."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.port = int(str(server.wait_for("api_ready")["address"]).rstrip("/").rpartition(":")[2])
        self._connections: list[Connection] = []
        self.onlooker = self.connection()

    def connection(self, port: int | None = None) -> Connection:
        made = Connection(port or self.port)
        self._connections.append(made)
        return made

    def enqueue(self, queue: str, jobs: int = 1) -> Any:
        form = {"jobs": [{"body": "", "attempts_allowed": 5}] * jobs}
        return self.onlooker.done(f"/v1/queues/{queue}/jobs/batch", form)

    def claim(self, worker: Connection, queue: str, limit: int = 1, **fields: Any) -> Any:
        """The answer of a dequeue whose claims are to be bound."""
        return worker.done(f"/v1/queues/{queue}/dequeue", {**BOUND, "limit": limit, "wait_ms": 20_000, **fields})

    def job(self, job: Any) -> Any:
        (found,) = self.onlooker.done("/v1/lookup", {"descriptors": [job["descriptor"]]})["jobs"]
        return found

    def is_held(self, job: Any) -> bool:
        found = self.job(job)
        return found["state"] == "in_progress" and found["claim_descriptor"] == job["claim_descriptor"]

    def until(self, holds: Callable[[], bool]) -> None:
        ends_s = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < ends_s, "it did not come to pass"
            time.sleep(0.02)

    def until_released(self, *jobs: Any) -> None:
        self.until(lambda: not any(map(self.is_held, jobs)))

    def close(self) -> None:
        for each in self._connections:
            each.close()


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory, redis_places: Places) -> Iterator[Stand]:
    folder, store = tmp_path_factory.mktemp("bound"), f"1={redis_places.fresh()}"
    options = ("--store", store, "--processes", "2", "--release-grace", "500ms")
    with running(folder, "--api", "127.0.0.1:0", *options) as server:
        stand = Stand(server)
        yield stand
        stand.close()


@pytest.fixture
def queue(stand: Stand, request: pytest.FixtureRequest) -> str:
    name = f"q{abs(hash(request.node.name)) % 10**9}"
    stand.onlooker.send(f"/v1/queues/{name}", {}, "PUT")
    return name


def heartbeat(jobs: list[Any]) -> Any:
    return {"heartbeats": [{key: job[key] for key in ("descriptor", "claim_descriptor")} for job in jobs]}


def outlives_the_grace(stand: Stand, queue: str) -> None:
    """By when a claim of a connection that was closed before has been released, so the grace of one before is over."""
    stand.enqueue(queue)
    worker = stand.connection()
    (job,) = stand.claim(worker, queue)["jobs"]
    worker.close()
    stand.until_released(job)


def test_claims_are_released_when_the_callers_connection_closes(stand: Stand, queue: str) -> None:
    stand.enqueue(queue, 3)
    worker = stand.connection()
    answer = stand.claim(worker, queue, limit=3)
    assert answer["bound"] is True
    assert all(stand.is_held(job) for job in answer["jobs"])
    worker.close()
    stand.until_released(*answer["jobs"])
    assert stand.job(answer["jobs"][0])["attempts_remaining"] == 4


def test_one_dequeue_of_several_queues_binds_too(stand: Stand, queue: str) -> None:
    stand.enqueue(queue)
    worker = stand.connection()
    answer = worker.done("/v1/dequeue", {**BOUND, "queues": [{"queue": queue}], "limit": 5, "wait_ms": 20_000})
    assert answer["bound"] is True
    worker.close()
    stand.until_released(*answer["jobs"])


def test_who_does_not_ask_is_told_nothing_and_keeps_its_claims(stand: Stand, queue: str) -> None:
    stand.enqueue(queue)
    worker = stand.connection()
    answer = worker.done(f"/v1/queues/{queue}/dequeue", {"claim_timeout_ms": LONG_MS, "wait_ms": 20_000})
    assert "bound" not in answer
    worker.close()
    outlives_the_grace(stand, queue)
    assert stand.is_held(answer["jobs"][0])


def test_heartbeats_by_another_connection_leave_a_claim_bound_to_its_own(stand: Stand, queue: str) -> None:
    stand.enqueue(queue, 2)
    worker, other = stand.connection(), stand.connection()
    jobs = stand.claim(worker, queue, limit=2)["jobs"]
    beats = other.done(f"/v1/queues/{queue}/heartbeat", heartbeat(jobs))
    assert [each["outcome"] for each in beats["answers"]] == ["ok", "ok"]
    other.done(f"/v1/queues/{queue}/checkpoint", {"checkpoints": heartbeat(jobs)["heartbeats"]})
    other.close()
    outlives_the_grace(stand, queue)
    assert all(stand.is_held(job) for job in jobs)
    worker.close()
    stand.until_released(*jobs)


def test_each_of_several_connections_has_its_own_claims(stand: Stand, queue: str) -> None:
    stand.enqueue(queue, 2)
    one, two, other = stand.connection(), stand.connection(), stand.connection()
    (first,) = stand.claim(one, queue)["jobs"]
    (second,) = stand.claim(two, queue)["jobs"]
    beats = other.done(f"/v1/queues/{queue}/heartbeat", heartbeat([second, first]))
    assert [each["outcome"] for each in beats["answers"]] == ["ok", "ok"]
    one.close()
    stand.until_released(first)
    assert stand.is_held(second)
    beats = other.done(f"/v1/queues/{queue}/heartbeat", heartbeat([first, second]))
    assert [each["outcome"] for each in beats["answers"]] == ["lost", "ok"]


def test_an_ack_by_another_connection_ends_a_claim(stand: Stand, queue: str) -> None:
    stand.enqueue(queue)
    worker, other = stand.connection(), stand.connection()
    jobs = stand.claim(worker, queue)["jobs"]
    assert other.done(f"/v1/queues/{queue}/ack", {"jobs": jobs})["outcomes"] == ["succeeded"]
    worker.close()
    outlives_the_grace(stand, queue)
    assert stand.job(jobs[0])["state"] == "succeeded"


def test_a_heartbeat_within_the_grace_keeps_the_job(tmp_path: Any) -> None:
    with running(tmp_path, "--api", "127.0.0.1:0", "--release-grace", "3s") as server:
        stand = Stand(server)
        stand.onlooker.send("/v1/queues/kept", {}, "PUT")
        stand.enqueue("kept", 2)
        worker, other = stand.connection(), stand.connection()
        kept, left = stand.claim(worker, "kept", limit=2)["jobs"]
        worker.close()
        beats = other.done("/v1/queues/kept/heartbeat", heartbeat([kept]))
        assert [each["outcome"] for each in beats["answers"]] == ["ok"]
        stand.until_released(left)
        assert stand.is_held(kept)
        other.close()
        outlives_the_grace(stand, "kept")
        assert stand.is_held(kept), "it is bound to no connection any more"
        stand.close()


def test_a_proxy_that_cuts_releases_what_came_through_it(stand: Stand, queue: str) -> None:
    stand.enqueue(queue, 2)
    with Proxy(stand.port) as proxy:
        worker = stand.connection(proxy.port)
        jobs = stand.claim(worker, queue, limit=2)["jobs"]
        assert all(stand.is_held(job) for job in jobs)
        proxy.drop_connections()
        stand.until_released(*jobs)


def test_a_wait_that_is_cut_takes_no_job(stand: Stand, queue: str) -> None:
    with Proxy(stand.port) as proxy:
        worker = stand.connection(proxy.port)
        assert stand.claim(worker, queue, wait_ms=0) == {"jobs": [], "bound": True}
        worker.begin(f"/v1/queues/{queue}/dequeue", {**BOUND, "wait_ms": 60_000})
        proxy.drop_connections()
        stand.enqueue(queue)
        other = stand.connection()
        (job,) = stand.claim(other, queue)["jobs"]
        assert job["attempts_remaining"] == 5


@contextlib.asynccontextmanager
async def site_behind_a_proxy(stand: Stand) -> AsyncIterator[tuple[RunningSite, Proxy]]:
    """An HTTP interface in this process, and the proxy between it and the server."""
    with Proxy(stand.server.port) as proxy:
        connect = partial(AsyncClient, f"127.0.0.1:{proxy.port}", source="http", whole_lookups=False)
        async with connect() as client, http_site(client, connect=connect) as site:
            yield site, proxy


async def poll(site: RunningSite, queue: str, **fields: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A dequeue that waits; its answer is not read yet."""
    reader, writer = await site.connect()
    body = json.dumps({"wait_ms": 20_000} | fields).encode()
    head = f"POST /v1/queues/{queue}/dequeue HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return reader, writer


def jobs_in(answer: bytes) -> Any:
    """Those of the answer to a poll; none where the connection was closed before it."""
    return json.loads(answer.partition(b"\r\n\r\n")[2])["jobs"] if answer else []


@pytest.mark.parametrize("fields", [BOUND, {"claim_timeout_ms": 4_000}], ids=["bound", "not bound"])
async def test_a_caller_that_goes_while_its_job_is_on_its_way_costs_no_attempt(
    stand: Stand, queue: str, fields: dict[str, Any]
) -> None:
    """The server has sent the job, and what lies between has taken it; the HTTP process has not."""
    async with site_behind_a_proxy(stand) as (site, proxy):
        proxy.black_hole(answers_only=True)
        _, writer = await poll(site, queue, **fields)
        (job,) = (await asyncio.to_thread(stand.enqueue, queue))["jobs"]
        await asyncio.to_thread(stand.until, lambda: stand.job(job)["state"] == "in_progress")
        writer.close()
        await asyncio.to_thread(stand.until, lambda: stand.job(job)["state"] == "pending")
        assert stand.job(job)["attempts_remaining"] == 5


async def test_a_caller_that_ends_its_poll_has_its_job_or_it_spends_no_attempt(stand: Stand, queue: str) -> None:
    """In whichever moment, as a worker does that drains: it closes its sending half, and reads what is on its way."""
    async with site_behind_a_proxy(stand) as (site, _):
        for number in range(40):
            reader, writer = await poll(site, queue, **BOUND)
            enqueued = asyncio.create_task(asyncio.to_thread(stand.enqueue, queue))
            await asyncio.sleep(number % 10 / 1000)
            writer.write_eof()
            jobs = jobs_in(await reader.read())
            (job,) = (await enqueued)["jobs"]
            if not jobs:
                jobs = (await asyncio.to_thread(stand.claim, stand.onlooker, queue))["jobs"]
                assert [each["attempts_remaining"] for each in jobs] == [5], (number, stand.job(job), time.time())
            await asyncio.to_thread(stand.onlooker.done, f"/v1/queues/{queue}/ack", {"jobs": jobs})


@pytest.mark.parametrize(
    "headers",
    [{"Connection": "close"}, {"X-Forwarded-For": "10.0.0.1"}, {"Via": "1.1 edge"}, {"Forwarded": "for=10.0.0.1"}],
    ids=lambda headers: next(iter(headers)),
)
def test_what_is_no_connection_to_bind_to_is_left_to_the_time_out(
    stand: Stand, queue: str, headers: dict[str, str]
) -> None:
    stand.enqueue(queue)
    worker = stand.connection()
    answer = worker.done(f"/v1/queues/{queue}/dequeue", {**BOUND, "wait_ms": 20_000}, **headers)
    assert answer["bound"] is False
    worker.close()
    outlives_the_grace(stand, queue)
    assert stand.is_held(answer["jobs"][0])


def test_a_version_that_does_not_know_a_field_names_it_and_does_nothing(stand: Stand, queue: str) -> None:
    """So a client learns whether a server knows `release_on_disconnect`: see docs/http.md."""
    stand.enqueue(queue)
    worker = stand.connection()
    (job,) = stand.claim(worker, queue)["jobs"]
    body = {"acks": {"jobs": [job]}, "release_on_a_field_to_come": True}
    status, problem = worker.send(f"/v1/queues/{queue}/dequeue", body)
    assert (status, problem["reason"], problem["field"]) == (400, "REQUEST_INVALID", "release_on_a_field_to_come")
    assert stand.is_held(job)


def test_a_process_that_is_replaced_leaves_claims_to_their_time_outs(tmp_path: Any) -> None:
    with running(tmp_path, "--api", "127.0.0.1:0", "--release-grace", "200ms") as server:
        stand = Stand(server)
        stand.onlooker.send("/v1/queues/rolled", {}, "PUT")
        stand.enqueue("rolled", 2)
        worker = stand.connection()
        idle = stand.connection()
        (first,) = stand.claim(idle, "rolled")["jobs"]
        (second,) = stand.claim(worker, "rolled")["jobs"]
        seen = len(server.events)
        server.send(signal.SIGHUP)
        server.wait_for("api_ready", after=seen)
        stand.onlooker = stand.connection()
        outlives_the_grace(stand, "rolled")
        assert stand.is_held(first)
        assert stand.is_held(second)
        stand.close()


async def test_a_cut_between_the_processes_costs_no_claim(stand: Stand, queue: str) -> None:
    """The caller's connection stands: the claim is bound anew, by a heartbeat of the HTTP process."""
    stand.enqueue(queue)
    async with site_behind_a_proxy(stand) as (site, proxy):
        reader, writer = await poll(site, queue, **BOUND)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in answer.split(b"\r\n") if line.startswith(b"Content-Length"))
        (job,) = json.loads(await reader.readexactly(length))["jobs"]
        proxy.drop_connections()
        await asyncio.to_thread(outlives_the_grace, stand, queue)
        assert stand.is_held(job)
        writer.close()
        await asyncio.to_thread(stand.until_released, job)
