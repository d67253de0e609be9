"""The import of an export into a store. It goes on where it was interrupted: the store says how far it came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from pinlater.backends.base import Shard
from pinlater.backends.store_transfer import (
    CLOSED,
    IMPORTING,
    MARK_STEP,
    ExportBlock,
    ImportState,
    StoreFacts,
    StoreTransfer,
    refuse_mark,
    transfer_of,
)
from pinlater.clock import Clock
from pinlater.errors import StoreRefused
from pinlater.transfers.export_file import ExportBroken, ExportEnd, ExportHeader


class ShardImport:
    """The import into an open shard, which has the shard id of the export."""

    def __init__(self, shard: Shard, clock: Clock) -> None:
        self._clock = clock
        self._transfer: StoreTransfer = transfer_of(shard)

    async def check(self, shard_id: str, *, replaces: bool = False) -> StoreFacts:
        """StoreRefused: the store is no place for an import of this shard. An import that is not over is one."""
        facts = await self._transfer.facts(self._clock.now_ms())
        if facts.shard_id != shard_id:
            raise StoreRefused(f"the store is shard {facts.shard_id!r}, and the export is of {shard_id!r}")
        if facts.mark == CLOSED and not replaces:
            refuse_mark(CLOSED * MARK_STEP)
        if facts.mark != IMPORTING and facts.servers:
            raise StoreRefused(f"servers work on this store: {', '.join(facts.servers)}; stop them first")
        if facts.mark != IMPORTING and not (facts.is_empty or replaces):
            raise StoreRefused(
                "the store holds queues or jobs, and an import takes an empty one; --replace removes what is there"
            )
        return facts

    async def begin(self, header: ExportHeader, *, replaces: bool = False) -> ImportState:
        """How far it has come. `replaces`: what the store holds goes. StoreRefused, as by `check`."""
        facts = await self.check(header.shard_id, replaces=replaces)
        if facts.mark == IMPORTING:
            state = await self._transfer.state()  # None: it ended while what the store had held was removed
            if state is not None and state.export_id == header.export_id:
                return state
            if state is not None and not replaces:
                raise StoreRefused(
                    "the import of another export into this store is not over: end that one, or give --replace"
                )
        return await self._transfer.begin(header.export_id)

    async def take(
        self, blocks: AsyncIterator[ExportBlock], state: ImportState, on_progress: Callable[[int], None]
    ) -> None:
        """Take the blocks behind those that were taken. The next block is read while one is written."""
        writing: asyncio.Task[None] | None = None
        written = state.totals.rows["job"]
        try:
            async for block in blocks:
                state.totals.add(block)
                state.blocks += 1
                if writing is not None:
                    await writing
                    on_progress(written)
                written = state.totals.rows["job"]
                writing = asyncio.create_task(self._transfer.load(block, state.dump(), self._clock.now_ms()))
        finally:
            if writing is not None:
                await writing
                on_progress(written)

    async def finish(self, header: ExportHeader, end: ExportEnd, state: ImportState) -> None:
        """Compare, and open the store to servers."""
        if state.totals != end.totals:
            raise ExportBroken("what was imported is not what the export says that it holds: import it again")
        await self._transfer.finish(state, header.store_id, header.level, max(end.last_id, end.totals.last_id))
