"""The server of a test, in its process, and the clients of an app there: their waits run jobs.

It needs what a server needs, and is loaded by the first test.
"""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, cast

from pinlater.client.async_client import AsyncClient
from pinlater.client.client import Client
from pinlater.client.job_arguments import as_jobs, delayed
from pinlater.embedded import EmbeddedServer, EmbeddedTransport
from pinlater.errors import QueueNotFound
from pinlater.model import JobInfo
from pinlater_workers.app.result_bounds import ResultBounds
from pinlater_workers.testing.memory import VirtualClock


def _waited(found: dict[str, JobInfo], descriptors: str | Sequence[str], timeout: float | None) -> Any:
    """What `wait` returns. TimeoutError."""
    if isinstance(descriptors, str):
        info = found.get(descriptors)
        if info is not None and info.finished_at_ms is None:
            raise TimeoutError(f"{descriptors} has not ended within {timeout} s")
        return info
    over = {name: found.get(name) for name in descriptors}
    return {name: info for name, info in over.items() if info is None or info.finished_at_ms is not None}


def _within_ms(timeout: float | None) -> float:
    return math.inf if timeout is None else timeout * 1000


def _options(server: EmbeddedServer) -> dict[str, Any]:
    return {"transport": EmbeddedTransport(server), "source": "memory", "tls": False, "token": ""}


class MemoryServer(EmbeddedServer):
    """`client`: for the server's own loop (`run`)."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.client = AsyncClient(**_options(self))


class JobsInMemory(Protocol):
    """`Jobs`, which says more of each, as clients let them run."""

    clock: VirtualClock
    server: MemoryServer

    def beat(self) -> None: ...

    def run_until_one_ended(self, descriptors: Sequence[str], within_ms: float) -> None: ...

    async def run_until_one_ended_async(self, descriptors: Sequence[str], within_ms: float) -> None: ...

    def run_until_over(self, flow_id: str, within_ms: float) -> None: ...

    async def run_until_over_async(self, flow_id: str, within_ms: float) -> None: ...


class MemoryClient(Client):
    """Times are those of the test. Closing it does nothing: it belongs to the test."""

    def __init__(self, jobs: JobsInMemory) -> None:
        super().__init__(**_options(jobs.server))
        self._jobs = jobs

    def close(self) -> None: ...

    def end(self) -> None:
        """The test is over."""
        super().close()

    def enqueue(self, queue: str, jobs: Any, *, delay: Any = None, **more: Any) -> Any:
        if delay is not None:
            jobs = delayed(as_jobs(jobs), delay, self._jobs.clock.now_ms())
        return super().enqueue(queue, jobs, **more)

    def lookup(self, *named: Any, wait_ms: int = 0, **more: Any) -> dict[str, JobInfo]:
        found = super().lookup(*named, **more)
        if not wait_ms:
            return found
        self._jobs.run_until_one_ended(list(found), wait_ms)
        return super().lookup(*named, **more)

    def wait(self, descriptors: Any, *, timeout: float | None = None, **more: Any) -> Any:
        names = [descriptors] if isinstance(descriptors, str) else descriptors
        for name in names:
            self._jobs.run_until_one_ended([name], _within_ms(timeout))
        return _waited(super().lookup(names, **{"include_result": True, **more}), descriptors, timeout)

    def cancel(self, *named: Any, **more: Any) -> Any:
        cancelled = super().cancel(*named, **more)
        self._jobs.beat()
        return cancelled

    def get_flow(self, flow_id: str, *, wait_ms: int = 0, **more: Any) -> Any:
        if wait_ms:
            self._jobs.run_until_over(flow_id, wait_ms)
        return super().get_flow(flow_id, **more)

    def cancel_flow(self, flow_id: str, **more: Any) -> Any:
        status = super().cancel_flow(flow_id, **more)
        self._jobs.beat()
        return status


class AsyncMemoryClient(AsyncClient):
    """Likewise, for an event loop."""

    def __init__(self, jobs: JobsInMemory, **options: Any) -> None:
        super().__init__(**{**options, **_options(jobs.server)})
        self._jobs = jobs

    async def enqueue(self, queue: str, jobs: Any, *, delay: Any = None, **more: Any) -> Any:
        if delay is not None:
            jobs = delayed(as_jobs(jobs), delay, self._jobs.clock.now_ms())
        return await super().enqueue(queue, jobs, **more)

    async def lookup(self, *named: Any, wait_ms: int = 0, **more: Any) -> dict[str, JobInfo]:
        found = await super().lookup(*named, **more)
        if not wait_ms:
            return found
        await self._jobs.run_until_one_ended_async(list(found), wait_ms)
        return await super().lookup(*named, **more)

    async def wait(self, descriptors: Any, *, timeout: float | None = None, **more: Any) -> Any:
        names = [descriptors] if isinstance(descriptors, str) else descriptors
        for name in names:
            await self._jobs.run_until_one_ended_async([name], _within_ms(timeout))
        return _waited(await super().lookup(names, **{"include_result": True, **more}), descriptors, timeout)

    async def cancel(self, *named: Any, **more: Any) -> Any:
        cancelled = await super().cancel(*named, **more)
        self._jobs.beat()
        return cancelled

    async def get_flow(self, flow_id: str, *, wait_ms: int = 0, **more: Any) -> Any:
        if wait_ms:
            await self._jobs.run_until_over_async(flow_id, wait_ms)
        return await super().get_flow(flow_id, **more)

    async def cancel_flow(self, flow_id: str, **more: Any) -> Any:
        status = await super().cancel_flow(flow_id, **more)
        self._jobs.beat()
        return status


class MemoryClients:
    """The clients of an app, while its jobs are in memory. `client`: for any number of threads."""

    def __init__(self, jobs: JobsInMemory) -> None:
        self._jobs = jobs
        self.client: Client = MemoryClient(jobs)
        self._of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = weakref.WeakKeyDictionary()
        self._result_bounds = ResultBounds(lambda: self.client)

    def async_client(self) -> AsyncClient:
        return self._of_loops.setdefault(asyncio.get_running_loop(), self.connect())

    def connect(self, **options: Any) -> AsyncClient:
        return AsyncMemoryClient(self._jobs, **options)

    def exceeded_result_bound(self, queue: str, size: int, *, may_ask: bool) -> int | None:
        return self._result_bounds.exceeded(queue, size, may_ask=True)

    def create_missing(self, queues: Iterable[str], error: QueueNotFound) -> None:
        """A test names its queues itself."""
        raise error

    async def create_missing_async(self, queues: Iterable[str], error: QueueNotFound) -> None:
        raise error

    def close(self) -> None:
        cast(MemoryClient, self.client).end()
