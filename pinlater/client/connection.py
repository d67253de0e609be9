"""One connection to one server: calls go out as they come, answers come back in the same order.

Several calls may be under way at once. Every answer is held against the call it must belong to (sequence id, method);
whatever does not fit breaks the connection. After a call that nobody waits for any more the connection takes no new
ones, and it is closed as soon as nobody waits for anything.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

from pinlater.client.addresses import DEFAULT_PORT, Address
from pinlater.errors import PinLaterError, ProtocolError, RequestInvalid
from pinlater.forks import stays_with_parent
from pinlater.wire import message
from pinlater.wire.codec import ApplicationError, decode_reply, decode_result, encode_struct
from pinlater.wire.faults import error_from_application
from pinlater.wire.framing import Splitter, StrangerError
from pinlater.wire.interface import SIGNATURES, Signature
from pinlater.wire.message import CALL, REPLY, SEQID_BYTES, Header, WireError, WireLimits, read_header, write_header

BINARY = message.Protocol.BINARY
LAST_SEQID = 2**31 - 1

_EARLY_S = 0.001
"""Event loops count in milliseconds: a timer may be early by one."""


class CallFailed(Exception):
    """No answer; the callers of a client never see this.

    `sent` False: the server surely never saw the call; True: it may have carried it out. `busy`: the client had no time
    or no connection left, which says nothing about the server.
    """

    def __init__(self, why: str, *, sent: bool, busy: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.sent = sent
        self.busy = busy


class MethodCodec:
    """One method as bytes: calls of it, and answers to them. What is the same in every call is made once."""

    __slots__ = ("_call_head", "_encode_args", "_header", "_method", "_reply_head", "may_await_receipt", "name")

    def __init__(self, method: Signature) -> None:
        self.name = method.name
        self._method = method
        self.may_await_receipt = method.name in ("dequeueJobs", "dequeueFromQueues")
        self._encode_args = method.encode_args
        self._call_head = write_header(BINARY, CALL, method.name, 0)[:-SEQID_BYTES]
        self._reply_head = write_header(BINARY, REPLY, method.name, 0)[:-SEQID_BYTES]
        self._header = Header(BINARY, REPLY, method.name, 0, len(self._reply_head) + SEQID_BYTES)

    def call(self, seqid: int, args: Any, limits: WireLimits) -> bytes:
        """One call, without its frame. RequestInvalid: it cannot be encoded, or is larger than a server takes."""
        try:
            encoded = encode_struct(args, BINARY, self._encode_args(args))
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise RequestInvalid(f"{self.name}: cannot be encoded: {error}") from error
        message = self._call_head + seqid.to_bytes(SEQID_BYTES, "big") + encoded
        if len(message) > limits.max_message_bytes:
            allowed = f"up to {limits.max_message_bytes} bytes, as a server's --max-frame is unless set"
            raise RequestInvalid.of(f"{self.name}: the size of the call", len(message), allowed)
        return message

    def due(self, seqid: int) -> bytes:
        """With what the answer to that call begins."""
        return self._reply_head + seqid.to_bytes(SEQID_BYTES, "big")

    def result(self, answer: bytes, due: bytes, seqid: int, limits: WireLimits) -> Any:
        """What the answer to that call holds: `success`, or the declared exception as `e`; or an application error, as
        one of `pinlater.errors`. WireError: it is not readable, or not to that call.
        """
        if answer.startswith(due):
            return decode_result(answer, self._header, self._method, limits)
        head = read_header(answer)
        error: PinLaterError | None = None
        try:
            decode_reply(answer, limits)
        except ApplicationError as refused:
            error = error_from_application(refused)
        if head.name != self.name or head.seqid != seqid:
            raise WireError(f"answer {head.seqid} to {head.name!r} where {seqid} to {self.name!r} is due")
        return error or decode_result(answer, head, self._method, limits)


METHOD_CODECS = {name: MethodCodec(method) for name, method in SIGNATURES.items()}
"""By the name of the method."""


def unreadable(address: Address, error: WireError) -> ProtocolError:
    """What a caller is told of such an answer."""
    if isinstance(error, StrangerError):
        what = f"{address} is no port of a PinLater server: it speaks {error.protocol}"
        return ProtocolError(f"{what}; jobs go to port {DEFAULT_PORT} unless a server says otherwise")
    return ProtocolError(f"{address} answered what is not the contract: {error}")


class AnswerWaiter(Protocol):
    """What waits for an answer: a future, or what is told of it at once, without a turn of the loop."""

    def done(self) -> bool: ...

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, error: Any, /) -> None: ...


class _Sent(NamedTuple):
    """A call under way; `due` is what its answer begins with. `sent_s` and `deadline_s` are of the loop's clock."""

    seqid: int
    codec: MethodCodec
    due: bytes
    waiter: AnswerWaiter
    sent_s: float
    deadline_s: float


