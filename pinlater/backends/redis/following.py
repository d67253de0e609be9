"""The news of queues, while somebody wants them: on a connection of its own, since one with channels takes no calls."""

from __future__ import annotations

import asyncio

from pinlater.backends.base import Listener
from pinlater.backends.redis import news
from pinlater.backends.redis.calling import Calling
from pinlater.backends.redis.channels import Channels
from pinlater.backends.redis.errors import ReplyError
from pinlater.backends.redis.keys import base_key
from pinlater.backends.redis.store import RedisStore
from pinlater.errors import PinLaterError


class Following(Calling):
    """Connects when the first queue is followed, and again when one is that was followed before a break."""

    def __init__(self, shard_id: str, store: RedisStore) -> None:
        super().__init__(shard_id, store)
        self._channels: Channels | None = None
        self._connecting: asyncio.Task[Channels | None] | None = None
        self._hears: dict[bytes, Listener] = {}
        self._are_closed = False

    async def subscribe(self, queue: str, on_event: Listener | None) -> bool:
        channel = news.channel(base_key(self._root, queue))
        if on_event is None:
            self._hears.pop(channel, None)
            if self._channels is not None:
                self._channels.leave(channel)
            return False
        channels = await self._connected()
        if channels is None:
            return False
        self._hears[channel] = on_event
        try:
            await channels.join(channel)
        except (ReplyError, OSError):
            if self._hears.get(channel) is on_event:
                del self._hears[channel]
            return False
        return True

    async def _connected(self) -> Channels | None:
        """The connection, made anew where it has to be; None where there is none to be had."""
        if self._channels is not None or self._are_closed:
            return self._channels
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> Channels | None:
        try:
            if await self._store.may_publish():
                self._channels = await Channels.connect(self._store, self._heard, self._broke)
        except (PinLaterError, ReplyError, OSError):
            self._channels = None
        finally:
            self._connecting = None
        return self._channels

    def _heard(self, channel: bytes, message: bytes) -> None:
        """What is not of the right form is worth a look all the same."""
        on_event = self._hears.get(channel)
        if on_event is None:
            return
        try:
            origin, told = news.read(message)
        except ValueError:
            origin, told = b"", news.UNCLEAR
        if origin != self._store.origin:
            on_event(told)

    def _broke(self) -> None:
        self._channels = None
        hears, self._hears = self._hears, {}
        for on_event in hears.values():
            on_event(None)

    async def _close_channels(self) -> None:
        self._are_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._channels is not None:
            self._channels.close()
