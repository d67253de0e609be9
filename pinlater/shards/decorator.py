"""The wrapper of a shard that changes nothing: what the other wrappers start from."""

from __future__ import annotations

from pinlater.backends.base import OPERATIONS, Shard, ShardEvents
from pinlater.shards.bulkhead import Bulkhead


class ShardDecorator(Shard):
    """Hands every call of the protocol on to the shard inside.

    What a subclass leaves as it is costs no call: the inner shard's own method stands in its place.
    """

    def __init__(self, inner: Shard) -> None:
        self.inner = inner
        self.lacks = inner.lacks
        self._innermost: Shard = inner._innermost if isinstance(inner, ShardDecorator) else inner
        for name in ("subscribe", *OPERATIONS):
            if getattr(type(self), name) is getattr(Shard, name):
                setattr(self, name, getattr(inner, name))

    @property
    def shard_id(self) -> str:
        return self._innermost.shard_id

    @shard_id.setter
    def shard_id(self, shard_id: str) -> None:
        self._innermost.shard_id = shard_id

    @property
    def events(self) -> ShardEvents:
        return self._innermost.events

    @events.setter
    def events(self, events: ShardEvents) -> None:
        self._innermost.events = events

    @property
    def keeps_order(self) -> bool:
        return self._innermost.keeps_order

    @property
    def has_own_clock(self) -> bool:
        return self.inner.has_own_clock

    @property
    def bulkhead(self) -> Bulkhead | None:
        """The calls to the store, where they are bounded: how they go, and by what."""
        return self.inner.bulkhead if isinstance(self.inner, ShardDecorator) else None

    async def close(self) -> None:
        await self.inner.close()
