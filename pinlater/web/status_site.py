"""The HTTP side of a server, in its supervisor: metrics, health and the status page for all its processes.

Browsers get no page under a name that is not the server's own, and answers that no other site may frame or read. Beside
the HTTP side the supervisor sends statsd its counts every few seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, Protocol

import structlog
from aiohttp import web

from pinlater import browsers
from pinlater.metric_export import CONTENT_TYPE, exposition
from pinlater.metric_family import Series
from pinlater.metrics import FAMILIES, PREFIX
from pinlater.process_site import ProcessSite
from pinlater.redaction import redact
from pinlater.web import pages

_log = structlog.get_logger("pinlater.web")


_PAGE_FOR_S = 1.0
"""Whoever asks for the page within so long gets the same one: what many look at costs the workers no more."""


class Reporting(Protocol):
    """The reports of a server's processes; `Reports` in server/generation.py."""

    async def ask(self, kind: str, timeout_s: float = ...) -> list[tuple[Any, Any]]: ...

    async def any_of(self, kind: str, timeout_s: float = ...) -> Any: ...

    async def metrics(self) -> Series: ...


class StatusSite(ProcessSite):
    """Metrics, health and the status page, of what the processes report."""

    def __init__(self, reports: Reporting) -> None:
        paths = {"/": self._page, "/metrics": self._metrics, "/livez": self._livez, "/readyz": self._readyz}
        super().__init__(paths, _log.log)
        self._reports = reports
        self._api = ""
        self.names: Collection[str] = ()
        """Under which the page is shown, beside addresses and localhost."""
        self._html: str | None = None
        self._html_until_s = 0.0
        self._making_html = asyncio.Lock()

    async def follow(self, config: Mapping[str, Any]) -> None:
        """Serve as a configuration says, as `config.to_plain` writes it."""
        self.names = browsers.names_of(config)
        self._api = _address_of_api(config)
        await self.serve(config["http"], config["max_http_connections"])

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
        body = exposition(PREFIX, FAMILIES, await self._reports.metrics())
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def _livez(self, request: web.Request) -> web.Response:
        answers = await self._reports.ask("readiness")
        stuck = [worker.pid for worker, report in answers if report is None]
        if stuck:
            return web.json_response({"live": False, "stuck_workers": stuck}, status=503)
        return web.json_response({"live": True, "workers": len(answers)})

    async def _readyz(self, request: web.Request) -> web.Response:
        answers, remarked = await asyncio.gather(self._reports.ask("readiness"), self._reports.ask("remarks"))
        reports = [report for _, report in answers if report is not None]
        is_ready = any(not report for report in reports)
        reasons = sorted({redact(reason) for report in reports for reason in report}) or ["no worker process serves"]
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
