"""Jobs in groups beside those without: whole cycles, waits beside a flood, limits, and many groups."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple

from pinlater.backends.base import ClaimRequest
from pinlater.backends.extended import Offer
from pinlater.model import MAX_QUEUES, ExtendedJob
from tests.bench.cycle_client import GROUPS, QUEUE
from tests.bench.figures import AtMost, Figure, OfFloor
from tests.bench.fill import now_ms
from tests.bench.measures import keyed
from tests.bench.measures.pickup import quantile
from tests.bench.processes import Program, served
from tests.bench.queues_stand import WITH_PASSWORD
from tests.bench.run import PERSISTENCE, Run, Stand, stand
from tests.queues import make_queue

CYCLES = keyed.Case("cycle with groups", "group", "cycle_client")
CYCLE_STORES = ("redis", "sqlite", "mysql", "postgres")
CYCLES_GOAL = OfFloor(0.67)

LIMITED_CYCLES = keyed.Case("cycle with groups that have a maximum", "limited", "cycle_client")
LIMITED_CYCLES_GOAL = OfFloor(0.5)
LIMITED_STORES = ("redis", "sqlite")
LIMITED_SHARDS = 20
"""Each on a server of its own: what is published in one database of a Redis server is heard in all others."""

LIMITED_JOBS, MOST, RUN_MS, SLOTS = 500, 5, 100, 20

ALIVE, CLAIMS, BATCH = 100_000, 300, 100


class _Flooded(NamedTuple):
    name: str
    slots: int
    run_ms: int
    calm_per_s: int
    calm_jobs: int
    calm_groups: int
    more_ms: float
    """A calm job may wait so much longer than without the flood."""

    def flood(self, jobs: int) -> int:
        """Jobs that keep all slots busy until so many calm ones have come, and as long again."""
        return 2 * jobs * self.slots * 1000 // (self.run_ms * self.calm_per_s)


CASES = (
    _Flooded("one tenant", 100, 100, 30, 1_000, 1, more_ms=3),
    _Flooded("1,000 quiet tenants", 20, 10, 400, 4_000, 1_000, more_ms=20),
)

APART = _Flooded("999 quiet tenants in one queue", 20, 10, 200, 2_000, MAX_QUEUES - 1, more_ms=0)


def measure(run: Run) -> Iterator[Figure]:
    for name in CYCLE_STORES:
        with stand(run, name) as store:
            yield _cycles(run, store, CYCLES, CYCLES_GOAL)
            yield _cycles(run, store, LIMITED_CYCLES, LIMITED_CYCLES_GOAL)
    for name in ("redis", "sqlite"):
        for case in CASES:
            for shards in (1, 4):
                yield _waits(run, name, case, shards)
    for name in ("redis", "sqlite"):
        yield _beside_queues(run, name)
    for name in LIMITED_STORES:
        yield _at_its_maximum(run, name)
    for name in CYCLE_STORES:
        yield _many_alive(run, name)


def _cycles(run: Run, store: Stand, case: keyed.Case, goal: OfFloor) -> Figure:
    figure = keyed.beside_plain(run, store, case, goal)
    return replace(figure, name=f"fairness/{case.name} {store.name}", notes=f"{GROUPS} groups in turn, by 100")


def _waits(run: Run, name: str, case: _Flooded, shards: int) -> Figure:
    beside, idle = list[float](), list[float]()
    for number in range(run.sizes.rounds):
        idle.append(_p99(run, name, case, shards, flooded=False))
        beside.append(_p99(run, name, case, shards, flooded=True))
        run.say(f"  {name}, {case.name}, {shards} shards, round {number + 1}: {beside[-1]:.1f} ms, idle {idle[-1]:.1f}")
    return Figure(
        f"fairness/p99 beside a flood, {case.name} {name}, {shards} shards",
        "ms",
        beside,
        [AtMost(round(statistics.median(idle) + case.more_ms, 1))],
        idle,
        "the same without the flood",
        persistence=PERSISTENCE[name],
        notes=f"{case.slots} slots, jobs of {case.run_ms} ms, {case.calm_per_s} calm ones a second",
    )


def _beside_queues(run: Run, name: str) -> Figure:
    """The loop that one writes without groups: a queue for each tenant, and one dequeue from all of them."""
    grouped, queued = list[float](), list[float]()
    for number in range(run.sizes.rounds):
        queued.append(_p99(run, name, APART, 1, flooded=True, apart="queues"))
        grouped.append(_p99(run, name, APART, 1, flooded=True))
        run.say(f"  {name}, {APART.name}, round {number + 1}: {grouped[-1]:.1f} ms, by queues {queued[-1]:.1f}")
    return Figure(
        f"fairness/p99 beside a flood, {APART.name} {name}",
        "ms",
        grouped,
        [AtMost(round(statistics.median(queued), 1))],
        queued,
        "a queue for each tenant, and dequeueFromQueues",
        persistence=PERSISTENCE[name],
        notes=f"{APART.slots} slots, jobs of {APART.run_ms} ms, {APART.calm_per_s} calm ones a second",
    )


def _p99(run: Run, name: str, case: _Flooded, shards: int, *, flooded: bool, apart: str = "groups") -> float:
    jobs = run.sizes.jobs(case.calm_jobs)
    with stand(run, name) as store, served([store.fresh() for _ in range(shards)], 1) as server:
        load = Program(
            "slots_client",
            server=server.address,
            slots=case.slots,
            run_ms=case.run_ms,
            flood=case.flood(jobs) if flooded else 0,
            jobs=jobs,
            calm_groups=case.calm_groups,
            per_s=case.calm_per_s,
            apart=apart,
        )
        load.go()
        result = load.result()
    if flooded and not result["flood_left"]:
        raise RuntimeError("the flood ended before the calm jobs")
    return quantile(result["ms"], 0.99)


def _at_its_maximum(run: Run, name: str) -> Figure:
    """A group whose backlog lies on many shards, and no more of it runs at once than its maximum."""
    rates = list[float]()
    for number in range(run.sizes.rounds):
        with ExitStack() as stack:
            urls = [stack.enter_context(stand(run, name, number)).fresh() for number in range(LIMITED_SHARDS)]
            server = stack.enter_context(served(urls, 1, options=WITH_PASSWORD))
            shape = {"jobs": run.sizes.jobs(LIMITED_JOBS), "concurrency": MOST, "slots": SLOTS, "run_ms": RUN_MS}
            load = Program("limited_client", server=server.address, **shape)
            load.go()
            result = load.result()
        if result["most"] != MOST:
            raise RuntimeError(
                f"{result['most']} jobs of the group were in progress at once, and its maximum is {MOST}"
            )
        rates.append(result["jobs"] / result["seconds"])
        run.say(f"  {name}, a group at its maximum, round {number + 1}: {rates[-1]:.1f} jobs/s, {MOST} at once")
    return Figure(
        f"fairness/a group at its maximum {name}, {LIMITED_SHARDS} shards",
        "jobs/s",
        rates,
        [OfFloor(0.9)],
        [MOST * 1000 / RUN_MS] * len(rates),
        "the most that there can be",
        persistence=PERSISTENCE[name],
        notes=f"{MOST} jobs of {RUN_MS} ms at once and never more, {SLOTS} slots",
    )


def _many_alive(run: Run, name: str) -> Figure:
    """Claims of one job each, of a queue whose jobs have as many groups as there are jobs, and of one with few."""
    few, many = list[float](), list[float]()
    jobs = run.sizes.jobs(ALIVE)
    for number in range(run.sizes.rounds):
        with stand(run, name) as store:
            few.append(asyncio.run(_claims_ms(store, GROUPS, jobs)))
            many.append(asyncio.run(_claims_ms(store, jobs, jobs)))
        run.say(f"  {name}, {jobs:,} groups alive, round {number + 1}: {many[-1] / few[-1]:.2f} times {GROUPS}")
    return Figure(
        f"fairness/a claim with {jobs:,} groups alive {name}",
        "x",
        [of_many / of_few for of_few, of_many in zip(few, many, strict=True)],
        [AtMost(1.2)],
        persistence=PERSISTENCE[name],
        notes=f"beside {GROUPS} groups with as many jobs in all; a claim takes {statistics.median(few):.2f} and "
        f"{statistics.median(many):.2f} ms",
    )


async def _claims_ms(store: Stand, groups: int, jobs: int) -> float:
    """The milliseconds of a claim."""
    shard = store.shard(store.fresh())
    await shard.open()
    try:
        at_ms = now_ms()
        await make_queue(shard, QUEUE, at_ms)
        for start in range(0, jobs, BATCH):
            named = [f"g{place % groups}" for place in range(start, start + BATCH)]
            offers = [Offer(ExtendedJob(b"", group=group, run_after_ms=at_ms)) for group in named]
            await shard.enqueue_extended(QUEUE, offers, at_ms)
        began_s = time.perf_counter()
        for number in range(CLAIMS):
            request = ClaimRequest(f"claim {number}", 1, (1,), 60_000, 1_000)
            (claimed,) = await shard.claim(QUEUE, [request], at_ms)
            assert len(claimed) == 1
        return (time.perf_counter() - began_s) * 1000 / CLAIMS
    finally:
        await shard.close()
