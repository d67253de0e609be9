"""Small calls that wait for SQLite's one writer share a transaction, and none of them another's fate."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pinlater.backends.base import ClaimRequest, PerQueue, Retention
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.errors import QueueNotFound, StoreConflict, StoreFull
from pinlater.model import Job
from tests.queues import make_queue

NOW_MS = 1_790_000_000_000
LIMITLESS = 2**30
WITHIN_S = 60.0


@pytest.fixture
def shard(tmp_path: Path, runner: asyncio.Runner) -> Iterator[SqliteShard]:
    """An open shard with one queue."""
    made = SqliteShard(f"sqlite:///{tmp_path}/a.db", "1", busy_timeout_ms=50)
    runner.run(made.open())
    runner.run(make_queue(made, "mail", NOW_MS))
    yield made
    runner.run(made.close())


@contextlib.asynccontextmanager
async def held_up(shard: SqliteShard) -> AsyncIterator[list[str]]:
    """What is called within waits for the writer; the list gets its statements."""
    loop, begun, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    said: list[str] = []

    def hold(session: Any) -> None:
        session.cursor.execute("COMMIT")  # the writer waits, and the file is free
        session.cursor.connection.set_trace_callback(said.append)
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(WITHIN_S)

    holding = asyncio.ensure_future(shard.write(hold))
    await begun.wait()
    try:
        yield said
        await asyncio.sleep(0)  # the calls are made
    finally:
        go_on.set()
        await holding


def turns(said: list[str]) -> list[str]:
    """Where transactions began and ended."""
    return [text.split()[0] for text in said if text.split()[0] in ("BEGIN", "COMMIT", "ROLLBACK")]


async def pending(shard: SqliteShard) -> int:
    return (await shard.count_ready("mail", [1], 10_000, NOW_MS))[0]


async def test_calls_that_wait_are_flushed_to_the_disk_together(shard: SqliteShard) -> None:
    request = ClaimRequest("a:b:c:d:e", 2, (1,), 1000, LIMITLESS)
    async with held_up(shard) as said:
        calls = asyncio.gather(
            shard.enqueue("mail", [Job(b"x")] * 3, NOW_MS),
            shard.claim("mail", [request], NOW_MS),
            shard.enqueue("mail", [Job(b"y")], NOW_MS),
        )
    stored, (claimed,), (last,) = await calls
    assert turns(said) == ["BEGIN", "COMMIT"]
    assert [job.descriptor for job in claimed] == stored[:2]
    assert last > stored[-1]
    assert await pending(shard) == 2


async def test_one_that_fails_undoes_what_it_did_and_nothing_else(shard: SqliteShard) -> None:
    broken = [Job(b"x")] * 64 + [Job(object())]  # type: ignore[arg-type]
    async with held_up(shard):
        calls = asyncio.gather(
            shard.enqueue("mail", [Job(b"x")], NOW_MS),
            shard.enqueue("mail", broken, NOW_MS),
            shard.enqueue("nowhere", [Job(b"x")], NOW_MS),
            shard.enqueue("mail", [Job(b"x")], NOW_MS),
            return_exceptions=True,
        )
    first, failed, not_found, last = await calls
    assert isinstance(failed, Exception)
    assert isinstance(not_found, QueueNotFound)
    assert len(first) == len(last) == 1  # type: ignore[arg-type]
    assert await pending(shard) == 2


async def test_a_large_step_has_a_transaction_of_its_own_in_its_turn(shard: SqliteShard) -> None:
    async with held_up(shard) as said:
        calls = asyncio.gather(
            shard.enqueue("mail", [Job(b"x")], NOW_MS),
            shard.prune(10, NOW_MS, PerQueue(Retention(0, 0))),
            shard.enqueue("mail", [Job(b"x")], NOW_MS),
        )
    await calls
    assert turns(said) == ["BEGIN", "COMMIT"] * 3


async def test_a_caller_that_is_gone_before_its_turn_leaves_nothing(shard: SqliteShard) -> None:
    async with held_up(shard):
        calls = [asyncio.ensure_future(shard.enqueue("mail", [Job(b"x")], NOW_MS)) for _ in range(3)]
        await asyncio.sleep(0)
        calls[1].cancel()
    assert [isinstance(each, list) for each in await asyncio.gather(*calls, return_exceptions=True)] == [
        True,
        False,
        True,
    ]
    assert await pending(shard) == 2


async def test_a_file_that_stays_locked_is_a_conflict_for_each(shard: SqliteShard) -> None:
    other = sqlite3.connect(shard.path, isolation_level=None)
    async with held_up(shard):
        other.execute("BEGIN IMMEDIATE")
        calls = asyncio.gather(*[shard.enqueue("mail", [Job(b"x")], NOW_MS) for _ in range(3)], return_exceptions=True)
    assert [type(each) for each in await calls] == [StoreConflict] * 3
    other.close()
    assert await pending(shard) == 0


async def test_a_disk_that_gets_full_takes_nothing_of_any_and_says_so_to_each(shard: SqliteShard) -> None:
    def bound(session: Any, pages: int) -> None:
        session.cursor.execute(f"PRAGMA max_page_count = {pages}").fetchall()

    await shard.write(bound, 40)
    async with held_up(shard):
        calls = asyncio.gather(
            shard.enqueue("mail", [Job(b"x")], NOW_MS),
            shard.enqueue("mail", [Job(b"x" * 1000)] * 500, NOW_MS),
            shard.enqueue("mail", [Job(b"x")], NOW_MS),
            return_exceptions=True,
        )
    outcomes = await calls
    assert isinstance(outcomes[1], StoreFull)
    stored = sum(isinstance(each, list) for each in outcomes)
    assert [type(each) for each in outcomes if not isinstance(each, list)] == [StoreFull] * (3 - stored)
    assert await pending(shard) == stored
