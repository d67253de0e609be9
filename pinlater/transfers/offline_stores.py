"""Stores that a command opens by their addresses, without a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pinlater.backends.base import Shard
from pinlater.backends.store_transfer import transfer_of
from pinlater.config.stores import StoreConfig
from pinlater.errors import StoreRefused
from pinlater.server.server_process import StartRefused
from pinlater.shard_factory import bare_shard


@asynccontextmanager
async def opened_store(store: StoreConfig) -> AsyncIterator[Shard]:
    """The bare shard of a store, also of one that is no server's to open. StoreRefused, NothingStored."""
    try:
        shard = bare_shard(store, for_transfer=True)
    except StartRefused as refused:
        raise StoreRefused(str(refused)) from refused
    transfer_of(shard)
    try:
        await shard.open()
        yield shard
    finally:
        await shard.close()


@asynccontextmanager
async def opened_source(store: StoreConfig) -> AsyncIterator[Shard]:
    """The same of a store that is there already. StoreRefused where it is another shard than was named."""
    async with opened_store(StoreConfig("", store.url)) as shard:
        if store.id not in ("", shard.shard_id):
            raise StoreRefused(f"this store is shard {shard.shard_id!r}, not {store.id!r}")
        yield shard
