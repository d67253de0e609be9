"""Counts in the formats of Prometheus and statsd.

Statsd gets what counters grew by, gauges as they are, and histograms as percentiles.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from statsd import StatsClient

from pinlater.metric_family import Family, Key, Series, bucket_bound

CONTENT_TYPE = CONTENT_TYPE_LATEST
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_PERCENTILES = (50, 99)


class FamilyCollector(Collector):
    """All of these families as they are when they are read, those included that have counted nothing yet."""

    def __init__(self, prefix: str, families: Mapping[str, Family], read: Callable[[], Series]) -> None:
        self._prefix, self._families, self._read = prefix, families, read

    def describe(self) -> Iterable[Metric]:
        """Nothing: a collector is asked when it is registered, and that is too early to count."""
        return ()

    def collect(self) -> Iterator[Metric]:
        by_name: dict[str, list[tuple[Key, Sequence[float]]]] = {}
        for key, values in sorted(self._read().items()):
            by_name.setdefault(key[0], []).append((key[1:], values))
        for name, family in self._families.items():
            yield _metric(self._prefix + name, family, by_name.get(name, []))


def _metric(name: str, family: Family, series: Iterable[tuple[Key, Sequence[float]]]) -> Metric:
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(name, family.help, labels=family.labels)
        bounds = [*map(str, family.buckets), "+Inf"]
        for labels, values in series:
            histogram.add_metric(labels, list(zip(bounds, accumulate(values[:-1]), strict=True)), values[-1])
        return histogram
    metric = (CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily)(
        name, family.help, labels=family.labels
    )
    for labels, values in series:
        metric.add_metric(labels, values[0])
    return metric


def exposition(prefix: str, families: Mapping[str, Family], series: Series) -> bytes:
    """What Prometheus reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FamilyCollector(prefix, families, lambda: series))
    return generate_latest(registry)


class StatsdExport:
    """Sends over UDP to one statsd: names are PREFIX.FAMILY.LABEL.LABEL; what is no letter, digit or - becomes _."""

    def __init__(
        self, address: str, prefix: str, families: Mapping[str, Family], unreachable: Callable[[str, str], object]
    ) -> None:
        """`unreachable` gets the address and the reason where it cannot be reached, once until it can be again."""
        host, _, port = address.rpartition(":")
        self._address, self._families, self._unreachable = address, families, unreachable
        self._host, self._port, self._prefix = host.strip("[]"), int(port), prefix or None
        self._client: Any = None
        self._before: Series = {}
        self._is_failing = False

    def send(self, series: Series) -> None:
        """Everything since the last time. Not on an event loop: looking for the name of the host may take long."""
        try:
            if self._client is None:
                self._client = StatsClient(self._host, self._port, prefix=self._prefix, ipv6=":" in self._host)
            with self._client.pipeline() as pipeline:
                for key, values in series.items():
                    _send(pipeline, self._families[key[0]], key, values, self._before.get(key))
        except (OSError, UnicodeError) as error:  # of a name that is none
            if not self._is_failing:
                self._unreachable(self._address, str(error))
            self._is_failing = True
            return
        self._is_failing = False
        self._before = {key: list(values) for key, values in series.items()}

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def _send(pipeline: Any, family: Family, key: Key, values: Sequence[float], before: Sequence[float] | None) -> None:
    name = ".".join((key[0], *(_UNSAFE.sub("_", label) for label in key[1:])))
    grown = [value - old for value, old in zip(values, before or [0.0] * len(values), strict=True)]
    if family.kind == "gauge":
        pipeline.gauge(name, round(values[0], 6))
    elif family.kind == "counter":
        if grown[0]:
            pipeline.incr(name, round(grown[0]))
    elif any(grown[:-1]):
        pipeline.incr(f"{name}.count", round(sum(grown[:-1])))
        for percent in _PERCENTILES:
            pipeline.gauge(f"{name}.p{percent}", bucket_bound(family.buckets, grown, percent / 100))
