"""A payroll of three stages that streams in while workers, servers and stores are killed; and what must be true then.

calculate ──map──► pay ──pass──► check        every check is a line of a ledger outside (payroll_worker.py)
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa

from pinlater import Ack, AsyncClient, DequeuedJob, DequeueRequest, JobFilter, JobState
from pinlater.flows.tables import CALLBACKS, FLOWS, ITEMS, STAGES
from pinlater.model.flow_words import (
    Applet,
    AppletKind,
    CompletionCallback,
    FlowState,
    FlowStatus,
    ItemState,
    NewFlow,
    NewItem,
    Stage,
)
from tests.flows.async_service import headers_of
from tests.flows.payroll_worker import QUEUES, amount_of
from tests.flows.stand import check_counters
from tests.patience import until_answered
from tests.stores.process import dies_with_us

DONE_QUEUE = "payroll_done"
WORKERS = 3
BATCHES = 40
AHEAD = 4
"""Batches of items that are in the first stage while it works."""

WITHIN_S = 600.0
TRIES = {"max_failures": 99, "backoff_ms": 50, "max_backoff_ms": 500}
STAGES_OF_IT = (
    Stage("calculate", "do.calculate", QUEUES["calculate"], **TRIES),  # type: ignore[arg-type]
    Stage(
        *("pay", "do.pay", QUEUES["pay"], "calculate"),
        Applet(AppletKind.MAP, "{user: payload.user, amount: result.amount}"),
        **TRIES,  # type: ignore[arg-type]
    ),
    Stage("check", "do.check", QUEUES["check"], "pay", is_final=True, **TRIES),  # type: ignore[arg-type]
)

T = TypeVar("T")
Step = Callable[[], Awaitable[None]]


class Payroll:
    """One payroll at servers that come and go."""

    def __init__(self, servers: Sequence[str], ledger: Path, users: int) -> None:
        self._servers = servers
        self._ledger = ledger
        self._users = users
        self._client = AsyncClient(*servers, timeout=10.0)
        self._workers: list[subprocess.Popen[bytes]] = []
        self._flow_id = ""
        self.killed = Counter[str]()
        ledger.touch()

    async def run(self, steps: Sequence[Step]) -> None:
        """Until it is complete, and its queues are empty; the steps come one after the other, as it goes on."""
        began_s = time.monotonic()
        try:
            self._workers = [self._worker() for _ in range(WORKERS)]
            self._flow_id = await self._start()
            producer = asyncio.create_task(self._produce())
            for number, step in enumerate(steps, 1):
                await self._until(lambda status: _done(status) >= 3 * self._users * number // (len(steps) + 1))  # noqa: B023
                self._kill_a_worker()
                await step()
            await producer
            status = await self._until(lambda status: status.completed_ms is not None)
            assert status.state is FlowState.COMPLETE
            self.seconds = time.monotonic() - began_s
            self.callbacks = await self._callbacks()
            await self._sweep()
        finally:
            for worker in self._workers:
                worker.kill()
                worker.wait()
            await self._client.close()

    # -- the service ---------------------------------------------------------------------------------------------------

    async def _start(self) -> str:
        await self._safely(lambda: self._client.create_queue(DONE_QUEUE))
        for queue in QUEUES.values():
            await self._safely(lambda: self._client.create_queue(queue))  # noqa: B023
        new = NewFlow(
            *("payroll", STAGES_OF_IT, "2026-11"), on_complete=CompletionCallback(queue=DONE_QUEUE, job="payroll.done")
        )
        created = await self._safely(lambda: self._client.create_flow(new))
        return created.id

    async def _produce(self) -> None:
        """Batches with keys, some of whose items come twice; the first stage is sealed behind the last."""
        size = -(-self._users // BATCHES)
        for first in range(0, self._users, size):
            again = max(0, first - size // 5)
            items = [NewItem(b'{"user":%d}' % user, str(user)) for user in range(again, min(first + size, self._users))]
            await self._until(lambda status: status.stages[0].succeeded >= first - AHEAD * size)  # noqa: B023
            await self._safely(lambda: self._client.add_flow_items(self._flow_id, "calculate", items))  # noqa: B023
        await self._safely(lambda: self._client.seal_stage(self._flow_id, "calculate"))

    async def _until(self, holds: Callable[[FlowStatus], bool]) -> FlowStatus:
        async with asyncio.timeout(WITHIN_S):
            while True:
                status = await self._safely(lambda: self._client.get_flow(self._flow_id))
                twice = [each.stage.name for each in status.stages if each.succeeded > each.items]
                assert not twice, f"more items of {twice} have succeeded than there are: {status}"
                if holds(status):
                    return status
                await asyncio.sleep(0.1)

    async def _safely(self, call: Callable[[], Awaitable[T]]) -> T:
        return await until_answered(call, WITHIN_S)

    async def _callbacks(self) -> list[str]:
        """The ids of the callbacks that came."""
        jobs: list[DequeuedJob] = []
        async with asyncio.timeout(WITHIN_S):
            while not jobs:
                jobs = await self._safely(lambda: self._client.dequeue(DequeueRequest(DONE_QUEUE, 10, wait_ms=1_000)))
        acks = [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs]
        await self._safely(lambda: self._client.ack(DONE_QUEUE, acks))
        return [headers_of(job)["pinlater-callback"] for job in jobs]

    async def _sweep(self) -> None:
        """Until no job is left, with the workers that are there."""
        states = (JobState.PENDING, JobState.IN_PROGRESS)
        filters = [JobFilter(queue, state) for queue in (*QUEUES.values(), DONE_QUEUE) for state in states]
        async with asyncio.timeout(60):
            while any(await self._safely(lambda: self._client.counts(filters))):
                await asyncio.sleep(0.2)

    # -- workers -------------------------------------------------------------------------------------------------------

    def _worker(self) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-m", "tests.flows.payroll_worker", str(self._ledger)]
        with open(self._ledger.with_suffix(".log"), "ab") as log:
            return subprocess.Popen([*dies_with_us(), *program, *self._servers], stderr=log)

    def _kill_a_worker(self) -> None:
        oldest = self._workers.pop(0)
        assert oldest.poll() is None, "a worker ended by itself"
        oldest.kill()
        oldest.wait()
        self.killed["worker"] += 1
        self._workers.append(self._worker())

    # -- what is true --------------------------------------------------------------------------------------------------

    def check(self, database: str) -> int:
        """Every check was sent and is recorded once, and the ledger agrees. How many were sent."""
        check_counters(database)
        users, sent = set(range(self._users)), self._sent()
        engine = sa.create_engine(database, poolclass=sa.pool.NullPool)
        with engine.connect() as connection:
            flow = connection.execute(sa.select(FLOWS).where(FLOWS.c.id == self._flow_id)).mappings().one()
            stages = connection.execute(sa.select(STAGES).where(STAGES.c.flow == flow["number"])).mappings().all()
            (callback,) = connection.execute(sa.select(CALLBACKS)).mappings().all()
            rows = connection.execute(
                sa.select(ITEMS.c.place, ITEMS.c.state, ITEMS.c.is_queued, ITEMS.c.payload, ITEMS.c.result)
            ).all()
        engine.dispose()
        assert [(each["items"], each["succeeded"]) for each in stages] == [(self._users, self._users)] * 3
        assert {(state, is_queued) for _, state, is_queued, _, _ in rows} == {(ItemState.SUCCEEDED, 0)}
        for place in (0, 1):
            assert {json.loads(payload)["user"] for at, _, _, payload, _ in rows if at == place} == users
        recorded = [json.loads(result) for place, _, _, _, result in rows if place == 2]
        assert sorted(each["user"] for each in recorded) == sorted(users)
        for each in recorded:
            assert each["sent"] in sent[each["user"]], "recorded, and never sent"
        assert sent.keys() == users
        assert set(self.callbacks) == {callback["id"]}
        assert callback["done_ms"] is not None
        return sum(map(len, sent.values()))

    def _sent(self) -> dict[int, set[str]]:
        """What the ledger says: of each user the checks that were sent, each of the right amount."""
        sent: dict[int, set[str]] = {}
        for line in self._ledger.read_text().splitlines():
            user, amount, each = line.split()
            assert int(amount) == amount_of(int(user))
            sent.setdefault(int(user), set()).add(each)
        return sent


def _done(status: FlowStatus) -> int:
    return sum(each.succeeded for each in status.stages)
