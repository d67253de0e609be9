"""The client that jobs have in a test: what it stores, asks for and changes is in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, cast

from pinlater.client.async_client import AsyncClient
from pinlater.client.client import Client
from pinlater.client.job_times import delayed
from pinlater.client.named_jobs import named_jobs
from pinlater.clock import Clock
from pinlater.flows.ends import sees_all
from pinlater.model import (
    CONTINUATION_END,
    CONTINUATION_START,
    Cancelled,
    Heartbeat,
    HeartbeatAnswer,
    Job,
    JobInfo,
    KeyRef,
    RescheduleJob,
    RescheduleOutcome,
)
from pinlater.model.flow_words import (
    FlowCreated,
    FlowItemsPage,
    FlowsPage,
    FlowState,
    FlowStatus,
    ItemState,
    NewFlow,
    NewItem,
)
from pinlater.schedule import Delay
from pinlater_workers.errors import NotPlayed
from pinlater_workers.testing.virtual_flows import VirtualFlows

KEPT_RESULT_BYTES = 64 * 1024
"""The max_result of a queue for which nothing is set."""

_PLAYED = "enqueue, lookup, wait, cancel, reschedule, heartbeat, queue_names, and those of flows but assign_item"


class MemoryStore(Protocol):
    """The jobs of a test, as its clients see them. Times are of the virtual clock."""

    @property
    def clock(self) -> Clock: ...

    def send(self, queue: str, jobs: Sequence[Job]) -> list[str]: ...

    def found(
        self, queue: str | None, descriptors: Sequence[str], keys: Sequence[KeyRef], *, body: bool, result: bool
    ) -> dict[str, JobInfo]:
        """Those that are there, by descriptor."""

    def cancel_jobs(
        self, queue: str | None, descriptors: Sequence[str], keys: Sequence[KeyRef], *, running: bool
    ) -> Cancelled: ...

    def reschedule_jobs(self, queue: str, changes: Sequence[RescheduleJob]) -> list[RescheduleOutcome]: ...

    def beat(self, queue: str, heartbeats: Sequence[Heartbeat]) -> list[HeartbeatAnswer]: ...

    def run_until_one_ended(self, descriptors: Sequence[str], within_ms: float) -> None:
        """Run jobs, until one of these has ended or is not there, or so long. NotPlayed: a job is running."""

    async def run_until_one_ended_async(self, descriptors: Sequence[str], within_ms: float) -> None: ...

    def queue_names(self) -> set[str]: ...

    @property
    def flows(self) -> VirtualFlows: ...

    def run_until_over(self, flow_id: str, within_ms: float) -> None:
        """Run jobs, until this flow is over, or so long. NotPlayed: a job is running, or nothing is pending."""

    async def run_until_over_async(self, flow_id: str, within_ms: float) -> None: ...


class _Calls:
    """What a client of threads and one of the event loop have in common."""

    source = "memory"

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotPlayed(
            f"a test in memory has no servers, and no call {name!r} of a client; it plays {_PLAYED}. Test this against "
            "a server: `pinlater serve` needs no configuration"
        )

    def _enqueue(self, queue: str, jobs: Job | Sequence[Job], delay: Delay | None) -> str | list[str]:
        if delay is not None:
            jobs = delayed(jobs, delay, self._store.clock.now_ms())
        if isinstance(jobs, Job):
            return self._store.send(queue, [jobs])[0]
        return self._store.send(queue, jobs)

    def _lookup(
        self,
        named: Sequence[str | Sequence[str]],
        descriptors: Sequence[str] | None,
        queue: str | None,
        keys: Sequence[KeyRef],
        include_body: bool,
        include_result: bool,
    ) -> dict[str, JobInfo]:
        queue, names = named_jobs(named, queue, descriptors, keys)
        return self._store.found(queue, names, keys, body=include_body, result=include_result)

    def _cancel(
        self,
        queue: str | Sequence[str] | None,
        descriptors: Sequence[str] | None,
        keys: Sequence[KeyRef],
        running: bool,
    ) -> Cancelled:
        given = [each for each in (queue, descriptors) if each is not None]
        of_queue, names = named_jobs(given, None, None, keys)
        return self._store.cancel_jobs(of_queue, names, keys, running=running)

    def _flows(
        self,
        *,
        name: str = "",
        dedupe_key: str = "",
        state: FlowState | None = None,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        **_: Any,
    ) -> FlowsPage:
        found, below = self._store.flows.database.flows(
            name, dedupe_key, state, _position(continuation), limit, None, sees_all
        )
        return FlowsPage(found, _continuation(below))

    def _flow_items(
        self,
        flow_id: str,
        *,
        stage: str = "",
        state: ItemState | None = None,
        dedupe_key: str = "",
        numbers: Sequence[int] = (),
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        **_: Any,
    ) -> FlowItemsPage:
        after = _position(continuation)
        found, last = self._store.flows.database.items(flow_id, stage, state, dedupe_key, numbers, after, limit)
        return FlowItemsPage(found, _continuation(last))


def _position(continuation: str) -> int:
    return 0 if continuation == CONTINUATION_START else int(continuation)


def _continuation(position: int) -> str:
    return str(position) if position else CONTINUATION_END


def _waited(
    found: dict[str, JobInfo], descriptors: str | Sequence[str], timeout: float | None
) -> JobInfo | dict[str, JobInfo | None] | None:
    """What `wait` returns, or raises."""
    if isinstance(descriptors, str):
        info = found.get(descriptors)
        if info is not None and info.finished_at_ms is None:
            raise TimeoutError(f"{descriptors} has not ended within {timeout} s")
        return info
    over = {name: found.get(name) for name in descriptors}
    return {name: info for name, info in over.items() if info is None or info.finished_at_ms is not None}


def _within_ms(timeout: float | None) -> float:
    return float("inf") if timeout is None else timeout * 1000


class MemoryClient(_Calls):
    """As `Client`. `context`, `timeout` and `resend` mean nothing: every call is carried out at once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None: ...

    def close(self) -> None: ...

    def queue_names(self, **_: Any) -> set[str]:
        return self._store.queue_names()

    def enqueue(self, queue: str, jobs: Job | Sequence[Job], *, delay: Delay | None = None, **_: Any) -> Any:
        return self._enqueue(queue, jobs, delay)

    def lookup(
        self,
        *named: str | Sequence[str],
        descriptors: Sequence[str] | None = None,
        include_body: bool = False,
        include_result: bool = False,
        wait_ms: int = 0,
        queue: str | None = None,
        keys: Sequence[KeyRef] = (),
        **_: Any,
    ) -> dict[str, JobInfo]:
        asked = (named, descriptors, queue, keys, include_body, include_result)
        found = self._lookup(*asked)
        if wait_ms:
            self._store.run_until_one_ended(list(found), wait_ms)
            found = self._lookup(*asked)
        return found

    def wait(
        self,
        descriptors: str | Sequence[str],
        *,
        timeout: float | None = None,
        include_body: bool = False,
        include_result: bool = True,
    ) -> Any:
        names = [descriptors] if isinstance(descriptors, str) else descriptors
        for name in names:
            self._store.run_until_one_ended([name], _within_ms(timeout))
        return _waited(self._lookup([names], None, None, (), include_body, include_result), descriptors, timeout)

    def cancel(
        self,
        queue: str | Sequence[str] | None = None,
        descriptors: Sequence[str] | None = None,
        *,
        keys: Sequence[KeyRef] = (),
        running: bool = False,
        **_: Any,
    ) -> Cancelled:
        return self._cancel(queue, descriptors, keys, running)

    def reschedule(self, queue: str, changes: Sequence[RescheduleJob], **_: Any) -> list[RescheduleOutcome]:
        return self._store.reschedule_jobs(queue, changes)

    def heartbeat(self, queue: str, heartbeats: Sequence[Heartbeat], **_: Any) -> list[HeartbeatAnswer]:
        return self._store.beat(queue, heartbeats)

    def create_flow(self, flow: NewFlow, **_: Any) -> FlowCreated:
        return self._store.flows.create(flow)

    def add_flow_items(
        self, flow_id: str, stage: str, items: Sequence[NewItem], *, seal: bool = False, **_: Any
    ) -> list[int]:
        return self._store.flows.add(flow_id, stage, items, seal=seal)

    def seal_stage(self, flow_id: str, stage: str = "", **_: Any) -> None:
        self._store.flows.seal(flow_id, stage)

    def get_flow(self, flow_id: str, *, wait_ms: int = 0, **_: Any) -> FlowStatus:
        if wait_ms:
            self._store.run_until_over(flow_id, wait_ms)
        return self._store.flows.status(flow_id)

    def get_flows(self, **page: Any) -> FlowsPage:
        return self._flows(**page)

    def get_flow_items(self, flow_id: str, **page: Any) -> FlowItemsPage:
        return self._flow_items(flow_id, **page)

    def cancel_flow(self, flow_id: str, **_: Any) -> FlowStatus:
        return self._store.flows.cancel(flow_id)

    def delete_flow(self, flow_id: str, **_: Any) -> None:
        self._store.flows.delete(flow_id)

    def resume_flow(self, flow_id: str, *, stage: str = "", expression: str = "", **_: Any) -> FlowStatus:
        return self._store.flows.resume(flow_id, stage, expression)


