"""Flows of two stages, workers included, on SQLite and PostgreSQL, beside a loop by hand, BullMQ and Celery."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tests.bench.figures import AtLeast, AtMost, Figure, OfFloor
from tests.bench.flows import loop
from tests.bench.measures.pickup import quantile
from tests.bench.peers.products import PRODUCTS, Product, environment, others_missing
from tests.bench.processes import Outcome, Program, loaded, served
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
BULLMQ = ("bullmq@^6", "ioredis@^5")
LOOP_IS = f"one program that adds, claims and records items of the same tables by SQL, {loop.CLAIMED} at a time"
STOP_WITHIN_S = 30
_HERE = Path(__file__).parents[1] / "flows"
_NODE = Path(sys.prefix) / "peers-node"


def measure(run: Run) -> Iterator[Figure]:
    celery, node_missing = next(each for each in PRODUCTS if each.name == "celery"), bullmq_missing()
    for name, why in (("Celery", others_missing()), ("BullMQ", node_missing)):
        if why:
            run.say(f"  {name} is left out, since its packages could not be installed: {why}")
    rates: dict[str, list[float]] = defaultdict(list)
    told, cpu = dict[str, list[float]](), dict[str, Mapping[str, float]]()
    for number in range(run.sizes.rounds):
        for name in DATABASES:
            rates[f"loop {name}"].append(_by_hand(run, name))
            outcome, times = _ours(run, name, run.sizes.jobs(ITEMS))
            rates[name].append(outcome.rate)
            cpu[name] = outcome.cpu_us
            told.setdefault(name, []).append(quantile(times, 0.99))
        if not node_missing:
            rates["bullmq"].append(_on_bullmq(run))
        if not others_missing():
            rates["celery"].append(_on_celery(run, celery))
        run.say(f"  round {number + 1}: " + ", ".join(f"{name} {each[-1]:,.0f}" for name, each in rates.items()))
    for name, kept in DATABASES.items():
        goals = [AtLeast(1_000), OfFloor(0.6)]
        notes = f"{run.sizes.jobs(ITEMS):,} root items, a server, a worker of 100 slots; the queues on Redis"
        yield Figure(
            f"flows/{name}", "items/s", rates[name], goals, rates[f"loop {name}"], LOOP_IS, cpu[name], kept, notes=notes
        )
        yield Figure(f"flows/told p99, {name}", "ms", told[name], [AtMost(100)], persistence=kept)
        many = run.sizes.jobs(BIG)
        small, big = (_ours(run, name, items)[0].rate for items in (run.sizes.jobs(ITEMS), many))
        run.say(f"  {name}: {small:,.0f} items/s of a flow of {run.sizes.jobs(ITEMS):,}, {big:,.0f} of one of {many:,}")
        notes = f"{many:,} items beside {run.sizes.jobs(ITEMS):,}, one after the other"
        yield Figure(f"flows/cost of an item of a big flow, {name}", "x", [small / big], [AtMost(1.2)], notes=notes)
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


def _ours(run: Run, name: str, items: int) -> tuple[Outcome, Sequence[float]]:
    """The items that began the flow, per second, until its end was told; and how soon the ends of small ones are."""
    store = run.store("redis")
    store.empty(PLACE)
    with ExitStack() as stack:
        options = [] if name == "sqlite" else ["--flows", _postgresql(run)]
        server = stack.enter_context(served([store.url(PLACE)], 1, options=options))
        stack.enter_context(_running([sys.executable, "-m", "tests.bench.flows.worker", "--server", server.address]))
        program = _Producer("flows.producer", server=server.address, items=items)
        outcome = loaded(program, server, store)
        return outcome, program.told_ms


class _Producer(Program):
    """It says how soon the ends of flows were told, too."""

    told_ms: Sequence[float] = ()

    def result(self) -> dict[str, Any]:
        result = super().result()
        self.told_ms = result["told_ms"]
        return result


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
    env = {**os.environ, "BENCH_NODE": str(_NODE / "package.json")}
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
    pipe = subprocess.PIPE
    with subprocess.Popen([*dies_with_us(), *command], env=env, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{command} ended with {process.wait()}")
        process.stdin.write("go\n")
        process.stdin.flush()
        result = json.loads(process.stdout.readline())
    return float(result["jobs"] / result["seconds"])


@cache
def bullmq_missing() -> str:
    """Why BullMQ cannot be had; "": it is there. It is installed once."""
    done = _NODE / ".installed"
    if done.exists() and done.read_text() == " ".join(BULLMQ):
        return ""
    _NODE.mkdir(exist_ok=True)
    (_NODE / "package.json").write_text("{}")
    try:
        ended = subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *BULLMQ],
            cwd=_NODE,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        return str(error)
    if ended.returncode:
        return (ended.stderr.strip().splitlines() or ["no reason was given"])[-1]
    done.write_text(" ".join(BULLMQ))
    return ""
