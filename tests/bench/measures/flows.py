"""Flows of two stages, workers included, on SQLite and PostgreSQL, beside a loop by hand, BullMQ and Celery."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.bench.figures import AtLeast, AtMost, Figure, OfFloor
from tests.bench.flows import loop
from tests.bench.measures.peers import available
from tests.bench.measures.pickup import quantile
from tests.bench.peers.products import BULLMQ, PRODUCTS, Product, environment
from tests.bench.processes import CpuWatch, LoadProgram, Program, children, per_job, served
from tests.bench.run import Run
from tests.stores.process import dies_with_us

ITEMS = 10_000
BIG = 200_000
LOOP_ITEMS = 10_000
BULLMQ_ITEMS, CELERY_ITEMS = 10_000, 2_000
PLACE = 4
DATABASES = {
    "sqlite": "flows in SQLite, WAL, synchronous FULL",
    "postgresql": "flows in PostgreSQL, fsync on",
}
CELERY = "celery"
LOOP_IS = f"one program that adds, claims and records items of the same tables by SQL, {loop.CLAIMED} at a time"
STOP_WITHIN_S = 30
_HERE = Path(__file__).parents[1] / "flows"


def measure(run: Run) -> Iterator[Figure]:
    others = available(run, [*(each for each in PRODUCTS if each.name == CELERY), BULLMQ])
    rates: dict[str, list[float]] = defaultdict(list)
    told, cpu = defaultdict[str, list[float]](list), dict[str, Mapping[str, float]]()
    items = run.sizes.jobs(ITEMS)
    for number in range(run.sizes.rounds):
        for name in DATABASES:
            rates[f"loop {name}"].append(_by_hand(run, name))
            for worker in WORKERS:
                flow = _ours(run, name, items, worker)
                rates[f"{name}, {worker}"].append(flow.rate)
                cpu[f"{name}, {worker}"] = flow.cpu_us
            told[name].append(quantile(flow.told_ms, 0.99))
        for other in others:
            rates[other.name].append(_on_celery(run, other) if other.name == CELERY else _on_bullmq(run))
        run.say(f"  round {number + 1}: " + "; ".join(f"{name} {each[-1]:,.0f}" for name, each in rates.items()))
    for name, kept in DATABASES.items():
        floors = rates[f"loop {name}"]
        for worker, (_, notes) in WORKERS.items():
            shown, notes = f"{name}, {worker}", f"{items:,} root items; the queues on Redis; {notes}"
            goals = [AtLeast(3_000 if worker == DEFAULTS else 1_000), OfFloor(0.6)]
            yield Figure(
                f"flows/{shown}", "items/s", rates[shown], goals, floors, LOOP_IS, cpu[shown], kept, notes=notes
            )
        yield Figure(f"flows/told p99, {name}", "ms", told[name], [AtMost(100)], persistence=kept)
        yield _growth(run, name, items, run.sizes.jobs(BIG))
    for name, notes in (
        (
            "bullmq",
            f"a job with {run.sizes.jobs(BULLMQ_ITEMS):,} children of one child each; a worker process, concurrency 50",
        ),
        ("celery", f"a chord of {run.sizes.jobs(CELERY_ITEMS):,} chains of two; a worker at its defaults"),
    ):
        if rates[name]:
            yield Figure(f"flows/{name}", "items/s", rates[name], notes=f"{notes}; all in Redis, nothing on disk")


# -- ours, and by hand -------------------------------------------------------------------------------------------------


def _growth(run: Run, name: str, few: int, many: int) -> Figure:
    """The processor time of an item of a big flow, over that of one of a small one before and after."""
    before, big, after = (_ours(run, name, items, PLAIN) for items in (few, many, few))
    small_us, big_us = (before.store_us + after.store_us) / 2, big.store_us
    notes = (
        f"{few:,} and {many:,} items; processor time of server and databases for one "
        f"{small_us:.0f} and {big_us:.0f} us; {before.rate:,.0f}, {big.rate:,.0f} and {after.rate:,.0f} items/s"
    )
    run.say(f"  {name}: {notes}")
    return Figure(f"flows/cost of an item of a big flow, {name}", "x", [big_us / small_us], [AtMost(1.2)], notes=notes)


class _Flow(NamedTuple):
    """The items that began it, per second, until its end was told; `told_ms`: how soon the ends of small ones are;
    `store_us`: the processor time of server and databases for an item.
    """

    rate: float
    cpu_us: Mapping[str, float]
    told_ms: Sequence[float]
    store_us: float


def _ours(run: Run, name: str, items: int, worker: str) -> _Flow:
    store = run.store("redis")
    store.empty(PLACE)
    with ExitStack() as stack:
        options = [] if name == "sqlite" else ["--flows", _postgresql(run)]
        server = stack.enter_context(served([store.url(PLACE)], 1, options=options))
        stack.enter_context(_running(*WORKERS[worker][0](server.address)))
        program = Program("flows.producer", server=server.address, items=items)
        backends = [] if name == "sqlite" else children(run.store("postgres", durable=True).pid)
        watch = CpuWatch({"redis 1": store.pid, **server.pids(), **{f"database {pid}": pid for pid in backends}})
        watch.start()
        program.go()
        result = program.result()
        spent = per_job(watch.stop(), items)
    database_us = sum(spent.pop(each) for each in list(spent) if each.startswith("database"))
    cpu_us = {**spent, "database": database_us, "client": result["cpu"] / items * 1e6}
    return _Flow(items / result["seconds"], cpu_us, result["told_ms"], sum(spent.values()) + database_us)


def _framework(address: str, *options: str) -> tuple[list[str], dict[str, str]]:
    command = [str(Path(sys.executable).parent / "pinlater-worker"), "--app", "tests.bench.flows.on_pinlater:app"]
    ours = next(each for each in PRODUCTS if each.is_ours)
    return [*command, *options], environment(ours, address, ["-"], Path(os.devnull), {})


def _plain(address: str) -> tuple[list[str], dict[str, str]]:
    return [sys.executable, "-m", "tests.bench.flows.worker", "--server", address], dict(os.environ)


PLAIN = "plain worker"
DEFAULTS = "pinlater-worker"
WORKERS = {
    DEFAULTS: (_framework, "a worker command at its defaults: 8 slots"),
    f"{DEFAULTS} with 100 slots": (
        lambda address: _framework(address, "--concurrency", "100"),
        "a worker command with 100 slots",
    ),
    PLAIN: (_plain, "a plain client that dequeues by 100, up to 400 at a time, its acks riding on the next dequeue"),
}


def _by_hand(run: Run, name: str) -> float:
    items = run.sizes.jobs(LOOP_ITEMS)
    if name == "postgresql":
        return loop.carried_out(_postgresql(run), items)
    with tempfile.TemporaryDirectory(prefix="pinlater-bench-") as folder:
        return loop.carried_out(f"sqlite:///{folder}/flows.db", items)


def _postgresql(run: Run) -> str:
    """An empty place, whose commits are on the disk."""
    store = run.store("postgres", durable=True)
    store.empty(PLACE)
    return store.url(PLACE)


# -- others ------------------------------------------------------------------------------------------------------------


def _on_bullmq(run: Run) -> float:
    store = run.store("redis")
    store.empty(0)
    env = environment(BULLMQ, store.url(0), [], Path(os.devnull), {})
    command = ["node", str(_HERE / "on_bullmq.mjs")]
    with _running([*command, "worker", str(store.port)], env):
        return _rate([*command, "produce", str(store.port), str(run.sizes.jobs(BULLMQ_ITEMS))], env)


def _on_celery(run: Run, celery: Product) -> float:
    store = run.store("redis")
    store.empty(0)
    env = environment(celery, store.url(0), ["celery"], Path(os.devnull), {})
    worker = [celery.python, "-m", "celery", "-A", "tests.bench.flows.on_celery", "worker"]
    with _running(worker, env):
        items = str(run.sizes.jobs(CELERY_ITEMS))
        return _rate([celery.python, "-m", "tests.bench.flows.on_celery", items], env)


@contextmanager
def _running(command: Sequence[str], env: Mapping[str, str] | None = None) -> Iterator[None]:
    """A worker, until the block ends."""
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*dies_with_us(), *command], env=env, **quiet) as process:  # type: ignore[call-overload]
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _rate(command: Sequence[str], env: Mapping[str, str]) -> float:
    """Items per second, as a producer says that is ready, and begins at a line."""
    program = LoadProgram(command, env)
    program.go()
    result = program.result()
    return float(result["jobs"] / result["seconds"])
