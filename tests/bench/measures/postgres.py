"""Whole cycles over Thrift on PostgreSQL, a drain under a snapshot that is held, and other job queues on PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from functools import partial

import psycopg

from pinlater.backends.sql.postgres import PostgresShard
from tests.bench.figures import AtMost, Figure, OfFloor
from tests.bench.floor import drain_rate
from tests.bench.measures.peers import available, drain, enqueue, pick_up
from tests.bench.measures.pickup import quantile
from tests.bench.peers.products import ON_POSTGRES
from tests.bench.processes import Program, served
from tests.bench.run import PERSISTENCE, Run, stand
from tests.bench.sql_cycles import BATCH, SqlStore, cycles
from tests.stores.process import StoreServer

JOBS = 20_000
DRAINED = 200_000
PLACE = 0
SOAK_S, SOAK_PER_S, SOAK_CALLERS = 600.0, 400, 16
QUIET_SHARE = 0.4
"""Of a soak, before the snapshot."""


def measure(run: Run) -> Iterator[Figure]:
    server = run.store("postgres", durable=True)
    store = SqlStore(
        lambda: fresh(server),
        lambda url: PostgresShard(url, "1"),
        plain_inserts,
        PERSISTENCE["postgres"],
        {"postgres": server.pid},
    )
    yield cycles(run, "postgres", store, JOBS, [OfFloor(0.9)])
    yield _held(run, server)
    yield _picked_up_under_snapshot(run)
    products = available(run, ON_POSTGRES)
    yield from enqueue(run, products, "postgres")
    for product in products:
        yield drain(run, product, "defaults", (), "postgres")
    for product in products:
        yield drain(run, product, "100 slots", product.slots, "postgres")
    for product in products:
        yield from pick_up(run, product, 1, "postgres")


def fresh(server: StoreServer) -> str:
    """The address of the one place, emptied."""
    server.empty(PLACE)
    return server.url(PLACE)


def plain_inserts(url: str, batches: int) -> float:
    """Rows per second into a table with a key and a body, a batch in a statement and a transaction."""
    with contextlib.closing(psycopg.connect(url.replace("+psycopg", ""))) as connection:
        connection.execute("CREATE TABLE plain (id INT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body BYTEA NOT NULL)")
        text = f"INSERT INTO plain (body) VALUES {','.join(['(%b)'] * BATCH)}"
        rows = [os.urandom(200)] * BATCH
        began = time.monotonic()
        for _ in range(batches):
            connection.execute(text, rows)
            connection.commit()
        return batches * BATCH / (time.monotonic() - began)


def _held(run: Run, server: StoreServer) -> Figure:
    """Claims and acks by one caller, while another session keeps vacuum from removing what they leave behind."""
    rates, free = [], []
    batches = run.sizes.jobs(DRAINED) // BATCH
    for number in range(run.sizes.rounds):
        free.append(asyncio.run(_with_shard(fresh(server), partial(drain_rate, batches=batches, batch=BATCH))))
        url = fresh(server)
        with contextlib.closing(psycopg.connect(url.replace("+psycopg", ""))) as holder:
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT 1 FROM pg_class")
            rates.append(asyncio.run(_with_shard(url, partial(drain_rate, batches=batches, batch=BATCH))))
        run.say(f"  a snapshot held, round {number + 1}: {rates[-1]:,.0f} jobs/s, {free[-1]:,.0f} without")
    return Figure(
        "postgres/drain, snapshot held",
        "jobs/s",
        rates,
        [OfFloor(0.5)],
        free,
        "the same without a session that holds a snapshot",
        persistence=PERSISTENCE["postgres"],
        notes=f"{batches * BATCH:,} jobs, claimed and acked in batches of {BATCH} by one caller",
    )


def _picked_up_under_snapshot(run: Run) -> Figure:
    """Pick-ups at a steady rate, most of the time while another session holds a snapshot; the last minute of these
    beside the time before.
    """
    times = []
    seconds = SOAK_S * run.sizes.scale
    with stand(run, "postgres") as store:
        for _ in range(run.sizes.rounds):
            url = store.fresh()
            jobs = round(seconds * SOAK_PER_S)
            with (
                served([url], 1) as server,
                contextlib.closing(psycopg.connect(url.replace("+psycopg", ""), autocommit=True)) as holder,
            ):
                program = Program(
                    "pickup_worker", server=server.address, jobs=jobs, per_s=SOAK_PER_S, callers=SOAK_CALLERS
                )
                program.go()
                time.sleep(seconds * QUIET_SHARE)
                holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
                holder.execute("SELECT 1 FROM pg_class")
                ms = program.result()["ms"]
            before, last = ms[: round(jobs * QUIET_SHARE)], ms[-round(jobs / 10) :]
            times.append(quantile(last, 0.5) / quantile(before, 0.5))
            shown = [f"{quantile(some, share):.1f}" for some in (before, last) for share in (0.5, 0.99)]
            run.say("  picked up, p50 / p99: {} / {} ms before, {} / {} ms under the snapshot".format(*shown))
    return Figure(
        "postgres/pick-up, snapshot held",
        "times",
        times,
        [AtMost(2)],
        persistence=PERSISTENCE["postgres"],
        notes=f"p50 of the last tenth of {seconds:,.0f} s over that of the first two fifths, before the snapshot; "
        f"{SOAK_PER_S} jobs a second, each enqueued alone, {SOAK_CALLERS} callers that wait",
    )


async def _with_shard(url: str, rate: partial[object]) -> float:
    shard = PostgresShard(url, "1")
    await shard.open()
    try:
        return await rate(shard)
    finally:
        await shard.close()
