"""Other job queues beside these: Python's by their worker commands, others and queue servers beside the plain clients.

Celery, dramatiq and taskiq run their own commands beside pinlater-worker, on the same Redis: drain, pick-up, rates.
BullMQ (Node, on the same Redis), beanstalkd, NATS JetStream and RabbitMQ stand beside `Client` and `AsyncClient`, with
bodies of 200 bytes: lone enqueues, enqueues by 100, drain, pick-up. BullMQ has its own worker; with the others, ours
included, a program takes up to 100 jobs at a time in a loop, and ends each. What each keeps through a power cut is
its default, but for RabbitMQ's quorum queues; it stands beside the figure.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from pinlater import Client
from tests.bench.figures import Figure, OfFloor
from tests.bench.measures.pickup import quantile
from tests.bench.peers.products import BULLMQ, PRODUCTS, QUEUES, TASKS, Product, environment
from tests.bench.peers.record import AT_ONCE, Begun, count_begun, read_begun
from tests.bench.processes import CpuWatch, LoadProgram, per_job, served
from tests.bench.run import PERSISTENCE, Run
from tests.bench.run import stand as empty_store
from tests.stores.process import dies_with_us, free_port

ENQUEUED = 20_000
LONE = 5_000
WARM_UP = 200
"""Enqueues before those that count."""

DRAIN_WITHIN_S = 180
PICKED_UP = 300
PICKED_UP_PER_S = 30
RATES = {"slow": 2, "quick": 50}
"""Of two queues among four; the others have jobs at FREE_PER_S, with no limit."""
FREE = ("free_1", "free_2")
FREE_PER_S = 40
RATE_S = 20
COUNTED_S = 18
"""Of that time, from a second after the first job began: a full bucket may give some at once."""
STARTED_WITHIN_S = 60
STOPPED_WITHIN_S = 20
SETTLED_S = 1.0


def measure(run: Run) -> Iterator[Figure]:
    products = available(run, PRODUCTS)
    for product in products:
        yield drain(run, product, "defaults", ())
    for product in products:
        yield drain(run, product, "100 slots", product.slots)
    for product in products:
        for queues in (1, 15, 100) if product.has_many_queues else (1,):
            yield from pick_up(run, product, queues)
    for product in products:
        if product.has_rates:
            yield from _rates(run, product)
    queues = available(run, QUEUES)
    yield from enqueue(run, queues, "peers", 1)
    yield from enqueue(run, queues, "peers")
    for product in queues:
        yield drain(run, product, "defaults" if product.slots else "a loop", ())
        if product.slots:
            yield drain(run, product, "100 slots", product.slots)
    for product in queues:
        yield from pick_up(run, product, 1)


def available(run: Run, products: Sequence[Product]) -> list[Product]:
    """Those that can be had; it is said why the others cannot."""
    missing = {product.name: product.missing for product in products}
    for name, why in missing.items():
        if why:
            run.say(f"  {name} is left out, since it is not installed: {why}")
    return [product for product in products if not missing[product.name]]


def enqueue(run: Run, products: Sequence[Product], prefix: str, at_once: int = AT_ONCE) -> Iterator[Figure]:
    """Jobs per second from one producer, so many in a call, by the way for many that the product has.

    They take turns. One at a time, ours are to be at least as fast as BullMQ.
    """
    name, usual = ("lone enqueue", LONE) if at_once == 1 else (f"enqueue by {at_once}", ENQUEUED)
    jobs = run.sizes.jobs(usual)
    rates: dict[str, list[float]] = {product.name: [] for product in products}
    spent_us: dict[str, dict[str, float]] = {}
    for number in range(run.sizes.rounds):
        for product in products:
            with ExitStack() as ending:
                stand = Stand(run, product, ["bench"], ending)
                seconds, spent_us[product.name] = stand.enqueue(jobs, at_once)
            rates[product.name].append(jobs / seconds)
            run.say(f"  {product.name}, {name}, round {number + 1}: {jobs / seconds:,.0f} jobs/s")
    for product in products:
        figure = figure_of(f"{prefix}/{name}, {product.name}", "jobs/s", rates[product.name], product)
        figure = replace(figure, cpu_us=spent_us[product.name])
        if at_once == 1 and product.is_ours and BULLMQ.name in rates:
            figure = replace(figure, goals=[OfFloor(1)], floors=rates[BULLMQ.name], floor_is="BullMQ's rate")
        yield figure


def drain(run: Run, product: Product, name: str, options: Sequence[str], prefix: str = "peers") -> Figure:
    """Jobs per second from a full queue by one worker command, without the first and the last tenth."""
    rates = []
    for number in range(run.sizes.rounds):
        rates.append(drained_per_s(run, product, options))
        run.say(f"  {product.name}, {name}, round {number + 1}: {rates[-1]:,.0f} jobs/s")
    return figure_of(f"{prefix}/drain, {name}, {product.name}", "jobs/s", rates, product, options)


def drained_per_s(run: Run, product: Product, options: Sequence[str]) -> float:
    """Of one round, without the first and the last tenth."""
    jobs = run.sizes.jobs(product.drained)
    with ExitStack() as ending:
        stand = Stand(run, product, ["bench"], ending)
        stand.produce(jobs)
        stand.start_worker(options)
        begun = stand.begun(jobs, DRAIN_WITHIN_S)
    if len(begun) < jobs:
        raise RuntimeError(f"{product.name} ran {len(begun)} of {jobs} jobs in {DRAIN_WITHIN_S} s")
    first, last = begun[jobs // 10], begun[jobs * 9 // 10]
    return (jobs * 9 // 10 - jobs // 10) / ((last.begun_ns - first.begun_ns) / 1e9)


def pick_up(run: Run, product: Product, queues: int, prefix: str = "peers") -> Iterator[Figure]:
    """From the producer's call until the job begins, in a worker at its defaults that has nothing else to do."""
    jobs, rounds = run.sizes.jobs(PICKED_UP), []
    for _ in range(run.sizes.rounds):
        with ExitStack() as ending:
            stand = Stand(run, product, [f"bench{number}" for number in range(queues)], ending)
            stand.start_worker()
            stand.warm_up()
            stand.produce(jobs, PICKED_UP_PER_S)
            begun = stand.begun(stand.warmed_up + jobs, STARTED_WITHIN_S)[stand.warmed_up :]
        rounds.append([(each.begun_ns - each.sent_ns) / 1e6 for each in begun])
        run.say(f"  {product.name}, {queues} queues: p50 {quantile(rounds[-1], 0.5):.2f} ms")
    for share in (0.5, 0.99):
        values = [quantile(times, share) for times in rounds]
        yield figure_of(f"{prefix}/pickup p{share * 100:.0f}, {queues} queues, {product.name}", "ms", values, product)


