"""A connection to Redis, or to a sentinel, that receives what is published."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import hiredis

from pinlater.backends.redis.connection import ReplyError

PING_EVERY_S = 5.0
"""A connection that has died without a word is found out after twice this."""

OnMessage = Callable[[bytes, bytes], None]
"""Told channel and message."""


class PubSubConnection(asyncio.Protocol):
    """A connection to Redis that receives what is published. `on_close` is called once, when nothing more comes."""

    def __init__(self, on_message: OnMessage, on_close: Callable[[], None]) -> None:
        self._on_message = on_message
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(replyError=ReplyError)
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._transport: asyncio.Transport | None = None
        self._ping: asyncio.Future[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def connect(
        cls,
        endpoint: tuple[str, int],
        login: tuple[str, ...] | None,
        on_message: OnMessage,
        on_close: Callable[[], None],
        *,
        tls: ssl.SSLContext | None,
        timeout_s: float,
    ) -> PubSubConnection:
        """Logged in, and in no channel yet. ReplyError, OSError (TimeoutError is one)."""
        connection = cls(on_message, on_close)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.get_running_loop().create_connection(lambda: connection, *endpoint, ssl=tls)
                if login is not None:
                    await connection._send("AUTH", *login)
        except BaseException:
            connection._on_close = _nothing
            connection.close()
            raise
        return connection

    def subscribe(self, channel: bytes) -> asyncio.Future[Any]:
        """Done when what is published from now on comes here; ReplyError where that is not allowed, OSError."""
        return self._send("SUBSCRIBE", channel)

    def unsubscribe(self, channel: bytes) -> None:
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
                    self._on_message(answer[1], answer[2])
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
        self._on_close()


def _nothing() -> None:
    """Who connects is told by the error."""
