"""A connection to Redis that listens on channels: what is published there comes unasked, between the answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import hiredis

from pinlater.backends.redis.errors import ReplyError
from pinlater.backends.redis.store import RedisStore

PING_EVERY_S = 5.0
"""A connection that has died without a word is found out after twice this."""

Heard = Callable[[bytes, bytes], None]
"""Told channel and message."""


class Channels(asyncio.Protocol):
    """`broke` is called once, when nothing more comes."""

    def __init__(self, heard: Heard, broke: Callable[[], None]) -> None:
        self._heard = heard
        self._broke = broke
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(replyError=ReplyError)
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._transport: asyncio.Transport | None = None
        self._ping: asyncio.Future[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def connect(cls, store: RedisStore, heard: Heard, broke: Callable[[], None]) -> Channels:
        """Logged in, and in no channel yet. ReplyError, OSError (TimeoutError is one)."""
        address, channels = store.address, cls(heard, broke)
        try:
            async with asyncio.timeout(store.connect_timeout_s):
                where = (address.host, address.port)
                await asyncio.get_running_loop().create_connection(lambda: channels, *where, ssl=address.tls)
                if address.password is not None:
                    login = (address.username, address.password) if address.username else (address.password,)
                    await channels._send("AUTH", *login)
        except BaseException:
            channels._broke = _nothing
            channels.close()
            raise
        return channels

    def join(self, channel: bytes) -> asyncio.Future[Any]:
        """Done when what is published from now on comes here; ReplyError where that is not allowed, OSError."""
        return self._send("SUBSCRIBE", channel)

    def leave(self, channel: bytes) -> None:
        self._send("UNSUBSCRIBE", channel)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _send(self, *command: Any) -> asyncio.Future[Any]:
        answer = self._loop.create_future()
        if self._transport is None:
            answer.set_exception(ConnectionError("not connected"))
            answer.exception()  # nobody need look
            return answer
        self._waiting.append(answer)
        self._transport.write(hiredis.pack_command(command))
        return answer

    def _check(self) -> None:
        if self._ping is not None and not self._ping.done():
            self.close()
            return
        self._ping = self._send("PING")
        self._timer = self._loop.call_later(PING_EVERY_S, self._check)

    # -- asyncio -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._timer = self._loop.call_later(PING_EVERY_S, self._check)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        try:
            reader.feed(data)
            while (answer := reader.gets()) is not False:
                if type(answer) is list and answer[0] == b"message":
                    self._heard(answer[1], answer[2])
                    continue
                future = self._waiting.popleft()
                if future.done():
                    continue
                if isinstance(answer, ReplyError):
                    future.set_exception(answer)
                    future.exception()
                else:
                    future.set_result(answer)
        except (hiredis.HiredisError, IndexError):
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(ConnectionError("the connection broke"))
                future.exception()
        self._broke()


def _nothing() -> None:
    """Who connects is told by the error."""
