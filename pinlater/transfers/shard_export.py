"""The export of a shard: its blocks, in order, with what a reader has to know before and behind them."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import BinaryIO

from pinlater.backends.base import PerQueue, Retention, Shard
from pinlater.backends.store_transfer import (
    EXTENDED,
    IMPORTING,
    REFERENCES,
    ExportBlock,
    StoreFacts,
    StoreTransfer,
    transfer_of,
)
from pinlater.bodies.object_store import ObjectStore
from pinlater.clock import Clock
from pinlater.errors import StoreRefused
from pinlater.transfers.export_bodies import with_bodies
from pinlater.transfers.export_file import ExportEnd, ExportHeader, ExportWriter, format_of

_SETTLED_AT_ONCE = 1_000

USED = (
    "servers work on this store ({}), and Redis shows no moment of it as a whole: stop them, or export from a replica "
    "that was cut off, or from a second redis-server that loaded a snapshot (docs/backup.md)"
)


class ShardExport:
    """The export of an open shard. StoreRefused where it cannot be one of a single moment."""

    def __init__(self, shard: Shard, clock: Clock, tiers: Mapping[str, ObjectStore] | None = None) -> None:
        """`tiers`, where given, are those from which bodies are read into the export."""
        self._shard, self._clock, self._tiers = shard, clock, tiers
        self._transfer: StoreTransfer = transfer_of(shard)

    async def header(self, *, settles: bool = True) -> ExportHeader:
        """What the export is of. `settles`: what maintenance would remove goes first, where no server uses it."""
        facts = await self._transfer.facts(self._clock.now_ms())
        if facts.mark == IMPORTING:
            raise StoreRefused("an import into this store is not over: it is no shard yet")
        if facts.servers and not self._transfer.is_snapshot:
            raise StoreRefused(USED.format(", ".join(facts.servers)))
        if settles and not facts.servers:
            await self._settle()
        jobs = await self._transfer.job_count()
        is_whole = self._tiers is not None
        level = EXTENDED if is_whole and facts.level == REFERENCES else facts.level
        return ExportHeader(
            *(facts.token or secrets.token_hex(8), facts.shard_id, facts.store_id, level, self._clock.now_ms()),
            *(jobs, is_whole, format_of(level)),
        )

    def blocks(self, header: ExportHeader) -> AsyncGenerator[ExportBlock, None]:
        blocks = self._transfer.blocks(header.made_at_ms)
        return blocks if self._tiers is None else with_bodies(self._tiers, header.store_id)(blocks)

    async def last_id(self) -> int:
        """The last id that the store has given. StoreRefused where servers came meanwhile, and it shows no moment."""
        facts: StoreFacts = await self._transfer.facts(self._clock.now_ms())
        if facts.servers and not self._transfer.is_snapshot:
            raise StoreRefused(USED.format(", ".join(facts.servers)))
        return facts.last_id

    async def _settle(self) -> None:
        """Free what deleted queues have left: it stands among the chains of others."""
        now_ms = self._clock.now_ms()
        keep = PerQueue(Retention(now_ms, now_ms))
        while any((await self._shard.prune(_SETTLED_AT_ONCE, now_ms, keep)).values()):
            pass


async def write_export(
    export: ShardExport, file: BinaryIO, header: ExportHeader, on_progress: Callable[[int], None]
) -> ExportEnd:
    """Write a whole export; `on_progress` is told how many jobs were written."""
    writer = ExportWriter(file, header)
    async with aclosing(export.blocks(header)) as blocks:
        async for block in blocks:
            writer.put_block(block)
            on_progress(writer.totals.rows["job"])
    last_id = await export.last_id()
    writer.end(last_id)
    return ExportEnd(writer.totals, last_id)
