"""One connection: bytes in, calls carried out, answers out in the order of the calls.

Several calls of a connection run at a time, up to a bound; beyond it, or while the caller does not take its answers,
nothing more is read from it. A connection can leave at the boundary of a message: to another process, or for good.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Iterator
from typing import Any, cast

import structlog

from pinlater.errors import Overloaded
from pinlater.model import ConnectionRef
from pinlater.server.deliveries import Stream
from pinlater.server.handler import Handler
from pinlater.server.limits import ServerLimits
from pinlater.server.peers import Account, Peer, no_room
from pinlater.server.pending import PendingCall
from pinlater.server.probing import probe
from pinlater.server.shared import HandOver, Shared
from pinlater.wire.codec import BadCall
from pinlater.wire.framing import Splitter
from pinlater.wire.malformed import WireError

_log = structlog.get_logger("pinlater.server")
_COPIED_BYTES = 64 * 1024
"""Answers that come to more are written one by one, not copied together."""


class Connection(asyncio.Protocol):
    """The asyncio protocol of one connection. `shared` is what all connections of the server have in common."""

    def __init__(self, shared: Shared, handler: Handler, limits: ServerLimits) -> None:
        self._shared = shared
        self._handler = handler
        self._limits = limits
        self._splitter = Splitter(limits.wire())
        self._pending: deque[PendingCall] = deque()
        self._messages: Iterator[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._peer: object = None
        self._peer_room: Peer | None = None
        self._answers = shared.answers
        self._ref = ConnectionRef()
        self._stream: Stream | None = None
        self._is_probed = False
        self._was_handed_over = False
        self._reading = True
        self._ending = False
        self._is_going_on = False
        self._heard_at = self._stuck_since = self._partial_since = shared.now
        self._writing_paused = False
        self._partial = 0
        self._chunk = 0
        self._unsent = 0

    # What the event loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._peer = self._ref.peer = transport.get_extra_info("peername")
        without_delay(transport.get_extra_info("socket"))
        peer = self._peer_room = self._shared.peers.of(self._peer)
        self._answers = Account(self._limits.max_connection_answers_bytes, "answers_over_connection", peer.account)
        if not self._shared.admit(self, peer):
            self._transport.abort()
        elif self._shared.leaving is not None:
            self.leave()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._shared.now
        self._chunk = len(data)
        self._messages = self._splitter.feed(data)
        self._go_on()

    def eof_received(self) -> bool:
        """The caller sends no more. What it sent is answered; but its jobs are given back, for so a process dies."""
        self._ending = True
        for pending in self._pending:
            pending.caller_is_gone()
            if pending.reply is not None and pending.jobs:
                pending.reply = self._handler.without_jobs(pending.reply, pending)
                self._shared.run_detached(self._handler.requeue(pending))
        self._let_go_of_claims(None)
        self._end_if_done()
        return True

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._stuck_since = self._shared.now

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._count_unsent(0)
        self._go_on()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._messages = None
        self._count_partial(0)
        self._count_unsent(0)
        for pending in self._pending:
            self._shared.buffered -= pending.size
            self._count_answers(-pending.unsent, -pending.reserved)
            pending.unsent = pending.reserved = 0
            pending.caller_is_gone()
            if pending.reply is not None and pending.jobs:
                self._shared.run_detached(self._handler.requeue(pending))
        self._pending.clear()
        self._shared.peers.abandon(self._answers)
        if self._peer_room is not None:
            self._shared.forget(self, self._peer, self._peer_room)
        if self._stream is not None:
            if self._was_handed_over or self._shared.leaving is not None:
                self._stream.forget()
            else:
                self._stream.broke(self._ref)
        self._let_go_of_claims(error)

    def _let_go_of_claims(self, error: Exception | None) -> None:
        """Once; what returns later, of calls that are under way, is of a connection that is gone."""
        ref = self._ref
        if ref.is_broken:
            return
        ref.is_broken = not self._was_handed_over and self._shared.leaving is None
        if ref.claims:
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
        elif self._shared.leaving is not None:
            self.leave()

    def _begin_calls(self) -> None:
        """As far as the bounds allow; read on only when all have begun. No more of them in one turn than may be in
        flight: those that are answered at once would hold up all other connections.
        """
        most = self._limits.max_frames_in_flight
        turn = most
        while self._messages is not None and turn:
            if len(self._pending) >= most:
                self._write()
            if self._writing_paused or len(self._pending) >= most:
                self._shared.counters["reads_paused"] += 1
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
                self._shared.loop.call_soon(self._go_on)

    def _begin(self, message: bytes) -> None:
        shared = self._shared
        if self._stream is not None and self._stream.awaits_receipt:
            self._stream.confirmed()
        pending = PendingCall(shared.loop, self._answered, len(message), self._peer, self._ref, self)
        pending.gone = self._ending
        self._pending.append(pending)
        shared.buffered += pending.size
        if max(shared.buffered, shared.answers.unsent) > self._limits.max_buffered_bytes:
            shared.counters["calls_over_buffer"] += 1
            self._refuse(pending, message)
            return
        pending.start(self._answer(pending, message))
        if not pending.is_done:
            shared.calls.add(pending)

    async def _answer(self, pending: PendingCall, message: bytes) -> None:
        try:
            reply = await self._handler.reply(message, pending)
            if self._shared.answers.unsent:
                account = self._answers
                if account.parent is not None and self._is_next(pending):
                    account = account.parent
                over = account.over(len(reply))
                if over is not None:
                    self._shared.counters[over.limit] += 1
                    reply = await self._handler.cut_short(reply, pending, no_room(over, len(reply)))
            pending.reply = reply
        except WireError as error:
            self._drop(error)

    def _answered(self, pending: PendingCall) -> None:
        shared = self._shared
        shared.calls.discard(pending)
        if pending.reply is not None and self._transport is not None and pending is not self._pending[0]:
            pending.unsent = len(pending.reply)
            self._answers.add(pending.unsent)
        if self._ref.claims and not self._is_probed:
            self._probe()
        self._heard_at = shared.now
        self._go_on()
        if pending.reserved:  # until here: what was written counts by now
            self._count_answers(0, -pending.reserved)
            pending.reserved = 0

    def _probe(self) -> None:
        """Claims are bound to this connection: learn soon where the caller's machine dies without a word."""
        self._is_probed = True
        if self._transport is not None:
            probe(self._transport.get_extra_info("socket"))

    def _refuse(self, pending: PendingCall, message: bytes) -> None:
        try:
            pending.reply = self._handler.refuse(message, self._overloaded())
        except WireError as malformed:
            self._drop(malformed)

    def _overloaded(self) -> Overloaded:
        held = self._limits.max_buffered_bytes
        return Overloaded(f"this server holds {held} bytes of calls, or of answers, already", retry_after_ms=100)

    def _count_unsent(self, size: int) -> None:
        """Note how much of the answers that were written has not left."""
        if size != self._unsent:
            change, self._unsent = size - self._unsent, size
            self._count_answers(change)

    def _count_answers(self, unsent: int, reserved: int = 0) -> None:
        """Note answers that are kept, or that have left; then others may be made."""
        self._answers.add(unsent, reserved)
        if unsent + reserved < 0 and self._shared.peers.is_waited_for:
            self._shared.peers.freed()

    async def reserve(self, pending: PendingCall, size: int) -> None:
        """Room for an answer, as soon as there is. Overloaded."""
        await self._shared.peers.reserve(self._answers, size, lambda: self._is_next(pending))

    def _is_next(self, pending: PendingCall) -> bool:
        """What this connection holds are answers to later calls then, which wait for this one."""
        return bool(self._pending) and pending is self._pending[0] and not self._unsent

    def reserve_now(self, size: int) -> bool:
        if not self._answers.has_room(size):
            return False
        self._answers.add(0, size)
        return True

    def _count_partial(self, size: int) -> None:
        """Note how much of a half sent message is kept, and since when."""
        if size and not self._partial:
            self._partial_since = self._shared.now
        if size != self._partial:
            grows = size > self._partial
            self._shared.buffered += size - self._partial
            self._partial = size
            if grows and self._shared.buffered > self._limits.max_buffered_bytes:
                self._shared.close_largest()

    def _read(self, reading: bool) -> None:
        if reading is self._reading or self._transport is None or self._transport.is_closing():
            return
        self._reading = reading
        if reading:
            self._partial_since = self._shared.now
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # From answers to bytes

    def _write(self) -> None:
        """The answers that are next in order."""
        pending, shared, framed = self._pending, self._shared, self._splitter.framed
        if not pending or pending[0].reply is None:
            return
        parts: list[bytes] = []
        size = 0
        transport, stream = self._transport, self._stream
        while pending and (reply := pending[0].reply) is not None:
            done = pending.popleft()
            shared.buffered -= done.size
            if done.unsent:
                self._count_answers(-done.unsent)
            length = len(reply)
            if framed:
                parts.append(length.to_bytes(4, "big"))
                size += 4
            parts.append(reply)
            size += length
            if done.jobs and transport is not None:
                stream = self._stream = stream or Stream(shared.deliveries, transport)
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
            last = PendingCall(self._shared.loop, self._answered, 0, self._peer, self._ref)
            last.reply = self._handler.refuse_malformed(error, self._peer)
            self._pending.append(last)
        self._go_on()

    def _drop(self, error: WireError) -> None:
        """A message without a readable header has no answer, and nothing behind it would be in order."""
        self._note_lost(error)
        self.abort()

    def _note_lost(self, error: WireError) -> None:
        self._shared.counters["streams_lost"] += 1
        self._shared.complaints.note("stream_lost", self._peer, reason=error.message)

    def _end_if_done(self) -> None:
        if not self._pending and self._messages is None and self._transport is not None:
            self._stuck_since = self._shared.now
            self._transport.close()

    def abort(self) -> None:
        """Close now, whatever is unsent."""
        if self._transport is not None:
            self._transport.abort()

    def at_boundary(self) -> bool:
        """Nothing half read, nothing to answer, nothing unsent."""
        transport = self._transport
        return (
            transport is not None
            and not transport.is_closing()
            and not self._pending
            and self._messages is None
            and not self._partial
            and not transport.get_write_buffer_size()
        )

    def leave(self) -> None:
        """For a server that ends: at a boundary, be handed over or closed; else stop reading until then."""
        leaving = self._shared.leaving
        if leaving is None or self._transport is None:
            return
        if self.at_boundary():
            if leaving.hand_over is not None:
                self._hand_over(leaving.hand_over)
            elif leaving.close_idle:
                self._transport.close()
        elif leaving.hand_over is not None and self._messages is None:
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
        elif not self._pending and now - self._heard_at > limits.idle_timeout_s:
            self._time_out("idle_closed")

    def _time_out(self, counter: str) -> None:
        self._shared.counters[counter] += 1
        self._shared.complaints.note("connection_timed_out", self._peer, kind=counter, reason=counter)
        self.abort()


def without_delay(sock: Any) -> None:
    """Send small answers at once: asyncio sees to it only for sockets that were made with a protocol number."""
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
