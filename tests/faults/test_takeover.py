"""Two servers of two processes over two stores: what the one looked after is the other's when it is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pinlater import AsyncClient, DequeueRequest, Job
from pinlater.model import ClusterStatus
from tests.server.running import RunningServer, running
from tests.speed import slower
from tests.stores.places import Places

LEASE_S = 2.0
CLAIM_S = 1.0
SLACK_S = 2.0
"""What a busy machine may take for itself."""

WITHIN_S = 60.0
SETTINGS = (
    *("--processes", "2", "--lease", "2s", "--claim-timeout", "1s"),
    *("--maintenance-interval", "200ms", "--crash-budget", "0"),
)


pytestmark = pytest.mark.slow


@pytest.fixture
def servers(tmp_path: Path, redis_places: Places) -> Iterator[list[RunningServer]]:
    stores = [each for number in (1, 2) for each in ("--store", f"{number}={redis_places.fresh()}")]
    with ExitStack() as stack:
        started = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            started.append(stack.enter_context(running(tmp_path / name, *SETTINGS, *stores)))
        yield started


def processes(server: RunningServer) -> list[int]:
    pid = server.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def kill(server: RunningServer) -> None:
    """All of it at once, as when the machine is gone."""
    for pid in (server.process.pid, *processes(server)):
        os.kill(pid, signal.SIGKILL)


async def settled(client: AsyncClient, alive: int) -> ClusterStatus:
    """When there are so many processes, and both shards belong to one of them, by their own word too."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            status = await client.cluster_status()
            said = {shard: each.process for each in status.servers for shard in each.maintains}
            if len(status.servers) == alive and said.keys() == {"1", "2"}:
                names = {f"{each.server}/{each.process}" for each in status.servers}
                assert {each.maintained_by for each in status.shards} <= names
                return status
            await asyncio.sleep(0.05)


async def owner(client: AsyncClient, servers: list[RunningServer]) -> int:
    """Which of the two looks after a shard, the first one if both do."""
    status = await settled(client, 4)
    maintaining = {int(each.process) for each in status.servers if each.maintains}
    return 0 if maintaining & set(processes(servers[0])) else 1


async def counted(client: AsyncClient) -> int:
    """The jobs of the queue as they are counted after this moment, on all shards."""
    asked_ms = (await client.cluster_status(queues=[])).now_ms
    async with asyncio.timeout(WITHIN_S):
        while True:
            status = await client.cluster_status(queues=["mail"])
            (queue,) = status.queues
            if min(queue.counted_at_ms, *[shard.counted_at_ms or 0 for shard in status.shards]) >= asked_ms:
                return sum(level.ready + level.scheduled + level.in_progress for level in queue.levels)
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("how", ["kill -9", "SIGTERM"])
async def test_maintenance_moves_within_a_lease(servers: list[RunningServer], how: str) -> None:
    clients = [AsyncClient(f"127.0.0.1:{server.port}") for server in servers]
    try:
        gone = await owner(clients[0], servers)
        left = clients[1 - gone]
        await left.create_queue("mail")
        for _ in range(20):
            await left.enqueue("mail", [Job(b"x", attempts_allowed=100)])
        taken = await left.dequeue(DequeueRequest("mail", 20))
        assert len({job.descriptor.split(":")[1] for job in taken}) == 2
        began = time.monotonic()
        if how == "SIGTERM":
            servers[gone].stop()
            began = time.monotonic()
        else:
            kill(servers[gone])
        back: set[str] = set()
        async with asyncio.timeout(WITHIN_S):
            while len(back) < 20:
                back |= {job.descriptor for job in await left.dequeue(DequeueRequest("mail", 20, wait_ms=500))}
        assert time.monotonic() - began < CLAIM_S + LEASE_S + SLACK_S * slower(time.monotonic)
        status = await settled(left, 2)
        assert {int(each.process) for each in status.servers} == set(processes(servers[1 - gone]))
        assert await counted(left) == 20
    finally:
        for client in clients:
            await client.close()
