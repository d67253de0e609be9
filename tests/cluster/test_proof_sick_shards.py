"""A Redis and a MariaDB shard of four are killed, stopped, cut off or slow under load: the other two go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from pinlater import AsyncClient, DequeueRequest, Job
from pinlater.model import ClusterStatus
from tests.cluster.proof_ending import all_is_right
from tests.cluster.proof_load import Load, shard_of
from tests.cluster.proof_stand import (
    CLAIM_S,
    DEADLINE_S,
    LEASE_S,
    PROCESSES,
    SLACK_S,
    Stand,
    all_agree,
    known_everywhere,
    status_when,
    until,
)
from tests.cluster.proof_stores import SHARDS, FourStores
from tests.faults.proxy import Proxy
from tests.faults.recorded_run import RecordedRun
from tests.speed import slower
from tests.stores.process import StoreServer

pytestmark = [pytest.mark.slow]


HANGING_S = 1.5 * DEADLINE_S
"""No call starts at a store that is past half a deadline with another; one that began just before takes its own."""


class Fault(NamedTuple):
    """`errors_s`: from its beginning on until no caller may see an error any more, on a machine that does only this."""

    begins: Callable[[Stand], Awaitable[None]]
    ends: Callable[[Stand], Awaitable[None]]
    errors_s: float = DEADLINE_S


def of_stores(begins: Callable[[StoreServer], None], ends: Callable[[StoreServer], None], **more: float) -> Fault:
    return Fault(lambda stand: stand.stores.do(begins, *SICK), lambda stand: stand.stores.do(ends, *SICK), **more)


def of_networks(begins: Callable[[Proxy], None], **more: float) -> Fault:
    async def do(step: Callable[[Proxy], None], stand: Stand) -> None:
        await asyncio.gather(*[asyncio.to_thread(step, proxy) for proxy in stand.proxies.values()])

    return Fault(partial(do, begins), partial(do, Proxy.heal), **more)


FAULTS = {
    "killed": of_stores(StoreServer.kill, StoreServer.start),
    "stopped": of_stores(StoreServer.pause, StoreServer.resume, errors_s=HANGING_S),
    "refusing": of_networks(Proxy.cut),
    "silent": of_networks(Proxy.black_hole, errors_s=HANGING_S),
    "slow": of_networks(lambda proxy: proxy.delay(0.35 * DEADLINE_S), errors_s=HANGING_S),
}
SICK = ("1", "3")


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory, four_stores: FourStores) -> Iterator[Stand]:
    with Stand(tmp_path_factory.mktemp("sick"), four_stores, "--crash-budget", "0", proxied=SICK) as running:
        yield running


async def through(stand: Stand, client: AsyncClient, load: Load, fault: Fault) -> None:
    """A fault from its first moment until the shards serve again."""
    await load.goes_on(20)
    began_s = time.monotonic()
    await fault.begins(stand)
    await all_agree(client, PROCESSES, out=SICK)
    verdict_s = time.monotonic()
    await load.goes_on()
    await fault.ends(stand)
    await all_agree(client, PROCESSES)
    for shard in SICK:
        await load.lands_on(shard)
    await load.goes_on(20)
    busy = slower(time.monotonic)
    errors = load.errors(began_s + fault.errors_s + SLACK_S * busy, apart_from=SICK)
    assert [(round(each.ended_s - began_s, 1), each) for each in errors] == []
    slow = [each for each in load.calls if each.began_s > verdict_s and each.ended_s - each.began_s > DEADLINE_S * busy]
    assert slow == []


@pytest.mark.parametrize("fault", FAULTS)
async def test_callers_see_errors_for_one_deadline_at_most_and_the_shards_return_by_themselves(
    stand: Stand, fault: str, tmp_path: Path
) -> None:
    queue, run = f"mail_{fault}", RecordedRun(tmp_path)
    async with stand.clients(run.folder) as clients:
        await clients[0].create_queue(queue)
        await known_everywhere(stand, queue)
        async with Load(stand.ports, queue, run) as load:
            await through(stand, clients[1], load, FAULTS[fault])
        await all_is_right(clients[0], queue, run)


def maintained(status: ClusterStatus) -> set[str]:
    return {shard for each in status.servers for shard in each.maintains}


async def test_the_maintenance_of_a_killed_server_moves_within_its_lease(stand: Stand) -> None:
    async with stand.clients() as clients:
        status = await status_when(clients[0], lambda status: maintained(status) == set(SHARDS))
        busy = {int(each.process) for each in status.servers if each.maintains}
        gone = 0 if busy & set(stand.servers[0].processes()) else 1
        killed, client = stand.servers[gone], clients[1 - gone]
        await client.create_queue("lost")
        await known_everywhere(stand, "lost")
        for _ in range(60):
            await client.enqueue("lost", [Job(b"x", attempts_allowed=10)])
        taken = await client.dequeue(DequeueRequest("lost", 60))
        claimed_s = time.monotonic()
        assert {shard_of(job.descriptor) for job in taken} == set(SHARDS)
        killed.kill()
        back: set[str] = set()

        async def all_are_back() -> bool:
            jobs = await client.dequeue(DequeueRequest("lost", 60, wait_ms=200))
            back.update(job.descriptor for job in jobs)
            return len(back) == 60

        took_s = await until(all_are_back) - claimed_s
        assert took_s < CLAIM_S + LEASE_S + SLACK_S * slower(time.monotonic)
        after = await all_agree(client, PROCESSES // 2)
        assert maintained(after) == set(SHARDS)
        killed.start_again()
        await asyncio.to_thread(killed.running.wait_for, "ready")
        await all_agree(clients[gone], PROCESSES)
