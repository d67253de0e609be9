"""How long a job takes from the enqueue call to a worker that waits for it, at 50 jobs a second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from tests.bench.figures import AtMost, Figure, Goal
from tests.bench.processes import CpuWatch, Program, per_job, served
from tests.bench.run import PERSISTENCE, Run, stand

JOBS = 400
SOON: tuple[Goal, Goal] = (AtMost(0.8), AtMost(2))
FLUSHED: tuple[Goal, Goal] = (AtMost(3), AtMost(8))
POLLED: tuple[Goal, Goal] = (AtMost(50), AtMost(50))


class _Case(NamedTuple):
    store: str
    processes: int
    servers: int
    goals: tuple[Goal, Goal]
    shards: int = 1
    """Places of each store."""

    stores: int = 1

    @property
    def name(self) -> str:
        others = {(1, 1): "", (2, 1): ", two processes", (1, 2): ", two servers", (1, 4): ", four servers"}
        shards = self.shards * self.stores
        return self.store + others[self.processes, self.servers] + (f", {shards} shards" if shards > 1 else "")


CASES = (
    _Case("redis", 1, 1, SOON),
    _Case("redis", 2, 1, SOON),
    _Case("redis", 1, 2, SOON),
    _Case("redis", 1, 1, SOON, shards=4),
    _Case("redis", 1, 4, SOON, shards=4),
    _Case("redis", 1, 4, SOON, shards=8, stores=4),
    _Case("sqlite", 1, 1, SOON),
    _Case("postgres", 1, 1, FLUSHED),
    _Case("mysql", 1, 1, FLUSHED),
    _Case("mysql", 2, 1, POLLED),
)


def measure(run: Run) -> Iterator[Figure]:
    for case in CASES:
        rounds, cpu = [], {}
        for _ in range(run.sizes.rounds):
            times, cpu = _times(run, case)
            rounds.append(times)
            run.say(f"  {case.name}: p50 {quantile(times, 0.5):.2f} ms, p99 {quantile(times, 0.99):.2f} ms")
        for share, goal in zip((0.5, 0.99), case.goals, strict=True):
            yield Figure(
                f"pickup/p{share * 100:.0f} {case.name}",
                "ms",
                [quantile(times, share) for times in rounds],
                [goal],
                cpu_us=cpu,
                persistence=PERSISTENCE[case.store],
                notes=f"{len(rounds[0])} jobs a round, 50 a second; until the program that waits has the job",
            )


def _times(run: Run, case: _Case) -> tuple[list[float], dict[str, float]]:
    with ExitStack() as ending:
        stores = [ending.enter_context(stand(run, case.store, number)) for number in range(case.stores)]
        urls = [store.fresh() for store in stores for _ in range(case.shards)]
        servers = [ending.enter_context(served(urls, case.processes)) for _ in range(case.servers)]
        pids = [pid for server in servers for pid in server.pids().values()]
        enqueue_at = servers[-1].address
        program = Program("pickup_worker", server=servers[0].address, enqueue_at=enqueue_at, jobs=run.sizes.jobs(JOBS))
        stores_pids = [pid for store in stores for pid in store.pids.values()]
        watched = {f"store {number}": pid for number, pid in enumerate(stores_pids, 1)}
        watch = CpuWatch(watched | {f"server {number}": pid for number, pid in enumerate(pids, 1)})
        watch.start()
        program.go()
        times = program.result()["ms"]
        return times, per_job(watch.stop(), len(times))


def quantile(times: Sequence[float], share: float) -> float:
    """The smallest that so many are not above."""
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]
