"""Whatever a shard holds is the same in another store, of whichever kind, and so is what becomes of it."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
import pytest

from pinlater.backends.requests import StoredState
from pinlater.backends.store_transfer import ChainRow, ExportedJob, JobMore, KeyRow, ResultRow
from pinlater.transfers.export_file import ExportReader
from tests.transfers.conftest import StoreOfKind
from tests.transfers.holdings import differences, holdings, live_on
from tests.transfers.passage import cut_blocks, exported, imported
from tests.transfers.population import populate

JOBS = 350


class _Exported(NamedTuple):
    content: bytes
    now_ms: int
    held: dict[str, Any]
    lived: dict[str, Any]


@pytest.fixture(scope="module")
def exports() -> dict[str, _Exported]:
    """By kind of store."""
    return {}


async def _export(store: StoreOfKind) -> _Exported:
    shard = await store.open(store.fresh())
    now_ms = await populate(shard, JOBS)
    with pytest.MonkeyPatch.context() as patch:  # all kinds of rows come in several blocks
        cut_blocks(patch, 25)
        content = await exported(shard, now_ms)
    held = await holdings(shard, now_ms)
    found = _Exported(content, now_ms, held, await live_on(shard, now_ms))
    await store.close()
    return found


async def test_a_shard_is_the_same_in_another_store(
    source: StoreOfKind, target: StoreOfKind, exports: dict[str, _Exported]
) -> None:
    if source.name not in exports:
        exports[source.name] = await _export(source)
    before = exports[source.name]
    url = target.fresh()
    await imported(await target.open(url, marked=True), before.content, before.now_ms)
    await target.close()
    shard = await target.open(url)
    assert differences(before.held, await holdings(shard, before.now_ms)) == {}
    again = await target.open(url, marked=True)
    assert await exported(again, before.now_ms) != b""
    assert differences(before.lived, await live_on(shard, before.now_ms)) == {}


@pytest.mark.slow
async def test_every_kind_of_job_is_among_them(source: StoreOfKind) -> None:
    """Else the other test proves less than it says."""
    shard = await source.open(source.fresh())
    now_ms = await populate(shard, JOBS)
    held = await holdings(shard, now_ms)
    jobs = [job for name, found in held.items() if name.startswith("jobs ") for job in found.values()]
    for field in ("cancelled", "moved_to", "replayed_to", "origin", "result", "progress", "tags", "crashes"):
        assert any(job[field] for job in jobs), field
    assert {job["serialize_key"] for job in jobs if job["successor"]} >= {None, "followed"}
    for name in ("chains", "barriers", "windows", "references", "dropped"):
        assert held[name], name
    trails = [trail for name, found in held.items() if name.startswith("trails ") for trail in found]
    assert any(len(trail.attempts) > 2 for trail in trails)
    assert any(trail.log for trail in trails)


MANY = 100_000


async def test_a_hundred_thousand_jobs_are_the_same(source: StoreOfKind, target: StoreOfKind) -> None:
    """An export of the store into which an export came has the same rows."""
    shard = await source.open(source.fresh())
    now_ms = await populate(shard, MANY)
    content = await exported(shard, now_ms)
    url = target.fresh()
    await imported(await target.open(url, marked=True), content, now_ms)
    again = await exported(await target.open(url), now_ms)
    assert _rows(again) == _rows(content)


def _rows(content: bytes) -> dict[str, Counter[bytes]]:
    """Rows by kind, whatever their order, but for the places that Redis does not know of jobs that wait for nobody."""
    found: dict[str, Counter[bytes]] = defaultdict(Counter)
    for block in ExportReader(io.BytesIO(content)).blocks():
        found[block.kind].update(_digest(block.kind, row) for row in block.rows)
    return found


def _digest(kind: str, row: Sequence[Any]) -> bytes:
    if kind == "job":
        job = ExportedJob(*row)
        if job.more is not None:
            more = JobMore(*job.more)
            job = job._replace(more=more if job.state == StoredState.WAITING else more._replace(place=0))
        row = job
    elif kind == "chain":
        row = ChainRow(*row)._replace(place=0, slot=0)
    elif kind == "key":
        row = KeyRow(*row)._replace(window_ms=0, until_ms=None)
    elif kind == "result":
        row = ResultRow(*row)._replace(created_at_ms=0, run_after_ms=0, attempts_allowed=0)
    return blake2b(msgspec.msgpack.encode(row), digest_size=16).digest()
