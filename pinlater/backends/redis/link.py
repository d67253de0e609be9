"""One connection to Redis on which calls follow one another without waiting: a call is one write and one promise.

Answers come in the order of the calls, so a caller that gives up leaves its place in the row and its answer reaches
nobody. A connection that breaks, or on which the oldest call waits too long, takes all its calls with it.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import Any, cast

import hiredis

from pinlater.backends.redis.errors import ReplyError
from pinlater.eager import InlineFuture
from pinlater.errors import NothingStored, OutcomeUnknown

_KEEPALIVE_IDLE_S = 30
_KEEPALIVE_EVERY_S = 5
_KEEPALIVE_PROBES = 3
_CLOSE_WITHIN_S = 1.0


class Link(asyncio.Protocol):
    """`timeout_s` is how long the oldest call may wait for its answer."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(replyError=ReplyError)
        self._waiting: deque[tuple[InlineFuture[Any], float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._idle = self._loop.create_future()
        self._gone = self._loop.create_future()
        self._why = "the connection was closed"
        self.open = False

    # -- calls -------------------------------------------------------------------------------------------------------

    def send(self, command: tuple[Any, ...]) -> InlineFuture[Any]:
        """Write one command, of text, bytes and integers; NothingStored where the link is not open.

        The promise gets the answer, ReplyError, or OutcomeUnknown.
        """
        if self._transport is None or not self.open:
            raise NothingStored(f"redis: {self._why}")
        packed = hiredis.pack_command(command)  # may raise, so before there is a place in the row
        promise: InlineFuture[Any] = InlineFuture(self._loop)
        now = self._loop.time()
        self._waiting.append((promise, now))
        if self._timer is None:
            self._timer = self._loop.call_at(now + self._timeout_s, self._check)
        self._transport.write(packed)
        return promise

    async def close(self) -> None:
        """Let the calls under way end, each within its time-out, then close."""
        self.open = False
        transport = self._transport
        if transport is None:
            return
        if self._waiting:
            await asyncio.shield(self._idle)
        transport.close()
        _, late = await asyncio.wait([self._gone], timeout=_CLOSE_WITHIN_S)
        if late:
            transport.abort()

    def retire(self) -> None:
        """Take no call more, and close when those under way are answered."""
        self._why = "the connection was given up"
        self.open = False
        transport = self._transport
        if transport is None:
            return
        if self._waiting:
            self._idle.add_done_callback(lambda _: transport.close())
        else:
            transport.close()

    def abort(self) -> None:
        """Close at once; calls under way get OutcomeUnknown."""
        self._break("the connection was given up")

    # -- asyncio -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self.open = True
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            _keep_alive(sock)

    def data_received(self, data: bytes) -> None:
        answers = []
        try:
            self._reader.feed(data)
            while (answer := self._reader.gets()) is not False:
                answers.append(answer)
        except hiredis.HiredisError as error:
            self._break(f"not an answer of Redis: {error}")
        try:
            self._settle(answers)
        except BaseException:  # of a caller that went on: an answer left over would be taken for the next call's
            self._break("a caller failed")
            raise
        if not self._waiting and not self.open and not self._idle.done():
            self._idle.set_result(None)

    def _settle(self, answers: list[Any]) -> None:
        """In the order of the calls."""
        waiting = self._waiting
        for answer in answers:
            if not waiting:
                self._break("not an answer of Redis: nothing was asked")
                return
            promise, _ = waiting.popleft()
            if promise.done():
                continue
            if isinstance(answer, ReplyError):
                promise.set_exception(answer)
            else:
                promise.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._why = f"the connection broke: {exc}"
        self.open = False
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            promise, _ = self._waiting.popleft()
            if not promise.done():
                promise.set_exception(OutcomeUnknown(f"redis: {self._why}"))
        if not self._idle.done():
            self._idle.set_result(None)
        self._gone.set_result(None)

    def _check(self) -> None:
        """Has the oldest call waited too long?"""
        self._timer = None
        if not self._waiting:
            return
        due = self._waiting[0][1] + self._timeout_s
        if due <= self._loop.time():
            self._break(f"no answer within {self._timeout_s:g} s")
        else:
            self._timer = self._loop.call_at(due, self._check)

    def _break(self, why: str) -> None:
        self._why = why
        self.open = False
        if self._transport is not None:
            self._transport.abort()


def _keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", _KEEPALIVE_EVERY_S),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
    ):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
