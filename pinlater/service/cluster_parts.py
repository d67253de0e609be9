"""The parts of the cluster that a service asks, as it sees them: the status of all, its alarms, and the list of
workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pinlater.alarms.judgement import Mute
from pinlater.cluster.worker_entries import SeenWorker
from pinlater.model import ClusterStatus, NumberedCommand, WorkerCommand, WorkerReport, WorkersPage
from pinlater.model.alarm_views import AlarmsPage


class StatusOfAll(Protocol):
    """Knows the servers and the counts of queues, beside the shards."""

    async def status(
        self, queues: Sequence[str] | None, may_read: Callable[[str], bool], counters_since_ms: int | None
    ) -> ClusterStatus:
        """See Api.cluster_status."""


class JudgedAlarms(Protocol):
    """The alarms of the cluster, of all queues."""

    async def page(self, limit: int) -> AlarmsPage:
        """Those that stand, the worst first."""

    async def ended_page(self, limit: int) -> AlarmsPage:
        """Those that ended, the latest first. NoHealthyShards."""

    async def mute(self, mute: Mute) -> None:
        """Show some as known until a time; one that has passed ends that. NoHealthyShards."""


class CommandsOnTheirWay(Protocol):
    """What workers are to do."""

    async def give(self, command: WorkerCommand, workers: Sequence[SeenWorker]) -> None:
        """See WorkerCommands.give."""

    async def for_worker(self, key: tuple[str | None, str]) -> NumberedCommand | None:
        """See WorkerCommands.for_worker."""


class ReportedWorkers(Protocol):
    """The list of workers."""

    def receive(self, report: WorkerReport, identity: str) -> None:
        """A worker of this identity says something of itself. Raises nothing."""

    def connection_lost(self, identity: str, id: str) -> None:
        """The connection by which a worker reported broke. Raises nothing."""

    @property
    def commands(self) -> CommandsOnTheirWay:
        """Those to workers."""

    async def known(self) -> tuple[Sequence[SeenWorker], Sequence[str]]:
        """All that live, and the shards that could not be read."""

    async def page(self, queue: str, name: str, *, include_running: bool, continuation: str, limit: int) -> WorkersPage:
        """See Api.get_workers."""
