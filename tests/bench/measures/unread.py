"""How long small calls take while 30 connections ask for 100 MB of bodies each and read nothing.

The caller beside them stores, takes and acks small jobs, from the same address.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.figures import AtMost, Figure
from tests.bench.measures.pickup import quantile
from tests.bench.processes import Program, served
from tests.bench.run import PERSISTENCE, STORES, Run, stand

CYCLES = 1_000
P99 = AtMost(200)
SHARES = {"p50": 0.5, "p99": 0.99, "max": 1.0}


def measure(run: Run) -> Iterator[Figure]:
    for name in STORES:
        rounds = []
        for _ in range(run.sizes.rounds):
            times = _times(run, name)
            rounds.append(times)
            run.say(f"  {name}: " + ", ".join(f"{what} {quantile(times, at):.1f} ms" for what, at in SHARES.items()))
        for what, share in SHARES.items():
            yield Figure(
                f"unread/{what} {name}",
                "ms",
                [quantile(times, share) for times in rounds],
                [P99] if what == "p99" else [],
                persistence=PERSISTENCE[name],
                notes=f"{len(rounds[0])} calls a round; 30 connections send ten lookups of ten bodies of 1 MB each",
            )


def _times(run: Run, name: str) -> list[float]:
    with stand(run, name) as store, served([store.fresh()], 1) as server:
        program = Program("unread_callers", server=server.address, jobs=run.sizes.jobs(CYCLES, 10))
        program.go()
        times: list[float] = program.result()["ms"]
        return times
