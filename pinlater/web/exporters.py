"""The exporters of a server, which go by its configuration: the HTTP side and statsd.

Each is imported when a configuration has it: a server without a page needs no HTTP server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import structlog

from pinlater.background_tasks import in_daemon_thread
from pinlater.metrics import FAMILIES

if TYPE_CHECKING:
    from pinlater.metric_export import StatsdExport
    from pinlater.web.status_site import Reporting, StatusSite

_log = structlog.get_logger("pinlater.web")


def _warn_of_statsd(address: str, reason: str) -> None:
    _log.warning("statsd_unreachable", address=address, reason=reason)


EVERY_S = 5.0
"""How often workers are asked for their counts: what a worker that dies has counted since then is lost."""

LAST_S = 2.0
"""How long the end of a server waits until its last counts are sent."""

_NEEDED = ("aiohttp", "prometheus_client", "statsd")
_OF_THE_API = ("aiohttp", "jinja2")


def missing_package(http: str, api: str, statsd: str) -> str | None:
    """The Python package that these settings need and that is not installed."""
    wanted: tuple[str, ...] = _NEEDED if http != "none" or statsd else ()
    if api not in ("none", "auto"):
        wanted += _OF_THE_API
    return next((name for name in wanted if find_spec(name) is None), None)


class Exporters:
    """Goes by the configuration that the newest workers were started with."""

    def __init__(self, reports: Reporting) -> None:
        self._reports = reports
        self._site: StatusSite | None = None
        self._statsd: StatsdExport | None = None
        self._statsd_is = ("", "")
        self._asking: asyncio.Task[None] | None = None

    async def follow(self, config: Mapping[str, Any]) -> None:
        """Serve and send as a configuration says, as `config.to_plain` writes it."""
        if self._site is None and config["http"] != "none":
            from pinlater.web.status_site import StatusSite  # noqa: PLC0415  # aiohttp is for who serves pages

            self._site = StatusSite(self._reports)
        if self._site is not None:
            await self._site.follow(config)
        statsd = (config["statsd"], config["statsd_prefix"])
        if statsd != self._statsd_is:
            self._close_statsd()
            self._statsd_is = statsd
            self._statsd = None
            if statsd[0]:
                from pinlater.metric_export import StatsdExport  # noqa: PLC0415  # its libraries are for who uses them

                self._statsd = StatsdExport(*statsd, FAMILIES, _warn_of_statsd)
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._ask())

    async def close(self) -> None:
        """Call it when the workers have ended: what they counted last is sent."""
        if self._asking is not None:
            self._asking.cancel()
            with suppress(asyncio.CancelledError):
                await self._asking
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_S):
                    await self._send()
        self._close_statsd()
        if self._site is not None:
            await self._site.close()

    def _close_statsd(self) -> None:
        if self._statsd is not None:
            self._statsd.close()

    async def _ask(self) -> None:
        while True:
            await self._send()
            await asyncio.sleep(EVERY_S)

    async def _send(self) -> None:
        try:
            merged = await self._reports.metrics()
            if self._statsd is not None:
                await in_daemon_thread(partial(self._statsd.send, merged))
        except Exception:
            _log.exception("metrics_not_read")
