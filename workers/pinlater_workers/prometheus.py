"""The counts of a worker in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pinlater_workers.metrics import BUCKETS, FAMILIES, Family, Series

PREFIX = "pinlater_worker_"
CONTENT_TYPE = CONTENT_TYPE_LATEST
_BOUNDS = [*map(str, BUCKETS), "+Inf"]


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


def _empty(name: str, family: Family) -> HistogramMetricFamily | CounterMetricFamily | GaugeMetricFamily:
    kinds = {"histogram": HistogramMetricFamily, "counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
    metric = kinds[family.kind](PREFIX + name, family.help, labels=family.labels)
    assert isinstance(metric, HistogramMetricFamily | CounterMetricFamily | GaugeMetricFamily)
    return metric


def exposition(series: Series) -> bytes:
    """All families, those included that have counted nothing yet."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counts(series))
    return generate_latest(registry)