def _rates(run: Run, product: Product) -> Iterator[Figure]:
    """How many jobs of two limited queues begin per second, while one worker has jobs of two others too."""
    rounds: dict[str, list[float]] = {queue: [] for queue in RATES}
    for _ in range(run.sizes.rounds):
        with ExitStack() as ending:
            stand = Stand(run, product, [*RATES, *FREE], ending, RATES)
            stand.produce(4 * max(RATES.values()) * RATE_S, queues=tuple(RATES))
            stand.start_worker()
            stand.begun(1, STARTED_WITHIN_S)
            stand.produce(FREE_PER_S * RATE_S, FREE_PER_S, FREE)
            begun = stand.begun(10**9, 0)
        began_ns = begun[0].begun_ns + 10**9  # what a full bucket gives at once does not count
        for queue, rate in RATES.items():
            times_s = [(each.begun_ns - began_ns) / 1e9 for each in begun if each.queue == queue]
            counted = sum(0 <= time_s < COUNTED_S for time_s in times_s)
            rounds[queue].append(counted / COUNTED_S / rate)
            run.say(f"  {product.name}, a rate of {rate}/s: {rounds[queue][-1]:.2f} of it")
    for queue, rate in RATES.items():
        yield figure_of(f"peers/rate of {rate}/s, {product.name}", "of the rate", rounds[queue], product)


