"""All shards of a cluster are gone for a while: jobs are taken all the same, and every one is done once afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pinlater import Ack, AsyncClient, DequeueRequest, Job
from pinlater.errors import NoHealthyShards, OutcomeUnknown
from pinlater.model import JobState
from pinlater.overflow.descriptors import overflow_of
from pinlater.wire.operator_methods import GET_CLUSTER_STATUS
from tests.cluster.proof_load import ENQUEUE, Load
from tests.cluster.proof_stand import (
    DEADLINE_S,
    PROCESSES,
    SLACK_S,
    WITHIN_S,
    Stand,
    all_agree,
    count,
    everywhere,
    known_everywhere,
    until,
)
from tests.cluster.proof_stores import SHARDS, FourStores
from tests.faults.recorded_run import RecordedRun
from tests.speed import slower
from tests.stores.process import StoreServer

pytestmark = [pytest.mark.slow]
AWAY_S = 60.0 if os.environ.get("PINLATER_PROOF_MINUTE") else 10.0
"""The whole minute is for those who have one; what happens in it has happened after ten seconds."""

CLAIM_S = 60
QUEUE = "mail"


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory, four_stores: FourStores) -> Iterator[Stand]:
    folder = tmp_path_factory.mktemp("overflow")
    with Stand(folder, four_stores, "--overflow", "64MiB", "--claim-timeout", f"{CLAIM_S}s") as running:
        yield running


async def owners_known(stand: Stand) -> None:
    """Until every process knows who keeps the overflow shard of each server: without stores nobody tells."""

    def are_known(status: Any) -> bool:
        return len([each for each in status.servers if each.overflow_jobs is not None]) == len(stand.servers)

    await everywhere(stand, "getClusterStatus", are_known, request=GET_CLUSTER_STATUS.request(None))


@dataclass
class Kept:
    """Jobs that the overflow shard of a server has, by what was told of them."""

    descriptors: list[str]
    bodies: list[bytes]
    doubtful: int
    """Jobs of tries whose outcome is unknown: some of them may be kept too."""


async def kept_by_overflow(client: AsyncClient, jobs: int) -> Kept:
    """Enqueue so many, until all of them are kept. A process may still send a first call to a store that is dead."""
    tries = 0

    async def is_kept() -> list[str] | None:
        with contextlib.suppress(OutcomeUnknown):
            return list(await client.enqueue(QUEUE, [Job(body) for body in bodies]))
        return None

    async with asyncio.timeout(WITHIN_S):
        while True:
            tries += 1
            bodies = [b"try %d: job %d" % (tries, number) for number in range(jobs)]
            names = await is_kept()
            if names is not None:
                assert all(map(overflow_of, names)), "the stores are dead"
                return Kept(names, bodies, (tries - 1) * jobs)
            await asyncio.sleep(0.05)


async def all_done(client: AsyncClient, other: AsyncClient, jobs: int) -> Counter[bytes]:
    """Take and finish jobs until so many bodies were seen, and nothing is left anywhere; how often each came."""
    seen: Counter[bytes] = Counter()

    async def is_empty() -> bool:
        try:
            taken = await client.dequeue(DequeueRequest(QUEUE, 500))
        except NoHealthyShards:
            return False
        seen.update(job.body for job in taken)
        await client.ack(QUEUE, [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in taken])
        if taken or len(seen) < jobs:
            return False
        status = await other.cluster_status()
        is_moved = not any(each.overflow_jobs for each in status.servers)
        return is_moved and not await count(client, QUEUE, JobState.PENDING, JobState.IN_PROGRESS)

    await until(is_empty)
    return seen


async def test_enqueues_go_on_without_any_shard_and_everything_is_done_once_when_they_are_back(
    stand: Stand, tmp_path: Path
) -> None:
    run = RecordedRun(tmp_path)
    async with stand.clients(run.folder) as clients:
        await clients[0].create_queue(QUEUE)
        await known_everywhere(stand, QUEUE)
        await owners_known(stand)
        async with Load(stand.ports, QUEUE, run, producers=5, workers=0) as load:
            await load.goes_on(20, methods=[ENQUEUE])
            began_s = time.monotonic()
            await stand.stores.do(StoreServer.kill, *SHARDS)
            while time.monotonic() < began_s + AWAY_S:
                await load.goes_on(10, methods=[ENQUEUE])
            kept = [name for name in load.stored if overflow_of(name)]
            assert len({overflow_of(name) for name in kept}) == 2, "each server keeps its own"
            for client in clients:
                found = await client.lookup(kept[-500:], include_body=True)
                assert {name: job.body for name, job in found.items()} == {
                    name: load.stored[name] for name in kept[-500:]
                }
            await stand.stores.do(StoreServer.start, *SHARDS)
            await all_agree(clients[0], PROCESSES)
            await load.goes_on(20, methods=[ENQUEUE])
        late = load.errors(began_s + DEADLINE_S + SLACK_S * slower(time.monotonic))
        assert [(round(each.ended_s - began_s, 1), each) for each in late] == []
        seen = await all_done(clients[0], clients[1], len(load.stored))
        assert set(load.stored.values()) <= set(seen)
        assert {body for body, times in seen.items() if times > 1} == set()
        for client in clients:
            found = await client.lookup(kept)
            assert {job.state for job in found.values()} == {JobState.SUCCEEDED}
            assert len(found) == len(kept)
        await run.look_up(clients[0])
    run.judge()


async def test_a_server_that_is_stopped_without_shards_says_how_many_remain_and_moves_them_at_its_next_start(
    stand: Stand,
) -> None:
    stopped = stand.servers[0]
    async with stand.clients() as clients:
        await clients[0].create_queue(QUEUE)
        await known_everywhere(stand, QUEUE)
        await stand.stores.do(StoreServer.kill, *SHARDS)
        kept = await kept_by_overflow(clients[0], 25)
    assert await asyncio.to_thread(stopped.running.stop) == 0
    (left,) = [event for event in stopped.running.events if event["event"] == "overflow_left"]
    assert 25 <= left["jobs"] <= 25 + kept.doubtful
    stopped.start_again()
    await stand.stores.do(StoreServer.start, *SHARDS)
    async with stand.clients() as clients:
        await owners_known(stand)
        assert len(await clients[1].lookup(kept.descriptors)) == 25
        seen = await all_done(clients[1], clients[0], left["jobs"])
        assert all(seen[body] == 1 for body in kept.bodies)
