"""Whole cycles over Thrift (enqueue, dequeue, ack; batches of 100; clients included) on an SQLite file."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from itertools import count

from pinlater.backends.sql.sqlite import SqliteShard
from tests.bench.figures import AtLeast, Figure, OfFloor
from tests.bench.run import PERSISTENCE, Run
from tests.bench.sql_cycles import BATCH, SqlStore, cycles

JOBS = 60_000


def measure(run: Run) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="pinlater-bench-") as folder:
        numbers = count()
        store = SqlStore(
            lambda: f"sqlite:///{folder}/{next(numbers)}.db",
            lambda url: SqliteShard(url, "1"),
            plain_inserts,
            PERSISTENCE["sqlite"],
        )
        yield cycles(run, "sqlite", store, JOBS, [OfFloor(0.6), AtLeast(40_000)])


def plain_inserts(url: str, batches: int) -> float:
    """Rows per second into a table with a key and a body, a batch in a transaction."""
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    for setting in ("journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {setting}")
    connection.execute("CREATE TABLE plain (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")
    rows = [(os.urandom(200),)] * BATCH
    began = time.monotonic()
    for _ in range(batches):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO plain (body) VALUES (?)", rows)
        connection.execute("COMMIT")
    seconds = time.monotonic() - began
    connection.close()
    return batches * BATCH / seconds
