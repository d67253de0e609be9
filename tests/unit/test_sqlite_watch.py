"""An SQLite file that is watched: what changes it is told, whichever process does it, and the end of the watch too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pinlater.backends.base import UNKNOWN_CHANGE, Notification
from pinlater.backends.sql.sqlite import EVERY_S, FileWatch, SqliteShard
from pinlater.errors import ShardConnectionFailed
from pinlater.model import Job
from tests.queues import make_queue

NOW_MS = 1_790_000_000_000
WITHIN_S = 60.0


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteShard]:
    shard = SqliteShard(f"sqlite:///{path}", "1")
    await shard.open()
    try:
        yield shard
    finally:
        await shard.close()


async def next_of(events: asyncio.Queue[Notification | None]) -> Notification | None:
    return await asyncio.wait_for(events.get(), WITHIN_S)


async def test_what_another_process_brings_is_told(tmp_path: Path) -> None:
    events: asyncio.Queue[Notification | None] = asyncio.Queue()
    async with opened(tmp_path / "a.db") as here, opened(tmp_path / "a.db") as there:
        await make_queue(here, "mail", NOW_MS)
        assert await here.subscribe("mail", events.put_nowait)
        await there.enqueue("mail", [Job(b"x")], NOW_MS)
        assert await next_of(events) == UNKNOWN_CHANGE
        assert (await here.next_due(["mail"], (1,)))["mail"] == NOW_MS


async def test_nothing_is_told_while_nothing_changes(tmp_path: Path) -> None:
    events: asyncio.Queue[Notification | None] = asyncio.Queue()
    async with opened(tmp_path / "a.db") as shard:
        await make_queue(shard, "mail", NOW_MS)
        assert await shard.subscribe("mail", events.put_nowait)
        assert await shard.claim("mail", [], NOW_MS) == []
        await shard.count_ready("mail", (1,), 1, NOW_MS)
        await asyncio.sleep(3 * EVERY_S)
        assert events.empty()


async def test_in_memory_nothing_is_told() -> None:
    shard = SqliteShard("sqlite://", "1")
    await shard.open()
    try:
        assert not await shard.subscribe("mail", lambda news: None)
    finally:
        await shard.close()


async def test_a_watch_that_breaks_says_so_and_can_begin_again() -> None:
    broken = False
    version = 1

    async def ask() -> int:
        if broken:
            raise ShardConnectionFailed("it is gone")
        return version

    events: asyncio.Queue[Notification | None] = asyncio.Queue()
    watch = FileWatch(ask)
    assert await watch.subscribe("mail", events.put_nowait)
    broken = True
    assert await next_of(events) is None
    assert not await watch.subscribe("mail", events.put_nowait)
    assert await next_of(events) is None
    broken = False
    assert await watch.subscribe("mail", events.put_nowait)
    version = 2
    assert await next_of(events) == UNKNOWN_CHANGE
    await watch.close()


async def test_who_leaves_before_the_watch_has_begun_does_not_wait_for_it() -> None:
    async def never() -> int:
        await asyncio.Event().wait()
        return 0

    watch = FileWatch(never)
    coming = asyncio.create_task(watch.subscribe("mail", lambda news: None))
    await asyncio.sleep(0)
    assert not await watch.subscribe("mail", None)
    assert not await asyncio.wait_for(coming, WITHIN_S)
