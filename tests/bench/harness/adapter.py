"""PinLater as a system of the harness: a replica is a server, a producer and a worker: `python -m
tests.bench.harness.adapter --help`.

The server is `pinlater serve` with its defaults on the database that the harness has made; the producer enqueues by the
type of job, and the worker is that of the worker framework. When the replica is killed, all of it is gone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from pinlater import AsyncClient, PinLaterError
from pinlater_workers import App, JobFunction, Worker
from tests.bench.harness.early_acks import EarlyAcks
from tests.bench.harness.ledger import Ledger
from tests.bench.harness.samples import (
    MANIFEST,
    OF_ALL_REPLICAS,
    WINDOW_S,
    Waits,
    descriptor,
    sample,
    say,
    seconds_to_tick,
)
from tests.stores.process import dies_with_us

QUEUE = "harness"
STARTED_WITHIN_S = 50.0
"""The harness waits for a minute."""
STOP_WITHIN_S = 3.0
"""The harness wants its end within five seconds."""
GRACE = "2s"
DEPTH_EVERY_S, RATE_EVERY_S, LOCK_EVERY_S = 0.2, 0.1, 2.0
FAULTS = {
    "early-acks": "a worker that acks its jobs before it runs them",
    "whole-locks": "upkeep that locks the jobs' table for itself alone, again and again",
}
VARIABLES = {
    "DATABASE_URL": "the PostgreSQL database [required]",
    "PRODUCER_MODE": "fixed: PRODUCER_RATE jobs a second; depth-target: as many as keep TARGET_DEPTH jobs ready",
    "PRODUCER_RATE_CONTROL_FILE": "a file with another rate, read again and again",
    "PRODUCER_BATCH_MAX, PRODUCER_BATCH_MS": "jobs in one enqueue at most, and its cadence [128, 25]",
    "WORKER_COUNT": "slots of the worker [32]",
    "JOB_PAYLOAD_BYTES, JOB_WORK_MS": "of each job [256, 1]",
    "SAMPLE_EVERY_S": "between two samples [5]",
    "BENCH_INSTANCE_ID": "the number of this replica; 0 says what is not of one replica alone",
    "HARNESS_LEDGER": "a folder in which every job that was stored or has run is written down [none]",
    "HARNESS_FAULT": f"one that is to be found: {' or '.join(FAULTS)} [none]",
}


@dataclass(frozen=True)
class Settings:
    """What the harness asks of a replica."""

    database: str
    mode: str = "fixed"
    per_s: float = 800.0
    rate_file: str = ""
    depth: int = 1000
    batch: int = 128
    batch_s: float = 0.025
    slots: int = 32
    payload: str = ""
    work_s: float = 0.001
    every_s: float = 5.0
    replica: int = 0
    ledger: str | None = None
    fault: str = ""

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Settings:
        """KeyError: without a database."""
        return cls(
            database=env["DATABASE_URL"],
            mode=env.get("PRODUCER_MODE", cls.mode),
            per_s=float(env.get("PRODUCER_RATE", cls.per_s)),
            rate_file=env.get("PRODUCER_RATE_CONTROL_FILE", ""),
            depth=int(env.get("TARGET_DEPTH", cls.depth)),
            batch=int(env.get("PRODUCER_BATCH_MAX", cls.batch)),
            batch_s=float(env.get("PRODUCER_BATCH_MS", cls.batch_s * 1e3)) / 1e3,
            slots=int(env.get("WORKER_COUNT", cls.slots)),
            payload="x" * int(env.get("JOB_PAYLOAD_BYTES", 256)),
            work_s=float(env.get("JOB_WORK_MS", cls.work_s * 1e3)) / 1e3,
            every_s=float(env.get("SAMPLE_EVERY_S", cls.every_s)),
            replica=int(env.get("BENCH_INSTANCE_ID", 0)),
            ledger=env.get("HARNESS_LEDGER"),
            fault=env.get("HARNESS_FAULT", ""),
        )

    def rate(self) -> float:
        """Jobs a second, now: while the harness raises the load, its file says another."""
        with suppress(OSError, ValueError):
            return float(Path(self.rate_file).read_text())
        return self.per_s


@dataclass
class Counts:
    """Of this replica. `waits`: from the enqueue of a job to its start."""

    enqueued: int = 0
    completed: int = 0
    depth: int = 0
    waits: Waits = field(default_factory=Waits)


@contextmanager
def served(database: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server on the database, and its address. It dies with this process."""
    store = f"postgresql+psycopg://{database.partition('://')[2]}"
    with tempfile.TemporaryDirectory(prefix="pinlater-harness-", ignore_cleanup_errors=True) as data:
        command = [sys.executable, "-m", "pinlater", "serve", "--store", store, "--port", "0", "--data", data]
        beside = ["--http", "none", "--api", "none"]  # ports that a second replica would want too
        process = subprocess.Popen([*dies_with_us(), *command, *beside], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            if not address:
                raise SystemExit("the server did not start")
            yield process, address
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_WITHIN_S)
            process.kill()
            process.communicate()


def job_type(app: App, settings: Settings, counts: Counts, ledger: Ledger) -> JobFunction[..., Any]:
    """The job of the harness: it notes how long it waited, and then takes the time that it is to take."""

    @app.job(queue=QUEUE)
    async def noop(job: int, enqueued_s: float, payload: str) -> None:
        counts.waits.add((time.time() - enqueued_s) * 1e3, time.time())
        await asyncio.sleep(settings.work_s)
        ledger.ran(job)
        counts.completed += 1

    return noop


