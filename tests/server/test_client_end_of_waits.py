"""A client that waits for jobs no more: what was on its way comes, nothing is claimed for nobody."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Ack, AsyncClient, DequeuedJob, DequeueRequest, Job
from pinlater.errors import OutcomeUnknown, ServerUnreachable
from tests.server.running import RunningServer, running

QUEUE = "mail"
ROUNDS = 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("waits")
    with running(folder) as started:
        yield started


async def waiting(client: AsyncClient) -> list[DequeuedJob]:
    with contextlib.suppress(OutcomeUnknown, ServerUnreachable):
        return await client.dequeue(DequeueRequest(QUEUE, 10, wait_ms=60_000, release_on_disconnect=True))
    return []


async def drained(client: AsyncClient, jobs: list[DequeuedJob]) -> None:
    """The queue is empty: the one job was answered, or comes as soon as the server has taken it back."""
    if not jobs:
        (back,) = await client.dequeue(DequeueRequest(QUEUE, 10, wait_ms=1_500))
        assert back.attempts_remaining == 1
        jobs = [back]
    await client.ack(QUEUE, [Ack(job.descriptor) for job in jobs])


async def test_a_wait_that_is_ended_is_answered_soon_and_no_other_can_be_made(server: RunningServer) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        await client.create_queue(QUEUE)
        poll = asyncio.create_task(waiting(client))
        await asyncio.sleep(0.1)
        client.cancel_long_polls()
        assert await asyncio.wait_for(poll, 60) == []
        with pytest.raises(ServerUnreachable, match="waits for no more jobs"):
            await client.dequeue(DequeueRequest(QUEUE, 1, wait_ms=1_000))
        assert await client.dequeue(DequeueRequest(QUEUE, 1)) == []


async def test_a_job_is_either_answered_or_taken_back_with_all_attempts(server: RunningServer) -> None:
    """Whatever the moment in which the waits end: jobs are enqueued right then."""
    address = f"127.0.0.1:{server.port}"
    async with AsyncClient(address) as producer:
        await producer.create_queue(QUEUE)
        for _ in range(ROUNDS):
            async with AsyncClient(address) as client:
                poll = asyncio.create_task(waiting(client))
                await asyncio.sleep(0.01)
                enqueued = asyncio.create_task(producer.enqueue(QUEUE, Job(b"x", attempts_allowed=1)))
                await asyncio.sleep(0)
                client.cancel_long_polls()
                jobs = await asyncio.wait_for(poll, 60)
                await enqueued
                await drained(producer, jobs)
