"""What every call of a shard needs: its store, its keys, and an error for a queue that is not there."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from pinlater.backends.redis.keys import base_key
from pinlater.backends.redis.packing import Args
from pinlater.backends.redis.store import RedisStore
from pinlater.errors import QueueNotFound, StoreRefused

SMALLEST_ID = 10**15
"""Ids are 16 digits wide, even where a machine woke up without the time."""


class Calling:
    """The calls are methods of the classes derived from this; each is one script (lua/), and so atomic as a whole."""

    def __init__(self, shard_id: str, store: RedisStore) -> None:
        self.shard_id = shard_id
        self._store = store
        self._root = store.root

    def _call(self, script: str, queue: str, args: Args | tuple[Any, ...]) -> Coroutine[Any, Any, Any]:
        return self._store.call(script, (self._root, base_key(self._root, queue)), args)

    async def _known(self, script: str, queue: str, args: Args | tuple[Any, ...]) -> Any:
        """As `_call`; QueueNotFound where the script says so."""
        answer = await self._call(script, queue, args)
        if answer is None:
            raise QueueNotFound.of(queue)
        return answer

    async def _same_store(self, script: str, args: Args | tuple[Any, ...]) -> Any:
        """StoreRefused where the script says that the store is not the one that was opened."""
        answer = await self._store.call(script, (self._root,), args)
        if answer is None:
            raise StoreRefused(f"redis {self._store.address.shown} is no longer store {self._store_id}")
        return answer

    @property
    def _store_id(self) -> str:
        return self._store.identity[1] if self._store.identity else ""


def lowest_id(now_ms: int) -> int:
    """The lowest id that may be given now: the time in microseconds."""
    return max(now_ms * 1000, SMALLEST_ID)
