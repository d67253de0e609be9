"""The counts of a worker as statsd takes them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from pinlater.log_guard import GuardedLogger
from pinlater.metric_export import StatsdExport
from pinlater.metric_family import Series
from pinlater_workers.observability.metrics import FAMILIES

_log = GuardedLogger("pinlater_workers.statsd")
EVERY_S = 10.0
LAST_S = 2.0


def worker_statsd(address: str, prefix: str) -> StatsdExport:
    """Sends the counts of a worker to the statsd at HOST:PORT."""

    def warn(address: str, reason: str) -> None:
        _log.warning("statsd %s cannot be reached: %s", address, reason)

    return StatsdExport(address, prefix, FAMILIES, warn)


async def send_often(export: StatsdExport, read: Callable[[], Series]) -> None:
    """Until it is cancelled; the last counts are sent then."""
    try:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await asyncio.to_thread(export.send, read())
            except Exception:
                _log.exception("the metrics were not sent")
    finally:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(LAST_S):
                await asyncio.to_thread(export.send, read())
        export.close()
