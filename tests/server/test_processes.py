"""Processes under load: killed, stopped and rolled, with plain connections that retry nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.running import Plain, RunningServer, every, lives, running
from tests.speed import slower
from tests.stores.places import Places

CONNECTIONS = 64


class Load:
    """Connections that enqueue one job after the other until told to stop; what was answered, and what failed."""

    def __init__(self) -> None:
        self.answered: list[str] = []
        self.failures: list[BaseException] = []
        self._answering: set[Plain] = set()
        self._going = True
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, port: int, connections: int = CONNECTIONS) -> None:
        opened = [await Plain.to(port) for _ in range(connections)]
        await opened[0].create_queue("mail")
        self._tasks = [asyncio.create_task(self._enqueue(connection)) for connection in opened]
        while len(self._answering) < connections:  # on a busy machine some of them wait to be accepted
            await self.grows_by(1)

    async def _enqueue(self, connection: Plain) -> None:
        try:
            while self._going:
                self.answered += await connection.enqueue("mail", b"body")
                self._answering.add(connection)
        except (OSError, asyncio.IncompleteReadError, AssertionError) as failure:
            self.failures.append(failure)
        finally:
            await connection.close()

    async def grows_by(self, jobs: int) -> None:
        """Until so many more are answered."""
        target = len(self.answered) + jobs
        deadline = time.monotonic() + 60
        while len(self.answered) < target:
            assert time.monotonic() < deadline, self.failures
            assert not all(task.done() for task in self._tasks), self.failures
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self._going = False
        await asyncio.gather(*self._tasks)


async def stored(port: int) -> set[str]:
    """The descriptors of all jobs, by taking them."""
    connection = await Plain.to(port)
    found: set[str] = set()
    while jobs := await connection.dequeue("mail", 5000):
        found |= jobs.keys()
    await connection.close()
    return found


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[RunningServer]:
    with running(tmp_path) as server:
        yield server


@pytest.fixture
def two_processes(tmp_path: Path, redis_places: Places) -> Iterator[RunningServer]:
    with running(tmp_path, "--store", f"1={redis_places.fresh()}", "--processes", "2") as server:
        yield server


async def test_a_killed_worker_is_replaced_and_loses_nothing_that_was_answered(embedded: RunningServer) -> None:
    load = Load()
    await load.start(embedded.port)
    os.kill(embedded.wait_for("ready")["workers"][0], signal.SIGKILL)
    replaced = await asyncio.to_thread(embedded.wait_for, "worker_replaced")
    await load.stop()
    assert len(load.failures) == CONNECTIONS  # all were on the worker that died
    assert set(load.answered) <= await stored(embedded.port)
    assert replaced["worker"] != embedded.wait_for("ready")["workers"][0]


async def test_when_one_of_two_workers_is_killed_the_other_goes_on(two_processes: RunningServer) -> None:
    load = Load()
    await load.start(two_processes.port)
    os.kill(two_processes.wait_for("ready")["workers"][0], signal.SIGKILL)
    await asyncio.to_thread(two_processes.wait_for, "worker_replaced")
    await load.grows_by(500)
    await load.stop()
    assert 0 < len(load.failures) < CONNECTIONS
    assert set(load.answered) <= await stored(two_processes.port)


@pytest.mark.parametrize("served", ["embedded", "two_processes"])
async def test_a_roll_under_load_fails_no_call(served: str, request: pytest.FixtureRequest) -> None:
    server: RunningServer = request.getfixturevalue(served)
    old = server.wait_for("ready")["workers"]
    load = Load()
    await load.start(server.port)
    for _ in range(2):
        seen = len(server.events)
        server.send(signal.SIGHUP)
        await asyncio.to_thread(server.wait_for, "rolled", after=seen)
        await load.grows_by(500)
    await load.stop()
    assert load.failures == []
    assert not set(old) & set(server.wait_for("rolled", after=seen)["workers"])
    assert set(load.answered) == await stored(server.port)


async def test_a_roll_keeps_idle_connections_and_calls_half_sent(embedded: RunningServer) -> None:
    idle, half = await Plain.to(embedded.port), await Plain.to(embedded.port)
    await idle.create_queue("mail")
    half.writer.write(b"\x00\x00")
    embedded.send(signal.SIGHUP)
    await asyncio.to_thread(embedded.wait_for, "ready", after=len(embedded.events))
    whole = half.writer
    await asyncio.sleep(0.1)
    half.writer = Tail(whole)
    await half.enqueue("mail", b"x")
    half.writer = whole
    await asyncio.to_thread(embedded.wait_for, "rolled")
    await idle.enqueue("mail", b"y")
    await half.enqueue("mail", b"z")
    for connection in (idle, half):
        await connection.close()


class Tail:
    """Leaves out the first two bytes, which were sent before."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def write(self, data: bytes) -> None:
        self._writer.write(data[2:])

    async def drain(self) -> None:
        await self._writer.drain()


