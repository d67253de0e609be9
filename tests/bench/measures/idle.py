"""Processor time of a server at which 500 workers wait for jobs that do not come."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from tests.bench.figures import AtMost, Figure, Goal
from tests.bench.processes import CpuWatch, Program, served
from tests.bench.run import PERSISTENCE, Run, stand

WORKERS = 500
SECONDS = 10.0


class _Case(NamedTuple):
    store: str
    processes: int
    queues: int
    goals: tuple[Goal, ...] = (AtMost(5),)

    @property
    def name(self) -> str:
        return f"{self.store}, {self.queues} queue{'s' if self.queues > 1 else ''}"


CASES = (
    _Case("redis", 2, 1),
    _Case("redis", 2, 50),
    _Case("sqlite", 1, 50),
    _Case("mysql", 2, 1),
    _Case("mysql", 2, 50),
)


def measure(run: Run) -> Iterator[Figure]:
    for case in CASES:
        shares = [_shares(run, case) for _ in range(run.sizes.rounds)]
        shown = ", ".join(f"{name} {share:.2f}" for name, share in shares[-1].items())
        run.say(f"  {case.name}: {sum(shares[-1].values()):.2f} % of a core: {shown}")
        yield Figure(
            f"idle/{case.name}",
            "%",
            [sum(each.values()) for each in shares],
            case.goals,
            persistence=PERSISTENCE[case.store],
            notes=f"of a core, server and store; {WORKERS} connections, {case.processes} processes; each: {shown}",
        )


def _shares(run: Run, case: _Case) -> dict[str, float]:
    """In % of a core, by process."""
    with stand(run, case.store) as store, served([store.fresh()], case.processes) as server:
        program = Program("idle_workers", server=server.address, workers=WORKERS, queues=case.queues)
        watch = CpuWatch({**store.pids, **server.pids(), "supervisor": server.supervisor})
        program.go()
        watch.start()
        began = time.monotonic()
        time.sleep(SECONDS * max(0.5, run.sizes.scale))
        spent, seconds = watch.stop(), time.monotonic() - began
        program.go()
        program.result()
        return {name: each / seconds * 100 for name, each in spent.items()}
