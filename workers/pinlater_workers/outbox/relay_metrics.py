"""The metrics of a relay, for Prometheus: what it has done, and what is in the outbox when they are read."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, start_http_server

from pinlater.log_guard import GuardedLogger
from pinlater.metric_export import FamilyCollector
from pinlater.metric_family import Family, Series
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.outbox.outbox_view import OutboxStatus, OutboxView
from pinlater_workers.outbox.relay import OutboxRelay

PREFIX = "pinlater_outbox_"
COUNT_AGAIN_S = 10.0
"""Rows are counted no more often: that reads the whole table."""

_log = GuardedLogger("pinlater_workers.outbox")


FAMILIES: dict[str, Family] = {
    "handed_over": Family("counter", (), "Jobs that the servers have taken."),
    "refused": Family("counter", (), "Jobs that were set aside."),
    "failures": Family("counter", ("part",), "Turns that failed, by what was away."),
    "away": Family("gauge", (), "1 while servers or database are away."),
    "waiting_jobs": Family("gauge", ("queue",), "Jobs that wait, by queue."),
    "oldest_seconds": Family("gauge", ("queue",), "How long the oldest of them waits."),
    "refused_jobs": Family("gauge", ("queue",), "Jobs that are set aside now."),
}


class RelayMetrics:
    """Over a connection of its own, which it opens for each count."""

    def __init__(self, relay: OutboxRelay) -> None:
        self._relay = relay
        self._counted_s = -COUNT_AGAIN_S
        self._status: OutboxStatus | None = None

    def read(self) -> Series:
        """All of it, without what is in the outbox where the database cannot be asked."""
        stats = self._relay.stats
        series: Series = {
            ("handed_over",): [stats.handed_over],
            ("refused",): [stats.refused],
            ("failures", "servers"): [stats.server_failures],
            ("failures", "database"): [stats.database_failures],
            ("away",): [int(stats.is_away)],
        }
        status = self._counted()
        for each in () if status is None else status.queues:
            series["waiting_jobs", each.queue] = [each.waiting]
            series["oldest_seconds", each.queue] = [each.oldest_s]
            series["refused_jobs", each.queue] = [each.refused]
        return series

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


def serve_metrics(relay: OutboxRelay, address: str) -> int:
    """At HOST:PORT, from a thread of its own; the port. ConfigurationError: it cannot be listened on."""
    host, _, port = address.rpartition(":")
    registry = CollectorRegistry()
    registry.register(FamilyCollector(PREFIX, FAMILIES, RelayMetrics(relay).read))
    try:
        server, _thread = start_http_server(int(port), host.strip("[]") or "127.0.0.1", registry)
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigurationError(f"cannot serve metrics at {address!r}: {error}; allowed: HOST:PORT") from None
    _log.info("metrics at http://%s:%d/metrics", host, server.server_port)
    return int(server.server_port)
