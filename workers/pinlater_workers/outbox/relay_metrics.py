"""The metrics of a relay, for Prometheus: what it has done, and what is in the outbox when they are read."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pinlater.log_guard import GuardedLogger
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.outbox.outbox_view import OutboxStatus, OutboxView
from pinlater_workers.outbox.relay import OutboxRelay

PREFIX = "pinlater_outbox_"
COUNT_AGAIN_S = 10.0
"""Rows are counted no more often: that reads the whole table."""

_log = GuardedLogger("pinlater_workers.outbox")


class RelayCollector(Collector):
    """Over a connection of its own, which it opens for each count."""

    def __init__(self, relay: OutboxRelay) -> None:
        self._relay = relay
        self._counted_s = -COUNT_AGAIN_S
        self._status: OutboxStatus | None = None

    def describe(self) -> Iterator[Metric]:
        """Nothing: a collector is asked when it is registered, and that is too early to count."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        stats = self._relay.stats
        yield CounterMetricFamily(f"{PREFIX}handed_over", "Jobs that the servers have taken.", stats.handed_over)
        yield CounterMetricFamily(f"{PREFIX}refused", "Jobs that were set aside.", stats.refused)
        failures = CounterMetricFamily(f"{PREFIX}failures", "Turns that failed, by what was away.", labels=["part"])
        failures.add_metric(["servers"], stats.server_failures)
        failures.add_metric(["database"], stats.database_failures)
        yield failures
        yield GaugeMetricFamily(f"{PREFIX}away", "1 while servers or database are away.", int(stats.is_away))
        status = self._counted()
        if status is not None:
            yield from _backlog(status)

    def _counted(self) -> OutboxStatus | None:
        """None: the database cannot be asked."""
        if time.monotonic() - self._counted_s < COUNT_AGAIN_S:
            return self._status
        self._counted_s = time.monotonic()
        try:
            view = OutboxView(self._relay.database, self._relay.table)
            try:
                self._status = view.status()
            finally:
                view.close()
        except Exception as error:
            self._status = None
            _log.debug("the outbox cannot be counted: %s", error)
        return self._status


def _backlog(status: OutboxStatus) -> Iterator[Metric]:
    waiting = GaugeMetricFamily(f"{PREFIX}waiting_jobs", "Jobs that wait, by queue.", labels=["queue"])
    oldest = GaugeMetricFamily(f"{PREFIX}oldest_seconds", "How long the oldest of them waits.", labels=["queue"])
    refused = GaugeMetricFamily(f"{PREFIX}refused_jobs", "Jobs that are set aside now.", labels=["queue"])
    for each in status.queues:
        waiting.add_metric([each.queue], each.waiting)
        oldest.add_metric([each.queue], each.oldest_s)
        refused.add_metric([each.queue], each.refused)
    yield from (waiting, oldest, refused)


def serve_metrics(relay: OutboxRelay, address: str) -> int:
    """At HOST:PORT, from a thread of its own; the port. ConfigurationError: it cannot be listened on."""
    host, _, port = address.rpartition(":")
    registry = CollectorRegistry()
    registry.register(RelayCollector(relay))
    try:
        server, _thread = start_http_server(int(port), host.strip("[]") or "127.0.0.1", registry)
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigurationError(f"cannot serve metrics at {address!r}: {error}; allowed: HOST:PORT") from None
    _log.info("metrics at http://%s:%d/metrics", host, server.server_port)
    return int(server.server_port)
