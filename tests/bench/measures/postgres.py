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
from tests.bench.figures import Figure, OfFloor
from tests.bench.floor import drain_rate
from tests.bench.measures.peers import available, drain, enqueue, pick_up
from tests.bench.peers.products import ON_POSTGRES
from tests.bench.run import PERSISTENCE, Run
from tests.bench.sql_cycles import BATCH, SqlStore, cycles
from tests.stores.process import StoreServer

JOBS = 20_000
DRAINED = 200_000
PLACE = 0


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
    products = available(run, ON_POSTGRES)
    for product in products:
        yield enqueue(run, product, "postgres")
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


async def _with_shard(url: str, rate: partial[object]) -> float:
    shard = PostgresShard(url, "1")
    await shard.open()
    try:
        return await rate(shard)
    finally:
        await shard.close()
