"""The rate that a limited queue reaches beside idle ones in a worker of 8 slots, in % of its limit (Redis)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tests.bench.figures import AtMost, Figure
from tests.bench.queues_stand import queues_stand
from tests.bench.run import PERSISTENCE, Run

SLOTS = 8
SECONDS = 12.0
SETTLED_S = 2.0
"""The first jobs do not count: a rate allows the tokens of a second at once."""

MISSED = 5
"""In %: the goal is to miss no more of the rate."""


class _Case(NamedTuple):
    per_second: float
    queues: int

    @property
    def name(self) -> str:
        return f"{self.per_second:g} a second, {self.queues} queues"


CASES = (_Case(10, 2), _Case(2, 4), _Case(50, 4))


def measure(run: Run) -> Iterator[Figure]:
    for case in CASES:
        missed, gaps = list[float](), list[float]()
        for _ in range(run.sizes.rounds):
            share, gap_ms = _reached(run, case)
            missed.append(max(0.0, 100 - share))
            gaps.append(gap_ms)
            run.say(f"  {case.name}: {share:.1f} % of it, longest gap {gap_ms:,.0f} ms")
        notes = f"a backlog in the limited queue; {SLOTS} slots; {SECONDS:g} s"
        kept, longest = PERSISTENCE["redis"], AtMost(2 * 1000 / case.per_second + 100)
        yield Figure(f"queues_rate/missed of {case.name}", "%", missed, [AtMost(MISSED)], persistence=kept, notes=notes)
        yield Figure(f"queues_rate/longest gap of {case.name}", "ms", gaps, [longest], persistence=kept)


def _reached(run: Run, case: _Case) -> tuple[float, float]:
    """In % of the rate, and the longest time between two jobs."""
    with queues_stand(run.store("redis"), case.queues) as stand:
        stand.limit(0, case.per_second)
        time.sleep(SETTLED_S)
        worker = stand.worker(SLOTS)
        worker.go()
        time.sleep(SETTLED_S)
        seconds = SECONDS * max(0.5, run.sizes.scale)
        stand.enqueue(0, time.time(), int(case.per_second * (seconds + 2 * SETTLED_S)) + 10)
        time.sleep(SETTLED_S)
        began_s = time.time()
        time.sleep(seconds)
        ended_s = time.time()
        worker.go()
        begins = [began for _, began, _ in worker.result()["jobs"] if began_s <= began < ended_s]
    gap_s = max(later - earlier for earlier, later in pairwise([began_s, *begins, ended_s]))
    return len(begins) / (ended_s - began_s) / case.per_second * 100, gap_s * 1000