def figure_of(name: str, unit: str, rounds: Sequence[float], product: Product, options: Sequence[str] = ()) -> Figure:
    """With the product's version and the options of its worker as a note."""
    notes = f"{product.name} {product.version}; options of its worker: {' '.join(options) or 'none'}"
    return Figure(name, unit, list(rounds), [], persistence=PERSISTENCE[product.store], notes=notes)


class Stand:
    """One product on an empty store: its producers and workers, and what they have run."""

    def __init__(
        self,
        run: Run,
        product: Product,
        queues: Sequence[str],
        ending: ExitStack,
        rates: Mapping[str, int] | None = None,
    ) -> None:
        store = ending.enter_context(empty_store(run, product.store))
        self.pids = dict(store.pids)
        """The processes of the store, the server and the worker; those with children by the name of the family."""

        self.product, self.queues, self.warmed_up = product, list(queues), 0
        self._ending = ending
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="pinlater-bench-")))
        self._record = folder / "record"
        self._record.touch()
        http = f"127.0.0.1:{free_port()}"
        broker = store.fresh() if product.is_ours else store.fresh().replace("+psycopg", "")
        if product.is_ours:
            file = folder / "queues.toml"
            file.write_text(
                "".join(f"[queues.{queue}]\nmax_jobs_per_second = {rate}\n" for queue, rate in (rates or {}).items())
            )
            options = ["--queue-file", str(file), *(["--api", http] if product.needs_http else [])]
            server = ending.enter_context(served([broker], 1, options=options))
            broker, self.pids["server"] = server.address, server.supervisor
            with Client(broker) as client:
                for queue in queues:
                    client.create_queue(queue)
        self._env = environment(product, broker, queues, self._record, rates or {})
        self._env["BENCH_HTTP"] = f"http://{http}"
        if product.prepare:
            subprocess.run(product.prepare, env=self._env, cwd=TASKS, check=True, capture_output=True)

    def start_worker(self, options: Sequence[str] = ()) -> None:
        command = [*dies_with_us(), *self.product.command(self.queues), *options]
        process = subprocess.Popen(
            command,
            env=self._env,
            cwd=TASKS,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pids["worker"] = process.pid
        self._ending.callback(_stop, process)

    def warm_up(self) -> None:
        """Until each queue's jobs are taken."""
        self.produce(len(self.queues))
        self.warmed_up = len(self.queues)
        begun = self.begun(self.warmed_up, STARTED_WITHIN_S)
        if len(begun) < self.warmed_up:
            raise RuntimeError(f"{self.product.name} began {len(begun)} of {self.warmed_up} jobs")
        time.sleep(SETTLED_S)

    def produce(self, jobs: int, per_s: float = 0, queues: Sequence[str] = (), at_once: int = 500) -> None:
        """Jobs for all queues, or these, in a process of its own."""
        program = self._producer(jobs, queues, per_s=per_s, at_once=at_once)
        program.go()
        program.result()

    def enqueue(self, jobs: int, at_once: int) -> tuple[float, dict[str, float]]:
        """The seconds that it takes to send them, and the microseconds of each process for one."""
        program = self._producer(jobs, at_once=at_once, warm_up=WARM_UP)
        watch = CpuWatch(self.pids)
        watch.start()
        program.go()
        done = program.result()
        return done["seconds"], per_job({"client": done["cpu"], **watch.stop()}, jobs)

    def _producer(self, jobs: int, queues: Sequence[str] = (), **options: float) -> LoadProgram:
        shape = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", str(value))]
        return LoadProgram([*self.product.produces, "--jobs", str(jobs), *shape, *queues], self._env)

    def begun(self, jobs: int, within_s: float) -> list[Begun]:
        """What has begun, as soon as that are so many, or that time is over."""
        end_s = time.monotonic() + within_s
        while count_begun(self._record) < jobs and time.monotonic() < end_s:
            time.sleep(0.05)
        return list(read_begun(self._record, self.queues))


def _stop(worker: subprocess.Popen[bytes]) -> None:
    """It and the processes that it has started, which are a session of their own."""
    worker.terminate()
    try:
        worker.wait(STOPPED_WITHIN_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
