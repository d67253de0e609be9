"""What a simulated process finds on its machine: clocks, drivers of stores, threads, a database of flows, a tier.

It stands in at the names by which `pinlater.app` and its parts know the real things, while `machines()` lasts; which
process asks is known by the context in which it runs.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, TypeVar
from unittest.mock import patch

import pinlater.app
import pinlater.bodies.tier
import pinlater.flows.child_maker
import pinlater.flows.flow_engine
import pinlater.maintenance.periodic
import pinlater.overflow.overflow
import pinlater.overflow.ownership
import pinlater.overflow.routing
import pinlater.service.dequeuer
import pinlater.service.queues_dequeuer
import pinlater.shard_factory
from pinlater.backends.base import Shard
from pinlater.backends.sql import sqlite_connection
from pinlater.cluster.clocks import ClusterClock
from pinlater.config import StoreConfig
from pinlater.errors import FlowsUnavailable, NothingStored, OutcomeUnknown
from pinlater.flows.connection import open_database
from pinlater.flows.database import FlowDatabase
from pinlater.model.owner_bounds import NO_BOUNDS, OwnerBounds
from pinlater.server.thrift_server import ThriftServer
from tests.simulation.network import FLOWS, Network
from tests.simulation.scheduler import Scheduler
from tests.simulation.threads import GroupCommitThread, InlineExecutor
from tests.simulation.tier import SimulatedTier
from tests.simulation.virtual_time import MachineClock, passed_ns, passed_s

T = TypeVar("T")


@dataclass
class Machine:
    """A machine that servers are started on: its name, its data folder, its clock. `server_id`: see
    `pinlater.data_folder.identity`.
    """

    name: str
    folder: Path
    clock: MachineClock = field(default_factory=MachineClock)
    starts: int = 0
    """How many processes have run on it; the last of them has this number for its id."""

    @property
    def server_id(self) -> str:
        return self.name.upper().rjust(10, "0")

    @property
    def process(self) -> str:
        """The name of its last process, as leases have it."""
        return f"{self.server_id}/{self.starts}"


@dataclass(frozen=True)
class Place:
    """Where a process runs, and what it shares with others."""

    machine: Machine
    network: Network
    process: str


PLACE: ContextVar[Place] = ContextVar("place")
"""That of the process whose work this is."""


BY_MONOTONIC = (
    pinlater.overflow.routing,
    pinlater.service.dequeuer,
    pinlater.service.queues_dequeuer,
)
"""Modules that import `time.monotonic` by its name."""


@contextmanager
def machines() -> Iterator[None]:
    """For as long as simulated processes live."""
    real_pid, real_host = os.getpid, socket.gethostname

    def pid() -> int:
        place = PLACE.get(None)
        return real_pid() if place is None else int(place.process.rpartition("/")[2])

    def host() -> str:
        place = PLACE.get(None)
        return real_host() if place is None else place.machine.name

    with ExitStack() as stack:
        for owner, name, value in (
            (os, "getpid", pid),
            (socket, "gethostname", host),
            (socket, "create_server", _Listener),
            (pinlater.overflow.ownership, "ThriftServer", _ListeningServer),
            (pinlater.overflow.overflow, "OwnerLock", _Lock),
            (sqlite_connection, "GroupCommitThread", GroupCommitThread),
            (pinlater.maintenance.periodic, "AsyncIOScheduler", Scheduler),
            (pinlater.app, "ClusterClock", _clock),
            (pinlater.app, "name_of_server", lambda folder: PLACE.get().machine.server_id),
            (pinlater.app, "describe_disk", lambda folder: {}),
            (pinlater.shard_factory, "bare_shard", _bare_shard),
            (pinlater.bodies.tier, "object_store", _tier),
            *((module, "monotonic", passed_s) for module in BY_MONOTONIC),
            (
                pinlater.service.queues_dequeuer,
                "random",
                SimpleNamespace(Random=lambda: random.Random(random.random())),
            ),
            (pinlater.flows.child_maker, "ThreadPoolExecutor", InlineExecutor),
            (pinlater.flows.flow_engine, "FlowConnection", SimulatedFlowConnection),
        ):
            stack.enter_context(patch.object(owner, name, value))
        yield


class _Listener:
    """The socket on which the owner of an overflow shard listens."""

    def __init__(self, address: tuple[str, int], *, family: int) -> None:
        self.address = address[0], next(PLACE.get().network.ports)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """The server has it."""

    def getsockname(self) -> tuple[str, int]:
        return self.address


class _Lock:
    """The lock of a file, which its process holds as long as it lives."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def take(self) -> bool:
        place = PLACE.get()
        holder = place.network.locks.get(self._path)
        if holder not in (None, place.process) and not place.network.is_dead(holder):
            return False
        place.network.locks[self._path] = place.process
        return True

    def free(self) -> None:
        place = PLACE.get()
        if place.network.locks.get(self._path) == place.process:
            del place.network.locks[self._path]


class _ListeningServer(ThriftServer):
    """That server, which other servers reach as callers reach theirs."""

    async def start(self, listener: Any = None) -> None:
        await super().start()
        host, port = listener.address
        self._address = f"{host}:{port}"
        context = copy_context()
        PLACE.get().network.listen(self._address, lambda accepted: context.copy().run(self.adopt, accepted))

    def stop_accepting(self) -> None:
        PLACE.get().network.leave(self._address)
        super().stop_accepting()


def _clock(tolerance_ms: int) -> ClusterClock:
    return ClusterClock(tolerance_ms, wall_ns=PLACE.get().machine.clock.wall_ns, passed_ns=passed_ns)


def _bare_shard(store: StoreConfig) -> Shard:
    place = PLACE.get()
    return place.network.remote(place.process, store.id)


def _tier(url: str) -> SimulatedTier:
    place = PLACE.get()
    return SimulatedTier(place.network, place.process, place.network.objects)


class SimulatedFlowConnection:
    """The `FlowConnection` of a process: one SQLite file for all of the cluster, as far as its process reaches it.

    What is done on it, is done at one moment, as by a database that can be reached by many.
    """

    def __init__(
        self,
        url: str,
        refusal: Callable[[], str] = str,
        bounds: Callable[[str], OwnerBounds] = lambda owner: NO_BOUNDS,
    ) -> None:
        place = PLACE.get()
        self._network, self._process = place.network, place.process
        self._bounds = bounds
        self._database: FlowDatabase | None = None

    @property
    def is_made(self) -> bool:
        return True

    async def call(self, work: Callable[[FlowDatabase], T]) -> T:
        try:
            made: T = await self._network.call(self._process, FLOWS, "flows", partial(self._carry_out, work))
        except (NothingStored, OutcomeUnknown) as error:
            raise FlowsUnavailable(error.message, retry_after_ms=1_000) from error
        return made

    def _carry_out(self, work: Callable[[FlowDatabase], T]) -> T:
        if self._database is None:
            self._database = open_database(f"sqlite:///{self._network.flows_file}", self._bounds)
        return work(self._database)

    async def close(self) -> None:
        if self._database is not None:
            self._database.close()
