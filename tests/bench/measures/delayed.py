"""How much later than its time a delayed job reaches a worker that waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.bench.figures import AtMost, Figure
from tests.bench.measures.pickup import quantile
from tests.bench.processes import Program, served
from tests.bench.run import PERSISTENCE, Run, stand

JOBS = 400
LATER_MS = "1000-5000"
AT_ONCE_LATER_MS = "4000-9000"


class _Case(NamedTuple):
    name: str
    store: str
    processes: int
    wait_first: bool = True


CASES = (
    _Case("redis", "redis", 1),
    _Case("redis, two processes", "redis", 2),
    _Case("redis, two processes, the worker comes later", "redis", 2, wait_first=False),
    _Case("sqlite", "sqlite", 1),
    _Case("sqlite, the worker comes later", "sqlite", 1, wait_first=False),
)


def measure(run: Run) -> Iterator[Figure]:
    for case in CASES:
        rounds = []
        for _ in range(run.sizes.rounds):
            rounds.append(times := _times(run, case))
            shown = f"p50 {quantile(times, 0.5):.2f} ms, p99 {quantile(times, 0.99):.2f} ms, first {min(times):.2f} ms"
            run.say(f"  {case.name}: {shown}")
        early = sum(each < 0 for times in rounds for each in times)
        about = f"{len(rounds[0])} jobs a round, enqueued {LATER_MS} ms ahead; handed out early: {early}"
        for share, goal in ((0.5, 2), (0.99, 5)):
            yield Figure(
                f"delayed/p{share * 100:.0f} {case.name}",
                "ms",
                [quantile(times, share) for times in rounds],
                [AtMost(goal)],
                persistence=PERSISTENCE[case.store],
                notes=about,
            )
        yield Figure(f"delayed/early {case.name}", "jobs", [early], [AtMost(0)], persistence=PERSISTENCE[case.store])


def _times(run: Run, case: _Case) -> list[float]:
    pace = {} if case.wait_first else {"wait_first": 0, "per_s": 500}
    later_ms = LATER_MS if case.wait_first else AT_ONCE_LATER_MS
    with stand(run, case.store) as store, served([store.fresh()], case.processes) as server:
        program = Program("pickup_worker", server=server.address, jobs=run.sizes.jobs(JOBS), later_ms=later_ms, **pace)
        program.go()
        times: list[float] = program.result()["ms"]
        return times
