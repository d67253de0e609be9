"""What happens to a simulated cluster, and what must hold meanwhile.

Every scenario runs the same load: producers and workers of one queue, some jobs for later. It settles for three
seconds, something breaks or is changed for fifteen, and then all is well again, until every job is done.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from tests.simulation import virtual_time
from tests.simulation.cluster import Cluster
from tests.simulation.load import Ledger, Load, LoadSettings
from tests.simulation.network import CALL_S, Way

SETTLE_S, TROUBLE_S, FINISH_S = 3.0, 15.0, 60.0
CLAIM_TIMEOUT = "10s"
OWNED_AGAIN_S = 6.0
"""A lease of 5 s that was renewed just before its server died, and how often the watch looks."""

GIVEN_UP_S = 15.0
"""Where the owner lives, and its calls of the shard hang: three pings, of which each waits 2 s and comes 1 s after the
one before, the pings of others that wait for theirs, and the next renewal of the lease that says so."""

USED_AGAIN_S = 45.0
"""The longest pause of a shard that was out for so long, what it takes until that is over, and the pings after it."""

QUEUE, LIMITED, PACED = "mail", "limited", "paced"
MAXIMUM, PER_S = 12, 20


@dataclass
class Outcome:
    """The result of one run. `violations` is empty where all held that must."""

    scenario: str
    servers: int
    shards: int
    seed: int
    trace: str
    virtual_s: float
    jobs: int
    violations: list[str]
    errors: Mapping[str, int]
    """Of callers."""
    longest_unowned_s: float
    used_again_s: float
    """How long after all was well until every server used every shard."""
    enqueue_p50_ms: float
    enqueue_max_ms: float
    calls: Counter[str] = field(default_factory=Counter)
    """Of stores, by operation."""
    notifications: int = 0


@dataclass
class Trouble:
    """A cluster under load, while it is in trouble."""

    cluster: Cluster
    ledger: Ledger
    servers: int
    loads: list[Load]

    async def crash(self) -> None:
        """A quarter of the servers die at once; they are started again eight seconds later."""
        dying = self.cluster.servers[: max(1, self.servers // 4)]
        for server in dying:
            self.cluster.kill(server)
        await asyncio.sleep(8)
        for server in dying:
            await self.cluster.start(server.name)

    async def rolling_restart(self) -> None:
        """Each server drains and is started again, one after the other."""
        for server in list(self.cluster.servers):
            await self.cluster.stop(server)
            await self.cluster.start(server.name)
            await asyncio.sleep(TROUBLE_S / self.servers)

    async def partition(self) -> None:
        """A quarter of the servers reach no store any more, another quarter every second one only."""
        quarter, ids = max(1, self.servers // 4), list(self.cluster.network.stores)
        for server in self.cluster.servers[:quarter]:
            for shard_id in ids:
                self.cluster.network.cut(server.process, shard_id, Way.LOST)
        for server in self.cluster.servers[quarter : 2 * quarter]:
            for shard_id in ids[::2]:
                self.cluster.network.cut(server.process, shard_id, Way.LOST)
        await asyncio.sleep(TROUBLE_S)

    async def dead_shards(self) -> None:
        """A sixth of the stores refuse every connection."""
        for shard_id in self.cluster.some_shards(1 / 6):
            self.cluster.network.cut_store(shard_id, Way.REFUSED)
        await asyncio.sleep(TROUBLE_S)

    async def hanging_shards(self) -> None:
        """A sixth of the stores answer nothing."""
        for shard_id in self.cluster.some_shards(1 / 6):
            self.cluster.network.cut_store(shard_id, Way.LOST)
        await asyncio.sleep(TROUBLE_S)

    async def slow_shards(self) -> None:
        """A sixth of the stores take 0.2 s for each call, one after the other."""
        for shard_id in self.cluster.some_shards(1 / 6):
            self.cluster.network.slow[shard_id] = 0.2 / CALL_S
        await asyncio.sleep(TROUBLE_S)

    async def limits(self) -> None:
        """A queue with a maximum in progress and one with a rate, while a store dies and a server crashes."""
        others = [
            Load(self.cluster, self.ledger, LoadSettings(LIMITED, 1, 5, 0.25, 0.0, 8, 2, 0.4)),
            Load(self.cluster, self.ledger, LoadSettings(PACED, 1, 12, 0.5, 0.0, 4, 5, 0.02)),
        ]
        self.loads += others
        for load in others:
            load.start()
        await asyncio.sleep(TROUBLE_S / 2)
        self.cluster.network.cut_store(self.cluster.some_shards(0.0)[0], Way.REFUSED)
        self.cluster.kill(self.cluster.servers[0])
        await asyncio.sleep(TROUBLE_S / 2)
        self.ledger.violations += rate_violations(self.ledger.handed_out.get(PACED, []), PER_S)

    async def none(self) -> None:
        """Nothing happens."""
        await asyncio.sleep(TROUBLE_S)


SCENARIOS: Mapping[str, Callable[[Trouble], Awaitable[None]]] = {
    "steady": Trouble.none,
    "crash": Trouble.crash,
    "rolling": Trouble.rolling_restart,
    "partition": Trouble.partition,
    "dead": Trouble.dead_shards,
    "hanging": Trouble.hanging_shards,
    "slow": Trouble.slow_shards,
    "limits": Trouble.limits,
}


def rate_violations(times_s: list[float], per_s: float) -> list[str]:
    """More than 5 % above the rate in ten seconds, beside a second's worth for a change of shard, or more than twice
    the rate in one.
    """
    found = []
    for seconds, most in ((10, per_s * 10 * 1.05 + per_s), (1, 2 * per_s)):
        for place, end_s in enumerate(times_s):
            handed_out = sum(end_s - seconds < each <= end_s for each in times_s[max(0, place - 10_000) : place + 1])
            if handed_out > most:
                found.append(f"{handed_out} jobs were handed out in {seconds} s, not {most:.0f} at most")
                break
    return found


def simulate(scenario: str, servers: int, shards: int, seed: int, *, notifies: bool = True) -> Outcome:
    """One run, in virtual time."""
    return virtual_time.run(_simulate(scenario, servers, shards, seed, notifies), seed)


async def _simulate(scenario: str, servers: int, shards: int, seed: int, notifies: bool) -> Outcome:
    cluster, ledger = Cluster(shards, notifies=notifies), Ledger()
    await cluster.start_all(servers)
    await _make_queues(cluster)
    load = Load(cluster, ledger, LoadSettings(QUEUE, producers=max(2, servers // 4), workers=max(4, servers)))
    load.start()
    trouble = Trouble(cluster, ledger, servers, [load])
    await asyncio.sleep(SETTLE_S)
    cluster.watch()
    began_s = asyncio.get_running_loop().time()
    await SCENARIOS[scenario](trouble)
    ended_s = asyncio.get_running_loop().time()
    cluster.network.heal()
    used_again_s = await cluster.until_all_is_used(USED_AGAIN_S)
    await asyncio.sleep(SETTLE_S)
    for load in trouble.loads:
        await load.stop_producing()
    left = await _until_done(cluster)
    violations = [*ledger.violations, *cluster.violations, *left]
    violations += [f"{name} is lost" for name in sorted(ledger.undone())]
    if cluster.longest_unowned_s > (GIVEN_UP_S if scenario in ("partition", "hanging", "slow") else OWNED_AGAIN_S):
        violations.append(f"a shard had no owner for {cluster.longest_unowned_s:.1f} s")
    virtual_s = asyncio.get_running_loop().time()
    for load in trouble.loads:
        await load.stop()
    await cluster.close()
    took = sorted(each.took_s * 1000 for each in ledger.enqueues if began_s <= each.began_s <= ended_s) or [0.0]
    return Outcome(
        scenario,
        servers,
        shards,
        seed,
        cluster.network.tally.hash(),
        virtual_s,
        len(ledger.due_ms),
        violations,
        dict(ledger.errors),
        cluster.longest_unowned_s,
        used_again_s,
        took[len(took) // 2],
        took[-1],
        cluster.network.tally.by_operation(),
        sum(cluster.network.tally.notifications.values()),
    )


async def _make_queues(cluster: Cluster) -> None:
    """Jobs that were done go at once: what is left in the stores at the end was not done."""
    queues = cluster.servers[0].queues
    common = {"succeeded_ttl": "0s", "claim_timeout": CLAIM_TIMEOUT}
    await queues.change(QUEUE, common, (), True, "operator")
    await queues.change(LIMITED, {**common, "max_in_progress": str(MAXIMUM)}, (), True, "operator")
    await queues.change(PACED, {**common, "max_jobs_per_second": f"{PER_S}/s"}, (), True, "operator")
    cluster.maxima[LIMITED] = MAXIMUM
    await asyncio.sleep(1)


async def _until_done(cluster: Cluster) -> list[str]:
    """Until no job is left; those of queues without workers do not count. What is left then."""
    left: list[str] = []
    for _ in range(round(FINISH_S)):
        left = [job for store in cluster.stores for job in store.live_jobs()]
        if not left:
            break
        await asyncio.sleep(1)
    return [f"{each} is left at the end" for each in sorted(left)]
