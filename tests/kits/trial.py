"""The rows of the trial, and their run: those of a column at once, in threads, as most of them wait."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.kits.columns import COLUMNS, Column
from tests.kits.programs import TrialProducer, TrialWorker
from tests.kits.site import Site

MODULES = ("rows_jobs", "rows_outcomes", "rows_producer", "rows_stop", "rows_servers", "rows_network", "rows_access")
AT_ONCE = 8
SHARED = {"kits_a": 3, "kits_b": 1, "kits_tier": 1, "kits_raw": 1}
PEER = "kits_peer"


@dataclass(frozen=True)
class Row:
    """`says`: what a kit does, in one sentence. `is_long`: it waits for a lease or a time-out, and is left to the run
    before a release.
    """

    name: str
    says: str
    judge: Callable[[Stand], None]
    is_long: bool = False


_rows: dict[str, Row] = {}


def row(says: str, *, is_long: bool = False) -> Callable[[Callable[[Stand], None]], Callable[[Stand], None]]:
    """Make a function a row, by its name."""

    def declare(judge: Callable[[Stand], None]) -> Callable[[Stand], None]:
        name = judge.__name__.replace("_", "-")
        assert name not in _rows, name
        _rows[name] = Row(name, says, judge, is_long)
        return judge

    return declare


def all_rows() -> Sequence[Row]:
    """In the order of the table."""
    for module in MODULES:
        import_module(f"tests.kits.{module}")
    return list(_rows.values())


def each_column(names: Iterable[str] = COLUMNS) -> list[Any]:
    """For parametrize: the columns whose programs this checkout has."""
    there = [COLUMNS[name] for name in names if COLUMNS[name].is_there]
    marks = {each: [pytest.mark.store("languages")] * (each.name != "python") for each in there}
    return [pytest.param(each, id=each.name, marks=[pytest.mark.slow, *marks[each]]) for each in there]


def rows_of(*, long: bool = False) -> list[Any]:
    """For parametrize, by itself: with the column in one parametrize, pytest would set up a column for each row."""
    return [pytest.param(each, id=each.name) for each in all_rows() if each.is_long is long]


class Stand:
    """What the rows of one column share: a server, a worker and a producer of the kit, a worker in Python."""

    def __init__(self, column: Column, folder: Path) -> None:
        self.column, self._folder = column, folder
        self.built = folder / "built"
        self._stack, self._lock = contextlib.ExitStack(), threading.RLock()
        self._sites = 0

    def __enter__(self) -> Stand:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    @cached_property
    def command(self) -> list[str]:
        """Of the kit's program, which is built once."""
        self.built.mkdir()
        return self.column.build(self.built)

    def prepare(self) -> None:
        """Before the threads of rows begin: what they share is made once."""
        _ = self.command, self.site, self.worker, self.producer, self.peer

    @contextlib.contextmanager
    def new_site(self, *, secure: bool = False) -> Any:
        """A server of a row's own, which it may stop."""
        with self._lock:
            self._sites += 1
            folder = self._folder / f"site-{self._sites}"
        folder.mkdir()
        with Site(folder, self.column, self.command, secure=secure) as site:
            yield site

    @cached_property
    def site(self) -> Site:
        """No row stops or breaks it."""
        site: Site = self._stack.enter_context(self.new_site())
        for queue in (*SHARED, PEER):
            site.client.create_queue(queue)
        return site

    @cached_property
    def worker(self) -> TrialWorker:
        """Takes from the queues of SHARED, in 32 slots, and is not stopped."""
        return self._stack.enter_context(self.site.worker(queues=SHARED, raw_queues=["kits_raw"], slots=32))

    @cached_property
    def producer(self) -> TrialProducer:
        """A row that waits in it makes one of its own."""
        return self._stack.enter_context(self.site.producer())

    @cached_property
    def peer(self) -> TrialWorker:
        """With the Python framework, for the queue PEER."""
        command = COLUMNS["python"].build(self._folder)
        servers = [f"127.0.0.1:{self.site.thrift_port}"]
        return self._stack.enter_context(self.site.worker(PEER, command=command, servers=servers, name="peer"))

    @property
    def secure(self) -> Site:
        """Over TLS, for callers with a token; no row stops it."""
        with self._lock:
            return self._secure

    @cached_property
    def _secure(self) -> Site:
        site: Site = self._stack.enter_context(self.new_site(secure=True))
        return site


class Trial:
    """A run of rows at one stand."""

    def __init__(self, stand: Stand, rows: Sequence[Row]) -> None:
        """The long ones first, so that the others run beside them."""
        self.stand = stand
        stand.prepare()
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="row")
        ordered = sorted(rows, key=lambda each: not each.is_long)
        self._runs: dict[str, Future[None]] = {row.name: self._pool.submit(row.judge, stand) for row in ordered}

    def judge(self, row: Row) -> None:
        """Raises what the row raised."""
        self._runs[row.name].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
