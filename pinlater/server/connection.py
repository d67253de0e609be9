"""One connection: bytes in, calls carried out, answers out in the order of the calls.

The way of a call: `data_received` cuts it from the stream, `_begin` makes an InflightCall and starts `Handler.reply`,
`InflightCall.on_done` keeps the answer, and `_write` sends the answers that are next in order. Nearly always the
message is the only one, is answered at once or after a round trip to a store, and the answer is the next in order.

Several calls of a connection run at a time, up to a bound; beyond it, or while the caller does not take its answers,
nothing more is read from it. A connection can leave at the boundary of a message: to another process, or for good.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, cast

import structlog

from pinlater.eager import EagerTask
from pinlater.errors import Overloaded
from pinlater.listener import keep_alive, peer_text
from pinlater.model import ConnectionRef, DequeuedJob
from pinlater.model.connection_ref import host_of, names_in
from pinlater.server.deliveries import Stream
from pinlater.server.handler import Handler
from pinlater.server.limits import ServerLimits
from pinlater.server.state import Account, HandOver, Peer, ServerState, no_room
from pinlater.wire.codec import BadCall, CallReader
from pinlater.wire.framing import Splitter
from pinlater.wire.message import WireError

_log = structlog.get_logger("pinlater.server")
_COPIED_BYTES = 64 * 1024
"""Answers that come to more are written one by one, not copied together."""


class InflightCall(EagerTask):
    """A call whose answer is not written yet."""

    __slots__ = (
        "caller_gone",
        "channel",
        "is_long_poll",
        "is_parked",
        "is_truncated",
        "jobs",
        "needs_receipt",
        "reply",
        "reserved",
        "size",
        "unsent",
    )

    def __init__(self, channel: ServerConnection, size: int, caller_gone: bool) -> None:
        self._loop = channel.state.loop
        self.is_done = True
        self.channel = channel
        self.size = size
        """Of the message, in bytes."""
        self.unsent = 0
        """Bytes of an answer that waits for earlier ones."""
        self.reserved = 0
        """Bytes of the connection's room for answers that are kept for this one until it is made."""
        self.reply: bytes | None = None
        self.jobs: Sequence[DequeuedJob] = ()
        """Those that were claimed for this call, until their answer is written."""
        self.needs_receipt = False
        """The caller said that it confirms them."""
        self.is_long_poll = False
        self.is_parked = False
        """A long poll that waits; it ends when the caller is gone."""
        self.is_truncated = False
        self.caller_gone = caller_gone
        """The caller can no longer be answered with jobs: the connection broke, or its sending side ended, as it
        does when a process dies."""

    def on_done(self, reply: bytes | None, error: BaseException | None) -> None:
        channel = self.channel
        state = channel.state
        if reply is not None:
            if state.answers.unsent and not self.is_truncated and channel.truncate(self, reply):
                return  # it is over once more, with a shorter answer
            self.reply = reply
        elif isinstance(error, WireError):
            channel.drop(error)
        else:
            super().on_done(reply, error)
        state.calls.pop(self, None)
        channel.end(self)

    async def wait_for_room(self, size: int) -> None:
        """Until there is room for an answer of up to so many bytes, which is then kept for it. Overloaded."""
        channel = self.channel
        await channel.state.peers.reserve(channel.answers, size, lambda: channel.is_next(self))
        self.reserved += size

    def take_room(self, size: int) -> bool:
        """Keep room for so many bytes more; False where there is none now."""
        answers = self.channel.answers
        if not answers.has_room(size):
            return False
        answers.add(0, size)
        self.reserved += size
        return True

    def lose_caller(self) -> None:
        """No jobs any more for this call; a long poll ends."""
        self.caller_gone = True
        if self.is_parked:
            self.cancel()


