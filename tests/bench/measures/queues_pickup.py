"""How long a job takes to begin in an idle worker with one slot that takes from 1, 15 and 100 queues (Redis)."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence

from tests.bench.figures import AtMost, Figure
from tests.bench.measures.pickup import quantile
from tests.bench.processes import CpuWatch, per_job
from tests.bench.queues_stand import queues_stand
from tests.bench.run import PERSISTENCE, Run

QUEUES = (1, 15, 100)
JOBS = 400
PER_S = 50
SETTLED_S = 2.0
WARM_UP = 20
TIMES = 3
"""The goal: many queues take at most so many times as long as one."""


def measure(run: Run) -> Iterator[Figure]:
    alone: list[float] = []
    for queues in QUEUES:
        rounds: list[Sequence[float]] = []
        cpu: dict[str, float] = {}
        for _ in range(run.sizes.rounds):
            times, cpu = _times(run, queues)
            rounds.append(times)
            p50, p99 = quantile(times, 0.5), quantile(times, 0.99)
            run.say(f"  {queues} queues: p50 {p50:.2f} ms, p99 {p99:.2f} ms, longest {max(times):.2f} ms")
        notes = f"{len(rounds[0])} jobs a round, {PER_S} a second, each to a queue by chance"
        p50s, p99s = ([quantile(times, share) for times in rounds] for share in (0.5, 0.99))
        alone = alone or p99s
        ratios = [p99 / one for p99, one in zip(p99s, alone, strict=True)]
        kept = PERSISTENCE["redis"]
        yield Figure(f"queues_pickup/p50 {queues}", "ms", p50s, cpu_us=cpu, persistence=kept, notes=notes)
        yield Figure(f"queues_pickup/p99 {queues}", "ms", p99s, persistence=kept)
        if queues > 1:
            yield Figure(f"queues_pickup/p99 {queues} over 1", "x", ratios, [AtMost(TIMES)], persistence=kept)


def _times(run: Run, queues: int) -> tuple[list[float], dict[str, float]]:
    """In milliseconds, without those of the first jobs."""
    store, rng = run.store("redis"), random.Random(queues)
    with queues_stand(store, queues) as stand:
        worker = stand.worker(1)
        worker.go()
        time.sleep(SETTLED_S)
        watch = CpuWatch({"redis": store.pid, **stand.pids})
        watch.start()
        count = run.sizes.jobs(JOBS) + WARM_UP
        for _ in range(count):
            stand.enqueue(rng.randrange(queues), time.time())
            time.sleep(rng.uniform(0.5, 1.5) / PER_S)
        time.sleep(SETTLED_S)
        spent = watch.stop()
        worker.go()
        noted = worker.result()["jobs"]
    if len(noted) != count:
        raise RuntimeError(f"{len(noted)} jobs began, of {count}")
    return [ms for _, _, ms in noted[WARM_UP:]], per_job(spent, count)
