"""The context of a job that this process runs."""

from __future__ import annotations

from pinlater_workers.context import Host, JobContext
from pinlater_workers.running import Running


def make_context(running: Running, host: Host) -> JobContext:
    """For a job of a known type."""
    assert running.type is not None
    return JobContext(running.type.name, running.queue, running.job, host, running.deadline_ms, running.envelope)
