"""An export in memory and its import, between shards that a test has open."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest

from pinlater.backends.base import Shard
from pinlater.backends.store_transfer import ExportBlock
from pinlater.transfers.export_file import ExportReader
from pinlater.transfers.shard_export import ShardExport, write_export
from pinlater.transfers.shard_import import ShardImport


def cut_blocks(patch: pytest.MonkeyPatch, rows: int) -> None:
    """Exports have blocks of so many rows and few bytes, so a small store has several of each kind."""
    for place in ("sql.exported_rows", "redis.exported_keys"):
        patch.setattr(f"pinlater.backends.{place}.ROWS_PER_BLOCK", rows)
        patch.setattr(f"pinlater.backends.{place}.BYTES_PER_BLOCK", 2_000 * rows)


@dataclass
class HeldClock:
    """A clock that stands."""

    held_ms: int

    def now_ms(self) -> int:
        return self.held_ms


def _nothing(done: int) -> None:
    """Nobody looks."""


async def exported(shard: Shard, now_ms: int) -> bytes:
    file = io.BytesIO()
    export = ShardExport(shard, HeldClock(now_ms))
    await write_export(export, file, await export.header(), _nothing)
    return file.getvalue()


async def blocks_of(reader: ExportReader, skipped: int) -> AsyncIterator[ExportBlock]:
    for block in reader.blocks(skipped):
        yield block


async def imported(
    shard: Shard,
    content: bytes,
    now_ms: int,
    *,
    replaces: bool = False,
    on_progress: Callable[[int], None] = _nothing,
) -> None:
    """Import it; the shard is open with `opens_marked`, and is to be opened again before servers use it."""
    reader = ExportReader(io.BytesIO(content))
    work = ShardImport(shard, HeldClock(now_ms))
    state = await work.begin(reader.header, replaces=replaces)
    await work.take(blocks_of(reader, state.blocks), state, on_progress)
    assert reader.end is not None
    await work.finish(reader.header, reader.end, state)