class ServerConnection(asyncio.Protocol):
    """The asyncio protocol of one connection. `state` is what all connections of the server have in common."""

    def __init__(self, state: ServerState, handler: Handler, limits: ServerLimits) -> None:
        self.state = state
        self.ref = ConnectionRef()
        self.reader = CallReader(limits.wire())
        self.answers = state.answers
        """The account of what this connection has of answers."""
        self._handler = handler
        self._limits = limits
        self._max_calls = limits.max_frames_in_flight
        self._max_buffered_bytes = limits.max_buffered_bytes
        self._splitter = Splitter(limits.wire())
        self._calls: deque[InflightCall] = deque()
        self._messages: Iterator[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._peer_room: Peer | None = None
        self._stream: Stream | None = None
        self._is_kept_alive = False
        self._is_encrypted = self._was_handed_over = self._is_aborted = False
        self._reading = True
        self._ending = False
        self._is_going_on = False
        self._heard_at = self._stuck_since = self._partial_since = state.now
        self._writing_paused = False
        self._partial = 0
        self._chunk = 0
        self._unsent = 0

    # What the event loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.ref.peer = transport.get_extra_info("peername")
        secured = transport.get_extra_info("ssl_object")
        self._is_encrypted = secured is not None
        if secured is not None:
            self.ref.certificate_names = names_in(secured.getpeercert())
            accepts, refusing = self.state.accepts, self.state.refusing
            if accepts is not None and refusing is not None and not accepts(self.ref.certificate_names):
                self._handler = refusing
        without_delay(transport.get_extra_info("socket"))
        peer = self._peer_room = self.state.peers.of(self.ref.peer)
        self.answers = Account(self._limits.max_connection_answers_bytes, "answers_over_connection", peer.account)
        if not self.state.admit(self, peer):
            self._transport.abort()
        elif self.state.drain is not None:
            self.leave()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self.state.now
        if self._messages is None and not self._writing_paused and len(self._calls) < self._max_calls:
            message = self._splitter.whole(data)
            if message is not None and not self._is_going_on:  # as most often: one message, and nothing waits for it
                self._is_going_on = True
                try:
                    self._begin(message)
                    if self._calls and self._calls[0].reply is not None:
                        self._write()
                finally:
                    self._is_going_on = False
                if self._ending or self.state.drain is not None:
                    self._go_on()
                return
        self._chunk = len(data)
        self._messages = self._splitter.feed(data)
        self._go_on()

    def eof_received(self) -> bool:
        """The caller sends no more. What it sent is answered; but its jobs are requeued, as for a dead process."""
        self._ending = True
        for call in self._calls:
            call.lose_caller()
            if call.reply is not None and call.jobs:
                call.reply = self._handler.empty_reply(call.reply, call)
                self.state.run_detached(self._handler.requeue(call))
        if self._stream is not None and self._messages is None and self.state.drain is None:
            self._stream.end_receipts(self.ref)
        self._unbind(None)
        self._end_if_done()
        return True

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._stuck_since = self.state.now

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._count_unsent(0)
        self._go_on()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.ref.is_closed = True
        if self._stream is not None and self._messages is not None:  # a call that came, and is not begun, is a receipt
            self._stream.confirmed()
        self._messages = None
        self._count_partial(0)
        self._count_unsent(0)
        for call in self._calls:
            self.state.buffered -= call.size
            self._count_answers(-call.unsent, -call.reserved)
            call.unsent = call.reserved = 0
            call.lose_caller()
            if call.reply is not None and call.jobs:
                self.state.run_detached(self._handler.requeue(call))
        self._calls.clear()
        self.state.peers.abandon(self.answers)
        if self._peer_room is not None:
            self.state.forget(self, self.ref.peer, self._peer_room)
        if self._stream is not None:
            if self._was_handed_over or self.state.drain is not None:
                self._stream.forget()
            else:
                self._stream.disconnected(self.ref, is_ours=self._is_aborted)
        self._unbind(error)

    def _unbind(self, error: Exception | None) -> None:
        """Once; what returns later, of calls that are under way, is of a connection that is gone."""
        ref = self.ref
        if ref.is_broken:
            return
        ref.is_broken = not self._was_handed_over and self.state.drain is None
        if ref.claims or ref.worker is not None:
            self._handler.connection_lost(ref, error)

    # From bytes to calls

    def _go_on(self) -> None:
        """Write the answers that are next in order, begin the calls that wait, write what is answered at once."""
        if self._is_going_on or self._transport is None:
            return
        self._is_going_on = True
        try:
            self._write()
            if self._messages is not None or not self._reading:
                self._begin_calls()
                self._write()
        finally:
            self._is_going_on = False
        if self._ending:
            self._end_if_done()
        elif self.state.drain is not None:
            self.leave()

    def _begin_calls(self) -> None:
        """As far as the bounds allow; read on only when all have begun. No more of them in one turn than may be in
        flight: those that are answered at once would hold up all other connections.
        """
        most = turn = self._max_calls
        while self._messages is not None and turn:
            if len(self._calls) >= most:
                self._write()
            if self._writing_paused or len(self._calls) >= most:
                self.state.counters["reads_paused"] += 1
                break
            try:
                message = next(self._messages, None)
            except WireError as error:
                self._lose(error)
                break
            if message is None:
                self._messages = None
            else:
                self._begin(message)
                turn -= 1
        if self._messages is None:
            self._count_partial(self._splitter.buffered)
            self._read(not self._ending)
        else:
            self._count_partial(self._splitter.buffered + self._chunk)
            self._read(False)
            if not turn:
                self.state.loop.call_soon(self._go_on)

    def _begin(self, message: bytes) -> None:
        state = self.state
        if self._stream is not None and self._stream.awaits_receipt:
            self._stream.confirmed()
        call = InflightCall(self, len(message), self._ending)
        self._calls.append(call)
        state.buffered += call.size
        if state.buffered > state.peer_bytes or state.answers.unsent > state.peer_bytes:
            refusal = self._refusal(call.size)
            if refusal is not None:
                self._refuse(call, message, refusal)
                return
        call.start(self._handler.reply(message, call), state.context.copy())  # often at the end of another call
        if not call.is_done:
            state.calls[call] = None

    def end(self, call: InflightCall) -> None:
        """The answer of a call is there, or there will be none."""
        if call.reply is not None and self._transport is not None and call is not self._calls[0]:
            call.unsent = len(call.reply)
            self.answers.add(call.unsent)
        if self.ref.claims and not self._is_kept_alive:
            self._keep_alive()
        self._heard_at = self.state.now
        if not self._is_going_on:
            self._go_on()
        if call.reserved:  # until here: what was written counts by now
            self._count_answers(0, -call.reserved)
            call.reserved = 0

    def truncate(self, call: InflightCall, reply: bytes) -> bool:
        """Where there is no room for an answer, begin to make a shorter one in its place, and say so."""
        account = self.answers
        if account.parent is not None and self.is_next(call):
            account = account.parent
        over = account.over(len(reply))
        if over is None:
            return False
        self.state.counters[over.limit] += 1
        call.is_truncated = True
        call.start(self._handler.truncate(reply, call, no_room(over, len(reply))))
        return True

    def _keep_alive(self) -> None:
        """Claims are bound to this connection: learn soon where the caller's machine dies without a word."""
        self._is_kept_alive = True
        if self._transport is not None:
            keep_alive(self._transport.get_extra_info("socket"))

    def _refusal(self, size: int) -> Overloaded | None:
        """Why there is no room for one more call of so many bytes, which are counted, where there is none. One alone of
        its address may have any size; an address alone may have all, where no rules tell its callers apart.
        """
        state, peer, most = self.state, self._peer_room, self._max_buffered_bytes
        if state.buffered > most or state.answers.unsent > most:
            state.counters["calls_over_buffer"] += 1
            return Overloaded(f"this server holds {most} bytes of calls, or of answers, already", retry_after_ms=100)
        is_shared = state.peers.are_several or self._handler.has_rules
        if is_shared and peer is not None and peer.buffered(state.now) > max(state.peer_bytes, size):
            state.counters["calls_over_peer"] += 1
            text = f"this server holds {state.peer_bytes} bytes of calls from this address already: send less at a time"
            return Overloaded(text, retry_after_ms=100)
        return None

    def _refuse(self, call: InflightCall, message: bytes, error: Overloaded) -> None:
        try:
            call.reply = self._handler.refuse(message, error)
        except WireError as malformed:
            self.drop(malformed)

    def _count_unsent(self, size: int) -> None:
        """Note how much of the answers that were written has not left."""
        if size != self._unsent:
            change, self._unsent = size - self._unsent, size
            self._count_answers(change)

    def _count_answers(self, unsent: int, reserved: int = 0) -> None:
        """Note answers that are kept, or that have left; then others may be made."""
        self.answers.add(unsent, reserved)
        if unsent + reserved < 0 and self.state.peers.is_waited_for:
            self.state.peers.freed()

    def is_next(self, call: InflightCall) -> bool:
        """Whether this call's answer is the next to be written; all other answers held here come after it."""
        return bool(self._calls) and call is self._calls[0] and not self._unsent

    def _count_partial(self, size: int) -> None:
        """Note how much of a half sent message is kept, and since when."""
        if size and not self._partial:
            self._partial_since = self.state.now
        if size != self._partial:
            grows = size > self._partial
            self.state.buffered += size - self._partial
            self._partial = size
            if grows and self.state.buffered > self._limits.max_buffered_bytes:
                self.state.close_largest()

    def _read(self, reading: bool) -> None:
        if reading is self._reading or self._transport is None or self._transport.is_closing():
            return
        self._reading = reading
        if reading:
            self._partial_since = self.state.now
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # From answers to bytes

    def _write(self) -> None:
        """The answers that are next in order."""
        calls = self._calls
        if not calls or calls[0].reply is None:
            return
        state, framed = self.state, self._splitter.framed
        parts: list[bytes] = []
        size = 0
        transport, stream = self._transport, self._stream
        while calls and (reply := calls[0].reply) is not None:
            done = calls.popleft()
            state.buffered -= done.size
            if done.unsent:
                self._count_answers(-done.unsent)
            length = len(reply)
            if framed:
                parts.append(length.to_bytes(4, "big"))
                size += 4
            parts.append(reply)
            size += length
            if done.jobs and transport is not None:
                stream = self._stream = stream or Stream(state.deliveries, transport, self._owner())
                stream.hand_out(done.jobs, size, done.needs_receipt)
                done.jobs = ()
        if transport is not None:
            if size > _COPIED_BYTES:
                transport.writelines(parts)
            else:
                transport.write(b"".join(parts))
            if stream is not None:
                stream.written += size
            if self._writing_paused:
                self._count_unsent(transport.get_write_buffer_size())

    # The end

    @property
    def idle_since(self) -> float | None:
        """None while anything is half read, in flight or unsent; else since when, in the loop's time."""
        return self._heard_at if self.at_boundary() else None

    @property
    def waits_since(self) -> float | None:
        """None while anything is carried out or unsent; else since when it is idle, waits for jobs, or is half read.
        Where nobody shows who calls, who waits is no other than who comes, and stays; so does who sends now.
        """
        transport, calls = self._transport, self._calls
        if transport is None or transport.is_closing() or transport.get_write_buffer_size():
            return None
        if calls:
            is_missed = not self.ref.holder or not all(call.is_parked for call in calls)
        else:
            is_sending = self._partial and not self._handler.has_rules and self.state.now - self._heard_at < 1.0
            is_missed = is_sending or self._messages is not None  # messages that are whole begin in a moment
        return None if is_missed else self._heard_at

    @property
    def buffered(self) -> int:
        """Bytes of its calls in flight, and of a message half sent."""
        return self._partial + sum(call.size for call in self._calls)

    @property
    def holder(self) -> str:
        """Whose share its last call took; "" where that is not known."""
        return self.ref.holder

    def _owner(self) -> str:
        """Whose share of what is handed out and not confirmed its answers take."""
        return self.ref.holder or host_of(self.ref.peer)

    @property
    def socket(self) -> Any:
        return None if self._transport is None else self._transport.get_extra_info("socket")

    @property
    def partial(self) -> int:
        """Bytes of a half sent message."""
        return self._partial

    def _lose(self, error: WireError) -> None:
        """The stream cannot be read on. Answer what came before, and the last message where it can be, then close."""
        self._note_lost(error)
        self._messages = None
        self._ending = True
        self._read(False)
        if isinstance(error, BadCall):
            last = InflightCall(self, 0, self._ending)
            last.reply = self._handler.refuse_malformed(error, self.ref.peer)
            self._calls.append(last)
        self._go_on()

    def drop(self, error: WireError) -> None:
        """A message without a readable header has no answer, and nothing behind it would be in order."""
        self._note_lost(error)
        self.abort()

    def _note_lost(self, error: WireError) -> None:
        self.state.counters["streams_lost"] += 1
        self.state.log.note("stream_lost", peer=peer_text(self.ref.peer), reason=error.message)

    def _end_if_done(self) -> None:
        if not self._calls and self._messages is None and self._transport is not None:
            self._stuck_since = self.state.now
            self._transport.close()

    def abort(self) -> None:
        """Close now, whatever is unsent."""
        if self._transport is not None:
            self._is_aborted = True
            self._transport.abort()

    def at_boundary(self) -> bool:
        """Nothing half read, nothing to answer, nothing unsent."""
        transport = self._transport
        return (
            transport is not None
            and not transport.is_closing()
            and not self._calls
            and self._messages is None
            and not self._partial
            and not transport.get_write_buffer_size()
        )

    def leave(self) -> None:
        """For a server that ends: at a boundary, be handed over or closed; else stop reading until then."""
        drain = self.state.drain
        if drain is None or self._transport is None:
            return
        hand_over = None if self._is_encrypted else drain.hand_over
        if self._is_encrypted:
            self._handler = drain.refusing  # another process cannot go on with it
        if self.at_boundary():
            if hand_over is not None:
                self._hand_over(hand_over)
            elif drain.close_idle:
                self._transport.close()
        elif hand_over is not None and self._messages is None:
            self._read(bool(self._partial))

    def _hand_over(self, hand_over: HandOver) -> None:
        assert self._transport is not None
        self._read(False)
        self._was_handed_over = True
        copy = socket.socket(fileno=os.dup(self._transport.get_extra_info("socket").fileno()))
        self._transport.abort()
        try:
            hand_over(copy)
        except Exception as error:
            copy.close()
            _log.warning("hand_over_failed", exc_info=error)

    def sweep(self, now: float) -> None:
        """Close what took too long: unread answers, a half sent message, silence."""
        limits = self._limits
        closing = self._transport is None or self._transport.is_closing()
        if self._writing_paused or closing:
            if now - self._stuck_since > limits.write_timeout_s:
                self._time_out("slow_readers_closed")
        elif self._partial and self._reading:
            if now - self._partial_since > limits.half_sent_timeout_s:
                self._time_out("half_sent_closed")
        elif not self._calls and now - self._heard_at > limits.idle_timeout_s:
            self._time_out("idle_closed")

    def _time_out(self, counter: str) -> None:
        self.state.counters[counter] += 1
        self.state.log.note("connection_timed_out", counter, peer=peer_text(self.ref.peer), reason=counter)
        self.abort()


def without_delay(sock: Any) -> None:
    """Send small answers at once: asyncio sees to it only for sockets that were made with a protocol number."""
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
