"""The context of a job that this process runs."""

from __future__ import annotations

import time

from pinlater_workers.context import Host, JobContext
from pinlater_workers.running import Running


def make_context(running: Running, host: Host) -> JobContext:
    """For a job of a known type."""
    assert running.type is not None
    return JobContext(running.type.name, running.queue, running.job, host, deadline_ms(running), running.envelope)


def deadline_ms(running: Running) -> int:
    """When its time limit ends, by the wall clock."""
    return int((time.time() + running.until_s - time.monotonic()) * 1000)
