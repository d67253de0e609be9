"""The counts of a server in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pinlater.metrics import FAMILIES, Family, Key, Merged

PREFIX = "pinlater_"
CONTENT_TYPE = CONTENT_TYPE_LATEST
Series = Sequence[tuple[Key, Sequence[float]]]


class _Counts(Collector):
    def __init__(self, merged: Merged) -> None:
        self._by_name: dict[str, list[tuple[Key, Sequence[float]]]] = {}
        for key, values in sorted(merged.items()):
            self._by_name.setdefault(key[0], []).append((key[1:], values))

    def collect(self) -> Iterator[Metric]:
        for name, family in FAMILIES.items():
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


def exposition(merged: Merged) -> bytes:
    """All families, those included that have counted nothing yet."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counts(merged))
    return generate_latest(registry)
