"""The end of each proof: all drains, every job is in its one right state, and one order explains all answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

from pinlater import AsyncClient
from pinlater.model import Ack, DequeueRequest, JobState
from tests.cluster.proof_stand import WITHIN_S, count
from tests.faults.recorded_run import RecordedRun

SLICE = 1_000


async def drain(client: AsyncClient, queue: str) -> None:
    """Take and finish jobs until none is pending, scheduled or in progress on any shard."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        jobs = await client.dequeue(DequeueRequest(queue, SLICE))
        if jobs:
            await client.ack(queue, [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs])
        elif not await count(client, queue, JobState.PENDING, JobState.IN_PROGRESS):
            return
        else:
            await asyncio.sleep(0.1)
        assert time.monotonic() < deadline, "it did not drain"


async def all_is_right(client: AsyncClient, queue: str, run: RecordedRun, *, removed: Collection[str] = ()) -> None:
    """Every job that was ever seen succeeded, there is no other one, and no promise was broken on the way. `client` is
    one whose calls are in the history. `removed`: jobs that ended on shards which are there no more.
    """
    await drain(client, queue)
    names = sorted(run.jobs().difference(removed))
    wrong = []
    for start in range(0, len(names), SLICE):
        part = names[start : start + SLICE]
        found = await client.lookup(part)
        wrong += [name for name in part if name not in found or found[name].state is not JobState.SUCCEEDED]
    assert wrong == []
    assert await count(client, queue, JobState.SUCCEEDED) == len(names)
    assert await count(client, queue, JobState.FAILED) == 0
    assert run.judge().unsettled_jobs == 0
