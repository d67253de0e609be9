"""Two server processes beside one: the processor time of a call, in batches and singly (Redis)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tests.bench.figures import AtMost, Figure
from tests.bench.measures import cycle, plain
from tests.bench.processes import Outcome
from tests.bench.run import PERSISTENCE, Run

JOBS = 40_000
CALLS = 20_000


def measure(run: Run) -> Iterator[Figure]:
    store = run.store("redis")
    batches, calls = run.sizes.jobs(JOBS) // cycle.BATCH, run.sizes.jobs(CALLS)
    in_batches = partial(cycle.over_thrift, [store], batches)
    singly = partial(plain.over_thrift, store, "enqueue", calls)

    def as_many_each(processes: int) -> Outcome:
        return singly(processes=processes, connections=processes * plain.CONNECTIONS)

    yield _figure(run, "processes/cycle", in_batches, f"whole cycles, batches of {cycle.BATCH}")
    single = f"single enqueue calls from {plain.CONNECTIONS} plain connections"
    yield _figure(run, "processes/plain", singly, single)
    yield _figure(run, "processes/plain, each as many", as_many_each, f"{single} for each process")


def _figure(run: Run, name: str, of: Callable[..., Outcome], what: str) -> Figure:
    ratios, cpu = [], {}
    for number in range(run.sizes.rounds):
        before, two, after = (of(processes=processes) for processes in (1, 2, 1))
        ratios.append(two.all_of("server") * 2 / (before.all_of("server") + after.all_of("server")))
        cpu = two.cpu_us
        faster = two.rate * 2 / (before.rate + after.rate)
        run.say(f"  {name}, round {number + 1}: {ratios[-1]:.2f}; {faster:.2f} as fast")
    notes = f"{what}: the processor time of two server processes per call, over that of one"
    return Figure(name, "x", ratios, [AtMost(1.1)], cpu_us=cpu, persistence=PERSISTENCE["redis"], notes=notes)
