"""Checkpoints that running jobs ask for."""

from __future__ import annotations

from pinlater.client.async_client import AsyncClient
from pinlater.model import Checkpoint
from pinlater_workers.errors import ClaimLost
from pinlater_workers.running import Running, Why


class Saving:
    """Called by the pool, with the job that asks."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def __call__(self, running: Running, checkpoint: Checkpoint) -> None:
        """ClaimLost: it is known to be lost. Else the errors of AsyncClient.checkpoint."""
        if running.told is Why.CLAIM_LOST:
            raise ClaimLost(f"the claim of job {running.job.descriptor} is lost")
        await self._client.checkpoint(running.queue, [checkpoint])
