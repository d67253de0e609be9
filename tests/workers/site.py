"""Where a worker is tested: an app with a queue of its own on a real server, and workers on the test's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self

from pinlater import AsyncClient, JobFilter, JobInfo, JobState
from pinlater_workers import App
from pinlater_workers.app.settings import WorkerSettings
from pinlater_workers.observability.metrics import WorkerMetrics
from pinlater_workers.worker import ExitReason, Worker

WITHIN_S = 60.0
LOOK_EVERY_S = 0.01


async def until(check: Callable[[], object] | Callable[[], Awaitable[object]], every_s: float = LOOK_EVERY_S) -> None:
    """Fails when it does not come to pass."""
    deadline_s = time.monotonic() + WITHIN_S
    while True:
        said = check()
        if await said if isinstance(said, Awaitable) else said:
            return
        assert time.monotonic() < deadline_s, "it did not come to pass"
        await asyncio.sleep(every_s)


class Site:
    """`port`: where the worker finds its server. `seen_port`: where the test looks, if that is another way to it."""

    def __init__(self, port: int, *, seen_port: int | None = None) -> None:
        self.queue = f"q_{uuid.uuid4().hex[:12]}"
        self.app = App(servers=[f"127.0.0.1:{port}"])
        self.client = AsyncClient(f"127.0.0.1:{seen_port or port}")
        self.metrics = WorkerMetrics()

    async def __aenter__(self) -> Self:
        await self.client.create_queue(self.queue)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.client.close()
        await self.app.close_async()
        self.app.close()

    def worker(self, *, app_spec: str = "tests.workers.site:no_app", **settings: Any) -> Worker:
        named = {"queues": {self.queue: 1}, "concurrency": 4, "grace_s": 5.0, **settings}
        return Worker(self.app, WorkerSettings(**named), app_spec, self.metrics)

    @contextlib.asynccontextmanager
    async def working(self, **settings: Any) -> AsyncIterator[Worker]:
        """A worker that ends in a hurry with the block."""
        worker = self.worker(**settings)
        run = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            worker.stop()
            await asyncio.wait_for(run, WITHIN_S)

    async def info(self, descriptor: str) -> JobInfo:
        return (await self.client.lookup([descriptor], include_body=True))[descriptor]

    async def beaten(self, descriptor: str) -> None:
        """Its claim holds longer than it did: the heartbeat process is there."""
        before_ms = (await self.info(descriptor)).claim_expires_at_ms or 0

        async def moved() -> bool:
            return ((await self.info(descriptor)).claim_expires_at_ms or 0) > before_ms

        await until(moved)

    async def ended(self, descriptor: str) -> JobInfo:
        """The job when it has succeeded or failed."""

        async def has_ended() -> bool:
            return (await self.info(descriptor)).state in (JobState.SUCCEEDED, JobState.FAILED)

        await until(has_ended)
        return await self.info(descriptor)

    async def count(self, state: JobState, queue: str = "", *, future: bool = False) -> int:
        return await self.client.count(JobFilter(queue or self.queue, state, future=future))

    async def all_succeeded(self, jobs: int, queue: str = "") -> None:
        async def have() -> bool:
            return await self.count(JobState.SUCCEEDED, queue) == jobs

        await until(have)

    def counted(self, worker: Worker, name: str) -> Counter[str]:
        """A counter of all types, by what it is counted by."""
        found: Counter[str] = Counter()
        for labels, values in self.metrics.read(worker.view()).items():
            if labels[0] == name:
                found[labels[1]] += int(values[0])
        return found


async def ending(worker: Worker) -> ExitReason:
    """What its run ends with."""
    return await asyncio.wait_for(worker.run(), WITHIN_S)
