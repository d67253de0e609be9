"""Lookups that wait, through a server: callers that leave, servers that drain, and what they cost the store."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Ack, AsyncClient, DequeueRequest, Job
from pinlater.model import JobState
from pinlater.wire.methods import LOOKUP
from tests.server.running import WITHIN_S, Plain, RunningServer, running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running(tmp_path, "--http", "127.0.0.1:0") as started:
        yield started


async def waits(server: RunningServer, amount: int) -> None:
    """Until so many lookups wait."""
    address = server.wait_for("http_ready")["address"] + "metrics"
    line = f"pinlater_waiting_lookups {amount:.1f}"
    deadline = time.monotonic() + WITHIN_S
    while True:
        with await asyncio.to_thread(urllib.request.urlopen, address, timeout=WITHIN_S) as answer:
            found = answer.read().decode()
        if line in found:
            return
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.02)


async def test_a_result_comes_with_the_answer_to_a_wait(server: RunningServer) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        await client.create_queue("mail")
        descriptor = await client.enqueue("mail", Job(b""))
        waiting = asyncio.create_task(client.lookup([descriptor], include_result=True, wait_ms=60_000))
        await waits(server, 1)
        (job,) = await client.dequeue(DequeueRequest("mail", 1))
        await client.ack("mail", [Ack(job.descriptor, result=b"42")])
        found = await asyncio.wait_for(waiting, WITHIN_S)
        assert (found[descriptor].state, found[descriptor].result) == (JobState.SUCCEEDED, b"42")
        await waits(server, 0)


async def test_a_wait_ends_with_the_connection_of_its_caller(server: RunningServer) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        await client.create_queue("mail")
        descriptor = await client.enqueue("mail", Job(b""))
        caller = await Plain.to(server.port)
        call = asyncio.create_task(
            caller.call("lookupJobs", request=LOOKUP.request([descriptor], False, False, 60_000))
        )
        await waits(server, 1)
        await caller.close()
        await waits(server, 0)
        await asyncio.gather(call, return_exceptions=True)
        assert (await client.lookup([descriptor]))[descriptor].state is JobState.PENDING
