"""A server with flows, in a process of its own, and a caller that is a service and its workers in one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from pinlater.client.async_client import AsyncClient
from pinlater.model import Ack, AckOutcome, DequeuedJob, DequeueRequest
from pinlater.model.flow_words import FlowCreated, FlowItem, FlowState, FlowStatus, ItemState, NewFlow, NewItem, Stage
from tests.server.running import RunningServer

SECRET = "not-so-secret-0123"
SETTINGS = (
    *("--maintenance-interval", "100ms", "--claim-timeout", "30s"),
    *("--flow-callback-hosts", "127.0.0.1:*", "--flow-callback-secret", SECRET),
)
WITHIN_S = 60.0


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


def items_of(*payloads: object) -> list[NewItem]:
    return [NewItem(as_json(payload)) for payload in payloads]


def ack_of(job: DequeuedJob, **values: Any) -> Ack:
    return Ack(job.descriptor, claim_descriptor=job.claim_descriptor, **values)


def payload_of(job: DequeuedJob) -> Any:
    """What came as the arguments of a job, in an envelope or, of a stage without a type of job, alone."""
    if not job.body.startswith(b"PINLATER/"):
        return json.loads(job.body)
    envelope = json.loads(job.body.partition(b"\n")[2])
    return envelope["kwargs"] if "kwargs" in envelope else envelope["args"][0]


def headers_of(job: DequeuedJob) -> dict[str, str]:
    headers: dict[str, str] = json.loads(job.body.partition(b"\n")[2])["headers"]
    return headers


class AsyncService:
    """`queue(NAME)` is a queue of this test alone."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self._own = secrets.token_hex(4)

    def queue(self, name: str) -> str:
        return f"{name}_{self._own}"

    def stage(self, name: str, parent: str = "", **values: Any) -> Stage:
        """One whose queue is its own; it tries again at once."""
        return Stage(name, f"do.{name}", self.queue(name), parent, **{"backoff_ms": 0, **values})

    async def start(self, *stages: Stage, items: Sequence[NewItem] = (), seal: bool = True, **values: Any) -> str:
        """A flow with items in its first stage, sealed."""
        return (await self.create(*stages, items=items, seal=seal, **values)).id

    async def create(
        self, *stages: Stage, items: Sequence[NewItem] = (), seal: bool = True, **values: Any
    ) -> FlowCreated:
        root = stages[0].name
        new = NewFlow("payroll", stages, items={root: items} if items else {}, sealed=[root] if seal else [], **values)
        return await self.client.create_flow(new)

    # -- as a worker ---------------------------------------------------------------------------------------------------

    async def take(self, stage: Stage | str, limit: int = 1, **values: Any) -> list[DequeuedJob]:
        """So many jobs, waited for; fails if fewer come."""
        queue = stage if isinstance(stage, str) else stage.queue
        jobs: list[DequeuedJob] = []
        async with asyncio.timeout(WITHIN_S):
            while len(jobs) < limit:
                jobs += await self.client.dequeue(DequeueRequest(queue, limit - len(jobs), wait_ms=5_000, **values))
        return jobs

    async def has_none(self, stage: Stage) -> bool:
        """No job of the stage may be taken now."""
        return not await self.client.dequeue(DequeueRequest(stage.queue, 1))

    async def succeed(self, stage: Stage | str, jobs: Sequence[DequeuedJob], result: object = None) -> list[AckOutcome]:
        queue = stage if isinstance(stage, str) else stage.queue
        return list(await self.client.ack(queue, [ack_of(job, result=as_json(result)) for job in jobs], []))

    async def fail(self, stage: Stage, jobs: Sequence[DequeuedJob], reason: str = "it broke") -> None:
        await self.client.ack(stage.queue, [], [ack_of(job, append_status=reason) for job in jobs])

    async def do(self, stage: Stage, limit: int = 1, result: Callable[[Any], object] = lambda payload: None) -> None:
        """Carry out so many items of a stage."""
        for job in await self.take(stage, limit):
            await self.succeed(stage, [job], result(payload_of(job)))

    # -- looking -------------------------------------------------------------------------------------------------------

    async def over(self, flow_id: str, state: FlowState = FlowState.COMPLETE) -> FlowStatus:
        """Waited for."""
        status = await self.client.get_flow(flow_id, wait_ms=round(WITHIN_S * 1_000))
        assert status.state is state, status
        assert status.completed_ms is not None
        return status

    async def runs(self, flow_id: str) -> bool:
        return (await self.client.get_flow(flow_id)).completed_ms is None

    async def items(self, flow_id: str, stage: Stage | str = "", **values: Any) -> list[FlowItem]:
        name = stage if isinstance(stage, str) else stage.name
        return list((await self.client.get_flow_items(flow_id, stage=name, **values)).items)

    async def states(self, flow_id: str, stage: Stage) -> list[ItemState]:
        return [item.state for item in await self.items(flow_id, stage)]

    async def until(self, flow_id: str, holds: Callable[[FlowStatus], bool]) -> FlowStatus:
        async with asyncio.timeout(WITHIN_S):
            while True:
                status = await self.client.get_flow(flow_id)
                if holds(status):
                    return status
                await asyncio.sleep(0.02)


def counts(status: FlowStatus, name: str) -> tuple[int, int, int]:
    """Of a stage: pending, succeeded, failed."""
    (stage,) = [each for each in status.stages if each.stage.name == name]
    return stage.pending, stage.succeeded, stage.failed


def is_sealed(status: FlowStatus, name: str) -> bool:
    return next(each.is_sealed for each in status.stages if each.stage.name == name)


@contextlib.asynccontextmanager
async def service_of(server: RunningServer) -> AsyncIterator[AsyncService]:
    async with AsyncClient(f"127.0.0.1:{server.port}", timeout=WITHIN_S) as client:
        yield AsyncService(client)
