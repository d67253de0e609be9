"""What 1,000 jobs a second cost by store: cores, bytes written, and bytes of jobs that wait (enqueue, dequeue, ack)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pymysql
import redis

from tests.bench.figures import Figure
from tests.bench.measures.memory import growth_of
from tests.bench.processes import CpuWatch, Program, Server, per_job, served
from tests.bench.run import Run, Stand, stand

RATE = 1_000
BATCH = 10
SECONDS = 20.0
WAITING = 100_000
STORES = ("sqlite", "redis", "mysql", "postgres")
DAY_S = 86_400
GB = 1e9
_HOW = (
    f"{RATE:,} jobs a second, paced, in batches of {BATCH}, bodies of 200 bytes; the client enqueues, dequeues and acks"
)


def measure(run: Run) -> Iterator[Figure]:
    for name in STORES:
        with stand(run, name) as store, _kept(store) as persistence:
            waiting = run.sizes.jobs(WAITING, 1_000)
            gigabytes = asyncio.run(growth_of(store, waiting, 200)) / waiting * 1e6 / GB
            rounds = [_round(run, store) for _ in range(run.sizes.rounds)]
        for kind in ("server", "store", "client"):
            cores = [spent.get(kind, 0.0) for spent, _ in rounds]
            if any(cores):
                yield Figure(f"cost/{name}, {kind}", "cores", cores, persistence=persistence, notes=_HOW)
        written = [each for _, each in rounds]
        yield Figure(f"cost/{name}, written", "GB a day", written, persistence=persistence, notes=_HOW)
        notes = f"of a million jobs that wait; measured with {waiting:,}, bodies of 200 bytes included"
        yield Figure(f"cost/{name}, waiting", "GB", [gigabytes], persistence=persistence, notes=notes)


def _round(run: Run, store: Stand) -> tuple[dict[str, float], float]:
    """Cores by kind of process, and gigabytes written a day; both of 1,000 jobs a second."""
    url = store.fresh()
    with served([url], 1) as server:
        client = Program("paced_client", server=server.address, batch=BATCH)
        watch = CpuWatch({**store.pids, **server.pids()})
        watch.start()
        before = _written(store, url, server)
        client.go()
        time.sleep(max(2.0, SECONDS * run.sizes.scale))
        client.go()
        result = client.result()
        written = _written(store, url, server) - before
        spent = per_job(watch.stop() | {"client": result["cpu"]}, result["jobs"])
    cores: dict[str, float] = {}
    for name, micros in spent.items():
        kind = name.split()[0] if name.split()[0] in ("server", "client") else "store"
        cores[kind] = cores.get(kind, 0.0) + micros * RATE / 1e6
    run.say(f"  {store.name}: {', '.join(f'{kind} {each:.2f}' for kind, each in cores.items())} cores")
    return cores, written / result["jobs"] * RATE * DAY_S / GB


@contextlib.contextmanager
def _kept(store: Stand) -> Iterator[str]:
    """What is written is that of a store that keeps jobs: a Redis of its own file, once a second."""
    if store.name != "redis":
        yield store.persistence
        return
    with redis.Redis(port=store.ports[0]) as client:
        client.config_set("auto-aof-rewrite-percentage", 0)
        client.config_set("appendonly", "yes")
        while client.info("persistence")["aof_rewrite_in_progress"]:
            time.sleep(0.05)
        try:
            yield "redis: appendonly yes, appendfsync everysec"
        finally:
            client.config_set("appendonly", "no")


def _written(store: Stand, url: str, server: Server) -> int:
    """Bytes so far of its log of changes; of SQLite all that its server writes to files, which are that log and its
    pages."""
    if store.name == "postgres":
        with contextlib.closing(psycopg.connect(url.replace("+psycopg", ""))) as connection:
            row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
            assert row is not None
            return int(row[0])
    if store.name == "mysql":
        parts = urlsplit(url)
        with contextlib.closing(pymysql.connect(host=parts.hostname, port=parts.port or 0, user="root")) as other:
            cursor = other.cursor()
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_os_log_written'")
            return int(cursor.fetchone()[1])  # type: ignore[index]
    if store.name == "redis":
        with redis.Redis(port=store.ports[0]) as client:
            return int(client.info("persistence")["aof_current_size"])
    return sum(int(_io(pid)["wchar"]) for pid in server.pids().values())


def _io(pid: int) -> dict[str, str]:
    return dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
