"""The HTTP side of a worker: /healthz for the supervisor that restarts it when it is sick, /metrics for Prometheus.

It is served by the worker's own event loop, so a worker whose loop hangs does not answer, which is the right answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from aiohttp import web

from pinlater.log_guard import GuardedLogger
from pinlater.metric_export import CONTENT_TYPE, exposition
from pinlater.metric_family import Series
from pinlater.process_site import ProcessSite
from pinlater_workers.observability.metrics import FAMILIES, PREFIX, WorkerView

_log = GuardedLogger("pinlater_workers.web")
MAX_CONNECTIONS = 100
SICK_AFTER_S = 60.0
"""Beside the time that one long poll may take."""


def is_healthy(view: WorkerView, sick_after_s: float) -> bool:
    """A server has answered it lately. One that ends is healthy: it polls no more, and is not to be killed for that."""
    return view.is_stopping or view.since_good_poll_s < sick_after_s


def worker_site(view: Callable[[], WorkerView], read: Callable[[], Series], poll_wait_s: float) -> ProcessSite:
    """/healthz and /metrics of a worker, whose dequeues wait for so long."""
    sick_after_s = SICK_AFTER_S + poll_wait_s

    async def healthz(_request: web.Request) -> web.Response:
        now = view()
        is_well = is_healthy(now, sick_after_s)
        return web.json_response(_health(now, is_well, sick_after_s), status=200 if is_well else 503)

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=exposition(PREFIX, FAMILIES, read()), headers={"Content-Type": CONTENT_TYPE})

    return ProcessSite({"/healthz": healthz, "/metrics": metrics}, _write)


def _health(view: WorkerView, is_well: bool, sick_after_s: float) -> dict[str, Any]:
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


def _write(level: int, event: str, *, exc_info: bool = False, **fields: object) -> None:
    """A line of the site, in the log of a worker."""
    if event == "http_ready":
        text = f"health and metrics at {fields['address']}healthz and /metrics"
    else:
        text = " ".join([event.replace("_", " "), *[f"{name}={value}" for name, value in fields.items()]])
    _log.log(level, "%s", text, exc_info=exc_info)
