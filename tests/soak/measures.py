"""What a run is measured by, from outside: memory and descriptors of processes, rows of stores, files of folders."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psycopg
import pymysql
import redis

from tests.soak.trends import Sample
from tests.stores.process import children_of

PAGE_MIB: float = os.sysconf("SC_PAGE_SIZE") / 2**20
_SIZES = {b"hash": "hlen", b"zset": "zcard", b"set": "scard", b"list": "llen", b"stream": "xlen"}
_CHILDREN = {b"pinlater.app": "server process", b"pinlater.api_process": "HTTP process"} | {
    b"heartbeat.process": "heartbeat process",
    b"pools.child": "pool process",
}
"""What the command line of a child has, and what it is."""


NOTES, AUDIT = "pinlater_notes", "audit"


class Process(NamedTuple):
    """`role`: whose it is and what it does, the same for the one that takes its place."""

    role: str
    pid: int


def family(owner: str, parent: str, pid: int) -> Iterator[Process]:
    """A process and its children, for as long as they live."""
    yield Process(f"{parent} of {owner}", pid)
    for child in children_of(pid):
        try:
            command = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue
        kind = next((kind for part, kind in _CHILDREN.items() if part in command), None)
        if kind is not None:  # else it has been forked, and is not yet what it will be
            yield Process(f"{kind} of {owner}", child)


class Lives:
    """Samples of processes: of each role the lives of all processes that had it."""

    def __init__(self) -> None:
        self.memory: defaultdict[str, dict[int, list[Sample]]] = defaultdict(dict)
        """In MiB that are resident."""

        self.descriptors: defaultdict[str, dict[int, list[Sample]]] = defaultdict(dict)

    def look(self, processes: Iterable[Process]) -> None:
        for role, pid in processes:
            try:
                mib = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_MIB
                descriptors = len(os.listdir(f"/proc/{pid}/fd"))
            except OSError:  # it has ended meanwhile
                continue
            if mib:  # else it has ended, and nobody has waited for it yet
                now_s = time.monotonic()
                self.memory[role].setdefault(pid, []).append(Sample(now_s, mib))
                self.descriptors[role].setdefault(pid, []).append(Sample(now_s, descriptors))

    def newest(self) -> dict[str, tuple[float, float]]:
        """By role: MiB and descriptors when it was looked at last."""
        found = {}
        for role, lives in self.memory.items():
            pid = list(lives)[-1]
            found[role] = lives[pid][-1].value, self.descriptors[role][pid][-1].value
        return found


def rows_of(url: str) -> Counter[str]:
    """How many rows each table of a store has; of Redis how many elements each kind of key has. Entries of the audit,
    which are kept for 90 days up to a bound of their own, stand under AUDIT. Nothing of an SQLite file that is not
    there yet, or is to be repaired by its server after a kill.
    """
    place = urlsplit(url)
    if place.scheme == "redis":
        return _redis_elements(url)
    if place.scheme.startswith("mysql"):
        name = place.path[1:]
        to = pymysql.connect(host=place.hostname, port=place.port or 3306, user=place.username, database=name)
        with closing(to), to.cursor() as cursor:

            def ask(statement: str) -> Sequence[Any]:
                cursor.execute(statement)
                return list(cursor.fetchall())

            return _sql_rows(ask, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()")
    if place.scheme.startswith("postgresql"):
        with psycopg.connect(place._replace(scheme="postgresql").geturl(), autocommit=True) as connection:
            return _sql_rows(
                lambda statement: connection.execute(statement).fetchall(),
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
            )
    try:
        with closing(sqlite3.connect(f"file:{place.path.replace('//', '/', 1)}?mode=ro", uri=True, timeout=30)) as file:
            return _sql_rows(
                lambda statement: file.execute(statement).fetchall(),
                "SELECT name FROM sqlite_master WHERE type = 'table'",
            )
    except sqlite3.OperationalError:
        return Counter()


def _sql_rows(ask: Callable[[str], Sequence[Any]], tables: str) -> Counter[str]:
    """`tables`: the statement that names them."""
    counts = Counter({table: ask(f"SELECT COUNT(*) FROM {table}")[0][0] for (table,) in ask(tables)})
    if NOTES in counts:
        counts[AUDIT] = ask(f"SELECT COUNT(*) FROM {NOTES} WHERE kind LIKE '{AUDIT}%'")[0][0]
        counts[NOTES] -= counts[AUDIT]
    return counts


def _redis_elements(url: str) -> Counter[str]:
    """A kind is a key without what stands in it for a queue or a job."""
    counts: Counter[str] = Counter()
    with redis.Redis.from_url(url, socket_timeout=30) as store:
        keys = list(store.scan_iter(count=1_000))
        for start in range(0, len(keys), 1_000):
            part = keys[start : start + 1_000]
            asked = store.pipeline(transaction=False)
            for key in part:
                asked.type(key)
            sized = store.pipeline(transaction=False)
            kinds = asked.execute()
            for key, kind in zip(part, kinds, strict=True):
                getattr(sized, _SIZES.get(kind, "exists"))(key)
            for key, size in zip(part, sized.execute(raise_on_error=False), strict=True):
                counts[_kind_of(key)] += size if isinstance(size, int) else 0
    return counts


def _kind_of(key: bytes) -> str:
    words = key.decode(errors="replace").split(":")
    if words[-1].startswith(AUDIT):
        return AUDIT
    return ":".join(words[1:2]) + ("" if len(words) < 4 else f":*:{words[-1] if words[-1].isalpha() else '*'}")


def files_in(folder: Path) -> int:
    """Files below it."""
    return sum(len(names) for _, _, names in os.walk(folder))
