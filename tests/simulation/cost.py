"""What a cluster costs while its callers want nothing, and what one job costs then: calls of stores, counted.

On every server a worker waits for jobs of one queue. First nothing happens; then jobs come one at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass

from pinlater.errors import PinLaterError
from pinlater.model import Ack, DequeueRequest, Job, RequestContext
from tests.simulation import virtual_time
from tests.simulation.cluster import Cluster
from tests.simulation.server import SimulatedServer

QUEUE = "mail"
ME = RequestContext("worker")
SETTLE_S, JOBS, APART_S = 4.0, 10, 0.3

PARTS = {
    "leases": {"kv_put lease", "kv_list lease"},
    "config": {"list_config"},
    "pings": {"ping"},
    "polls": {"next_due"},
    "maintenance": {"expire_claims", "expire_jobs", "prune", "stats", "blocked_chains", "kv_put census"},
}
"""What each kind of calls is for."""


@dataclass
class Cost:
    """Calls a second in all, by what they are for, while nothing happens; and what one job adds to them."""

    servers: int
    shards: int
    notifies: bool
    per_s: dict[str, float]
    lease_bytes_per_s: float
    job_calls: dict[str, float]
    """By operation."""
    job_notifications: float
    busy: float
    """The part of a core that one process takes while nothing happens, with the simulation of its stores."""


def cost(servers: int, shards: int, *, notifies: bool = True, seconds: float = 10.0, seed: int = 1) -> Cost:
    return virtual_time.run(_cost(servers, shards, notifies, seconds), seed)


async def _cost(servers: int, shards: int, notifies: bool, seconds: float) -> Cost:
    cluster = Cluster(shards, notifies=notifies)
    await cluster.start_all(servers)
    await cluster.servers[0].service.create_queue(QUEUE)
    await asyncio.sleep(1)
    loop, tally = asyncio.get_running_loop(), cluster.network.tally
    workers = [loop.create_task(_work(server)) for server in cluster.servers]
    await asyncio.sleep(SETTLE_S)
    before, bytes_before, busy_before_s = _counts(cluster), _lease_bytes(cluster), time.process_time()
    await asyncio.sleep(seconds)
    idle, busy_s = _counts(cluster) - before, time.process_time() - busy_before_s
    lease_bytes = _lease_bytes(cluster) - bytes_before
    before, notified = _counts(cluster), tally.notifications.total()
    for _ in range(JOBS):
        await cluster.servers[0].service.enqueue(QUEUE, [Job(b"")], context=RequestContext("producer"))
        await asyncio.sleep(APART_S)
    jobs, notifications = _counts(cluster) - before, tally.notifications.total() - notified
    for task in workers:
        task.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    await cluster.close()
    usual = {name: calls * JOBS * APART_S / seconds for name, calls in idle.items()}
    job_calls = {name: max(0.0, calls - usual.get(name, 0.0)) / JOBS for name, calls in jobs.items()}
    for_jobs = ("enqueue", "count_ready", "claim", "ack", "next_due")
    return Cost(
        servers,
        shards,
        notifies,
        {part: sum(idle[name] for name in names) / seconds for part, names in PARTS.items()},
        lease_bytes / seconds,
        {name: round(job_calls.get(name, 0.0), 1) for name in for_jobs},
        notifications / JOBS,
        busy_s / seconds / servers,
    )


def _counts(cluster: Cluster) -> Counter[str]:
    return cluster.network.tally.by_operation()


def _lease_bytes(cluster: Cluster) -> int:
    return sum(store.kv_bytes for store in cluster.stores)


async def _work(server: SimulatedServer) -> None:
    while True:
        try:
            jobs = await server.service.dequeue(DequeueRequest(QUEUE, 1, wait_ms=60_000), context=ME)
            if jobs:
                await server.service.ack(QUEUE, [Ack(job.descriptor) for job in jobs], [], context=ME)
        except PinLaterError:
            await asyncio.sleep(0.1)


def table(costs: list[Cost]) -> str:
    """One line for each: calls a second of a server and of a shard, and what a job adds."""
    lines = [
        f"{'servers x shards':>16} {'stores':>10} | {'calls/s: per server, per shard, in all':^129} | {'MB/s of':>8} | "
        "core | calls for one job",
        f"{'':>16} {'':>10} | " + " ".join(f"{part:>25}" for part in PARTS) + f" | {'leases':>8} | each |",
    ]
    for each in costs:
        parts = " ".join(
            f"{rate / each.servers:8.1f} {rate / each.shards:7.1f} {rate:8.0f}" for rate in each.per_s.values()
        )
        told = "notify" if each.notifies else "are polled"
        lines.append(
            f"{each.servers:>7} x {each.shards:>6} {told:>10} | {parts} | {each.lease_bytes_per_s / 1e6:8.2f} | "
            f"{each.busy:4.2f} | {each.job_calls} and {each.job_notifications:.0f} notifications"
        )
    return "\n".join(lines)
