"""A planted fault: a worker that acks its jobs before it runs them. What it holds when it is killed, is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Self

from pinlater import AsyncClient, PinLaterError

CALLERS = 4
WAIT = "1s"
PAUSE_S = 0.1
"""After a call that failed."""
HELD_S = 0.1
"""Jobs wait so long in the worker, as where one takes more than it can run: a kill finds some there."""


class EarlyAcks:
    """Runs until the block ends. `run`: runs a job, of its body."""

    def __init__(self, server: str, queue: str, run: Callable[[bytes], Awaitable[None]], slots: int) -> None:
        self._server, self._queue, self._run, self._slots = server, queue, run, slots
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._all()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    async def _all(self) -> None:
        async with AsyncClient(self._server) as client:
            await asyncio.gather(*(self._one(client) for _ in range(CALLERS)))

    async def _one(self, client: AsyncClient) -> None:
        while not self._ended.is_set():
            try:
                jobs = await client.dequeue(self._queue, self._slots // CALLERS, wait=WAIT)
                await client.ack(self._queue, succeeded=jobs)
            except PinLaterError:
                await asyncio.sleep(PAUSE_S)
                continue
            await asyncio.sleep(HELD_S)
            for job in jobs:
                await self._run(job.body)
