"""The HTTP server under the application: listening sockets, TLS, and an orderly end."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence

import structlog
from aiohttp import web

from pinlater.http.http_protocol import ProblemProtocol
from pinlater.http.site import SITE
from pinlater.listener import HttpListener, RateLimitedLog
from pinlater.metric_family import Key
from pinlater.model.connection_ref import host_of

_log = structlog.get_logger("pinlater.http")
LINGER_S = 0.5
"""How long idle connections are kept while it ends: a request that is on its way still gets its answer."""

_NEVER_S = 30 * 86_400.0
"""As long aiohttp keeps idle connections: the listener closes them, since it knows those to which claims are bound."""

LINGERING_S = 2.0
"""How long a body that nobody wants is read, so that its sender reads why."""

Tls = Callable[[socket.socket], Awaitable[ssl.SSLContext | None]]
"""Says of a new connection whether it is to speak TLS. OSError: it cannot be served."""


class HttpServer:
    """Serves an application on listening sockets, which it owns from now on."""

    def __init__(
        self,
        app: web.Application,
        max_connections: int,
        max_peer_connections: int | None = None,
        tls: Tls | None = None,
    ) -> None:
        self._app = app
        self._site = app[SITE]
        self._max_connections = max_connections
        self._max_peer_connections = max_peer_connections
        self._tls = tls
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            handler_cancellation=True,
            shutdown_timeout=0.0,
        )
        self._listeners: list[HttpListener] = []

    async def start(self) -> None:
        await self._runner.setup()
        server, prefix = self._runner.server, self._site.prefix
        if prefix is not None and server is not None:
            server.request_factory = prefix.take_off(server.request_factory)

    def listen(self, listeners: Sequence[socket.socket]) -> None:
        """Accept from these as well. Call `start` first."""
        server, loop = self._runner.server, asyncio.get_running_loop()
        assert server is not None

        def make() -> ProblemProtocol:
            return ProblemProtocol(
                server,
                loop=loop,
                access_log=None,  # type: ignore[arg-type]
                keepalive_timeout=_NEVER_S,
                lingering_time=LINGERING_S,
            )

        for each in listeners:
            each.setblocking(False)
        listener = HttpListener(
            listeners,
            make,
            RateLimitedLog(_log.warning),
            self._max_connections,
            self._max_peer_connections,
            self._tls,
            host_of,
        )
        self._listeners.append(listener)
        self._site.add_listener(listener)

    def counts(self) -> list[tuple[Key, list[float]]]:
        """What the application counts."""
        return self._site.counts()

    async def drain(self, timeout_s: float) -> None:
        """Accept no more, answer what was read, and return when no request is under way, or after so long. What waits
        is told to end by whoever owns the servers' client.
        """
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout_s
        for listener in self._listeners:
            listener.stop_accepting()
        self._site.start_draining()
        self._site.events.drain()
        idle_until = loop.time() + min(LINGER_S, timeout_s)
        while loop.time() < ends_at:
            await asyncio.sleep(0.02)
            if not self._site.requests and (loop.time() >= idle_until or not any(map(len, self._listeners))):
                return

    async def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        await self._runner.cleanup()
