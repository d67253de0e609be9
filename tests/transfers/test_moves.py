"""A shard goes to another store, while its servers run, and however often the move is interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from pinlater.backends.base import Shard
from pinlater.backends.redis.shard import RedisShard
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.errors import StoreRefused
from pinlater.model import Ack
from pinlater.transfers.shard_move import ShardMove
from pinlater.wire.convert import acks_to_wire
from tests.server.commands import Shell
from tests.server.running import Plain, running
from tests.server.test_reload import table, told, write
from tests.stores.places import Places
from tests.transfers.conftest import StoreOfKind, only
from tests.transfers.holdings import differences, holdings
from tests.transfers.passage import HeldClock, cut_blocks
from tests.transfers.population import populate


class _Interrupted(Exception):
    """Where a move ends."""


def _nothing(done: int) -> None:
    """Nobody looks."""


async def _moved(source: Shard, target: Shard, now_ms: int, on_progress: Callable[[int], None] = _nothing) -> None:
    move = ShardMove(source, HeldClock(now_ms))
    await move.close()
    await move.wait_until_left(0, lambda facts: None)
    header, state = await move.begin(target)
    await move.copy(target, header, state, on_progress)


@only("sqlite-file", "redis")
@only("sqlite-file", "redis", name="target")
async def test_a_move_that_is_interrupted_goes_on_or_is_taken_back(
    source: StoreOfKind, target: StoreOfKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_blocks(monkeypatch, 60)
    url, new_url = source.fresh(), target.fresh()
    shard = await source.open(url, marked=True)
    now_ms = await populate(shard, 200)
    before = await holdings(shard, now_ms)
    told = 0

    def interrupt(done: int) -> None:
        nonlocal told
        told += 1
        if told % 3 == 0:
            raise _Interrupted

    new = await target.open(new_url, marked=True)
    with pytest.raises(_Interrupted):
        await _moved(shard, new, now_ms, interrupt)
    for place, store in ((url, source), (new_url, target)):
        with pytest.raises(StoreRefused, match="shard move"):
            await store.open(place)
    await ShardMove(shard, HeldClock(now_ms)).take_back()
    again = await source.open(url)
    await again.kv_put("audit", "meanwhile", b"", now_ms + 10**10, now_ms)
    with pytest.raises(StoreRefused, match="another export"):
        await _moved(shard, new, now_ms)
    await new.transfer().clear()  # type: ignore[attr-defined]
    rounds = 0
    header = None
    while True:
        move = ShardMove(shard, HeldClock(now_ms + rounds))
        await move.close()
        header, state = await move.begin(new, replaces=header is None)
        try:
            await move.copy(new, header, state, interrupt)
        except _Interrupted:
            rounds += 1
        else:
            break
    assert rounds > 2
    with pytest.raises(StoreRefused, match="was closed"):
        await source.open(url)
    held = await holdings(await target.open(new_url), now_ms)
    assert held["kv audit"].pop("meanwhile")
    assert differences(before, held) == {}


@only("sqlite-file", "postgres")
async def test_a_shard_whose_move_was_interrupted_can_be_closed(
    source: StoreOfKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that reads it waits for nobody who takes what it has read."""
    cut_blocks(monkeypatch, 5)
    shard, new = await source.open(source.fresh(), marked=True), await source.open(source.fresh(), marked=True)
    now_ms = await populate(shard, 120)

    def interrupt(done: int) -> None:
        if done:
            raise _Interrupted

    with pytest.raises(_Interrupted) as interrupted:
        await _moved(shard, new, now_ms, interrupt)
    async with asyncio.timeout(20):
        await shard.close()
    assert interrupted.traceback


@pytest.mark.slow
async def test_a_shard_moves_while_its_server_runs(tmp_path: Path, sqlite_places: Places, redis_places: Places) -> None:
    """No job is lost or handed out twice, and claims from before the move are acked after it."""
    old, other, new = sqlite_places.fresh(), redis_places.fresh(), redis_places.fresh()
    shell = Shell(tmp_path, "127.0.0.1:1")
    with running(tmp_path, *write(tmp_path, table("1", old), table("2", other))) as server:
        connection, second = await Plain.to(server.port), await Plain.to(server.port)
        await connection.create_queue("mail")
        stored = {name for _ in range(60) for name in await connection.enqueue("mail", b"x")}
        claimed: dict[str, bytes] = {}
        while not any(":s1:" in name for name in claimed):
            claimed |= await connection.dequeue("mail", 5)
        is_over = asyncio.Event()

        async def produce() -> None:
            while not is_over.is_set():
                stored.update(await second.enqueue("mail", b"y"))

        producer = asyncio.create_task(produce())
        arguments = ("shard", "move", "1", new, "--config", "server.toml", "--yes", "--wait", "0s")
        moved = await asyncio.to_thread(shell, *arguments)
        assert "shard 1 moved" in moved.err
        refused = server.wait_for("store_refused")
        assert "`pinlater shard move`" in str(refused["error"])
        assert "hint" not in refused
        seen = len(server.events)
        write(tmp_path, table("1", new), table("2", other))
        assert (await told(server, "configuration_changed", seen))["shards_moved"] == ["1"]
        await told(server, "rolled", seen)
        is_over.set()
        await producer
        await connection.close()
        await second.close()
        connection = await Plain.to(server.port)
        acks = [Ack(name) for name in claimed]
        await connection.call("ackDequeuedJobs", request=acks_to_wire("mail", acks, []))
        assert shell(
            "job", "count", "mail", "--state", "succeeded", PINLATER_SERVER=f"127.0.0.1:{server.port}"
        ).out == (f"{len(claimed)}\n")
        handed_out: list[str] = []
        while jobs := await connection.dequeue("mail", 500):
            handed_out += jobs
        assert sorted(handed_out) == sorted(stored - claimed.keys())
        await connection.close()
        assert "is there already" in shell(*arguments[:4], "--from", old, "--yes").err
        shell("shard", "move", "1", new, "--from", old, "--undo", code=1)


@pytest.mark.slow
async def test_a_move_into_a_store_that_is_no_place_for_it_closes_nothing(
    tmp_path: Path, sqlite_places: Places, redis_places: Places
) -> None:
    shell, old, new = Shell(tmp_path, "127.0.0.1:1"), sqlite_places.fresh(), redis_places.fresh()
    for number, place in enumerate((old, new)):
        shard = (SqliteShard if place == old else RedisShard)(place, "1")
        await shard.open()
        await populate(shard, 30, seed=number)
        await shard.close()
    arguments = ("shard", "move", "1", new, "--from", old, "--yes", "--wait", "0s")
    assert "--replace" in shell(*arguments, code=1).err
    assert "is not closed" in shell(*arguments, "--undo").err
    shell("shard", "move", "2", new, "--from", old, "--yes", code=1)
    shell(*arguments, "--replace")
    assert "is there already" in shell(*arguments).err
    back = ("shard", "move", "1", old, "--from", new, "--yes", "--wait", "0s")
    assert "was closed" in shell(*back, code=1).err
    shell(*back, "--replace")
    shell("export", old, "again.export")
    assert "shard 1" in shell("import", "--check", "again.export").err