async def produce(noop: JobFunction[..., Any], settings: Settings, counts: Counts, ledger: Ledger) -> None:
    """For ever. What is due is counted by the time that has passed, however long a call took."""
    number, due, before_s = 0, 0.0, time.monotonic()
    while True:
        await asyncio.sleep(max(0.0, settings.batch_s - (time.monotonic() - before_s)))
        now_s = time.monotonic()
        if settings.mode == "depth-target":
            due = float(settings.depth - counts.depth)
        else:
            due += settings.rate() * (now_s - before_s)
        before_s, size = now_s, min(settings.batch, int(due))
        if size < 1:
            continue
        due -= size
        jobs = [ledger.job(number + each) for each in range(size)]
        number += size
        try:
            await noop.enqueue_many_async([(job, time.time(), settings.payload) for job in jobs])
        except PinLaterError as error:
            print(f"{size} jobs were not stored, or may not have been: {error}", file=sys.stderr)
            continue
        ledger.stored(jobs)
        counts.enqueued += size


async def watch_depth(address: str, settings: Settings, counts: Counts) -> None:
    """For ever. It keeps the last answer where the server gives none."""
    every_s = DEPTH_EVERY_S if settings.mode == "depth-target" else settings.every_s / 2
    async with AsyncClient(address) as client:
        while True:
            with suppress(PinLaterError):
                counts.depth = await client.count(QUEUE)
            await asyncio.sleep(every_s)


async def lock_wholly(database: str) -> None:
    """For ever: a planted fault. While somebody reads the table in a transaction, the lock waits, and all behind it."""
    async with await psycopg.AsyncConnection.connect(database) as connection:
        while True:
            await connection.execute(f"LOCK TABLE {MANIFEST['event_tables'][0]} IN ACCESS EXCLUSIVE MODE")
            await connection.commit()
            await asyncio.sleep(LOCK_EVERY_S)


async def report(settings: Settings, counts: Counts) -> None:
    """For ever: a sample of each metric, at the moments that all systems share."""
    enqueued, completed, before_s = counts.enqueued, counts.completed, time.monotonic()
    while True:
        await asyncio.sleep(seconds_to_tick(settings.every_s))
        now_s = time.monotonic()
        past_s = max(now_s - before_s, 0.001)
        waits = counts.waits.quantiles([0.5, 0.95, 0.99], time.time())
        values = {
            **{f"claim_{name}_ms": (ms, WINDOW_S) for name, ms in zip(("p50", "p95", "p99"), waits, strict=True)},
            "enqueue_rate": ((counts.enqueued - enqueued) / past_s, settings.every_s),
            "completion_rate": ((counts.completed - completed) / past_s, settings.every_s),
            "queue_depth": (counts.depth, 0),
            "producer_target_rate": (settings.rate() if settings.mode == "fixed" else 0, 0),
        }
        enqueued, completed, before_s = counts.enqueued, counts.completed, now_s
        for metric, (value, window_s) in values.items():
            if settings.replica == 0 or metric not in OF_ALL_REPLICAS:
                say(sample(metric, float(value), window_s, settings.replica))


async def run(settings: Settings) -> None:
    """Until a signal. SystemExit: the server has ended."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    threading.Thread(target=_discard_input, daemon=True).start()
    with served(settings.database) as (server, address):
        app, counts, ledger = App(servers=[address]), Counts(), Ledger(settings.ledger)
        noop = job_type(app, settings, counts, ledger)
        async with AsyncClient(address) as client:
            await client.create_queue(QUEUE)
        database = urlsplit(settings.database).path.strip("/")
        say(descriptor(database, version("pinlater"), settings.replica))
        tasks = [
            asyncio.create_task(produce(noop, settings, counts, ledger)),
            asyncio.create_task(report(settings, counts)),
        ]
        if settings.replica == 0:
            tasks.append(asyncio.create_task(watch_depth(address, settings, counts)))
        if settings.fault == "whole-locks":
            tasks.append(asyncio.create_task(lock_wholly(settings.database)))
        with _worker(app, noop, settings):
            while not ended.is_set() and server.poll() is None and not any(task.done() for task in tasks):
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), RATE_EVERY_S)
            for task in tasks:
                task.cancel()
            failed = [
                each for each in await asyncio.gather(*tasks, return_exceptions=True) if isinstance(each, Exception)
            ]
        await app.close_async()
    if failed or not ended.is_set():
        raise SystemExit(f"the replica cannot go on: {failed or 'its server has ended'}")


def _discard_input() -> None:
    """The harness writes how many jobs are due, at the rate of the beginning. This producer has the rate of the file,
    and the harness would wait for ever with a full pipe.
    """
    with suppress(OSError):
        while os.read(0, 1 << 16):
            pass


def _worker(app: App, noop: JobFunction[..., Any], settings: Settings) -> AbstractContextManager[object]:
    if settings.fault == "early-acks":
        return EarlyAcks(app.servers[0], QUEUE, partial(_run_body, noop), settings.slots)
    return Worker(app, queues=[QUEUE], concurrency=settings.slots, grace=GRACE)


async def _run_body(noop: JobFunction[..., Any], body: bytes) -> None:
    """The body says the arguments of the job as JSON, behind a first line."""
    await noop(*json.loads(body.partition(b"\n")[2])["args"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="variables that the harness sets:\n"
        + "\n".join(f"  {name}: {text}" for name, text in VARIABLES.items())
        + "\n\nexample: DATABASE_URL=postgresql://me@127.0.0.1/empty python -m tests.bench.harness.adapter",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args()
    if "DATABASE_URL" not in os.environ:
        parser.error("DATABASE_URL is not set")
    asyncio.run(run(Settings.of(os.environ)))


if __name__ == "__main__":
    main()
