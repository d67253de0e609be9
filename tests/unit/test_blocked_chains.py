"""Serialize keys whose first job keeps others waiting: found by the owner of a shard, known to all servers."""

from __future__ import annotations

from dataclasses import asdict

from pinlater.backends.extended import Offer
from pinlater.cli.cluster import blocked_text
from pinlater.cluster.blocked_chains import BlockedChains
from pinlater.errors import NothingStored
from pinlater.model import BlockedChain, ClusterStatus, ExtendedJob, ShardView
from pinlater.web.pages import cluster_page
from tests.unit.cluster_stand import ClusterStand, Server, cluster_stand

MAX_WAITING = 3
MAX_AGE_MS = 3_600_000


def chains_of(server: Server) -> BlockedChains:
    return BlockedChains(
        server.members,
        server.membership,
        server.stats.published,
        server.clock,
        server.metrics,
        max_waiting=MAX_WAITING,
        max_age_ms=MAX_AGE_MS,
    )


async def fill(at: ClusterStand, key: str, jobs: int) -> str:
    """The descriptor of the first job."""
    offers = [Offer(ExtendedJob(b"", serialize_key=key))] * jobs
    return (await at.stores[0].enqueue_extended("mail", offers, at.clock.now_ms()))[0].descriptor


async def shown(server: Server) -> list[BlockedChain]:
    status = await server.cluster.status()
    return [chain for shard in status.shards for chain in shard.blocked_chains]


async def test_a_chain_is_shown_at_every_server_where_too_many_wait_or_for_too_long() -> None:
    async with cluster_stand() as at:
        owner, other = [await at.server(name) for name in "ab"]
        await owner.queues.create("mail", "me")
        await at.round()
        if not owner.mine():
            owner, other = other, owner
        chains, others = chains_of(owner), chains_of(other)
        since_ms = at.clock.now_ms()
        large = await fill(at, "large", MAX_WAITING + 1)
        small = await fill(at, "small", 2)
        await fill(at, "alone", 1)
        for each in (chains, others):
            await each.tick()
        assert await shown(other) == [BlockedChain("large", large, MAX_WAITING, since_ms)]
        assert owner.metrics.gauges["blocked_chains", "1"] == 1
        assert ("blocked_chains", "1") not in other.metrics.gauges
        at.clock.tick(MAX_AGE_MS)
        await at.round()
        await chains.tick()
        assert await shown(other) == [
            BlockedChain("large", large, MAX_WAITING, since_ms),
            BlockedChain("small", small, 1, since_ms),
        ]


async def test_what_is_blocked_no_more_is_shown_no_more() -> None:
    async with cluster_stand() as at:
        server = await at.server("a")
        await server.queues.create("mail", "me")
        await at.round()
        chains = chains_of(server)
        await fill(at, "large", MAX_WAITING + 1)
        await chains.tick()
        assert len(await shown(server)) == 1
        (shard,) = (await server.cluster.status(["mail"], lambda queue: queue != "mail")).shards
        assert shard.blocked_chains == []
        await server.queues.delete("mail", "me")
        await at.stores[0].prune(1_000, at.clock.now_ms(), server.queues.retention())
        at.clock.tick(1_001)
        await at.round()
        await chains.tick()
        assert await shown(server) == []
        assert server.metrics.gauges["blocked_chains", "1"] == 0


async def test_a_shard_that_does_not_answer_keeps_the_others_from_nothing() -> None:
    async with cluster_stand(2) as at:
        server = await at.server("a")
        await server.queues.create("mail", "me")
        await at.round()
        await fill(at, "large", MAX_WAITING + 1)
        server.reach[1].failures["blocked_chains"] = [NothingStored("no answer")] * 9
        await chains_of(server).tick()
        assert len(await shown(server)) == 1


def test_people_are_told_which_job_keeps_how_many_waiting_and_for_how_long() -> None:
    chain = BlockedChain("account-17", "mail:s1:p1:1790000000000000", 1_204, 0)
    assert blocked_text(chain, 2 * MAX_AGE_MS) == (
        "mail:s1:p1:1790000000000000 keeps 1,204 others of serialize key 'account-17' waiting, first for 2h"
    )
    assert "keeps 1 other of" in blocked_text(BlockedChain("a", "b", 1, 0), 0)
    shard = ShardView("1", "redis://a", "in", False, blocked_chains=[chain])
    page = cluster_page({**asdict(ClusterStatus(0, [], [shard], [])), "workers": None})
    assert "keeps 1,204 others of serialize key" in page
