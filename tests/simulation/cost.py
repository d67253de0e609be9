"""What a cluster costs while its callers want nothing, and what jobs cost then: calls of stores, counted.

On every server a worker waits for jobs of one queue. First nothing happens; then jobs come, as `LOADS` says.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from tests.simulation import virtual_time
from tests.simulation.calls import IDLE, POLLS, for_jobs, number, per
from tests.simulation.cluster import Cluster
from tests.simulation.job_cost import LOADS, QUEUE, JobCost, Meter, Workers

SETTLE_S, LONE_JOBS = 4.0, 10


@dataclass(frozen=True)
class Cost:
    """What a cluster of a size costs. `per_s`: calls a second in all, by what they are for, while nothing happens."""

    servers: int
    shards: int
    notifies: bool
    per_s: Mapping[str, float]
    others_per_s: Mapping[str, float]
    """By operation, those of which it is not known what they are for."""
    lease_bytes_per_s: float
    jobs: Mapping[str, JobCost]
    """By their rate."""
    busy: float
    """The part of a core that one process takes while nothing happens, with the simulation of its stores."""
    virtual_s: float
    processor_s: float
    """Both of the whole run."""

    @property
    def job_calls(self) -> dict[str, float]:
        """Of a job that comes alone, by operation."""
        calls = self.jobs["lone"].calls
        return {name: round(calls.get(name, 0.0), 1) for name in ("enqueue", "count_ready", "claim", "ack", "next_due")}


def cost(
    servers: int,
    shards: int,
    *,
    notifies: bool = True,
    seconds: float = 10.0,
    seed: int = 1,
    jobs: Mapping[str, int] | None = None,
) -> Cost:
    """Nothing happens for so long; then jobs come, so many at each of these rates (of a backlog: dequeues of each
    worker), or some that come alone.
    """
    return virtual_time.run(_cost(servers, shards, notifies, seconds, jobs or {"lone": LONE_JOBS}), seed)


async def _cost(servers: int, shards: int, notifies: bool, seconds: float, jobs: Mapping[str, int]) -> Cost:
    began_s, loop = time.process_time(), asyncio.get_running_loop()
    cluster = Cluster(shards, notifies=notifies)
    await cluster.start_all(servers)
    await cluster.servers[0].service.create_queue(QUEUE)
    await asyncio.sleep(1)
    workers = Workers(cluster)
    workers.start()
    await asyncio.sleep(SETTLE_S)
    meter, bytes_before, busy_before_s = Meter(cluster), _lease_bytes(cluster), time.process_time()
    await asyncio.sleep(seconds)
    idle, busy_s = per(meter.calls(), seconds), time.process_time() - busy_before_s
    lease_bytes = _lease_bytes(cluster) - bytes_before
    job_costs = {rate: await LOADS[rate](cluster, workers, amount, idle) for rate, amount in jobs.items()}
    await workers.stop()
    virtual_s = loop.time()
    await cluster.close()
    return Cost(
        servers,
        shards,
        notifies,
        {part: number(idle, names) for part, names in IDLE.items()},
        {name: rate for name, rate in for_jobs(idle).items() if name not in POLLS},
        lease_bytes / seconds,
        job_costs,
        busy_s / seconds / servers,
        virtual_s,
        time.process_time() - began_s,
    )


def _lease_bytes(cluster: Cluster) -> int:
    return sum(store.kv_bytes for store in cluster.stores)


def table(costs: list[Cost]) -> str:
    """One line for each: calls a second of a server and of a shard, and what a job adds."""
    lines = [
        f"{'servers x shards':>16} {'stores':>10} | {'calls/s: per server, per shard, in all':^155} | {'MB/s of':>8} | "
        "core | calls for one job",
        f"{'':>16} {'':>10} | " + " ".join(f"{part:>25}" for part in IDLE) + f" | {'leases':>8} | each |",
    ]
    for each in costs:
        parts = " ".join(
            f"{rate / each.servers:8.1f} {rate / each.shards:7.1f} {rate:8.0f}" for rate in each.per_s.values()
        )
        told = "notify" if each.notifies else "are polled"
        lines.append(
            f"{each.servers:>7} x {each.shards:>6} {told:>10} | {parts} | {each.lease_bytes_per_s / 1e6:8.2f} | "
            f"{each.busy:4.2f} | {each.job_calls} and {each.jobs['lone'].messages:.0f} notifications"
        )
    return "\n".join(lines)
