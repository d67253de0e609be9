"""What a refused call sent is freed with its answer, and does not wait for the garbage collector."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator

import pytest

from pinlater.errors import NothingStored, OutcomeUnknown, PinLaterError
from pinlater.model import Job
from tests.unit.breaking import settled
from tests.unit.stand import Stand, stand

pytestmark = pytest.mark.slow

WITHIN_S = 60.0


class Jobs(list[Job]):
    """A list that can be watched."""


@contextlib.asynccontextmanager
async def without_collector(shards: int = 1) -> AsyncIterator[Stand]:
    async with stand(shards) as at:
        gc.collect()
        gc.disable()
        try:
            yield at
        finally:
            gc.enable()


async def freed(*watched: weakref.ref[Jobs]) -> None:
    """A store's thread may hold what it was called with a moment longer than its caller."""
    async with asyncio.timeout(WITHIN_S):
        while any(ref() is not None for ref in watched):
            await asyncio.sleep(0.001)


async def refused(at: Stand, jobs: Jobs, queue: str = "mail") -> None:
    try:
        await at.service.enqueue(queue, jobs)
    except PinLaterError as error:
        error.__traceback__ = None  # as the server does


@pytest.mark.parametrize("error", [None, NothingStored("no"), OutcomeUnknown("lost")])
async def test_a_refused_call_leaves_no_garbage(error: PinLaterError | None) -> None:
    async with without_collector() as at:
        jobs = Jobs([Job(b"x")])
        watched = weakref.ref(jobs)
        at.stores[0].failures["enqueue"] = [error]
        await refused(at, jobs, "nowhere" if error is None else "mail")
        del jobs
        at.stores[0].sent.clear()
        await freed(watched)


async def test_a_call_that_another_shard_took_leaves_no_garbage() -> None:
    async with without_collector(2) as at:
        for store in at.stores:
            store.failures["enqueue"] = [NothingStored("no"), None]
        jobs = Jobs([Job(b"x")])
        watched = weakref.ref(jobs)
        at.stores[1].failures["enqueue"] = []
        for _ in range(8):
            await at.service.enqueue("mail", jobs)
        del jobs
        for store in at.stores:
            store.sent.clear()
        await freed(watched)


async def test_joined_calls_that_are_refused_leave_no_garbage() -> None:
    async with without_collector() as at:
        gate = at.stores[0].hold("enqueue")
        first = asyncio.create_task(at.service.enqueue("mail", [Job(b"x")]))
        await at.stores[0].until_begun("enqueue")
        joined = [Jobs([Job(b"x")]) for _ in range(3)]
        watched = [weakref.ref(jobs) for jobs in joined]
        at.stores[0].failures["enqueue"] = [OutcomeUnknown("lost")]
        calls = [asyncio.create_task(refused(at, jobs)) for jobs in joined]
        await settled()
        gate.set()
        await asyncio.gather(first, *calls)
        del joined, calls
        at.stores[0].sent.clear()
        await freed(*watched)
