"""The HTTP side of a server, in its supervisor: metrics, health and the status page for all its processes.

Browsers get no page under a name that is not the server's own, and answers that no other site may frame or read. Beside
the HTTP side the supervisor sends statsd its counts every few seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from pinlater import browsers
from pinlater.listener import IDLE_S, HttpListener, RateLimitedLog, listening
from pinlater.model.connection_ref import host_of
from pinlater.redaction import redact
from pinlater.web import export, pages
from pinlater.web.exporters import Reporting

_log = structlog.get_logger("pinlater.web")


_RETRY_S = 5.0
_PAGE_FOR_S = 1.0
"""Whoever asks for the page within so long gets the same one: what many look at costs the workers no more."""

Answer = Callable[[web.Request], Awaitable[web.Response]]


class StatusSite:
    """Serves at one address, which may change. An address that is taken is tried again: serving jobs matters more."""

    def __init__(self, reports: Reporting) -> None:
        self._reports = reports
        self._listener: HttpListener | None = None
        self._max_connections = 0
        self._troubles = RateLimitedLog(_log.warning)
        self._address = ""
        self._api = ""
        self.names: Collection[str] = ()
        """Under which the page is shown, beside addresses and localhost."""
        self._runner: web.AppRunner | None = None
        self._opening: asyncio.Task[None] | None = None
        self._html: str | None = None
        self._html_until_s = 0.0
        self._making_html = asyncio.Lock()
        self.bound = ""
        """HOST:PORT that is listened on; "" while none is."""

    async def follow(self, config: Mapping[str, Any]) -> None:
        """Serve as a configuration says, as `config.to_plain` writes it."""
        self.names = browsers.names_of(config)
        self._api = _address_of_api(config)
        await self.serve(config["http"], config["max_http_connections"])

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
        self._address = self.bound = ""

    async def _open_later(self, address: str) -> None:
        while True:
            await asyncio.sleep(_RETRY_S)
            try:
                if await self._try_open(address, again=True):
                    return
            except Exception:
                _log.exception("http_not_opened", address=address)

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
                _log.error("http_not_served", address=address, reason=error.strerror, hint="choose another --http")
            return False
        self._runner = runner
        assert runner.server is not None
        most = self._max_connections
        self._listener = HttpListener(
            listeners, runner.server, self._troubles, most, max(1, most // 2), host_of=host_of
        )
        self.bound = f"{host}:{self._listener.port}"
        _log.info("http_ready", address=f"http://{self.bound}/")
        return True

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._timed])
        application.on_response_prepare.append(browsers.add_headers)
        application.router.add_get("/", self._page)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/livez", self._livez)
        application.router.add_get("/readyz", self._readyz)
        return application

    @web.middleware
    async def _timed(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The listener is to know which connections are in a request."""
        if self._listener is None:
            return await handler(request)
        with self._listener.serving(request.transport):
            return await handler(request)

    async def _page(self, request: web.Request) -> web.Response:
        host = request.headers.get("Host", "")
        if not browsers.is_name_known(host, self.names):
            return web.Response(status=421, text=f"{browsers.wrong_name(host)}\n")
        loop = asyncio.get_running_loop()
        async with self._making_html:
            if loop.time() >= self._html_until_s:
                status = await self._reports.any_of("status")
                self._html = None if status is None else redact(pages.cluster_page(status, self._api))
                self._html_until_s = loop.time() + _PAGE_FOR_S
        if self._html is None:
            return web.Response(status=503, text="no worker process of this server answers\n")
        return web.Response(text=self._html, content_type="text/html", headers=browsers.page_policy(self._html))

    async def _metrics(self, request: web.Request) -> web.Response:
        body = export.exposition(await self._reports.metrics())
        return web.Response(body=body, headers={"Content-Type": export.CONTENT_TYPE})

    async def _livez(self, request: web.Request) -> web.Response:
        asked = await self._reports.ask("readiness")
        stuck = [worker.pid for worker, report in asked if report is None]
        if stuck:
            return web.json_response({"live": False, "stuck_workers": stuck}, status=503)
        return web.json_response({"live": True, "workers": len(asked)})

    async def _readyz(self, request: web.Request) -> web.Response:
        asked, remarked = await asyncio.gather(self._reports.ask("readiness"), self._reports.ask("remarks"))
        troubles = [report for _, report in asked if report is not None]
        is_ready = any(not trouble for trouble in troubles)
        reasons = sorted({redact(reason) for trouble in troubles for reason in trouble}) or ["no worker process serves"]
        body: dict[str, Any] = {"ready": True} if is_ready else {"ready": False, "reasons": reasons}
        if remarks := sorted({redact(remark) for _, report in remarked for remark in report or ()}):
            body["remarks"] = remarks
        return web.json_response(body, status=200 if is_ready else 503)


def _address_of_api(config: Mapping[str, Any]) -> str:
    """Of the HTTP interface, for a link; "" where it has none that is known beforehand."""
    host, _, port = config["api"].rpartition(":")
    if not host or port == "0":
        return ""
    return f"{'https' if config['tls_cert'] else 'http'}://{config['api']}/"
