"""A pipelined connection to Redis, and what the errors of Redis mean.

A call is one write and one future. Answers come in the order of the calls, so a caller that gives up leaves its place
in the row and its answer reaches nobody. A connection that breaks, or on which the oldest call waits too long, takes
all its calls with it.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

import hiredis

from pinlater.eager import InlineFuture
from pinlater.errors import BodyTooLarge, NothingStored, OutcomeUnknown, ShardConnectionFailed, StoreFull

# -- errors -----------------------------------------------------------------------------------------------------------

_REFUSED = frozenset(
    (
        *("ASK", "BUSY", "CLUSTERDOWN", "CROSSSLOT", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOAUTH", "NOPERM"),
        *("NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN", "WRONGPASS"),
    )
)
"""Redis answers these before it runs anything."""

_REFUSED_WRITE = frozenset(["MISCONF", "NOREPLICAS", "OOM", "READONLY"])
"""Redis answers these inside a script at its first write or at none."""

_INSIDE_SCRIPT = re.compile(r"user_script|script: ")
_CODE_INSIDE = re.compile(r"-(" + "|".join(sorted(_REFUSED_WRITE)) + r")\b")
_BEFORE_ANY_COMMAND = ("ERR max number of clients reached", "ERR unknown command", "ERR invalid password")


FULL = "its memory is used up (maxmemory): raise maxmemory, or let jobs end and be removed"


class ReplyError(Exception):
    """An error that Redis answered, without the arguments that it repeats; `code` is its first word."""

    def __init__(self, text: str) -> None:
        super().__init__(text.partition(", with args beginning with:")[0])

    @property
    def code(self) -> str:
        return str(self).partition(" ")[0]


def mapped(error: ReplyError) -> ShardConnectionFailed:
    """NothingStored where Redis surely refused the whole call, StoreFull for lack of memory, else OutcomeUnknown."""
    text = str(error)
    if _INSIDE_SCRIPT.search(text):
        inside = _CODE_INSIDE.search(text)
        code = error.code if inside is None else inside[1]
        refused = code in _REFUSED_WRITE
    else:
        code = error.code
        refused = error.code in _REFUSED or text.startswith(_BEFORE_ANY_COMMAND)
    if refused and code == "OOM":
        return StoreFull(f"redis: {FULL} ({text})")
    return NothingStored(f"redis: {text}") if refused else OutcomeUnknown(f"redis: {text}")


def is_read_only(error: ReplyError) -> bool:
    """Redis is a replica."""
    return re.search(r"\bREADONLY\b", str(error)) is not None


def reason(error: Exception) -> str:
    """Why there is no connection, in words without addresses."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; is it running?"
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
    return str(error)


# -- calls ------------------------------------------------------------------------------------------------------------

_KEEPALIVE_IDLE_S = 30
_KEEPALIVE_EVERY_S = 5
_KEEPALIVE_PROBES = 3
_CLOSE_WITHIN_S = 1.0
_BESIDE_A_BODY = 32 << 10
"""More than what goes into one argument with a body: its job's numbers, keys and status."""


class PipelinedConnection(asyncio.Protocol):
    """A connection to Redis that sends calls without waiting for earlier answers.

    `timeout_s` is how long the oldest call may wait for its answer.
    """

    most_bytes = 512 << 20
    """The most bytes of one argument (proto-max-bulk-len): on more Redis closes the connection, with all its calls."""

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
        """Write one command, of text, bytes and integers; NothingStored where the connection is not open, BodyTooLarge.

        The future gets the answer, ReplyError, or OutcomeUnknown.
        """
        if self._transport is None or not self.open:
            raise NothingStored(f"redis: {self._why}")
        packed = hiredis.pack_command(command)  # may raise, so before there is a place in the row
        if len(packed) > self.most_bytes:
            self._check_sizes(command)
        future: InlineFuture[Any] = InlineFuture(self._loop)
        now = self._loop.time()
        self._waiting.append((future, now))
        if self._timer is None:
            self._timer = self._loop.call_at(now + self._timeout_s, self._check)
        self._transport.write(packed)
        return future

    def send_all(self, commands: Sequence[tuple[Any, ...]]) -> list[InlineFuture[Any]]:
        """Write several commands at once, or none of them where `send` would refuse one."""
        if self._transport is None or not self.open:
            raise NothingStored(f"redis: {self._why}")
        packed = list(map(hiredis.pack_command, commands))
        for command, each in zip(commands, packed, strict=True):
            if len(each) > self.most_bytes:
                self._check_sizes(command)
        futures = [InlineFuture[Any](self._loop) for _ in packed]
        now = self._loop.time()
        self._waiting += [(future, now) for future in futures]
        if self._timer is None and packed:
            self._timer = self._loop.call_at(now + self._timeout_s, self._check)
        self._transport.write(b"".join(packed))
        return futures

    def _check_sizes(self, command: tuple[Any, ...]) -> None:
        largest = max(len(each) for each in command if isinstance(each, bytes | str))
        if largest > self.most_bytes:
            raise BodyTooLarge(
                f"redis: a value of {largest} bytes, and the store's proto-max-bulk-len is {self.most_bytes}: "
                f"a body of {self.most_bytes - _BESIDE_A_BODY} bytes fits; raise it there for larger ones"
            )

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
        """All answers are read before the first caller goes on: what that does may feed the reader again."""
        reader, waiting, answers = self._reader, self._waiting, []
        try:
            reader.feed(data)
            while (answer := reader.gets()) is not False:
                answers.append(answer)
        except hiredis.HiredisError as error:
            self._break(f"not an answer of Redis: {error}")
        try:
            for answer in answers:
                if not waiting:
                    self._break("not an answer of Redis: nothing was asked")
                    break
                future, _ = waiting.popleft()
                if future.done():
                    continue
                if isinstance(answer, ReplyError):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
        except BaseException:  # of a caller that went on: an answer left over would be taken for the next call's
            self._break("a caller failed")
            raise
        if not waiting and not self.open and not self._idle.done():
            self._idle.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._why = f"the connection broke: {exc}"
        self.open = False
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            future, _ = self._waiting.popleft()
            if not future.done():
                future.set_exception(OutcomeUnknown(f"redis: {self._why}"))
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
