"""The server: a listening socket, its connections, their time-outs, and an end at which no call is lost."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Sequence

import structlog

from pinlater.access.gate import CallGate
from pinlater.api import ServedApi
from pinlater.background_tasks import BackgroundTasks
from pinlater.clock import Clock, SystemClock
from pinlater.errors import Forbidden, PinLaterError
from pinlater.listener import BACKLOG, HEAD_WITHIN_S, AcceptLoop, RateLimitedLog
from pinlater.metrics import Metrics
from pinlater.model import Unreceived
from pinlater.server.connection import ServerConnection
from pinlater.server.deliveries import Deliveries
from pinlater.server.handler import Handler, draining_error
from pinlater.server.limits import ServerLimits
from pinlater.server.state import Drain, Drainable, HandOver, ServerState
from pinlater.server.tls import ServerTls, speaks_tls

_log = structlog.get_logger("pinlater.server")
_LOOK_AGAIN_S = 0.01
_MAX_SWEEP_S = 1.0
_TLS_ONLY = "this port takes calls over TLS only: connect with TLS"


class ThriftServer:
    """Serves a service over Thrift: framed and unframed, binary and compact, on one port.

    `counters` says how often each limit was reached: connections_refused, calls_over_buffer, half_sent_over_buffer,
    reads_paused, slow_readers_closed, half_sent_closed, idle_closed, streams_lost, malformed_messages, unknown_methods,
    answers_too_long, answers_over_connection, answers_over_peer, answers_over_buffer, peer_connections_refused,
    idle_closed_for_peer, idle_closed_for_others, unexpected_errors, aborted_at_stop; and by calls that the service
    refused for too much to do, waiting_dequeues, waiting_lookups, watched_jobs, waiting_store_calls,
    waiting_joined_calls, waiting_passwords, password_pauses, waiting_tokens, identity_connections, identity_calls,
    identity_bytes, identity_rate.
    """

    def __init__(
        self,
        service: ServedApi,
        limits: ServerLimits | None = None,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        gate: CallGate | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self._service = service
        self._gate = gate
        self._tls = tls
        self._deliveries = Deliveries(clock or SystemClock(), self._requeue_undelivered)
        self._limits = limits or ServerLimits()
        self.counters: Counter[str] = Counter()
        self._log = RateLimitedLog(lambda event, **fields: _log.info(event, **fields))
        self._metrics = metrics
        self._handler = Handler(service, self._limits, self.counters, self._log, metrics, gate)
        self._accepting: AcceptLoop | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._adopting = BackgroundTasks()
        self._unheard: dict[socket.socket, asyncio.Future[bool]] = {}
        """Connections that have sent nothing yet: whether they speak TLS is not known."""

    async def start(self, listener: socket.socket | None = None) -> None:
        """Accept connections from a bound socket, of which the server keeps a copy: the caller closes its own.

        Without one, the server has those connections that it is given to `adopt`.
        """
        self._state = ServerState(self._limits, self.counters, self._log, self._deliveries)
        if listener is not None:
            copy = listener.dup()
            copy.setblocking(False)
            copy.listen(BACKLOG)
            self._accepting = AcceptLoop(copy, self.adopt, RateLimitedLog(_log.error))
        has_rules, tls = self._gate is not None and self._gate.has_rules, self._tls
        if tls is not None and tls.asks_for_certificates and not (has_rules and tls.rules_know_others):
            self._state.accepts = tls.accepts
            self._state.refusing = self._refusing(Forbidden(f"this port takes calls of {tls.needs}"))
        self._sweep()

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._state.connections)

    @property
    def open_connections(self) -> Sequence[Drainable]:
        """Each of them."""
        return tuple(self._state.connections)

    @property
    def is_draining(self) -> bool:
        """Connections leave as soon as nothing of them is half done."""
        return self._state.drain is not None

    @property
    def refusal(self) -> PinLaterError | None:
        """What new calls are refused with, while it drains without a successor."""
        return self._handler.refuse_with

    @property
    def buffered_bytes(self) -> int:
        """Bytes of half sent messages, of calls in flight, and of answers that cannot leave yet."""
        return self._state.buffered + self._state.answers.unsent

    def adopt(self, connection: socket.socket) -> None:
        """Go on with a connection that another process accepted; it stands at the boundary of a message."""
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        tls = self._tls
        self._adopting.start(self._adopt(loop, connection) if tls is None else self._hear(loop, connection, tls))

    async def _adopt(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: socket.socket,
        handler: Handler | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        try:
            await loop.connect_accepted_socket(
                lambda: ServerConnection(self._state, handler or self._handler, self._limits),
                connection,
                ssl=context,
                ssl_handshake_timeout=None if context is None else HEAD_WITHIN_S,
            )
        except OSError as error:
            connection.close()
            self._log.note("adopt_failed", "" if context is None else "tls", reason=str(error) or type(error).__name__)

    async def _hear(self, loop: asyncio.AbstractEventLoop, connection: socket.socket, tls: ServerTls) -> None:
        """Adopt a connection by what its first byte says; while it has sent none, it can still be handed over."""
        if len(self._state.connections) + len(self._adopting) > self._limits.max_connections:
            self.counters["connections_refused"] += 1
            connection.close()
            return
        within_s = self._limits.idle_timeout_s if tls.takes_plain else HEAD_WITHIN_S
        hearing = self._unheard[connection] = asyncio.ensure_future(speaks_tls(connection))
        try:
            is_tls = await asyncio.wait_for(hearing, within_s)
        except (OSError, TimeoutError):
            connection.close()
            return
        except asyncio.CancelledError:
            drain = self._state.drain
            if drain is not None and drain.hand_over is not None:
                drain.hand_over(connection)
            else:
                connection.close()
            return
        finally:
            del self._unheard[connection]
        if is_tls:
            await self._adopt(loop, connection, context=tls.context)
        else:
            await self._adopt(loop, connection, None if tls.takes_plain else self._refusing(Forbidden(_TLS_ONLY)))

    def _refusing(self, error: PinLaterError) -> Handler:
        """Answers every call with an error."""
        handler = Handler(self._service, self._limits, self.counters, self._log, self._metrics)
        handler.refuse_with = error
        return handler

    async def drain(self, hand_over: HandOver | None = None, timeout_s: float = 30.0) -> None:
        """Stop accepting, answer what was read, and return when no connection is left, or after `timeout_s`.

        With `hand_over`, each connection is given to it as soon as nothing of it is half done: the socket, which then
        belongs to the callback; what its caller sends meanwhile waits in the socket. Without, calls that arrive now are
        refused (errors.Draining), and connections are closed a little later (`drain_linger_s`), when they are idle.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        idle_until = min(loop.time() + self._limits.drain_linger_s, deadline)
        self.stop_accepting()
        drain = self._state.drain = Drain(hand_over, self._refusing(draining_error()))
        for hearing in self._unheard.values():
            hearing.cancel()
        if hand_over is None:
            self._handler.refuse_with = draining_error()
        self._handler.start_draining()
        self._service.start_draining()
        while (self._state.connections or self._adopting) and loop.time() < deadline:
            drain.close_idle = loop.time() >= idle_until
            for connection in tuple(self._state.connections):
                connection.leave()
            await asyncio.sleep(_LOOK_AGAIN_S)
        await self._end()

    def stop_accepting(self) -> None:
        """Leave new connections to others."""
        if self._accepting is not None:
            self._accepting.close()
            self._accepting = None

    async def _end(self) -> None:
        """Break off what is left."""
        for connection in tuple(self._state.connections):
            self.counters["aborted_at_stop"] += 1
            connection.abort()
        await asyncio.sleep(0)
        await self._finish_tasks()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self._log.say_rest()

    async def _finish_tasks(self) -> None:
        """Cancel calls that are still running; the service requeues what they claimed."""
        self._deliveries.close()
        calls = tuple(self._state.calls)
        for call in calls:
            call.cancel()
        for call in calls:
            await call.wait()
        await self._state.tasks.cancel()
        await self._adopting.cancel()

    def _requeue_undelivered(self, jobs: Sequence[Unreceived]) -> None:
        self._state.run_detached(self._service.requeue_undelivered(jobs))

    def _sweep(self) -> None:
        """Renew the time, look for what took too long, and look again a quarter of the shortest time-out later."""
        loop = asyncio.get_running_loop()
        now = self._state.now = loop.time()
        for connection in tuple(self._state.connections):
            connection.sweep(now)
        limits = self._limits
        shortest = min(limits.idle_timeout_s, limits.half_sent_timeout_s, limits.write_timeout_s)
        self._sweeper = loop.call_later(min(shortest / 4, _MAX_SWEEP_S), self._sweep)
