"""Outboxes in SQLite, PostgreSQL and MariaDB: what a row costs a transaction, and how fast a relay hands rows over."""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib import import_module
from typing import Any

from pinlater_workers import App
from pinlater_workers.outbox import Outbox
from tests.bench.figures import Figure
from tests.bench.processes import served
from tests.bench.run import Run

ROWS = 20_000
ENQUEUES = 1_000
PER_TRANSACTION = 1_000
PLACE = 3


def measure(run: Run) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="pinlater-bench-") as folder:
        path = f"{folder}/app.db"
        yield from _figures(run, "sqlite", f"sqlite:///{path}", lambda: sqlite3.connect(path))
    postgres, mysql = run.store("postgres", durable=True), run.store("mysql", durable=True)
    postgres.empty(PLACE)
    mysql.empty(PLACE)
    place = f"place_{PLACE}"
    where: dict[str, Any] = {"host": "127.0.0.1", "port": postgres.port, "user": "postgres", "dbname": place}
    psycopg = import_module("psycopg")
    yield from _figures(run, "postgresql", postgres.url(PLACE), lambda: psycopg.connect(**where))
    there: dict[str, Any] = {"host": "127.0.0.1", "port": mysql.port, "user": "root", "database": place}
    pymysql = import_module("pymysql")
    yield from _figures(run, "mysql", mysql.url(PLACE), lambda: pymysql.connect(**there))


def _figures(run: Run, name: str, url: str, connect: Callable[[], Any]) -> Iterator[Figure]:
    store = run.store("redis")
    store.empty(1)
    rates, costs, many = [], [], []
    with served([store.url(1)], 1) as server, closing(connect()) as connection:
        app = App(servers=[server.address])
        app.client.create_queue("mail")
        outbox = Outbox(app)

        @app.job(queue="mail")
        def send(to: str, number: int) -> None: ...

        outbox.create_table(connection)
        connection.commit()
        for number in range(run.sizes.rounds):
            costs.append(_enqueue_us(lambda: outbox.enqueue(connection, send, "ada@example.org", 1)))
            connection.commit()
            rows = run.sizes.jobs(ROWS)
            begun_s = time.perf_counter()
            for start in range(0, rows, PER_TRANSACTION):
                calls = [("ada@example.org", each) for each in range(start, min(rows, start + PER_TRANSACTION))]
                outbox.enqueue_many(connection, send, calls)
                connection.commit()
            many.append((time.perf_counter() - begun_s) / rows * 1e6)
            relay = outbox.relay(url)
            begun_s = time.perf_counter()
            handed_over = relay.run_once()
            rates.append(handed_over / (time.perf_counter() - begun_s))
            run.say(f"  {name}, round {number + 1}: {rates[-1]:,.0f} jobs/s, {costs[-1]:.0f} us to enqueue one")
        app.close()
    notes = "bodies of about 90 bytes; the server on Redis; both on this machine"
    yield Figure(f"outbox/{name}", "jobs/s", rates, notes=f"handed over by one relay; {notes}")
    yield Figure(f"outbox/{name}, enqueue", "us", costs, notes="one job in a transaction that is open; no commit")
    yield Figure(f"outbox/{name}, enqueue_many", "us", many, notes="per job, by the thousand, with the commit")


def _enqueue_us(enqueue: Callable[[], object]) -> float:
    """The median of many."""
    taken = []
    for _ in range(ENQUEUES):
        begun_s = time.perf_counter()
        enqueue()
        taken.append(time.perf_counter() - begun_s)
    return statistics.median(taken) * 1e6
