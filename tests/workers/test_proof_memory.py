"""A worker and its heartbeat process do not grow with the number of jobs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pinlater import JobFilter, JobState
from tests.stores.places import Places
from tests.workers.apps.proof_jobs import app
from tests.workers.proof_stand import ProofStand, until

JOBS = {"short": 40_000, "whole": 200_000}
WARM = 0.25
"""After this part of the jobs the processes have what they need."""

BATCH = 10_000
GROWTH_MIB = 4.0
QUEUES = ("thread", "async")

PAGE_MIB: float = os.sysconf("SC_PAGE_SIZE") / 2**20


def resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_MIB


@pytest.mark.slow
@pytest.mark.parametrize("jobs", JOBS.values(), ids=JOBS)
def test_memory_is_flat_over_many_jobs(tmp_path: Path, redis_places: Places, jobs: int) -> None:
    with ProofStand(tmp_path, redis_places.fresh(), workers=0, lease="30s") as stand:
        worker = stand.start_ready_worker(200, "--queues", ",".join(QUEUES))

        def done() -> int:
            return sum(stand.client.count(JobFilter(queue, JobState.SUCCEEDED)) for queue in QUEUES)

        def measured(amount: int) -> list[float]:
            """The worker, and its children, once so many jobs are done."""
            until(lambda: done() >= amount, f"{amount} jobs are done", 0.2)
            return [resident_mib(pid) for pid in (worker.process.pid, *worker.children())]

        warm: list[float] = []
        for enqueued in range(BATCH, jobs + 1, BATCH):
            for queue in QUEUES:
                app.job_types[f"{queue}_nothing"].enqueue_many([()] * (BATCH // len(QUEUES)))
            if enqueued == jobs * WARM:
                warm = measured(enqueued)
        last = measured(jobs)
        print([f"{a:.1f} -> {b:.1f} MiB" for a, b in zip(warm, last, strict=True)])
        assert all(b - a < GROWTH_MIB for a, b in zip(warm, last, strict=True))
