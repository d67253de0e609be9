"""Jobs that the overflow shard stores although nobody waits for the call any more are moved like all others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.data_folder.identity import is_overflow_id
from pinlater.model import Job
from tests.unit.overflow_stand import ME, process


async def test_a_job_that_is_stored_after_its_caller_left_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_now, stored = _hold_enqueues(monkeypatch)
    async with process(tmp_path) as one:
        one.lose_shards()
        call = asyncio.ensure_future(one.api.enqueue("mail", [Job(b"late")], context=ME))
        await store_now.begun.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await one.kept.tidy()
        store_now.set()
        await stored.wait()
        await one.find_shards()
        await one.kept.tidy()
        await one.overflow.move()
        assert [job.body for job in await one.dequeue()] == [b"late"]


async def test_a_queue_is_not_looked_at_for_ever_for_a_call_that_stored_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_now, _ = _hold_enqueues(monkeypatch)
    async with process(tmp_path) as one:
        one.lose_shards()
        call = asyncio.ensure_future(one.api.enqueue("nowhere", [Job(b"")], context=ME))
        await store_now.begun.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        store_now.set()
        assert "nowhere" in one.kept.mover.holding
        one.clock.tick(60_000)
        await one.kept.tidy()
        assert not one.kept.mover.holding


class _Gate(asyncio.Event):
    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()


def _hold_enqueues(monkeypatch: pytest.MonkeyPatch) -> tuple[_Gate, asyncio.Event]:
    """Enqueues begin at the file of the overflow shard, and go on when the gate is set; then `stored` is. To be called
    before the process is made: what stands around a store knows its methods.
    """
    gate, stored = _Gate(), asyncio.Event()
    enqueue = SqliteShard.enqueue

    async def held(store: SqliteShard, *args: Any) -> list[str]:
        if not is_overflow_id(store.shard_id):
            return await enqueue(store, *args)
        gate.begun.set()
        await gate.wait()
        try:
            return await enqueue(store, *args)
        finally:
            stored.set()

    monkeypatch.setattr(SqliteShard, "enqueue", held)
    return gate, stored
