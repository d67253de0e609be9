"""The move of a shard from one store to another: the old store is closed, copied, compared, and stays closed.

Servers take a closed store out at their next ping, as one that is not theirs any more, and leave it alone; their leases
there run out. The copy has the store's own id, so it is the same shard for them under its new address.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace

from pinlater.backends.base import Shard
from pinlater.backends.store_transfer import (
    CLOSED,
    IMPORTING,
    ExportBlock,
    ImportState,
    StoreFacts,
    StoreTransfer,
    TransferTotals,
    transfer_of,
)
from pinlater.clock import Clock
from pinlater.errors import StoreRefused
from pinlater.transfers.export_file import ExportEnd, ExportHeader
from pinlater.transfers.shard_export import ShardExport
from pinlater.transfers.shard_import import ShardImport

_LOOK_S = 0.25
LEFT_WITHIN_S = 60.0
"""A server that still renews its lease in a store that was closed so long ago is of another cluster, or stuck."""


class ShardMove:
    """The move of an open shard. Each step may be begun again. StoreRefused, and then nothing is lost."""

    def __init__(self, source: Shard, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self._transfer: StoreTransfer = transfer_of(source)

    async def facts(self) -> StoreFacts:
        return await self._transfer.facts(self._clock.now_ms())

    async def close(self) -> None:
        """Close the store, so that servers leave it. One that is closed already keeps the token of its closing."""
        facts = await self.facts()
        if facts.mark == IMPORTING:
            raise StoreRefused("an import into this store is not over: it is no shard yet")
        if facts.mark != CLOSED:
            await self._transfer.close_store(secrets.token_hex(4))

    async def wait_until_left(self, at_least_s: float, on_wait: Callable[[StoreFacts], None]) -> None:
        """Until no server has a lease here any more, and `at_least_s`, for calls that are under way."""
        waited_s = 0.0
        while (facts := await self.facts()).servers or waited_s < at_least_s:
            if waited_s > LEFT_WITHIN_S + at_least_s:
                raise StoreRefused(
                    f"servers still work on the store: {', '.join(facts.servers)}; stop them, and begin again"
                )
            on_wait(facts)
            await asyncio.sleep(_LOOK_S)
            waited_s += _LOOK_S

    async def begin(self, target: Shard, *, replaces: bool = False) -> tuple[ExportHeader, ImportState]:
        """How far the copy has come in the new store. What goes by time stays where a copy has begun, and counts as of
        no time: the blocks are the same each time.
        """
        is_new = await transfer_of(target).state() is None
        header = await ShardExport(self._source, self._clock).header(settles=is_new)
        header = replace(header, made_at_ms=0)
        return header, await ShardImport(target, self._clock).begin(header, replaces=replaces)

    async def copy(
        self, target: Shard, header: ExportHeader, state: ImportState, on_progress: Callable[[int], None]
    ) -> None:
        """Copy what is not there yet, compare, and open the new store to servers."""
        export, work = ShardExport(self._source, self._clock), ShardImport(target, self._clock)
        totals = TransferTotals()
        before = await self.facts()
        async with aclosing(export.blocks(header)) as blocks:
            await work.take(_counted(blocks, state.blocks, totals), state, on_progress)
        totals.check_chains()
        after, jobs = await self.facts(), await self._transfer.job_count()
        if (before.last_id, before.token) != (after.last_id, after.token) or jobs != totals.rows["job"]:
            raise StoreRefused("the store was changed while it was copied: begin again, with --replace")
        await work.finish(header, ExportEnd(totals, after.last_id), state)

    async def take_back(self) -> None:
        """Open the old store again."""
        await self._transfer.reopen_store()


async def _counted(
    blocks: AsyncIterator[ExportBlock], skipped: int, totals: TransferTotals
) -> AsyncIterator[ExportBlock]:
    """All blocks are counted, and those behind the first passed on."""
    number = 0
    async for block in blocks:
        totals.add(block)
        number += 1
        if number > skipped:
            yield block
