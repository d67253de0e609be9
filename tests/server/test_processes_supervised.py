"""Supervision alone, with workers that misbehave on purpose."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pinlater.config import load
from pinlater.plan import make_plan
from pinlater.server import generation
from pinlater.server.generation import Generation, ProcessFailed, ServePlan
from pinlater.server.supervisor import ServeRefused, Supervisor
from tests.server.running import every, lives
from tests.speed import slower


def plan(behaviour: str = "", *, processes: int = 2, drain_timeout_ms: int = 100) -> ServePlan:
    return ServePlan(
        host="127.0.0.1",
        port=0,
        processes=processes,
        command=[sys.executable, "-m", "tests.server.toy_worker"],
        payload={"behaviour": behaviour, "drain_timeout_ms": drain_timeout_ms},
        drain_timeout_ms=drain_timeout_ms,
        facts={},
    )


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """A supervisor changes them for good: its process is to end."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@asynccontextmanager
async def supervised(behaviour: str = "", **fields: int) -> AsyncIterator[str]:
    """A supervisor in this very process; its address. It ends with the block."""
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def make_plan() -> ServePlan:
        return plan(behaviour, **fields)

    run = asyncio.ensure_future(Supervisor(make_plan, address.set_result).run())
    await asyncio.wait((run, address), return_when=asyncio.FIRST_COMPLETED)
    if run.done():
        run.result()
    yield await address
    if not run.done():
        os.kill(os.getpid(), signal.SIGTERM)
    await run


async def who(address: str) -> int:
    """Which worker serves a new connection."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"\n")
    pid = int(await reader.readline())
    writer.close()
    await writer.wait_closed()
    return pid


async def test_workers_take_turns() -> None:
    async with supervised() as address:
        pids = [await who(address) for _ in range(10)]
        assert sorted(pids.count(pid) for pid in set(pids)) == [5, 5]


async def test_a_connection_that_was_given_away_is_not_kept() -> None:
    async with supervised() as address:
        await who(address)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            await who(address)
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(("behaviour", "why"), [("refuses", "I will not"), ("dies at once", "exit code 7")])
async def test_workers_that_never_start_are_given_up_with_a_reason(behaviour: str, why: str) -> None:
    with pytest.raises(ServeRefused, match=why):
        async with supervised(behaviour):
            pass


async def test_a_worker_that_dies_again_and_again_is_replaced_with_longer_and_longer_pauses() -> None:
    began = time.monotonic()
    workers = Generation(plan("dies soon", processes=1))
    await workers.start()
    seen: set[int] = set()
    await every(0.01, lambda: len(seen.update(workers.pids()) or seen) >= 4)
    assert time.monotonic() - began >= 0.1 + 0.2 + 0.4
    await workers.kill()


async def test_connections_wait_while_no_worker_takes_them() -> None:
    async with supervised(processes=1) as address:
        first = await who(address)
        os.kill(first, signal.SIGKILL)
        await every(0.001, lambda: is_dead(first))
        assert await who(address) != first


def is_dead(pid: int) -> bool:
    """Gone, or a zombie; its supervisor may collect it at any instant."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_a_worker_that_hangs_is_killed_at_the_end_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "GRACE_S", 0.2)
    workers = Generation(plan("hangs"))
    await workers.start()
    pids = workers.pids()
    await workers.drain()
    assert not any(lives(pid) for pid in pids)


async def test_a_second_signal_breaks_off_the_drain() -> None:
    began = time.monotonic()
    async with supervised("drains slowly", drain_timeout_ms=60_000):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.6)
    assert time.monotonic() - began < slower(time.monotonic) * 10


async def test_one_that_does_not_start_takes_the_others_with_it() -> None:
    workers = Generation(plan("refuses", processes=3))
    with pytest.raises(ProcessFailed):
        await workers.start()
    assert workers.pids() == []


async def test_a_start_says_what_is_missing_to_reach_the_database_of_flows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pinlater.plan.find_spec", lambda name: None if name == "psycopg" else name)
    flags = {"data": str(tmp_path / "data"), "flows": "postgresql+psycopg://pinlater@127.0.0.1/flows"}
    with pytest.raises(ServeRefused, match=r"needs the Python package psycopg: pip install '\.\[postgresql\]'"):
        await make_plan(load(flags, {}).config, ())
