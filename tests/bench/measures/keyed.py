"""Enqueue calls with a dedupe key on each job, and whole cycles of jobs with serialize keys, beside those without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.bench.figures import Figure, OfFloor
from tests.bench.processes import CpuWatch, Outcome, Program, per_job, served
from tests.bench.queues_stand import WITH_PASSWORD
from tests.bench.run import STORES, Run, Stand, stand

BATCH = 100
JOBS = {"redis": 100_000, "sqlite": 30_000, "mysql": 20_000, "postgres": 20_000}
IN_FLIGHT = 6
GOAL = OfFloor(0.7)


class Case(NamedTuple):
    """`keys` and `floor_keys`: what the jobs have, and those beside which they are measured."""

    name: str
    keys: str
    program: str
    floor_keys: str = "none"


CASES = (
    Case("enqueue with a dedupe key", "dedupe", "callers batches"),
    Case("cycle with distinct serialize keys", "serialize", "cycle_client"),
)


def measure(run: Run) -> Iterator[Figure]:
    for name in STORES:
        with stand(run, name) as store:
            for case in CASES:
                yield beside_plain(run, store, case, GOAL)


def beside_plain(run: Run, store: Stand, case: Case, goal: OfFloor) -> Figure:
    """What the case reaches of its floor, measured before and after it in each round."""
    outcomes, floors = [], []
    for number in range(run.sizes.rounds):
        before = _outcome(run, store, case.program, case.floor_keys).rate
        outcomes.append(_outcome(run, store, case.program, case.keys))
        floors.append((before + _outcome(run, store, case.program, case.floor_keys).rate) / 2)
        run.say(f"  {store.name}, {case.name}, round {number + 1}: {outcomes[-1].rate / floors[-1]:.2f}")
    return Figure(
        f"keyed/{case.name} {store.name}",
        "jobs/s",
        [outcome.rate for outcome in outcomes],
        [goal],
        floors,
        "the same without keys" if case.floor_keys == "none" else f"the same with keys of the kind {case.floor_keys}",
        outcomes[-1].cpu_us,
        store.persistence,
        notes=f"batches of {BATCH}, 200-byte bodies, {IN_FLIGHT} calls in flight; no key comes twice",
    )


def _outcome(run: Run, store: Stand, program: str, keys: str) -> Outcome:
    batches = run.sizes.jobs(JOBS[store.name]) // BATCH
    with served([store.fresh()], 1, options=WITH_PASSWORD) as server:
        shape = {"server": server.address, "batches": batches, "batch": BATCH, "in_flight": IN_FLIGHT, "keys": keys}
        load = Program(program, **shape)
        watch = CpuWatch({**store.pids, **server.pids()})
        watch.start()
        load.go()
        result = load.result()
        spent = watch.stop() | {"client": result["cpu"]}
    return Outcome(result["jobs"] / result["seconds"], per_job(spent, result["jobs"]))
