"""The counts of a server in the formats of Prometheus and statsd.

Statsd gets what counters grew by, gauges as they are, and histograms as percentiles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from statsd import StatsClient

from pinlater.metrics import FAMILIES, Family, Key, Merged

PREFIX = "pinlater_"
CONTENT_TYPE = CONTENT_TYPE_LATEST
Series = Sequence[tuple[Key, Sequence[float]]]


class _Counts(Collector):
    def __init__(self, merged: Merged, families: Mapping[str, Family]) -> None:
        self._families = families
        self._by_name: dict[str, list[tuple[Key, Sequence[float]]]] = {}
        for key, values in sorted(merged.items()):
            self._by_name.setdefault(key[0], []).append((key[1:], values))

    def collect(self) -> Iterator[Metric]:
        for name, family in self._families.items():
            yield from _metric(name, family, self._by_name.get(name, []))


def _metric(name: str, family: Family, series: Series) -> Iterable[Metric]:
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(PREFIX + name, family.help, labels=family.labels)
        for labels, values in series:
            bounds = [*map(str, family.buckets), "+Inf"]
            histogram.add_metric(labels, list(zip(bounds, accumulate(values[:-1]), strict=True)), values[-1])
        return [histogram]
    cls = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = cls(PREFIX + name, family.help, labels=family.labels)
    for labels, values in series:
        metric.add_metric(labels, values[0])
    return [metric]


def exposition(merged: Merged, families: Mapping[str, Family] = FAMILIES) -> bytes:
    """All of these families, those included that have counted nothing yet."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counts(merged, families))
    return generate_latest(registry)


_log = structlog.get_logger("pinlater.web")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_PERCENTILES = (50, 99)


class StatsdExport:
    """Sends over UDP to one statsd: names are PREFIX.FAMILY.LABEL.LABEL, `.` and `:` in labels become `_`."""

    def __init__(self, address: str, prefix: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = address
        self._host, self._port, self._prefix = host.strip("[]"), int(port), prefix or None
        self._client: StatsClient | None = None
        self._before: Merged = {}
        self._is_failing = False

    def send(self, merged: Merged) -> None:
        """Everything since the last time. A statsd that cannot be found is said once, and tried again. Not on an event
        loop: looking for its name may take long.
        """
        try:
            if self._client is None:
                self._client = StatsClient(self._host, self._port, prefix=self._prefix)
            with self._client.pipeline() as pipeline:
                for key, values in merged.items():
                    _send(pipeline, key, values, self._before.get(key))
        except (OSError, UnicodeError) as error:  # of a name that is none
            if not self._is_failing:
                _log.warning("statsd_unreachable", address=self._address, reason=str(error))
            self._is_failing = True
            return
        self._is_failing = False
        self._before = {key: list(values) for key, values in merged.items()}

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def _send(pipeline: object, key: Key, values: Sequence[float], before: Sequence[float] | None) -> None:
    family, name = FAMILIES[key[0]], ".".join((key[0], *(_UNSAFE.sub("_", label) for label in key[1:])))
    grown = [value - old for value, old in zip(values, before or [0.0] * len(values), strict=True)]
    if family.kind == "gauge":
        pipeline.gauge(name, round(values[0], 6))  # type: ignore[attr-defined]
    elif family.kind == "counter":
        if grown[0]:
            pipeline.incr(name, round(grown[0]))  # type: ignore[attr-defined]
    elif any(grown[:-1]):
        pipeline.incr(f"{name}.count", round(sum(grown[:-1])))  # type: ignore[attr-defined]
        for percent, bound in percentiles(family, grown):
            pipeline.gauge(f"{name}.p{percent}", bound)  # type: ignore[attr-defined]


def percentiles(family: Family, slots: Sequence[float]) -> Iterator[tuple[int, float]]:
    """For some percentages, the upper bound of the bucket they fall into; above the last bound, that bound.

    >>> list(percentiles(Family("histogram", (), "", (1.0, 2.0, 5.0)), [98, 1, 1, 0, 103.0]))
    [(50, 1.0), (99, 2.0)]
    """
    total = sum(slots[:-1])
    for percent in _PERCENTILES:
        seen = 0.0
        for bound, amount in zip((*family.buckets, family.buckets[-1]), slots, strict=False):
            seen += amount
            if seen >= total * percent / 100:
                yield percent, bound
                break
