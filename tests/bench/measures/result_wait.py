"""How long a caller that waits for a job's result has to wait once the worker has acked it, beside a pick-up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.bench.figures import AtMost, Figure
from tests.bench.measures.pickup import quantile
from tests.bench.processes import Program, served
from tests.bench.run import PERSISTENCE, STORES, Run, stand

JOBS = 400
TIMES = 1.5
"""The goal: at most so many times a pick-up."""


def measure(run: Run) -> Iterator[Figure]:
    for name in STORES:
        waits, ratios = [], []
        notes = ""
        for _ in range(run.sizes.rounds):
            pickups, results = _times(run, name)
            waits.append(quantile(results, 0.5))
            ratios.append(waits[-1] / quantile(pickups, 0.5))
            notes = f"{len(results)} jobs a round; a pick-up takes {quantile(pickups, 0.5):.2f} ms"
            run.say(f"  {name}: {ratios[-1]:.2f} times a pick-up, p99 {quantile(results, 0.99):.2f} ms")
        kept = PERSISTENCE[name]
        yield Figure(f"result_wait/p50 {name}", "ms", waits, persistence=kept, notes=notes)
        yield Figure(f"result_wait/p50 over a pick-up {name}", "x", ratios, [AtMost(TIMES)], persistence=kept)


def _times(run: Run, name: str) -> tuple[Sequence[float], Sequence[float]]:
    """Milliseconds from each enqueue to the worker, and from each ack to the caller that waits for the result."""
    with stand(run, name) as store, served([store.fresh()], 1) as server:
        program = Program("result_worker", server=server.address, jobs=run.sizes.jobs(JOBS))
        program.go()
        result = program.result()
        return result["pickup_ms"], result["result_ms"]
