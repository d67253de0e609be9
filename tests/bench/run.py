"""One run of the measures: its stores, which are started once, its sizes, and the yardstick around each measure."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count

from pinlater.backends.base import Shard
from pinlater.backends.redis import RedisShard
from pinlater.backends.sql.mysql import MysqlShard
from pinlater.backends.sql.postgres import PostgresShard
from pinlater.backends.sql.sqlite import SqliteShard
from tests.bench.figures import Figure
from tests.bench.peers.brokers import BROKERS, running_broker
from tests.stores.places import start_server
from tests.stores.process import StoreServer
from tests.stores.redis_cluster import RedisCluster
from tests.stores.sentinels import SentinelGroup

PERSISTENCE = {
    "redis": "redis: appendonly no, save ''",
    "mysql": "mariadb: innodb_flush_log_at_trx_commit 1",
    "sqlite": "sqlite: WAL, synchronous FULL",
    "postgres": "postgres: fsync on, synchronous_commit on",
    "redis-sentinel": "redis: appendonly no, save '', two replicas, wait=1",
    "redis-cluster": "redis: appendonly no, save '', a replica of each primary, wait=1",
    **{name: broker.persistence for name, broker in BROKERS.items()},
}


@dataclass
class Sizes:
    rounds: int = 3
    scale: float = 1.0
    """How much of the usual number of jobs; a tenth is enough to see that a measure works."""

    def jobs(self, usual: int, multiple_of: int = 100) -> int:
        return max(multiple_of, round(usual * self.scale / multiple_of) * multiple_of)


class Run:
    """`sizes` are what the command line says. Stores end with the run."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self._stores: dict[str, StoreServer] = {}
        self._ending = ExitStack()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def store(self, name: str, number: int = 0, *, durable: bool = False) -> StoreServer:
        """A running `redis` or `mysql` of this run; others by number. What is in it belongs to nobody: empty it."""
        key = f"{name} {number} {durable}"
        store = self._stores.get(key)
        if store is None:
            store = self._stores[key] = start_server(name, durable=durable)
            self._ending.callback(store.stop)
        return store

    def say(self, text: str) -> None:
        """Progress, for who waits."""
        print(text, file=sys.stderr, flush=True)

    def measured(self, measure: Measure) -> list[Figure]:
        """The figures of one measure, each with the yardstick of its time."""
        before = sets_per_s(self.store("redis").port)
        figures = list(measure(self))
        after = sets_per_s(self.store("redis").port)
        return [replace(figure, yardstick=(before + after) / 2) for figure in figures]


Measure = Callable[[Run], Iterable[Figure]]
"""Named and described in measures/__init__.py."""


YARDSTICK_CALLS = 300_000


def sets_per_s(port: int) -> float:
    """SETs per second of `redis-benchmark` with sixteen in a pipeline."""
    program = shutil.which("redis-benchmark")
    if program is None:
        raise SystemExit("redis-benchmark is missing: ./scripts/services installs it")
    command = [program, "-p", str(port), "-n", str(YARDSTICK_CALLS), "-P", "16", "-t", "set", "-d", "200", "--csv"]
    last = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    return float(last.split(",")[1].strip('"'))


STORES = ("redis", "sqlite", "mysql")
REPLICATED = ("redis-sentinel", "redis-cluster")
"""With a replica of each primary, on the same machine; every answer waits for one."""

ALL_STORES = (*STORES, "postgres", *REPLICATED)
PLACES = range(8, 16)
"""Those below are for measures that name one."""

SHARDS: Mapping[str, Callable[[str, str], Shard]] = {
    "sqlite": SqliteShard,
    "mysql": MysqlShard,
    "postgres": PostgresShard,
}
"""Of the others, RedisShard."""


@dataclass(frozen=True)
class Stand:
    """`fresh` gives the address of an empty place; `pids` are the processes of the store, if it has any, and `ports`
    where they listen.
    """

    name: str
    fresh: Callable[[], str]
    pids: Mapping[str, int]
    persistence: str
    ports: Sequence[int] = ()

    def shard(self, url: str) -> Shard:
        return SHARDS.get(self.name, RedisShard)(url, "1")


def stand(run: Run, name: str, number: int = 0) -> AbstractContextManager[Stand]:
    """One of ALL_STORES, or of BROKERS; what was put into its places is gone at the end."""
    if name == "sqlite":
        return _on_files()
    if name in BROKERS:
        return _on_broker(name)
    return _on_replicas(name) if name in REPLICATED else _on_server(run, name, number)


@contextmanager
def _on_files() -> Iterator[Stand]:
    numbers = count()
    with tempfile.TemporaryDirectory(prefix="pinlater-bench-") as folder:
        yield Stand("sqlite", lambda: f"sqlite:///{folder}/{next(numbers)}.db", {}, PERSISTENCE["sqlite"])


@contextmanager
def _on_broker(name: str) -> Iterator[Stand]:
    with running_broker(name) as (port, pid):
        yield Stand(name, lambda: f"127.0.0.1:{port}", {name: pid}, PERSISTENCE[name], [port])


@contextmanager
def _on_server(run: Run, name: str, number: int) -> Iterator[Stand]:
    numbers = count()
    store = run.store(name, number, durable=name != "redis")
    used: list[int] = []

    def fresh() -> str:
        place = PLACES[next(numbers) % len(PLACES)]
        store.empty(place)
        used.append(place)
        return store.url(place)

    shown = {"mysql": "mariadb"}.get(name, name)
    try:
        yield Stand(name, fresh, {shown: store.pid}, PERSISTENCE[name], [store.port])
    finally:
        for place in used:
            store.empty(place)


@contextmanager
def _on_replicas(name: str) -> Iterator[Stand]:
    """Its processes are of this stand alone."""
    numbers = count()
    with RedisCluster() if name == "redis-cluster" else SentinelGroup() as group:

        def fresh() -> str:
            if isinstance(group, RedisCluster):
                return f"{group.fresh()}&wait=1"
            return group.url("?wait=1", next(numbers))

        pids = {f"{name} {number}": node.pid for number, node in enumerate(group.nodes, 1)}
        yield Stand(name, fresh, pids, PERSISTENCE[name], [node.port for node in group.nodes])
