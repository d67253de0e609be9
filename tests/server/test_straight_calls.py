"""Calls of Client that go the short way: which do, what ends them, and what is left behind."""

from __future__ import annotations

import ast
import asyncio
import inspect
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from pinlater import Client, DequeueRequest, Job, JobFilter, JobState
from pinlater.client.async_client import AsyncClient
from pinlater.client.pool import PoolLimits
from pinlater.client.straight_calls import NEEDS_LOOP
from tests.faults.proxy import Proxy
from tests.server.running import RunningServer, running
from tests.server.serving import Served, serving
from tests.stores.process import dies_with_us

PENDING = JobFilter("mail", JobState.PENDING)
WITHIN_S = 30.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("straight")) as started:
        with Client(f"127.0.0.1:{started.port}") as client:
            client.create_queue("mail")
        yield started


def threads_of_clients() -> int:
    return sum(each.name == "pinlater-client" for each in threading.enumerate())


async def test_few_calls_need_no_thread_and_enqueues_that_meet_many_join_them() -> None:
    async with serving() as served:
        before = threads_of_clients()
        with Client(f"127.0.0.1:{served.port}") as client:
            for call in (
                lambda: client.enqueue("mail", Job(b"1")),
                lambda: client.enqueue("mail", [Job(b"2")]),
                lambda: client.dequeue("mail", 2),
                lambda: client.count("mail"),
            ):
                await asyncio.to_thread(call)
            assert threads_of_clients() == before
            assert served.server.connections == 1
            served.service.hold["slow"] = asyncio.Event()
            held = [asyncio.create_task(asyncio.to_thread(client.enqueue, "slow", Job(b"x"))) for _ in range(4)]
            await served.until(lambda: len(served.service.jobs.get("slow", ())) == 4 or served.server.connections == 4)
            assert threads_of_clients() == before
            held.append(asyncio.create_task(asyncio.to_thread(client.enqueue, "slow", Job(b"x"))))
            await served.until(lambda: threads_of_clients() == before + 1)
            served.service.hold["slow"].set()
            await asyncio.gather(*held)


def test_the_calls_that_await_several_things_are_left_to_the_loop() -> None:
    """All others are coroutines that no loop runs: they may not ask asyncio for anything."""
    for name, method in inspect.getmembers(AsyncClient, inspect.iscoroutinefunction):
        made = inspect.unwrap(method)
        tree = ast.parse(textwrap.dedent(inspect.getsource(made)))
        asks = any(isinstance(each, ast.Name) and each.id in ("asyncio", "QueueRounds") for each in ast.walk(tree))
        if name == "close" or name.startswith("_dequeue_"):
            continue
        assert asks <= (name in NEEDS_LOOP), name


@pytest.mark.usefixtures("client_way")
def test_connections_that_the_server_closed_or_that_were_idle_for_long_are_replaced() -> None:
    async def replaced(idle_s: float, meanwhile: Callable[[Served], Any]) -> None:
        async with serving() as served:
            client = Client(f"127.0.0.1:{served.port}", pool=PoolLimits(idle_s=idle_s))
            for _ in range(3):
                await asyncio.to_thread(client.enqueue, "mail", Job(b""))
                await meanwhile(served)
            assert len(served.service.jobs["mail"]) == 3
            await asyncio.to_thread(client.close)
            await served.until(lambda: served.server.connections == 0)

    async def closed(served: Served) -> None:
        for connection in served.server.open_connections:
            connection.abort()
        await served.until(lambda: served.server.connections == 0)

    asyncio.run(replaced(20.0, closed))
    asyncio.run(replaced(0.02, lambda _: asyncio.sleep(0.05)))


INTERRUPTED = """
import os, signal, sys, threading, time
from pinlater import Client, Job, JobFilter, JobState

def count():
    return client.count(JobFilter("interrupted", JobState.PENDING))

client = Client(sys.argv[1])
client.create_queue("interrupted")
print(count(), flush=True)
sys.stdin.readline()
threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
began_s = time.monotonic()
try:
    client.enqueue("interrupted", Job(b"given up"), timeout=60)
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - began_s < 30, flush=True)
sys.stdin.readline()
client.enqueue("interrupted", Job(b"next"))
print(count() in (1, 2), count() == count(), flush=True)
"""


def test_an_interrupted_call_is_given_up_and_the_next_is_answered(server: RunningServer) -> None:
    with ExitStack() as ending:
        proxy = ending.enter_context(Proxy(server.port))
        command = [*dies_with_us(), sys.executable, "-c", INTERRUPTED, f"127.0.0.1:{proxy.port}"]
        program = ending.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        late = threading.Timer(WITHIN_S * 4, program.kill)
        late.start()
        ending.callback(late.cancel)
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "0\n"
        proxy.black_hole()
        print(file=program.stdin, flush=True)
        assert program.stdout.readline() == "interrupted True\n"
        proxy.heal()
        print(file=program.stdin, flush=True)
        assert program.stdout.readline() == "True True\n"
        assert program.wait(WITHIN_S) == 0


GREENLETS = """
from gevent import monkey
monkey.patch_all()
import sys, time
import gevent
from pinlater import Client, DequeueRequest, Job

client = Client(sys.argv[1])
client.create_queue("greenlets")
turns = 0

def count_turns():
    global turns
    while True:
        turns += 1
        gevent.sleep(0.001)

counting = gevent.spawn(count_turns)
one = client.enqueue("greenlets", Job(b"alone"))
some = [gevent.spawn(client.enqueue, "greenlets", Job(b"%d" % number)) for number in range(50)]
gevent.joinall(some, raise_error=True)
print(len({one, *(each.value for each in some)}))
before = turns
client.dequeue(DequeueRequest("nothing", 1, wait_ms=300))
print(turns - before > 10)
counting.kill()
with gevent.Timeout(0.2, False):
    client.dequeue(DequeueRequest("nothing", 1, wait_ms=20_000))
print(len(client.dequeue(DequeueRequest("greenlets", 100))))
client.close()
"""


def test_greenlets_share_a_client_and_others_go_on_meanwhile(server: RunningServer) -> None:
    with Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("nothing")
    command = [sys.executable, "-c", GREENLETS, f"127.0.0.1:{server.port}"]
    program = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S * 4, check=False)
    assert program.stdout.split() == ["51", "True", "51"], program.stderr


@pytest.mark.usefixtures("client_way")
def test_a_client_that_is_left_alone_leaves_no_open_socket(server: RunningServer) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client = Client(f"127.0.0.1:{server.port}")
        client.count(PENDING)
        del client
    assert not [each for each in caught if issubclass(each.category, ResourceWarning)]


def test_a_dequeue_whose_claims_are_bound_to_the_connection_goes_by_the_loop(server: RunningServer) -> None:
    """The connection of a thread is closed when it was idle for long, and claims would end with it."""
    before = threads_of_clients()
    with Client(f"127.0.0.1:{server.port}") as client:
        client.count(PENDING)
        assert threads_of_clients() == before
        client.dequeue(DequeueRequest("mail", 1, release_on_disconnect=True))
        assert threads_of_clients() == before + 1
