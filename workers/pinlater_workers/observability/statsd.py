"""The counts of a worker as statsd takes them: what counters grew by, gauges as they are, histograms as percentiles."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from statsd import StatsClient

from pinlater.log_guard import GuardedLogger
from pinlater_workers.observability.metrics import BUCKETS, FAMILIES, Series

_log = GuardedLogger("pinlater_workers.statsd")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_PERCENTILES = (50, 99)
EVERY_S = 10.0
LAST_S = 2.0


class WorkerStatsd:
    """Sends over UDP to one statsd: names are PREFIX.FAMILY.LABEL.LABEL; what is no letter, digit or - becomes _."""

    def __init__(self, address: str, prefix: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = address
        self._host, self._port, self._prefix = host.strip("[]"), int(port), prefix or None
        self._client: Any = None
        self._before: Series = {}
        self._is_failing = False

    def send(self, series: Series) -> None:
        """Everything since the last time. A statsd that cannot be found is said once, and tried again. Not on an event
        loop: looking for its name may take long.
        """
        try:
            if self._client is None:
                self._client = StatsClient(self._host, self._port, prefix=self._prefix, ipv6=":" in self._host)
            with self._client.pipeline() as pipeline:
                for key, values in series.items():
                    _send(pipeline, key, values, self._before.get(key))
        except (OSError, UnicodeError) as error:  # of a name that is none
            if not self._is_failing:
                _log.warning("statsd %s cannot be reached: %s", self._address, error)
            self._is_failing = True
            return
        self._is_failing = False
        self._before = {key: list(values) for key, values in series.items()}

    async def send_often(self, read: Callable[[], Series]) -> None:
        """Until it is cancelled; the last counts are sent then."""
        try:
            while True:
                await asyncio.sleep(EVERY_S)
                try:
                    await asyncio.to_thread(self.send, read())
                except Exception:
                    _log.exception("the metrics were not sent")
        finally:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(LAST_S):
                    await asyncio.to_thread(self.send, read())
            self.close()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def _send(pipeline: Any, key: tuple[str, ...], values: Sequence[float], before: Sequence[float] | None) -> None:
    kind, name = FAMILIES[key[0]].kind, ".".join((key[0], *(_UNSAFE.sub("_", label) for label in key[1:])))
    grown = [value - old for value, old in zip(values, before or [0.0] * len(values), strict=True)]
    if kind == "gauge":
        pipeline.gauge(name, round(values[0], 6))
    elif kind == "counter":
        if grown[0]:
            pipeline.incr(name, round(grown[0]))
    elif any(grown[:-1]):
        pipeline.incr(f"{name}.count", round(sum(grown[:-1])))
        for percent, bound in percentiles(grown):
            pipeline.gauge(f"{name}.p{percent}", bound)


def percentiles(slots: Sequence[float]) -> Iterator[tuple[int, float]]:
    """For some percentages, the upper bound of the bucket they fall into; above the last bound, that bound.

    >>> list(percentiles([98, 0, 1, 1] + [0] * (len(BUCKETS) - 3) + [2.5]))
    [(50, 0.001), (99, 0.01)]
    """
    total = sum(slots[:-1])
    for percent in _PERCENTILES:
        seen = 0.0
        for bound, amount in zip((*BUCKETS, BUCKETS[-1]), slots, strict=False):
            seen += amount
            if seen >= total * percent / 100:
                yield percent, bound
                break
