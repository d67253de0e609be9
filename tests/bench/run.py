"""What every measure is given: stores that are started once, the yardstick around it, and how long to measure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from tests.bench.figure import Figure
from tests.bench.yardsticks import sets_per_s
from tests.stores.places import start_server
from tests.stores.process import StoreServer

PERSISTENCE = {
    "redis": "redis: appendonly no, save ''",
    "mysql": "mariadb: innodb_flush_log_at_trx_commit 1",
    "sqlite": "sqlite: WAL, synchronous FULL",
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
