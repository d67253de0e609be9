"""A shard is added, drained and removed while both servers are under load; a bad file changes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater.wire.operator_methods import GET_CLUSTER_STATUS
from tests.cluster.proof_ending import all_is_right
from tests.cluster.proof_load import ENQUEUE, Load, shard_of
from tests.cluster.proof_stand import (
    PASSWORD,
    PATIENT,
    PROCESSES,
    WITHIN_S,
    Stand,
    all_agree,
    everywhere,
    known_everywhere,
    status_when,
)
from tests.cluster.proof_stores import SHARDS, FourStores
from tests.faults.recorded_run import RecordedRun
from tests.server.commands import Shell

pytestmark = [pytest.mark.slow]
OLD = dict.fromkeys(SHARDS, "")
NEW = "5"


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory, four_stores: FourStores) -> Iterator[Stand]:
    with Stand(tmp_path_factory.mktemp("list"), four_stores, "--crash-budget", "0", *PATIENT) as running:
        running.add_place(NEW, four_stores.fresh()["1"])
        yield running


async def configured(stand: Stand, shards: dict[str, str], more: str = "", *, outcome: str = "rolled") -> list[str]:
    """Write the file, and wait until both servers have read it and said so; the reasons they gave, if any."""
    seen = [len(server.running.events) for server in stand.servers]
    stand.configure(shards, more)
    told = [
        await asyncio.to_thread(server.running.wait_for, outcome, after=after)
        for server, after in zip(stand.servers, seen, strict=True)
    ]
    return [str(each.get("reason", "")) for each in told]


async def takes_no_new_jobs(load: Load, shard: str) -> None:
    """From now on, although there are many for the others; what is on its way may still arrive."""
    since_s = time.monotonic()
    await load.goes_on(60, methods=[ENQUEUE])
    assert load.last_sent_s[shard] < since_s


async def is_drained_everywhere(stand: Stand, shard: str) -> None:
    """Until every process knows."""
    await everywhere(
        stand,
        "getClusterStatus",
        lambda status: any(each.id == shard and each.dequeue_only for each in status.shards),
        request=GET_CLUSTER_STATUS.request([]),
    )


async def test_a_shard_is_added_drained_and_removed_under_load(stand: Stand, tmp_path: Path) -> None:
    run = RecordedRun(tmp_path)
    async with stand.clients(run.folder) as clients:
        await clients[0].create_queue("mail")
        await known_everywhere(stand, "mail")
        began_s = time.monotonic()
        async with Load(stand.ports, "mail", run) as load:
            await configured(stand, {**OLD, NEW: ""})
            await load.lands_on(NEW)
            workers = [server.processes() for server in stand.servers]

            reasons = await configured(stand, {**OLD, NEW: ""}, "max-bodi = 1", outcome="roll_refused")
            assert all("max-bodi" in reason for reason in reasons)
            assert [server.processes() for server in stand.servers] == workers
            await load.goes_on(20)

            await configured(stand, {**OLD, NEW: "dequeue-only = true"})
            await takes_no_new_jobs(load, NEW)
            asked_ms = (await clients[0].cluster_status()).now_ms
            await status_when(
                clients[0],
                lambda status: any(
                    each.id == NEW and each.jobs == 0 and (each.counted_at_ms or 0) > asked_ms for each in status.shards
                ),
            )
            await configured(stand, OLD)
            await load.goes_on(20)

            operator = Shell(stand.servers[0].folder, stand.servers[0].address)
            told = await asyncio.to_thread(
                operator, "shard", "drain", "2", within_s=WITHIN_S, PINLATER_ADMIN_PASSWORD=PASSWORD
            )
            assert "2" in told.out + told.err
            await is_drained_everywhere(stand, "2")
            await takes_no_new_jobs(load, "2")
            await clients[1].update_shard("2", PASSWORD, dequeue_only=False)
            await load.lands_on("2")
            for client in clients:
                status = await all_agree(client, PROCESSES)
                assert [each.id for each in status.shards] == list(OLD)
        assert load.errors(began_s) == []
        removed = {name for name in run.jobs() if shard_of(name) == NEW}
        assert removed
        assert not removed & {*run.open_jobs()}, "what it held was done"
        await all_is_right(clients[0], "mail", run, removed=removed)
