"""The end of each proof: all drains, and every job is in its one right state."""

from __future__ import annotations

import asyncio
import time

from pinlater import AsyncClient
from pinlater.model import Ack, DequeueRequest, JobState
from tests.cluster.proof_stand import WITHIN_S, count
from tests.faults.ledger import Ledger

SLICE = 1_000


async def drain(client: AsyncClient, queue: str, ledger: Ledger | None = None) -> None:
    """Take and finish jobs until none is pending, scheduled or in progress on any shard."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        jobs = await client.dequeue(DequeueRequest(queue, SLICE))
        if jobs:
            for job in jobs if ledger else ():
                ledger.handed_out(job)  # type: ignore[union-attr]
            acks = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs]
            outcomes = await client.ack(queue, acks)
            for job, outcome in zip(jobs, outcomes, strict=True) if ledger else ():
                ledger.ack_answered(job, outcome)  # type: ignore[union-attr]
        elif not await count(client, queue, JobState.PENDING, JobState.IN_PROGRESS):
            return
        else:
            await asyncio.sleep(0.1)
        assert time.monotonic() < deadline, "it did not drain"


async def all_is_right(client: AsyncClient, queue: str, ledger: Ledger) -> None:
    """Every job that was ever seen succeeded, there is no other one, and no promise was broken on the way."""
    await drain(client, queue, ledger)
    assert ledger.broken == []
    names = sorted(ledger.entries)
    wrong = []
    for start in range(0, len(names), SLICE):
        part = names[start : start + SLICE]
        found = await client.lookup(part)
        wrong += [name for name in part if name not in found or found[name].state is not JobState.SUCCEEDED]
    assert wrong == []
    assert await count(client, queue, JobState.SUCCEEDED) == len(names)
    assert await count(client, queue, JobState.FAILED) == 0
