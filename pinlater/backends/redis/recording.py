"""The records of queues and settings, and what becomes of the queues."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.base import ConfigEntry, ConfigPage
from pinlater.backends.redis.calling import Calling
from pinlater.backends.redis.keys import MAX_PRIORITY
from pinlater.backends.redis.packing import Args


class Recording(Calling):
    async def put_config(self, entries: Sequence[ConfigEntry], now_ms: int) -> list[bool]:
        args: Args = [now_ms, self._store_id, MAX_PRIORITY]
        for entry in entries:
            args += entry
        return [code == ord("1") for code in await self._same_store("put_records", args)]

    async def list_config(self, since: int, limit: int) -> ConfigPage:
        revision, *flat = await self._same_store("records", (since, limit, self._store_id))
        parts = iter(part.decode() for part in flat)
        return ConfigPage(int(revision), [ConfigEntry(*each) for each in zip(parts, parts, parts, parts, strict=True)])
