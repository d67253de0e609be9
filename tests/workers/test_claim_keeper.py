"""What a worker makes of claims whose jobs have ended meanwhile, against a real server."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from dataclasses import dataclass
from pathlib import Path

from pinlater import Ack, Job
from pinlater.job_body import ITEM_HEADER
from pinlater.model import Checkpoint, DequeuedJob, DequeueRequest
from pinlater_workers.envelope import Envelope
from pinlater_workers.jobs.context import StopReason
from pinlater_workers.jobs.running_job import RunningJob
from pinlater_workers.worker.claims import ClaimKeeper
from tests.server.running import running
from tests.stores.process import free_port
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


async def test_a_job_of_an_item_is_lost_when_two_of_its_beats_fail_and_any_other_is_out_of_touch() -> None:
    told: list[tuple[RunningJob, StopReason]] = []
    keeping = ClaimKeeper([f"127.0.0.1:{free_port()}"], "worker", 6.0)
    carried = Envelope("work", headers={ITEM_HEADER: "1"})
    claimed = [DequeuedJob(f"q:s:p1:{n}", b"", 1, 1, 1, 0, 0, claim_descriptor=f"q:s:p1:{n}:1") for n in (1, 2)]
    item = RunningJob(claimed[0], "q", None, 0.0, math.inf, carried)
    other = RunningJob(claimed[1], "q", None, 0.0, math.inf, Envelope("work"))
    await keeping.open(Everyone(told))
    try:
        await keeping.ready()
        keeping.take([item, other], time.monotonic())
        await until(lambda: len(told) == 2)
        assert dict(told) == {item: StopReason.CLAIM_LOST, other: StopReason.OUT_OF_TOUCH}
        await until(lambda: len(told) == 3)
        assert told[2] == (other, StopReason.CLAIM_LOST)
    finally:
        await keeping.close()


@dataclass
class Everyone:
    """The jobs of a worker, all of which run."""

    told: list[tuple[RunningJob, StopReason]]

    def lost(self, running: RunningJob, reason: StopReason) -> None:
        self.told.append((running, reason))

    def cancelled(self, running: RunningJob, by: str) -> None: ...

    def is_answered(self, running: RunningJob) -> bool:
        return False
