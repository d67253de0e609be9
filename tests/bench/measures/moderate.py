"""Processor time of server, worker and store for a job that comes alone, at 300 and at 30 a second, and for none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

from tests.bench.figures import AtMost, Figure, Goal
from tests.bench.measures.peers import STARTED_WITHIN_S, Stand, available
from tests.bench.peers.products import PRODUCTS, Product
from tests.bench.processes import CpuWatch
from tests.bench.run import PERSISTENCE, Run

SECONDS = 20.0
RATES = {300: 1.0, 30: 2.5}
"""Jobs per second, each a call of its own, and the goal for each in milliseconds."""

OURS, OTHERS = PRODUCTS[0], [product for product in PRODUCTS if product.name in ("celery", "dramatiq")]
STORES = ("sqlite", "redis", "mysql", "postgres")
IDLE_GOALS = {"server": 0.3, "worker": 0.2}


def measure(run: Run) -> Iterator[Figure]:
    for product in available(run, [*(replace(OURS, store=store) for store in STORES), *OTHERS]):
        idle: dict[str, list[float]] = {}
        costs: dict[int, list[float]] = {rate: [] for rate in RATES}
        spent: dict[int, dict[str, float]] = {}
        for _ in range(run.sizes.rounds):
            with ExitStack() as ending:
                stand = Stand(run, product, ["bench"], ending)
                stand.start_worker()
                stand.warm_up()
                for name, share in _idle(run, stand).items():
                    idle.setdefault(name, []).append(share)
                for rate, rounds in costs.items():
                    spent[rate] = _per_job_ms(run, stand, rate)
                    rounds.append(sum(spent[rate].values()))
        yield from _figures(run, product, idle, costs, spent)


def _figures(
    run: Run,
    product: Product,
    idle: dict[str, list[float]],
    costs: dict[int, list[float]],
    spent: dict[int, dict[str, float]],
) -> Iterator[Figure]:
    name = f"{product.name}, {product.store}"
    kept = PERSISTENCE[product.store]
    for process, shares in idle.items():
        goal = IDLE_GOALS.get(process) if product.is_ours else None
        goals: list[Goal] = [] if goal is None else [AtMost(goal)]
        yield Figure(f"moderate/idle {process}, {name}", "%", shares, goals, persistence=kept, notes="of a core")
    for rate, rounds in costs.items():
        shown = ", ".join(f"{process} {ms:.2f}" for process, ms in spent[rate].items())
        run.say(f"  {name}, {rate} jobs/s: {rounds[-1]:.2f} ms a job: {shown}")
        notes = f"a job, without its producer; worker and server at their defaults; each: {shown}"
        goals = [AtMost(RATES[rate])] if product.is_ours else []
        yield Figure(f"moderate/{rate} jobs/s, {name}", "ms", rounds, goals, persistence=kept, notes=notes)


def _idle(run: Run, stand: Stand) -> dict[str, float]:
    """The share of a core in % that each takes while nothing comes."""
    watch, seconds = CpuWatch(stand.pids), _seconds(run)
    watch.start()
    time.sleep(seconds)
    return {name: spent / seconds * 100 for name, spent in watch.stop().items()}


def _per_job_ms(run: Run, stand: Stand, rate: int) -> dict[str, float]:
    """What each takes for a job, its part in seeing that no other has come included."""
    before, jobs = len(stand.begun(0, 0)), round(rate * _seconds(run))
    watch = CpuWatch(stand.pids)
    watch.start()
    stand.produce(jobs, rate)
    begun = len(stand.begun(before + jobs, STARTED_WITHIN_S)) - before
    if begun < jobs:
        raise RuntimeError(f"{stand.product.name} began {begun} of {jobs} jobs")
    return {name: spent / jobs * 1000 for name, spent in watch.stop().items()}


def _seconds(run: Run) -> float:
    return max(3.0, SECONDS * run.sizes.scale)
