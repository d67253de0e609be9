"""The server: a listening socket, its connections, their time-outs, and an end at which no call is lost."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Sequence

import structlog

from pinlater.access.gate import Gate
from pinlater.api import ServedApi
from pinlater.background_tasks import BackgroundTasks
from pinlater.clock import Clock, SystemClock
from pinlater.errors import PinLaterError
from pinlater.listener import BACKLOG, AcceptLoop, RateLimitedLog
from pinlater.metrics import Metrics
from pinlater.model import Unreceived
from pinlater.server.connection import ServerConnection
from pinlater.server.deliveries import Deliveries
from pinlater.server.handler import Handler, draining_error
from pinlater.server.limits import ServerLimits
from pinlater.server.state import Drain, Drainable, HandOver, ServerState

_log = structlog.get_logger("pinlater.server")
_LOOK_AGAIN_S = 0.01
_MAX_SWEEP_S = 1.0


class ThriftServer:
    """Serves a service over Thrift: framed and unframed, binary and compact, on one port.

    `counters` says how often each limit was reached: connections_refused, calls_over_buffer, half_sent_over_buffer,
    reads_paused, slow_readers_closed, half_sent_closed, idle_closed, streams_lost, malformed_messages, unknown_methods,
    answers_too_long, answers_over_connection, answers_over_peer, answers_over_buffer, peer_connections_refused,
    idle_closed_for_peer, idle_closed_for_others, unexpected_errors, aborted_at_stop; and by calls that the service
    refused for too much to do, waiting_dequeues, waiting_lookups, watched_jobs, waiting_store_calls,
    waiting_joined_calls, waiting_passwords, password_pauses.
    """

    def __init__(
        self,
        service: ServedApi,
        limits: ServerLimits | None = None,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        gate: Gate | None = None,
    ) -> None:
        self._service = service
        self._deliveries = Deliveries(clock or SystemClock(), self._requeue_undelivered)
        self._limits = limits or ServerLimits()
        self.counters: Counter[str] = Counter()
        self._log = RateLimitedLog(lambda event, **fields: _log.info(event, **fields))
        self._handler = Handler(service, self._limits, self.counters, self._log, metrics, gate)
        self._accepting: AcceptLoop | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._adopting = BackgroundTasks()

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
        self._adopting.start(self._adopt(loop, connection))

    async def _adopt(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        try:
            await loop.connect_accepted_socket(self._connection, connection)
        except OSError as error:
            connection.close()
            _log.info("adopt_failed", reason=str(error))

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
        drain = self._state.drain = Drain(hand_over)
        if hand_over is None:
            self._handler.refuse_with = draining_error()
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

    def _connection(self) -> ServerConnection:
        return ServerConnection(self._state, self._handler, self._limits)

    def _sweep(self) -> None:
        """Renew the time, look for what took too long, and look again a quarter of the shortest time-out later."""
        loop = asyncio.get_running_loop()
        now = self._state.now = loop.time()
        for connection in tuple(self._state.connections):
            connection.sweep(now)
        limits = self._limits
        shortest = min(limits.idle_timeout_s, limits.half_sent_timeout_s, limits.write_timeout_s)
        self._sweeper = loop.call_later(min(shortest / 4, _MAX_SWEEP_S), self._sweep)
