"""One connection to one server: calls go out as they come, answers come back in the same order.

Several calls may be under way at once. Every answer is held against the call it must belong to (sequence id, method);
whatever does not fit breaks the connection. After a call that nobody waits for any more the connection takes no new
ones, and it is closed as soon as nobody waits for anything.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from pinlater.client.address import Address
from pinlater.client.transport_errors import CallFailed
from pinlater.errors import PinLaterError, ProtocolError, RequestInvalid
from pinlater.wire.codec import ApplicationError, Reply, decode_reply, encode_call
from pinlater.wire.faults import error_from_application
from pinlater.wire.framing import Splitter
from pinlater.wire.header import Header, read_header
from pinlater.wire.limits import WireLimits
from pinlater.wire.malformed import WireError

_LAST_SEQID = 2**31 - 1


class Connection(asyncio.Protocol):
    """The asyncio protocol of one connection.

    `users`: the calls that it is reserved for, sent or about to be. `exclusive`: its one call shares it with no other.
    """

    __slots__ = (
        "_address",
        "_limits",
        "_loop",
        "_on_closed",
        "_seqid",
        "_splitter",
        "_transport",
        "_waiting",
        "exclusive",
        "idle_since_s",
        "usable",
        "users",
    )

    def __init__(self, address: Address, limits: WireLimits, on_closed: Callable[[Connection], None]) -> None:
        self._address = address
        self._limits = limits
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._splitter = Splitter(limits)
        self._splitter.framed = True
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[int, str, asyncio.Future[Reply]]] = deque()
        self._seqid = 0
        self.exclusive = False
        self.usable = False
        self.users = 0
        self.idle_since_s = 0.0

    async def call(self, method: str, args: Any, deadline_s: float) -> Reply:
        """The answer to one call. CallFailed; ProtocolError; RequestInvalid for what cannot be encoded."""
        future = self._send(method, args)
        timer = self._loop.call_at(deadline_s, self._expire, future, deadline_s - self._loop.time())
        try:
            return await future
        except asyncio.CancelledError:
            self._give_up()
            raise
        finally:
            timer.cancel()

    def close(self, why: str) -> None:
        """Closes at once; calls under way fail."""
        self._break(CallFailed(why, sent=True))

    def say_no_more(self) -> None:
        """Closes the sending side: the server ends its waits, answers what it can, and closes the other side."""
        self.usable = False
        if self._transport is not None:
            self._transport.write_eof()

    # -- sending ---------------------------------------------------------------------------------------------------

    def _send(self, method: str, args: Any) -> asyncio.Future[Reply]:
        if not self.usable or self._transport is None:
            raise CallFailed("the connection is closed", sent=False)
        self._seqid = seqid = self._seqid % _LAST_SEQID + 1
        message = self._encoded(method, seqid, args)
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting.append((seqid, method, future))
        self._transport.write(len(message).to_bytes(4, "big") + message)
        return future

    def _encoded(self, method: str, seqid: int, args: Any) -> bytes:
        try:
            message = encode_call(method, seqid, args)
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise RequestInvalid(f"{method}: cannot be encoded: {error}") from error
        if len(message) > self._limits.max_message_bytes:
            raise RequestInvalid.of(
                f"{method}: the size of the call", len(message), f"up to {self._limits.max_message_bytes} bytes"
            )
        return message

    def _expire(self, future: asyncio.Future[Reply], waited_s: float) -> None:
        if not future.done():
            future.set_exception(CallFailed(f"no answer within {waited_s:.3g} s", sent=True))
            self._give_up()

    def _give_up(self) -> None:
        """One call's answer is not waited for: no new calls here, and the end as soon as nobody waits."""
        self.usable = False
        if all(future.done() for _, _, future in self._waiting):
            self._break(CallFailed("the connection was given up", sent=True))

    # -- answers ---------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.usable = True

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._splitter.feed(data):
                self._answer(message)
                if self._transport is None:
                    return
        except WireError as error:
            self._break(ProtocolError(f"{self._address} answered what is not the contract: {error}"))

    def _answer(self, message: bytes) -> None:
        """Settles the call that is due. WireError: the answer is not readable, or not to that call."""
        if not self._waiting:
            raise WireError("an answer that nobody asked for")
        seqid, method, future = self._waiting[0]
        error: PinLaterError | None = None
        try:
            answer: Reply | Header = (reply := decode_reply(message, self._limits))
        except ApplicationError as refused:
            answer, error = read_header(message), error_from_application(refused)
        if answer.name != method or answer.seqid != seqid:
            raise WireError(f"answer {answer.seqid} to {answer.name!r} where {seqid} to {method!r} is due")
        self._waiting.popleft()
        if future.done():
            self._give_up()
        elif error is None:
            future.set_result(reply)
        else:
            future.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._break(
            CallFailed(f"the connection broke: {exc}" if exc else "the server closed the connection", sent=True)
        )

    def _break(self, error: Exception) -> None:
        """The first call due gets `error`; those behind it learn only that the connection is gone."""
        self.usable = False
        transport, self._transport = self._transport, None
        if transport is None:
            return
        transport.abort()
        for _, _, future in self._waiting:
            if not future.done():
                future.set_exception(error)
                error = _for_the_next(error)
        self._waiting.clear()
        self._on_closed(self)


def _for_the_next(error: Exception) -> CallFailed:
    """What the caller behind the one that got `error` is told, in an exception of his own."""
    return CallFailed(error.why if isinstance(error, CallFailed) else "the connection broke", sent=True)