async def test_sigterm_under_load_answers_what_was_read(embedded: RunningServer) -> None:
    load = Load()
    await load.start(embedded.port)
    began = time.monotonic()
    code = await asyncio.to_thread(embedded.stop)
    took = time.monotonic() - began
    await load.stop()
    assert code == 0
    assert took < slower(time.monotonic) * 5
    draining = [failure for failure in load.failures if "DRAINING" in str(failure)]
    assert draining, "late calls are refused with a clear error"
    assert all("DRAINING" in str(each) or isinstance(each, asyncio.IncompleteReadError) for each in load.failures)


@pytest.mark.parametrize("group", [False, True], ids=["supervisor", "group"])
async def test_connections_that_wait_to_be_accepted_when_sigterm_comes_are_answered(
    embedded: RunningServer, group: bool
) -> None:
    """`group`: a process manager may signal the workers too."""
    port = embedded.port
    embedded.send(signal.SIGSTOP)  # the kernel goes on completing connections
    waiting = [await Plain.to(port) for _ in range(200)]
    calls = [asyncio.ensure_future(each.call("getQueueNames")) for each in waiting]
    await asyncio.sleep(0)
    embedded.send(signal.SIGTERM)
    for worker in embedded.wait_for("ready")["workers"] if group else ():
        os.kill(worker, signal.SIGTERM)
    embedded.send(signal.SIGCONT)
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert [end for end in ends if isinstance(end, BaseException) and "DRAINING" not in str(end)] == []
    assert await asyncio.to_thread(embedded.ended) == 0
    for each in waiting:
        await each.close()


async def test_sigterm_ends_a_long_poll_with_an_empty_answer(embedded: RunningServer) -> None:
    connection = await Plain.to(embedded.port)
    await connection.create_queue("mail")
    poll = asyncio.create_task(connection.dequeue("mail", wait_ms=60_000))
    await asyncio.sleep(0.2)
    assert await asyncio.to_thread(embedded.stop) == 0
    assert await poll == {}
    await connection.close()


async def test_a_worker_ends_when_its_supervisor_is_killed(embedded: RunningServer) -> None:
    worker = embedded.wait_for("ready")["workers"][0]
    embedded.send(signal.SIGKILL)
    await every(0.02, lambda: not lives(worker))


async def test_a_worker_told_to_end_by_somebody_else_is_replaced(embedded: RunningServer) -> None:
    os.kill(embedded.wait_for("ready")["workers"][0], signal.SIGTERM)
    await asyncio.to_thread(embedded.wait_for, "worker_replaced")
    assert embedded.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_signals_that_come_when_it_has_stopped_change_nothing(
    embedded: RunningServer, number: signal.Signals
) -> None:
    embedded.wait_for("ready")
    embedded.send(signal.SIGTERM)
    await asyncio.to_thread(embedded.wait_for, "stopped")
    while embedded.process.poll() is None:
        embedded.send(number)
        await asyncio.sleep(0.0005)
    assert embedded.ended() == 0
