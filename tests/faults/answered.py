"""Enqueues under faults, and what is there of them at the end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence

from pinlater.client.async_client import AsyncClient
from pinlater.errors import NoHealthyShards, PinLaterError
from pinlater.model import Ack, DequeueRequest, Job

PER_S = 1_000
CALLERS = 40


class Load:
    """One job a call, PER_S calls a second, by these callers. `answered` counts those that were stored."""

    def __init__(self, clients: Sequence[AsyncClient]) -> None:
        self.answered = 0
        self.reasons: dict[str, int] = {}
        self.last_s = 0.0
        self._clients = clients
        self._number = 0
        self._ends = asyncio.Event()

    async def call(self, client: AsyncClient) -> None:
        while not self._ends.is_set():
            self._number += 1
            body = str(self._number).encode()
            try:
                await client.enqueue("mail", [Job(body)])
                self.answered += 1
                self.last_s = time.monotonic()
            except PinLaterError as error:
                if not (error.retryable or error.reason == "OUTCOME_UNKNOWN"):
                    raise
                self.reasons[error.reason] = self.reasons.get(error.reason, 0) + 1
            await asyncio.sleep(CALLERS / PER_S)

    @contextlib.asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        callers = [asyncio.create_task(self.call(client)) for client in self._clients]
        try:
            yield
        finally:
            self._ends.set()
            await asyncio.gather(*callers)

    async def goes_on(self, since_s: float) -> float:
        """How many seconds after that a call was answered."""
        async with asyncio.timeout(120):
            while self.last_s < since_s:
                await asyncio.sleep(0.02)
        return self.last_s - since_s


async def drained(client: AsyncClient) -> set[bytes]:
    """All that is there. On a busy machine replicas may still be on their way back to their primary."""
    bodies: set[bytes] = set()
    patient_until_s = time.monotonic() + 60
    while True:
        try:
            jobs = await client.dequeue(DequeueRequest("mail", 500, wait_ms=2_000))
        except NoHealthyShards:
            if time.monotonic() > patient_until_s:
                raise
            await asyncio.sleep(0.5)
            continue
        if not jobs:
            break
        bodies |= {job.body for job in jobs}
        await client.ack("mail", [Ack(job.descriptor) for job in jobs], [])
    return bodies
