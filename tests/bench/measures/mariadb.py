"""Whole cycles over Thrift (enqueue, dequeue, ack; batches of 100; clients included) on MariaDB."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pymysql

from pinlater.backends.sql.mysql import MysqlShard
from tests.bench.figures import Figure, OfFloor
from tests.bench.run import PERSISTENCE, Run
from tests.bench.sql_cycles import BATCH, SqlStore, cycles
from tests.stores.process import StoreServer

JOBS = 20_000
PLACE = 0


def measure(run: Run) -> Iterator[Figure]:
    server = run.store("mysql", durable=True)
    store = SqlStore(
        lambda: fresh(server),
        lambda url: MysqlShard(url, "1"),
        plain_inserts,
        PERSISTENCE["mysql"],
        {"mariadb": server.pid},
    )
    yield cycles(run, "mariadb", store, JOBS, [OfFloor(0.9)])


def fresh(server: StoreServer) -> str:
    """The address of the one place, emptied."""
    server.empty(PLACE)
    return server.url(PLACE)


def plain_inserts(url: str, batches: int) -> float:
    """Rows per second into a table with a key and a body, a batch in a statement and a transaction."""
    parts = urlsplit(url)
    with contextlib.closing(
        pymysql.connect(host=parts.hostname, port=parts.port or 0, user="root", database=parts.path.strip("/"))
    ) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE plain (id INT AUTO_INCREMENT PRIMARY KEY, body BLOB NOT NULL)")
        text = f"INSERT INTO plain (body) VALUES {','.join(['(_binary %s)'] * BATCH)}"
        rows = [os.urandom(200)] * BATCH
        began = time.monotonic()
        for _ in range(batches):
            cursor.execute(text, rows)
            connection.commit()
        return batches * BATCH / (time.monotonic() - began)
