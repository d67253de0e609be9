"""What was lost, doubled or changed on the way is noticed before a store is opened to servers."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from pinlater.backends.requests import StoredState
from pinlater.backends.store_transfer import ExportBlock, StoreTransfer, transfer_of
from pinlater.errors import StoreRefused
from pinlater.model import Job, JobState
from pinlater.transfers.export_file import FRAME, MAGIC, ExportBroken, ExportReader, ExportWriter
from pinlater.transfers.shard_move import ShardMove
from tests.conformance.subject import key_of
from tests.queues import make_queue
from tests.transfers.conftest import StoreOfKind, only
from tests.transfers.holdings import differences, holdings
from tests.transfers.passage import HeldClock, cut_blocks, exported, imported
from tests.transfers.population import START_MS, populate

JOBS = 80


class _Ended(Exception):
    """Where a process ends."""


def _frames(content: bytes) -> Iterator[bytes]:
    at = len(MAGIC)
    while at < len(content):
        end = at + FRAME.size + FRAME.unpack_from(content, at)[2]
        yield content[at:end]
        at = end


@only("sqlite-file")
async def test_blocks_that_lack_or_changed_places_are_noticed(source: StoreOfKind) -> None:
    shard = await source.open(source.fresh())
    header, first, second, *rest = _frames(await exported(shard, await populate(shard, JOBS)))
    for frames in ([header, second, *rest], [header, second, first, *rest], [header, first, first, second, *rest]):
        with pytest.raises(ExportBroken, match="damaged"):
            ExportReader(io.BytesIO(MAGIC + b"".join(frames))).check()


@only("sqlite-file", "redis", name="target")
async def test_an_export_that_lacks_rows_is_not_opened(target: StoreOfKind) -> None:
    """Its end says what it should hold."""
    source = await target.open(target.fresh())
    now_ms = await populate(source, JOBS)
    reader = ExportReader(io.BytesIO(await exported(source, now_ms)))
    shorter = io.BytesIO()
    writer = ExportWriter(shorter, reader.header)
    for block in reader.blocks():
        if block.kind == "result":
            writer.totals.add(block)
        else:
            writer.put_block(block)
    assert reader.end is not None
    writer.end(reader.end.last_id)
    url = target.fresh()
    with pytest.raises(ExportBroken, match="not what the export says"):
        await imported(await target.open(url, marked=True), shorter.getvalue(), now_ms)
    with pytest.raises(StoreRefused, match="is not over"):
        await target.open(url)


async def test_a_job_that_a_store_did_not_keep_is_noticed(target: StoreOfKind, monkeypatch: pytest.MonkeyPatch) -> None:
    source = await target.open(target.fresh())
    now_ms = await populate(source, JOBS)
    content = await exported(source, now_ms)
    shard = await target.open(target.fresh(), marked=True)
    transfer = transfer_of(shard)
    takes = transfer.load

    async def load(block: ExportBlock, state: bytes, at_ms: int) -> None:
        if block.kind == "job":
            pending = [row for row in block.rows if row[2] == StoredState.PENDING]
            block = ExportBlock("job", [row for row in block.rows if row not in pending[-1:]])
        await takes(block, state, at_ms)

    monkeypatch.setattr(transfer, "load", load)
    monkeypatch.setattr(shard, "transfer", lambda: transfer)
    with pytest.raises(StoreRefused, match="other jobs than were brought"):
        await imported(shard, content, now_ms)


async def test_ids_go_on(target: StoreOfKind) -> None:
    """Also behind jobs that are gone: callers may hold their descriptors."""
    source, url = await target.open(target.fresh()), target.fresh()
    now_ms = START_MS
    await make_queue(source, "mail", now_ms)
    await source.enqueue("mail", [Job(b"there")], now_ms)
    (gone,) = await source.enqueue("mail", [Job(b"gone", 2)], now_ms)
    await source.delete_jobs("mail", JobState.PENDING, 2, 10, now_ms)
    await imported(await target.open(url, marked=True), await exported(source, now_ms), now_ms)
    (new,) = await (await target.open(url)).enqueue("mail", [Job(b"new")], now_ms)
    assert key_of(new).id > key_of(gone).id


async def test_no_more_jobs_are_told_than_are_in_the_store(
    target: StoreOfKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_blocks(monkeypatch, 20)
    source = await target.open(target.fresh())
    now_ms = await populate(source, JOBS)
    content = await exported(source, now_ms)
    shard = await target.open(target.fresh(), marked=True)
    transfer = transfer_of(shard)
    takes, told, taken = transfer.load, [0], [0]

    async def load(block: ExportBlock, state: bytes, at_ms: int) -> None:
        if block.kind == "job":
            taken[0] += 1
            if taken[0] == 3:
                raise _Ended
        await takes(block, state, at_ms)

    monkeypatch.setattr(transfer, "load", load)
    monkeypatch.setattr(shard, "transfer", lambda: transfer)
    with pytest.raises(_Ended):
        await imported(shard, content, now_ms, on_progress=told.append)
    state = await transfer.state()
    assert state is not None
    assert told[-1] == state.totals.rows["job"] > 0


async def test_a_replacement_that_ends_while_it_removes_goes_on(
    target: StoreOfKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server opens what is left, and the same command goes on."""
    source = await target.open(target.fresh())
    now_ms = await populate(source, JOBS)
    content, before = await exported(source, now_ms), await holdings(source, now_ms)
    url = target.fresh()
    other = await target.open(url, marked=True)
    await populate(other, 40, seed=9)
    transfer = transfer_of(other)
    await transfer.set_mark(1)  # as it stands after the first step, where these are steps of their own
    assert await transfer.state() is None
    await target.close()
    with pytest.raises(StoreRefused, match="is not over"):
        await target.open(url)
    await target.close()
    source = await target.open(target.fresh())
    await imported(await target.open(url, marked=True), content, now_ms)
    assert differences(before, await holdings(await target.open(url), now_ms)) == {}


@only("redis", name="target")
async def test_redis_is_marked_before_anything_is_removed(target: StoreOfKind, monkeypatch: pytest.MonkeyPatch) -> None:
    url = target.fresh()
    shard = await target.open(url, marked=True)
    now_ms = await populate(shard, JOBS)
    transfer: StoreTransfer = transfer_of(shard)

    async def clear() -> None:
        raise _Ended

    monkeypatch.setattr(transfer, "clear", clear)
    with pytest.raises(_Ended):
        await transfer.begin("other")
    facts = await transfer.facts(now_ms)
    assert (facts.mark, facts.is_empty) == (1, False)


@only("sqlite-file", "redis")
async def test_a_store_that_changes_while_it_is_moved_is_noticed(
    source: StoreOfKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = source.fresh()
    shard, late = await source.open(url, marked=True), await source.open(url)
    now_ms = await populate(shard, JOBS)
    new = await source.open(source.fresh(), marked=True)
    move = ShardMove(shard, HeldClock(now_ms))
    await move.close()
    header, state = await move.begin(new)
    transfer = transfer_of(new)
    takes = transfer.load

    async def load(block: ExportBlock, dumped: bytes, at_ms: int) -> None:
        if block.kind == "kv":
            await late.enqueue("reports", [Job(b"late")], now_ms)
        await takes(block, dumped, at_ms)

    monkeypatch.setattr(transfer, "load", load)
    monkeypatch.setattr(new, "transfer", lambda: transfer)
    with pytest.raises(StoreRefused, match="was changed while it was copied"):
        await move.copy(new, header, state, lambda done: None)
