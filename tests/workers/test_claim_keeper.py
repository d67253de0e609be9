"""What a worker makes of claims whose jobs have ended meanwhile, against a real server."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from dataclasses import dataclass
from pathlib import Path

from pinlater import Ack, Job
from pinlater.model import Checkpoint, DequeueRequest
from pinlater_workers.jobs.context import RunningJob, StopReason
from pinlater_workers.worker.claims import ClaimKeeper
from tests.server.running import running
from tests.workers.site import Site, until

LEASE_S = 60.0


@dataclass
class Owner:
    """The jobs of a worker, of which one runs."""

    told: list[tuple[RunningJob, StopReason]]
    runs: RunningJob

    def lost(self, running: RunningJob, reason: StopReason) -> None:
        self.told.append((running, reason))

    def is_answered(self, running: RunningJob) -> bool:
        return running is not self.runs


async def test_a_result_that_the_server_has_is_no_lost_claim_and_a_job_that_still_runs_is_one(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with Site(server.port) as site, contextlib.AsyncExitStack() as stack:
            keeping, lost = ClaimKeeper(site.app.servers, "worker", LEASE_S), list[tuple[RunningJob, StopReason]]()
            stack.push_async_callback(keeping.close)
            await site.client.enqueue(site.queue, [Job(b"x")] * 3)
            jobs = await site.client.dequeue(DequeueRequest(site.queue, 3, claim_timeout_ms=int(LEASE_S * 1000)))
            answered, moved, runs = (RunningJob(job, site.queue, None, 0.0, math.inf) for job in jobs)
            await keeping.open(Owner(lost, runs))
            keeping.take([answered, moved, runs], time.monotonic())
            back = Checkpoint(moved.job.descriptor, claim_descriptor=moved.job.claim_descriptor, move_to_pending=True)
            await site.client.checkpoint(site.queue, [back])
            await site.client.ack(
                site.queue, [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs]
            )
            await until(lambda: bool(lost))
            await asyncio.sleep(0)
            assert lost == [(runs, StopReason.CLAIM_LOST)]
            assert keeping.has_expired(runs)
            assert not keeping.has_expired(answered)
            assert not keeping.has_expired(moved)
