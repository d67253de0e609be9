"""What a supervisor serves and sends beside its workers: the HTTP side, and statsd every few seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import structlog

from pinlater.web.browsers import names_of
from pinlater.web.site import Reporting, Site
from pinlater.web.statsd_export import StatsdExport

_log = structlog.get_logger("pinlater.web")
EVERY_S = 5.0
"""How often workers are asked for their counts: what a worker that dies has counted since then is lost."""


class Beside:
    """Goes by the configuration that the newest workers were started with."""

    def __init__(self, reports: Reporting) -> None:
        self._reports = reports
        self._site = Site(reports)
        self._statsd: StatsdExport | None = None
        self._statsd_is = ("", "")
        self._asking: asyncio.Task[None] | None = None

    async def follow(self, config: Mapping[str, Any]) -> None:
        """Serve and send as a configuration says, as `config.to_plain` writes it."""
        self._site.names = names_of(config)
        await self._site.serve(config["http"], config["max_http_connections"])
        statsd = (config["statsd"], config["statsd_prefix"])
        if statsd != self._statsd_is:
            self._close_statsd()
            self._statsd_is = statsd
            self._statsd = StatsdExport(*statsd) if statsd[0] else None
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._ask())

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            with suppress(asyncio.CancelledError):
                await self._asking
        self._close_statsd()
        await self._site.close()

    def _close_statsd(self) -> None:
        if self._statsd is not None:
            self._statsd.close()

    async def _ask(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                merged = await self._reports.metrics()
                if self._statsd is not None:
                    self._statsd.send(merged)
            except Exception:
                _log.exception("metrics_not_read")
