"""The small HTTP site of a process: a few paths with its health and metrics, served by its own event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web
from aiohttp.typedefs import Handler

from pinlater import browsers
from pinlater.listener import IDLE_S, HttpListener, RateLimitedLog, listening
from pinlater.model.connection_ref import host_of

RETRY_S = 5.0
Answer = Callable[[web.Request], Awaitable[web.Response]]


class ProcessSite:
    """Serves at one address, which may change. One that is taken is tried again: the work of the process matters more.

    One host has half of the connections at most.
    """

    def __init__(self, paths: Mapping[str, Answer], write: Callable[..., object]) -> None:
        """`write` logs a level, an event and its fields."""
        self._paths = paths
        self._write = write
        self._warnings = RateLimitedLog(lambda event, **fields: write(logging.WARNING, event, **fields))
        self._max_connections = 0
        self._address = "none"
        self._listener: HttpListener | None = None
        self._runner: web.AppRunner | None = None
        self._opening: asyncio.Task[None] | None = None
        self.bound = ""
        """HOST:PORT that is listened on; "" while none is."""

    async def serve(self, address: str, max_connections: int) -> None:
        """Listen on HOST:PORT, or on nothing ("none"); returns when that is so, or was tried once."""
        self._max_connections = max_connections
        if self._listener is not None:
            self._listener.bound_by(max_connections, max(1, max_connections // 2))
        if address == self._address:
            return
        await self.close()
        self._address = address
        if address != "none" and not await self._try_open(address):
            self._opening = asyncio.ensure_future(self._open_later(address))

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
            self._opening = None
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._address, self.bound = "none", ""

    async def _open_later(self, address: str) -> None:
        while True:
            await asyncio.sleep(RETRY_S)
            try:
                if await self._try_open(address, again=True):
                    return
            except Exception:
                self._write(logging.ERROR, "http_not_opened", address=address, exc_info=True)

    async def _try_open(self, address: str, *, again: bool = False) -> bool:
        host, _, port = address.rpartition(":")
        runner = web.AppRunner(
            self._application(), access_log=None, handle_signals=False, shutdown_timeout=1.0, keepalive_timeout=IDLE_S
        )
        await runner.setup()
        try:
            listeners = listening(host.strip("[]"), int(port))
        except OSError as error:
            await runner.cleanup()
            if not again:
                self._write(
                    logging.ERROR,
                    "http_not_served",
                    address=address,
                    reason=error.strerror,
                    hint="it is tried again; or choose another --http",
                )
            return False
        self._runner = runner
        assert runner.server is not None
        most = self._max_connections
        self._listener = HttpListener(
            listeners, runner.server, self._warnings, most, max(1, most // 2), host_of=host_of
        )
        self.bound = f"{host}:{self._listener.port}"
        self._write(logging.INFO, "http_ready", address=f"http://{self.bound}/")
        return True

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._timed])
        application.on_response_prepare.append(browsers.add_headers)
        for path, answer in self._paths.items():
            application.router.add_get(path, answer)
        return application

    @web.middleware
    async def _timed(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The listener is to know which connections are in a request."""
        if self._listener is None:
            return await handler(request)
        with self._listener.serving(request.transport):
            return await handler(request)
