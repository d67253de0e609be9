"""A shard that is given up: what was at home there, and goes on elsewhere."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.model import JobFilter, JobState, RequestContext, ScheduleChange
from tests.simulation import virtual_time
from tests.simulation.cluster import PASSWORD, Cluster
from tests.simulation.network import Way

pytestmark = pytest.mark.usefixtures("quiet_servers")

QUEUE, ME = "reports", RequestContext("me")
SCHEDULES = [f"report-{number}" for number in range(12)]
"""Some of which are at home on each shard."""

EVERY_S = 60


async def firings(cluster: Cluster) -> dict[str, str]:
    """The jobs of schedules that servers can reach, by their schedules and times."""
    server = cluster.servers[0]
    page = await cluster.call(server, server.service.scan(JobFilter(QUEUE, JobState.PENDING), limit=1000))
    names = [info.descriptor for info in page.jobs]
    found = await cluster.call(server, server.service.lookup(names, context=ME))
    return {str(info.dedupe_key): name for name, info in found.items()}


async def restart(cluster: Cluster) -> None:
    """All servers, one after the other."""
    for server in list(cluster.servers):
        await cluster.stop(server)
        await cluster.start(server.name)
        await asyncio.sleep(2)


async def given_up(begins_while_it_is_out: bool) -> tuple[dict[str, str], dict[str, str], str]:
    """The firings before and after, and the id of the shard that was given up between two times."""
    cluster = Cluster(3)
    await cluster.start_all(2)
    server = cluster.servers[0]
    await cluster.call(server, server.service.create_queue(QUEUE))
    await asyncio.sleep(1)
    for name in SCHEDULES:
        change = ScheduleChange(name=name, queue=QUEUE, every_ms=1_000 * EVERY_S, body=b"x")
        await cluster.call(server, server.service.update_schedule(change, PASSWORD, context=ME))
    await asyncio.sleep(3.2 * EVERY_S)
    before = await firings(cluster)
    lost = cluster.shard_ids[1]
    cluster.network.cut_store(lost, Way.REFUSED)
    cluster.shard_ids.remove(lost)
    await asyncio.sleep(5)
    if begins_while_it_is_out:
        await cluster.stop(cluster.servers[1])
        await cluster.start("q2")
        await asyncio.sleep(5)
    server = cluster.servers[0]
    await cluster.call(server, server.service.update_shard(lost, PASSWORD, dequeue_only=True, give_up=True, context=ME))
    await asyncio.sleep(5)
    await restart(cluster)
    await asyncio.sleep(EVERY_S)
    after = await firings(cluster)
    await cluster.close()
    return before, after, lost


@pytest.mark.parametrize("begins_while_it_is_out", [False, True])
def test_no_time_of_a_schedule_fires_again_when_its_home_was_given_up(begins_while_it_is_out: bool) -> None:
    """Also not where servers are restarted before the next time, or were, while its mark could not be read."""
    before, after, lost = virtual_time.run(given_up(begins_while_it_is_out), 1)
    gone = {key.rpartition("/")[0] for key, name in before.items() if f":s{lost}:" in name}
    assert gone
    assert len(before) == 3 * len(SCHEDULES)
    assert {key: (before[key], after[key]) for key in before.keys() & after.keys() if before[key] != after[key]} == {}
    assert gone <= {key.rpartition("/")[0] for key in after.keys() - before.keys()}, "they go on"
