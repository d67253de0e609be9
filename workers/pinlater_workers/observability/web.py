"""The HTTP side of a worker: /healthz for the supervisor that restarts it when it is sick, /metrics for Prometheus.

It is served by the worker's own event loop, so a worker whose loop hangs does not answer, which is the right answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import accumulate
from typing import Any

from aiohttp import web, web_response
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pinlater.listener import IDLE_S, HttpListener, RateLimitedLog, listening
from pinlater.log_guard import GuardedLogger
from pinlater_workers.observability.metrics import BUCKETS, FAMILIES, MetricFamily, Series, WorkerView

_log = GuardedLogger("pinlater_workers.web")
# What is no HTTP at all is answered without `_add_headers`.
web_response.SERVER_SOFTWARE = "PinLater"  # type: ignore[attr-defined]
RETRY_S = 5.0
MAX_CONNECTIONS = 100
SICK_AFTER_S = 60.0
"""Beside the time that one long poll may take."""

_server_log = logging.getLogger("aiohttp.server")
PREFIX = "pinlater_worker_"
CONTENT_TYPE = CONTENT_TYPE_LATEST
_BOUNDS = [*map(str, BUCKETS), "+Inf"]


class _Callers(logging.Filter):
    """What a caller sent that is not HTTP is answered with 400; it needs no traceback in the log."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_server_log.addFilter(_Callers())


def is_healthy(view: WorkerView, sick_after_s: float) -> bool:
    """A server has answered it lately. One that ends is healthy: it polls no more, and is not to be killed for that."""
    return view.is_stopping or view.since_good_poll_s < sick_after_s


class Site:
    """Serves at one address. One that is taken is tried again every 5 s: running jobs matters more."""

    def __init__(self, view: Callable[[], WorkerView], read: Callable[[], Series], poll_wait_s: float) -> None:
        self._view = view
        self._read = read
        self._sick_after_s = SICK_AFTER_S + poll_wait_s
        self._runner: web.AppRunner | None = None
        self._listener: HttpListener | None = None
        self._opening: asyncio.Task[None] | None = None
        self.bound = ""
        """HOST:PORT that is listened on; "" while none is."""

    async def open(self, address: str) -> None:
        """Listen on HOST:PORT; returns when that is so, or was tried once."""
        if not await self._try_open(address):
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
        self.bound = ""

    async def _open_later(self, address: str) -> None:
        while True:
            await asyncio.sleep(RETRY_S)
            try:
                if await self._try_open(address, again=True):
                    return
            except Exception:
                _log.exception("cannot serve http at %s; trying again", address)

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
                _log.error("cannot serve http at %s: %s; trying again; or choose another --http", address, error)
            return False
        self._runner = runner
        assert runner.server is not None
        self._listener = HttpListener(listeners, runner.server, RateLimitedLog(_write), MAX_CONNECTIONS)
        self.bound = f"{host}:{self._listener.port}"
        _log.info("health and metrics at http://%s/healthz and /metrics", self.bound)
        return True

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._timed])
        application.on_response_prepare.append(_add_headers)
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/metrics", self._metrics)
        return application

    @web.middleware
    async def _timed(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The listener is to know which connections are in a request."""
        if self._listener is None:
            return await handler(request)
        with self._listener.serving(request.transport):
            return await handler(request)

    async def _healthz(self, request: web.Request) -> web.Response:
        view = self._view()
        is_well = is_healthy(view, self._sick_after_s)
        return web.json_response(_told(view, is_well, self._sick_after_s), status=200 if is_well else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=exposition(self._read()), headers={"Content-Type": CONTENT_TYPE})


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """A browser takes nothing for a page, and nobody is told of versions."""
    response.headers.update({"X-Content-Type-Options": "nosniff", "Server": "PinLater"})


def _told(view: WorkerView, is_well: bool, sick_after_s: float) -> dict[str, Any]:
    return {
        "healthy": is_well,
        "seconds_since_last_good_poll": round(view.since_good_poll_s, 3),
        "sick_after_seconds": sick_after_s,
        "slots": view.slots,
        "running": view.running,
        "stuck": view.stuck,
        "at_hand": view.at_hand,
        "unacked": view.unacked,
        "stopping": view.is_stopping,
        "queues": {name: asdict(queue) for name, queue in view.queues.items()},
    }


def _write(event: str, **fields: object) -> None:
    """A line of the listener, in the log of a worker."""
    _log.warning("%s", " ".join([event.replace("_", " "), *[f"{name}={value}" for name, value in fields.items()]]))


class _Counts(Collector):
    def __init__(self, series: Series) -> None:
        self._by_name: dict[str, list[tuple[tuple[str, ...], list[float]]]] = {}
        for (name, *labels), values in sorted(series.items()):
            self._by_name.setdefault(name, []).append((tuple(labels), values))

    def collect(self) -> Iterator[Metric]:
        for name, family in FAMILIES.items():
            metric = _empty(name, family)
            for labels, values in self._by_name.get(name, []):
                if isinstance(metric, HistogramMetricFamily):
                    metric.add_metric(labels, list(zip(_BOUNDS, accumulate(values[:-1]), strict=True)), values[-1])
                else:
                    metric.add_metric(labels, values[0])
            yield metric


def _empty(name: str, family: MetricFamily) -> HistogramMetricFamily | CounterMetricFamily | GaugeMetricFamily:
    kinds = {"histogram": HistogramMetricFamily, "counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
    metric = kinds[family.kind](PREFIX + name, family.help, labels=family.labels)
    assert isinstance(metric, HistogramMetricFamily | CounterMetricFamily | GaugeMetricFamily)
    return metric


def exposition(series: Series) -> bytes:
    """All families, those included that have counted nothing yet."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counts(series))
    return generate_latest(registry)
