"""The parts of the cluster that a service asks, as it sees them: the status of all, and the list of workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pinlater.model import ClusterStatus, WorkerReport, WorkersPage


class StatusOfAll(Protocol):
    """Knows the servers and the counts of queues, beside the shards."""

    async def status(
        self, queues: Sequence[str] | None, may_read: Callable[[str], bool], counters_since_ms: int | None
    ) -> ClusterStatus:
        """See Api.cluster_status."""


class ReportedWorkers(Protocol):
    """The list of workers."""

    def receive(self, report: WorkerReport, identity: str) -> None:
        """A worker of this identity says something of itself. Raises nothing."""

    async def page(self, queue: str, name: str, *, include_running: bool, continuation: str, limit: int) -> WorkersPage:
        """See Api.get_workers."""
