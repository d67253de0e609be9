"""Claims that are bound to connections, over several processes and servers that share nothing but the store."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pinlater.client.async_client import AsyncClient
from pinlater.model import DequeuedJob, DequeueRequest, Job
from tests.server.binding import beat, enqueue, info, is_held, succeeded, take, take_one
from tests.server.running import Plain, RunningServer, running
from tests.stores.places import Places
from tests.stores.process import dies_with_us

WAIT_MS = 15_000

WORKER = """
import asyncio, sys
from pinlater.client.async_client import AsyncClient
from pinlater.model import DequeueRequest

async def work():
    async with AsyncClient(sys.argv[1]) as client:
        (job,) = await client.dequeue(DequeueRequest("mail", 1, release_on_disconnect=True))
        print(job.descriptor, flush=True)
        await asyncio.sleep(600)

asyncio.run(work())
"""


def worker_process(address: str) -> subprocess.Popen[str]:
    """It says which job it has."""
    command = [*dies_with_us(), sys.executable, "-c", WORKER, address]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def test_the_jobs_of_a_worker_that_is_killed_are_handed_out_again_within_five_seconds(tmp_path: Path) -> None:
    """Their claims were for five minutes."""
    with running(tmp_path) as server:
        address = f"127.0.0.1:{server.port}"
        async with AsyncClient(address) as client:
            await client.create_queue("mail")
            (descriptor,) = await client.enqueue("mail", [Job(b"x")])
            with worker_process(address) as worker:
                assert worker.stdout is not None
                taken = await asyncio.to_thread(worker.stdout.readline)
                assert taken.strip() == descriptor
                worker.kill()
            async with asyncio.timeout(60):
                (again,) = await client.dequeue(DequeueRequest("mail", 1, wait_ms=WAIT_MS))
            assert (again.descriptor, again.attempts_remaining) == (descriptor, 1)


@dataclass
class Cluster:
    """Two servers over one store, the first of two processes."""

    one: RunningServer
    two: RunningServer


@pytest.fixture(scope="module", params=["redis", "mysql", "postgres"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    places: Places = request.getfixturevalue(f"{request.param}_places")
    store = f"1={places.fresh()}"
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                running(
                    tmp_path_factory.mktemp("server"),
                    *("--store", store, "--processes", processes, "--release-grace", "500ms"),
                )
            )
            for processes in ("2", "1")
        ]
        yield Cluster(*servers)


@asynccontextmanager
async def callers(*ports: int) -> AsyncIterator[list[Plain]]:
    async with AsyncExitStack() as stack:
        made = []
        for port in ports:
            made.append(await Plain.to(port))
            stack.push_async_callback(made[-1].close)
        await made[0].create_queue("mail")
        yield made


async def process_of(caller: Plain) -> str:
    """Of the server: it stands in the claims that it makes."""
    await enqueue(caller, Job(b"", priority=1))
    job = await take_one(caller, release_on_disconnect=False)
    await caller.call("ackDequeuedJobs", request=succeeded(job))
    return job.claim_descriptor.split(":")[1]


async def later_than(job: DequeuedJob, caller: Plain) -> None:
    """What comes now is of another millisecond than the claim."""
    claimed_at_ms = (await info(caller, job)).updated_at_ms
    while time.time() * 1000 < claimed_at_ms + 1:
        await asyncio.sleep(0.001)


async def next_job(caller: Plain) -> DequeuedJob:
    return await take_one(caller, wait_ms=WAIT_MS, release_on_disconnect=False)


async def a_checkpoint_by_another_way_counts(first: Plain, second: Plain, onlooker: Plain) -> None:
    """What the first connection alone held is released when it breaks; the other job when the second one does."""
    await enqueue(first, Job(b"kept"), Job(b"lost"))
    kept, lost = sorted(await take(first, 2), key=lambda job: job.body)
    await later_than(kept, onlooker)
    await beat(second, kept)
    await first.close()
    assert (await next_job(onlooker)).descriptor == lost.descriptor
    assert await is_held(onlooker, kept)
    await second.close()
    assert (await next_job(onlooker)).descriptor == kept.descriptor
    await onlooker.call("ackDequeuedJobs", request=succeeded(kept, lost))


async def test_a_checkpoint_by_way_of_another_process_keeps_the_claim_until_that_connection_breaks(
    cluster: Cluster,
) -> None:
    async with callers(*[cluster.one.port] * 3) as (first, second, onlooker):
        processes = {await process_of(first), await process_of(second), await process_of(onlooker)}
        assert len(processes) == 2, "connections are dealt in turn"
        if await process_of(first) == await process_of(second):
            second, onlooker = onlooker, second
        await a_checkpoint_by_another_way_counts(first, second, onlooker)


async def test_a_checkpoint_by_way_of_another_server_keeps_the_claim_until_that_connection_breaks(
    cluster: Cluster,
) -> None:
    async with callers(cluster.one.port, cluster.two.port, cluster.two.port) as (first, second, onlooker):
        await a_checkpoint_by_another_way_counts(first, second, onlooker)


async def test_a_worker_that_comes_back_within_the_grace_keeps_its_claims(cluster: Cluster) -> None:
    async with callers(*[cluster.one.port] * 3) as (first, second, onlooker):
        await enqueue(first, Job(b"kept"), Job(b"lost"))
        kept, lost = sorted(await take(first, 2), key=lambda job: job.body)
        await first.close()
        await later_than(kept, onlooker)
        await beat(second, kept)
        assert (await next_job(onlooker)).descriptor == lost.descriptor
        assert await is_held(onlooker, kept)
        await onlooker.call("ackDequeuedJobs", request=succeeded(kept, lost))


async def test_a_roll_hands_connections_over_and_releases_nothing(cluster: Cluster) -> None:
    async with callers(cluster.one.port, cluster.two.port) as (worker, onlooker):
        await enqueue(worker, Job(b"x"))
        job = await take_one(worker)
        seen = len(cluster.one.events)
        cluster.one.send(signal.SIGHUP)
        rolled = await asyncio.to_thread(cluster.one.wait_for, "rolled", after=seen)
        assert int(job.claim_descriptor.split(":")[1]) not in rolled["workers"]
        assert await is_held(onlooker, job)
        await beat(worker, job)
        await worker.close()
        assert (await next_job(onlooker)).descriptor == job.descriptor
        await onlooker.call("ackDequeuedJobs", request=succeeded(job))
