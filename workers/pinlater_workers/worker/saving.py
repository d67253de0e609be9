"""Checkpoints by the worker's own connections: those that running jobs ask for, and those of its end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from pinlater.client.async_client import AsyncClient
from pinlater.errors import PinLaterError
from pinlater.model import Checkpoint
from pinlater_workers.errors import ClaimLost
from pinlater_workers.running import Running, Why
from pinlater_workers.worker.parcel import MAX_RESULTS

KEEP_TIMEOUT_S = 2.0


class Saving:
    """Called by the pool, with the job that asks."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def __call__(self, running: Running, checkpoint: Checkpoint) -> None:
        """ClaimLost: it is known to be lost. Else the errors of AsyncClient.checkpoint."""
        if running.told is Why.CLAIM_LOST:
            raise ClaimLost(f"the claim of job {running.job.descriptor} is lost")
        await self._client.checkpoint(running.queue, [checkpoint])

    async def keep(self, runnings: Iterable[Running]) -> None:
        """Tie these claims to connections that carry no long polls. Where no server answers, nothing is done."""
        queues: dict[str, list[Checkpoint]] = {}
        for running in runnings:
            kept = Checkpoint(running.job.descriptor, claim_descriptor=running.job.claim_descriptor)
            queues.setdefault(running.queue, []).append(kept)
        with contextlib.suppress(PinLaterError):
            for queue, listed in queues.items():
                for start in range(0, len(listed), MAX_RESULTS):
                    await self._client.checkpoint(queue, listed[start : start + MAX_RESULTS], timeout=KEEP_TIMEOUT_S)
