"""Producers while their only server restarts."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from pinlater import AsyncClient, Job, JobFilter, JobState, errors
from tests.server.running import running
from tests.stores.process import free_port

pytestmark = pytest.mark.usefixtures("way")

AWAY_S = 3.0
PRODUCERS = 10


@pytest.mark.slow
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name)
async def test_producers_go_on_while_their_server_restarts_and_no_job_is_stored_twice(
    by: signal.Signals, tmp_path: Path
) -> None:
    port = free_port()
    stored: list[str] = []
    unknown = 0
    over = asyncio.Event()

    async def produce(client: AsyncClient) -> None:
        nonlocal unknown
        while not over.is_set():
            try:
                stored.append(await client.enqueue("mail", Job(b"x")))
            except errors.OutcomeUnknown:
                assert by is signal.SIGKILL  # what was under way in that moment, and only that
                unknown += 1

    async with AsyncClient(f"127.0.0.1:{port}", timeout=60.0) as client:
        with running(tmp_path, port=port) as server:
            await client.create_queue("mail")
            producers = [asyncio.create_task(produce(client)) for _ in range(PRODUCERS)]
            while len(stored) < 100:
                await asyncio.sleep(0.01)
            server.send(by)
            await asyncio.to_thread(server.process.wait, 60)
        before = len(stored)
        await asyncio.sleep(AWAY_S)
        with running(tmp_path, port=port) as server:
            async with asyncio.timeout(60):
                while len(stored) < before + 100:
                    await asyncio.sleep(0.01)
                over.set()
                await asyncio.gather(*producers)
            count = await client.count(JobFilter("mail", JobState.PENDING))
            assert len(set(stored)) == len(stored)
            assert len(stored) <= count <= len(stored) + unknown
            assert unknown <= PRODUCERS


@pytest.mark.parametrize("is_patient", [True, False])
async def test_a_client_that_goes_on_without_a_server_says_so_once(
    is_patient: bool, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"127.0.0.1:{free_port()}"
    async with AsyncClient(address, timeout=3.0, retry_unavailable=is_patient) as client:
        results = await asyncio.gather(*(client.queue_names() for _ in range(PRODUCERS)), return_exceptions=True)
    assert {type(each) for each in results} == {errors.ServerUnreachable}
    said = [each.getMessage() for each in caplog.records if each.name == "pinlater.client"]
    assert len(said) == is_patient
    assert all(text.startswith(f"no server answers at {address}") for text in said)
