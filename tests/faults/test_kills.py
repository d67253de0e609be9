"""Servers and stores killed and restarted at random moments under load: one order explains all that was answered."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from pinlater.wire.methods import LOOKUP
from pinlater.wire.operator_methods import GET_QUEUES
from tests.faults.load import BROKEN, QUEUE, Load, acknowledge, take
from tests.faults.operated import Operated, store_steps
from tests.faults.recorded_run import RecordedRun
from tests.server.running import Plain
from tests.stores.places import Places
from tests.stores.process import StoreServer

ROUNDS = int(os.environ.get("PINLATER_KILL_ROUNDS", "20"))
EACH_KIND_ONCE = 6
DYNAMODB = {"rounds": min(ROUNDS, EACH_KIND_ONCE), "calls": 150, "limit": 50}
"""DynamoDB Local takes some milliseconds for each job."""

CALLS_BETWEEN = int(os.environ.get("PINLATER_KILL_CALLS", "300"))
"""Answered calls between two kills."""

CLAIM_TIMEOUT_MS = 2_000
STUCK_AFTER_S = 60
SETTINGS = ["--claim-timeout", "2s", "--maintenance-interval", "1s", "--crash-budget", "0", "--log-level", "warning"]


async def when_it_serves(port: int, run: RecordedRun) -> Plain:
    """A connection to a server that answers calls on its store. What it says of the queue is in the history."""
    async with asyncio.timeout(STUCK_AFTER_S):
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, AssertionError):
                plain = await run.plain(port)
                try:
                    await plain.create_queue(QUEUE)
                    await plain.call("getQueues", request=GET_QUEUES.request([QUEUE]))
                except BaseException:
                    await plain.close()
                    raise
                return plain
            await asyncio.sleep(0.1)


async def drain(
    port: int, run: RecordedRun, limit: int, may_be_gone: Callable[[str], bool] = lambda _: False
) -> list[str]:
    """Take and end all there is, until every job has ended; those that never do, as `lost` says them, but for those
    that may be gone. A store that is slow, or out for a while, is waited for; what has still not come STUCK_AFTER_S
    after the last job never will.
    """
    left = ["nobody could ask"]
    quiet_since = time.monotonic()
    while left and time.monotonic() - quiet_since < STUCK_AFTER_S:
        plain = await when_it_serves(port, run)
        with contextlib.suppress(*BROKEN):
            while jobs := await take(plain, limit, wait_ms=500):
                await acknowledge(plain, jobs, [])
                quiet_since = time.monotonic()
            left = [each for each in await lost(plain, run) if not may_be_gone(each)]
        await plain.close()
    return left


async def lost(plain: Plain, run: RecordedRun) -> list[str]:
    """Jobs whose success was never answered, and that did not succeed; with the state of each."""
    open_ends = run.open_jobs()
    bad: list[str] = []
    for start in range(0, len(open_ends), 1_000):
        part = open_ends[start : start + 1_000]
        found = LOOKUP.result(await plain.call("lookupJobs", request=LOOKUP.request(part, False)))
        states = {name: found[name].state.name if name in found else "not there" for name in part}
        bad += [f"{name} {state}" for name, state in states.items() if state != "SUCCEEDED"]
    return bad


async def survives(
    server: Operated,
    steps: list[Callable[[], Awaitable[None]]],
    run: RecordedRun,
    rounds: int = ROUNDS,
    calls: int = CALLS_BETWEEN,
    limit: int = 1_000,
) -> None:
    await (await when_it_serves(server.port, run)).close()
    load = Load(server.port, run, CLAIM_TIMEOUT_MS)
    serving_s = 0.0
    load.start()
    try:
        for number in range(rounds + 1):
            await load.grows_by(1)
            serving_since = time.monotonic()
            await load.grows_by(calls)
            serving_s += time.monotonic() - serving_since
            if number < rounds:
                await asyncio.sleep(random.uniform(0, 0.05))
                await steps[number % len(steps)]()
    finally:
        await load.stop()
    left = await drain(server.port, run, limit)
    rate = (rounds + 1) * calls / serving_s
    print(f"{rounds} rounds, {load.calls} calls, {rate:.0f}/s while it served")
    verdict = run.judge()
    assert verdict.jobs >= load.stored
    assert verdict.unsettled_jobs == 0
    assert left == []


@pytest.fixture
def operated(tmp_path: Path) -> Iterator[Callable[..., Operated]]:
    running: list[Operated] = []

    def start(*arguments: str) -> Operated:
        running.append(Operated(tmp_path, [*arguments, *SETTINGS]))
        return running[-1]

    yield start
    for server in running:
        server.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rounds"),
    [
        pytest.param(name, rounds, id=f"{name}{suffix}", marks=pytest.mark.store(name))
        for suffix, rounds, names in (
            ("", EACH_KIND_ONCE, ("redis", "mysql", "postgres", "dynamodb")),
            ("-many", ROUNDS, ("redis", "mysql", "postgres")),
        )
        for name in names
    ],
)
async def test_what_was_answered_survives_kills_of_server_and_store(
    operated: Callable[..., Operated], name: str, rounds: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store: StoreServer = request.getfixturevalue(f"durable_{name}_server")
    store.empty(0)
    server = operated("--store", f"1={store.url()}", "--processes", "2")
    ours = [server.kill_a_worker, server.kill_all, server.roll, server.restart]
    bounds = DYNAMODB if name == "dynamodb" else {"rounds": rounds}
    await survives(server, [*ours, *store_steps(store)], RecordedRun(tmp_path), **bounds)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [EACH_KIND_ONCE, ROUNDS], ids=["sqlite", "sqlite-many"])
async def test_what_was_answered_on_sqlite_survives_kills_of_the_server(
    operated: Callable[..., Operated], sqlite_places: Places, rounds: int, tmp_path: Path
) -> None:
    server = operated("--store", f"1={sqlite_places.fresh()}")
    steps = [server.kill_a_worker, server.kill_all, server.roll, server.restart]
    await survives(server, steps, RecordedRun(tmp_path), rounds=rounds)
