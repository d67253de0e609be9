"""Jobs in memory are handed out as a server hands them out: by turns of their groups, and past circuit breakers."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from pinlater.client.async_client import AsyncClient
from pinlater.model import Ack, DequeueRequest, JobState, QueueView
from pinlater_workers import App, testing
from pinlater_workers.jobs.batch import Batch
from tests.server.running import RunningServer, running

app = App(servers=["127.0.0.1:1"])
ran: list[str] = []
broken: set[str] = set()
RULE = {"pause_on_failures": "50%/4/1m/30s"}


@pytest.fixture(autouse=True)
def fresh() -> None:
    ran.clear()
    broken.clear()


@app.job(queue="turns", group=lambda name: name.rstrip("0123456789") or None)
def take(name: str) -> None:
    ran.append(name)


@app.job(queue="guarded", attempts=3, retry=[1, 1])
def call(name: str) -> None:
    ran.append(name)
    if broken:
        raise ConnectionError("the provider is down")


@app.job(queue="turns", group="a")
def chatty(number: int) -> None:
    ran.append(f"a{number}")
    if number == 2:
        take.enqueue("late")
        take.options(delay=60).enqueue("due0")


batches: list[list[str]] = []


@app.job(queue="batched", batch=4, wait="1s", group=lambda name: name[0])
def batched(batch: Batch[str]) -> None:
    batches.append(list(batch.arguments))


NAMES = [*(f"a{number}" for number in range(6)), *(f"b{number}" for number in range(3)), "c0", "7", "8"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("server")) as started:
        yield started


async def handed_out(client: AsyncClient, queue: str, bodies: dict[bytes, str]) -> AsyncIterator[str]:
    """The names of the jobs of a queue, dequeued and acked one by one."""
    while jobs := await client.dequeue(DequeueRequest(queue, 1)):
        await client.ack(queue, [Ack(jobs[0].descriptor, claim_descriptor=jobs[0].claim_descriptor)])
        yield bodies[bytes(jobs[0].body)]


async def test_jobs_in_memory_run_in_the_order_in_which_a_server_hands_them_out(server: RunningServer) -> None:
    with testing.in_memory(app) as jobs:
        for name in NAMES:
            take.enqueue(name)
        take.options(priority=2).enqueue("a9")
        take.options(priority=2).enqueue("b9")
        jobs.run_all()
    bodies = {run.body: name for run, name in zip(jobs.runs, [*NAMES, "a9", "b9"], strict=True)}
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        await client.create_queue("turns")
        for run in jobs.runs:
            await client.enqueue("turns", [take.options(priority=run.priority).job(bodies[run.body])])
        assert ran == [name async for name in handed_out(client, "turns", bodies)]
    assert {name.rstrip("0123456789") for name in ran[:4]} == {"a", "b", "c", ""}


def test_a_job_that_comes_while_others_wait_has_its_turn() -> None:
    with testing.in_memory(app) as jobs:
        for number in range(10):
            chatty.enqueue(number)
        jobs.run_all()
    assert ran.index("late") <= 4
    assert ran[-1] == "due0"


def test_batches_have_jobs_of_each_group() -> None:
    with testing.in_memory(app) as jobs:
        for name in ("a0", "a1", "a2", "a3", "a4", "b0", "b1"):
            batched.enqueue(name)
        jobs.run_all()
    assert Counter(name[0] for name in batches[0]) == {"a": 2, "b": 2}
    assert sum(map(len, batches)) == 7


def guarded() -> QueueView:
    (view,) = app.client.get_queues(["guarded"])
    return view


@contextmanager
def behind_a_breaker(count: int, **settings: str) -> Iterator[testing.Jobs]:
    """So many jobs of a queue with a circuit breaker, whose provider is down."""
    broken.add("provider")
    with testing.in_memory(app) as jobs:
        app.client.update_queue("guarded", "", set={**RULE, **settings})
        for number in range(count):
            call.enqueue(f"job {number}")
        yield jobs


def test_a_circuit_breaker_opens_and_tries_one_job_now_and_then() -> None:
    with behind_a_breaker(8) as jobs:
        jobs.run_for(20)
        assert len(ran) == 4
        assert guarded().settings["paused_by"].value == "@breaker"
        jobs.run_for(65)
        assert len(ran) == 6
        broken.clear()
        before_ms = jobs.clock.now_ms()
        jobs.run_all()
        assert jobs.clock.now_ms() - before_ms <= 30_000
        assert guarded().settings["paused"].value == "false"
        assert {run.state for run in jobs.runs} == {JobState.SUCCEEDED}


def test_jobs_end_while_a_breaker_is_open_too() -> None:
    with behind_a_breaker(3) as jobs:
        jobs.run_all()
        assert {(run.state, run.attempts) for run in jobs.runs} == {(JobState.FAILED, 3)}
        assert len(ran) == 9


def test_a_breaker_is_reset_by_a_resume() -> None:
    with behind_a_breaker(6) as jobs:
        jobs.run_for(10)
        app.client.update_queue("guarded", "", set={"paused": "false"})
        broken.clear()
        jobs.run_for(2)
        assert {run.state for run in jobs.runs} == {JobState.SUCCEEDED}


def test_a_pause_by_hand_is_never_ended_by_a_breaker() -> None:
    with behind_a_breaker(6) as jobs:
        jobs.run_for(10)
        app.client.update_queue("guarded", "", set={"paused": "true"})
        jobs.run_for(600)
        assert len(ran) == 4


def test_one_job_alone_waits_for_the_breaker_too() -> None:
    with behind_a_breaker(5, max_in_progress="1") as jobs:
        jobs.run_for(1)
        broken.clear()
        last = jobs.runs[-1]
        before_ms = jobs.clock.now_ms()
        jobs.run_all(only=last)
        assert last.state is JobState.SUCCEEDED
        assert 20_000 <= jobs.clock.now_ms() - before_ms <= 30_000


def test_jobs_of_a_queue_with_a_maximum_in_progress_run() -> None:
    with testing.in_memory(app) as jobs:
        app.client.update_queue("guarded", "", set={"max_in_progress": "1"})
        for number in range(3):
            call.enqueue(f"job {number}")
        jobs.run_all()
        app.client.update_queue("guarded", "", set={"max_in_progress": "0"})
        call.enqueue("held")
        jobs.run_all()
    assert ran == ["job 0", "job 1", "job 2"]


def test_limits_of_groups_count_as_at_a_server() -> None:
    with testing.in_memory(app) as jobs:
        app.client.update_queue("turns", "", set={"group_concurrency": "1", "group_rate": "1/s"})
        for name in ("a0", "a1", "a2", "b0"):
            take.enqueue(name)
        began_ms = jobs.clock.now_ms()
        jobs.run_all()
        assert 1_000 <= jobs.clock.now_ms() - began_ms <= 4_000
        assert {run.state for run in jobs.runs} == {JobState.SUCCEEDED}
    assert sorted(ran) == ["a0", "a1", "a2", "b0"]
    assert ran.index("b0") <= 1


def test_a_group_at_its_maximum_waits_for_the_end_of_its_job() -> None:
    with testing.in_memory(app) as jobs:
        app.client.update_queue("turns", "", set={"group_concurrency": "1"})
        for name in ("a0", "a1", "b0"):
            take.enqueue(name)
        (running,) = app.client.dequeue(DequeueRequest("turns", 1))
        jobs.run_all()
        assert ran == ["b0"]
        app.client.ack("turns", [running])
        jobs.run_all()
    assert ran == ["b0", "a1"]