class ClientConnection(asyncio.Protocol):
    """The asyncio protocol of one connection.

    `users`: the calls that it is reserved for, sent or about to be. `exclusive`: its one call shares it with no other.
    One timer serves all calls: it is set for the earliest deadline, and looks for the next one when it is over, so that
    a call that is answered in time costs none.
    """

    __slots__ = (
        "__weakref__",
        "_address",
        "_limits",
        "_loop",
        "_on_answered",
        "_on_closed",
        "_on_owing",
        "_seqid",
        "_splitter",
        "_timer",
        "_timer_s",
        "_transport",
        "_waiting",
        "exclusive",
        "idle_since_s",
        "owes_receipt",
        "usable",
        "users",
    )

    def __init__(
        self,
        address: Address,
        limits: WireLimits,
        on_answered: Callable[[ClientConnection], None],
        on_closed: Callable[[ClientConnection], None],
        on_owing: Callable[[ClientConnection], None],
    ) -> None:
        """`on_answered` is called once for every call that was answered, before its waiter knows; `on_owing` after
        that, where the server awaits a receipt of the answer. The next call that is sent is one.
        """
        self._address = address
        self._limits = limits
        self._on_answered = on_answered
        self._on_closed = on_closed
        self._on_owing = on_owing
        self._loop = asyncio.get_running_loop()
        self._splitter = Splitter(limits)
        self._splitter.framed = True
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[_Sent] = deque()
        self._seqid = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        self.exclusive = False
        self.owes_receipt = False
        self.usable = False
        self.users = 0
        self.idle_since_s = 0.0

    def send(self, method: str, args: Any, deadline_s: float, waiter: AnswerWaiter) -> None:
        """Sends a call; its waiter gets the struct of the answer, or CallFailed or ProtocolError.

        CallFailed: the connection is closed; RequestInvalid for what cannot be encoded.
        """
        if not self.usable or self._transport is None:
            raise CallFailed("the connection is closed", sent=False)
        self._seqid = seqid = self._seqid % LAST_SEQID + 1
        codec = METHOD_CODECS[method]
        message = codec.call(seqid, args, self._limits)
        self._transport.write(len(message).to_bytes(4, "big") + message)
        self.owes_receipt = False
        self._waiting.append(_Sent(seqid, codec, codec.due(seqid), waiter, self._loop.time(), deadline_s))
        if self._timer is None or deadline_s < self._timer_s:
            self._set_timer(deadline_s)

    def give_up(self) -> None:
        """One call's answer is not waited for: no new calls here, and the end as soon as nobody waits."""
        self.usable = False
        if all(sent.waiter.done() for sent in self._waiting):
            self._break(CallFailed("the connection was given up", sent=True))

    def close(self, why: str) -> None:
        """Closes at once; calls under way fail."""
        self._break(CallFailed(why, sent=True))

    def retire(self) -> None:
        """Takes no new calls, and closes as soon as those under way are answered."""
        self.usable = False
        if not self._waiting:
            self._break(CallFailed("the connection is not used any more", sent=False))

    def half_close(self) -> None:
        """Closes the sending side: the server ends its waits, answers what it can, and closes the other side. TLS has
        no such thing: there the connection is closed, and the server requeues what was not confirmed.
        """
        self.usable = False
        if self._transport is not None and self._transport.can_write_eof():
            self._transport.write_eof()
        elif self._transport is not None:
            self._transport.close()

    # -- deadlines -------------------------------------------------------------------------------------------------

    def _set_timer(self, deadline_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = deadline_s
        self._timer = self._loop.call_at(deadline_s, self._expire)

    def _expire(self) -> None:
        """Calls whose time is over fail; the others get a timer for the next of them."""
        self._timer = None
        now_s = self._loop.time()
        late = [sent for sent in self._waiting if sent.deadline_s <= now_s + _EARLY_S and not sent.waiter.done()]
        for sent in late:
            waited_s = sent.deadline_s - sent.sent_s
            sent.waiter.set_exception(CallFailed(f"no answer within {waited_s:.3g} s", sent=True))
        if late:
            self.give_up()
        next_s = min((sent.deadline_s for sent in self._waiting if not sent.waiter.done()), default=None)
        if next_s is not None:
            self._set_timer(next_s)

    # -- answers ---------------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """Of its socket, which stays with this process; -1: it is closed."""
        connection = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if connection is None else int(connection.fileno())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.usable = True
        stays_with_parent(self)

    def data_received(self, data: bytes) -> None:
        try:
            whole = self._splitter.whole(data)
            if whole is not None:
                self._answer(whole)
                return
            for message in self._splitter.feed(data):
                self._answer(message)
                if self._transport is None:
                    return
        except WireError as error:
            self._break(unreadable(self._address, error))

    def _answer(self, message: bytes) -> None:
        """Settles the call that is due. WireError: the answer is not readable, or not to that call."""
        if not self._waiting:
            raise WireError("an answer without a request")
        sent = self._waiting[0]
        result = sent.codec.result(message, sent.due, sent.seqid, self._limits)
        self._waiting.popleft()
        self._on_answered(self)
        if sent.waiter.done():
            self.usable = False
        elif isinstance(result, PinLaterError):
            sent.waiter.set_exception(result)
        else:
            owes = sent.codec.may_await_receipt and result.success is not None and bool(result.success.awaits_receipt)
            if owes:
                self.owes_receipt = True
            sent.waiter.set_result(result)
            if owes:
                self._on_owing(self)
        if not self.usable:
            self.give_up()

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
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for sent in self._waiting:
            if not sent.waiter.done():
                sent.waiter.set_exception(error)
                error = _for_the_next(error)
        self._waiting.clear()
        self._on_closed(self)


def _for_the_next(error: Exception) -> CallFailed:
    """For the caller behind the one that got `error`, an exception of its own."""
    return CallFailed(error.why if isinstance(error, CallFailed) else "the connection broke", sent=True)
