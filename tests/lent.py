"""A store that several tests, or several servers of one test, share: it is somebody else's to open and close."""

from __future__ import annotations

from pinlater.backends.base import Shard
from pinlater.shards.decorator import ShardDecorator


class Lent(ShardDecorator):
    """A shard that is open already, and stays open."""

    def __init__(self, inner: Shard, store_id: str) -> None:
        super().__init__(inner)
        self._store_id = store_id

    async def open(self) -> str:
        return self._store_id

    async def close(self) -> None:
        """The lender closes it."""