class AsyncMemoryClient(_Calls):
    """As `AsyncClient`; likewise."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None: ...

    async def close(self) -> None: ...

    async def queue_names(self, **_: Any) -> set[str]:
        return self._store.queue_names()

    async def enqueue(self, queue: str, jobs: Job | Sequence[Job], *, delay: Delay | None = None, **_: Any) -> Any:
        return self._enqueue(queue, jobs, delay)

    async def lookup(
        self,
        *named: str | Sequence[str],
        descriptors: Sequence[str] | None = None,
        include_body: bool = False,
        include_result: bool = False,
        wait_ms: int = 0,
        queue: str | None = None,
        keys: Sequence[KeyRef] = (),
        **_: Any,
    ) -> dict[str, JobInfo]:
        asked = (named, descriptors, queue, keys, include_body, include_result)
        found = self._lookup(*asked)
        if wait_ms:
            await self._store.run_until_one_ended_async(list(found), wait_ms)
            found = self._lookup(*asked)
        return found

    async def wait(
        self,
        descriptors: str | Sequence[str],
        *,
        timeout: float | None = None,
        include_body: bool = False,
        include_result: bool = True,
    ) -> Any:
        names = [descriptors] if isinstance(descriptors, str) else descriptors
        for name in names:
            await self._store.run_until_one_ended_async([name], _within_ms(timeout))
        return _waited(self._lookup([names], None, None, (), include_body, include_result), descriptors, timeout)

    async def cancel(
        self,
        queue: str | Sequence[str] | None = None,
        descriptors: Sequence[str] | None = None,
        *,
        keys: Sequence[KeyRef] = (),
        running: bool = False,
        **_: Any,
    ) -> Cancelled:
        return self._cancel(queue, descriptors, keys, running)

    async def reschedule(self, queue: str, changes: Sequence[RescheduleJob], **_: Any) -> list[RescheduleOutcome]:
        return self._store.reschedule_jobs(queue, changes)

    async def heartbeat(self, queue: str, heartbeats: Sequence[Heartbeat], **_: Any) -> list[HeartbeatAnswer]:
        return self._store.beat(queue, heartbeats)

    async def create_flow(self, flow: NewFlow, **_: Any) -> FlowCreated:
        return self._store.flows.create(flow)

    async def add_flow_items(
        self, flow_id: str, stage: str, items: Sequence[NewItem], *, seal: bool = False, **_: Any
    ) -> list[int]:
        return self._store.flows.add(flow_id, stage, items, seal=seal)

    async def seal_stage(self, flow_id: str, stage: str = "", **_: Any) -> None:
        self._store.flows.seal(flow_id, stage)

    async def get_flow(self, flow_id: str, *, wait_ms: int = 0, **_: Any) -> FlowStatus:
        if wait_ms:
            await self._store.run_until_over_async(flow_id, wait_ms)
        return self._store.flows.status(flow_id)

    async def get_flows(self, **page: Any) -> FlowsPage:
        return self._flows(**page)

    async def get_flow_items(self, flow_id: str, **page: Any) -> FlowItemsPage:
        return self._flow_items(flow_id, **page)

    async def cancel_flow(self, flow_id: str, **_: Any) -> FlowStatus:
        return self._store.flows.cancel(flow_id)

    async def delete_flow(self, flow_id: str, **_: Any) -> None:
        self._store.flows.delete(flow_id)

    async def resume_flow(self, flow_id: str, *, stage: str = "", expression: str = "", **_: Any) -> FlowStatus:
        return self._store.flows.resume(flow_id, stage, expression)


@dataclass(frozen=True, slots=True)
class MemoryClients:
    """The clients of an app, while its jobs are in memory."""

    store: MemoryStore

    @property
    def client(self) -> Client:
        return cast(Client, MemoryClient(self.store))

    def async_client(self) -> AsyncClient:
        return cast(AsyncClient, AsyncMemoryClient(self.store))

    def connect(self, **options: Any) -> AsyncClient:
        return self.async_client()

    def exceeded_result_bound(self, queue: str, size: int, *, may_ask: bool) -> int | None:
        return KEPT_RESULT_BYTES if size > KEPT_RESULT_BYTES else None
