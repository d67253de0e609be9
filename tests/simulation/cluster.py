"""A cluster: its machines, servers and stores, as they come and go, and what is watched while it runs.

The watch looks ten times a second. A shard that some live server can reach, and uses, should have an owner that does;
how long each was without one is kept, and so is the largest sum of jobs in progress of each queue with a maximum.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from pinlater.config import Config, StoreConfig
from pinlater.data_folder.password import hash_from_file
from tests.simulation.machines import Machine
from tests.simulation.network import GIVEN_UP_S, Network, Way
from tests.simulation.server import SimulatedServer
from tests.simulation.store import SimulatedStore

R = TypeVar("R")
LOOK_EVERY_S = 0.1
PASSWORD = "pinlater-" + 43 * "s"
"""Of operators, in the form in which a server makes one: it is checked quickly."""

IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class ServerGone(Exception):
    """The server died before it answered."""


class Cluster:
    """`shards` stores, and the servers over them, which are named q1, q2, … `config`: other settings of all servers."""

    def __init__(self, shards: int, *, notifies: bool = True, config: Config | None = None) -> None:
        self._folder = TemporaryDirectory(prefix="pinlater-simulation-", dir=IN_MEMORY)
        self.folder = Path(self._folder.name)
        self._notifies = notifies
        stores = [SimulatedStore(str(number), notifies=notifies) for number in range(1, shards + 1)]
        self.network = Network(stores, self.folder / "flows.db")
        self.config = replace(
            config or Config(), flows="simulated", processes=1, admin_password_hash=hash_from_file(PASSWORD)
        )
        self.shard_ids = [store.shard_id for store in stores]
        """Those that a server has in its configuration which starts now."""
        self.machines: dict[str, Machine] = {}
        self.servers: list[SimulatedServer] = []
        """Those that live."""
        self.violations: list[str] = []
        """What must never be."""
        self.unowned_s: dict[str, float] = {}
        """The longest that each shard was without an owner although a live server could reach it."""
        self.maxima: dict[str, int] = {}
        """The queues with a maximum in progress, whose sum is watched."""
        self.most_in_progress: dict[str, int] = {}
        self._died: dict[str, asyncio.Event] = {}
        self._killed: list[SimulatedServer] = []
        self._without_since: dict[str, float] = {}
        self._watch: asyncio.Task[None] | None = None

    @property
    def stores(self) -> list[SimulatedStore]:
        return list(self.network.stores.values())

    # -- shards ------------------------------------------------------------------------------------------------------

    def add_shard(self) -> str:
        """A new store, for servers that start from now on; its shard id."""
        store = SimulatedStore(str(1 + max(map(int, self.network.stores))), notifies=self._notifies)
        self.network.add(store)
        self.shard_ids.append(store.shard_id)
        return store.shard_id

    # -- servers -----------------------------------------------------------------------------------------------------

    def machine(self, name: str) -> Machine:
        if name not in self.machines:
            folder = self.folder / name
            folder.mkdir(mode=0o700)
            self.machines[name] = Machine(name, folder)
        return self.machines[name]

    async def start(self, name: str) -> SimulatedServer:
        """On the machine of that name, whose folder and clock are as they were."""
        machine = self.machine(name)
        stores = tuple(StoreConfig(shard_id, f"simulated://{shard_id}") for shard_id in self.shard_ids)
        server = SimulatedServer(
            machine, self.network, replace(self.config, host=name, data=str(machine.folder), stores=stores)
        )
        await server.open()
        self._died[server.process] = asyncio.Event()
        self.servers.append(server)
        return server

    async def start_all(self, servers: int) -> None:
        """One after the other, as an operator would who starts a cluster."""
        for number in range(1, servers + 1):
            await self.start(f"q{number}")

    async def stop(self, server: SimulatedServer) -> None:
        """It drains: callers go elsewhere."""
        self.servers.remove(server)
        await server.stop()
        self._died[server.process].set()

    def kill(self, server: SimulatedServer) -> None:
        self.servers.remove(server)
        self._died[server.process].set()
        server.kill()
        self._killed.append(server)

    async def call(self, server: SimulatedServer, call: Coroutine[Any, Any, R]) -> R:
        """As a caller on a connection to it. ServerGone: what became of the call is not known."""
        task = server.begin(call)
        died = asyncio.ensure_future(self._died[server.process].wait())
        try:
            await asyncio.wait((task, died), return_when=asyncio.FIRST_COMPLETED)
        finally:
            died.cancel()
        if not task.done() or not server.is_alive:
            task.add_done_callback(lambda each: each.cancelled() or each.exception())
            raise ServerGone(server.name)
        return task.result()

    async def close(self) -> None:
        """All ends; what was killed as well."""
        if self._watch is not None:
            self._watch.cancel()
            with suppress(asyncio.CancelledError):
                await self._watch
        self.network.heal()
        for server in list(self.servers):
            server.thaw()
            await self.stop(server)
        for server in self._killed:
            await server.bury()
        await asyncio.sleep(2 * GIVEN_UP_S)  # calls that nobody waited for any more
        for store in self.stores:
            store.close()
        self._folder.cleanup()

    async def until_all_is_used(self, at_most_s: float) -> float:
        """Until every server uses every shard; how long that took."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while any(not server.used().issuperset(self.shard_ids) for server in self.servers):
            if loop.time() - began_s >= at_most_s:
                self.violations.append(f"not every server uses every shard {at_most_s} s after all was well again")
                break
            await asyncio.sleep(LOOK_EVERY_S)
        return loop.time() - began_s

    # -- what is watched ---------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """From now on."""
        self._watch = asyncio.get_running_loop().create_task(self._look_again_and_again())

    async def _look_again_and_again(self) -> None:
        while True:
            self._look_at_owners()
            self._look_at_maxima()
            await asyncio.sleep(LOOK_EVERY_S)

    def _look_at_owners(self) -> None:
        now_s = asyncio.get_running_loop().time()
        used = {server.process: server.used() for server in self.servers}
        owned = {server.process: server.owned() for server in self.servers}
        for shard_id in self.shard_ids:
            able = [each for each in used if shard_id in used[each] and self.network.way(each, shard_id) is Way.WELL]
            if not able or any(shard_id in owned[each] for each in able):
                self._without_since.pop(shard_id, None)
                continue
            since_s = self._without_since.setdefault(shard_id, now_s)
            self.unowned_s[shard_id] = max(self.unowned_s.get(shard_id, 0.0), now_s - since_s)

    def _look_at_maxima(self) -> None:
        for queue, maximum in self.maxima.items():
            in_progress = sum(store.in_progress(queue) for store in self.stores)
            self.most_in_progress[queue] = max(self.most_in_progress.get(queue, 0), in_progress)
            if in_progress > maximum:
                self.violations.append(f"{queue}: {in_progress} jobs are in progress, not {maximum} at most")

    @property
    def longest_unowned_s(self) -> float:
        return max(self.unowned_s.values(), default=0.0)

    def some_shards(self, part: float) -> list[str]:
        """The first of them, one at least."""
        ids = list(self.network.stores)
        return ids[: max(1, math.floor(len(ids) * part))]
