"""A cluster: its servers, as they come and go, and what is watched while it runs.

The watch looks ten times a second. A shard that some live server can reach, and uses, should have an owner that does;
how long each was without one is kept, and so is the largest sum of jobs in progress of each queue with a maximum.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from tests.simulation.network import GIVEN_UP_S, Network, Way
from tests.simulation.server import SimulatedServer
from tests.simulation.store import SimulatedStore

R = TypeVar("R")
LOOK_EVERY_S = 0.1


class ServerGone(Exception):
    """The server died before it answered."""


class Cluster:
    """`shards` stores and the servers over them, which are named q1, q2, …"""

    def __init__(self, shards: int, *, notifies: bool = True, lease_ms: int = 5_000) -> None:
        stores = [SimulatedStore(str(number), notifies=notifies) for number in range(1, shards + 1)]
        self.network = Network(stores)
        self.stores = stores
        self.servers: list[SimulatedServer] = []
        """Those that live."""
        self.violations: list[str] = []
        """What must never be."""
        self.unowned_s: dict[str, float] = {}
        """The longest that each shard was without an owner although a live server could reach it."""
        self.maxima: dict[str, int] = {}
        """The queues with a maximum in progress, whose sum is watched."""
        self.most_in_progress: dict[str, int] = {}
        self._lease_ms = lease_ms
        self._died: dict[str, asyncio.Event] = {}
        self._all: list[SimulatedServer] = []
        self._without_since: dict[str, float] = {}
        self._watch: asyncio.Task[None] | None = None

    # -- servers -----------------------------------------------------------------------------------------------------

    async def start(self, name: str, *, ahead_ms: int = 0) -> SimulatedServer:
        server = SimulatedServer(name, self.network, ahead_ms=ahead_ms, lease_ms=self._lease_ms)
        await server.open()
        self._died[server.process] = asyncio.Event()
        self.servers.append(server)
        self._all.append(server)
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

    async def call(self, server: SimulatedServer, call: Coroutine[Any, Any, R]) -> R:
        """As a caller on a connection to it. ServerGone: what became of the call is not known."""
        task = asyncio.ensure_future(call)
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
            await self.stop(server)
        for server in self._all:
            await server.ended()
        await asyncio.sleep(2 * GIVEN_UP_S)  # calls that nobody waited for any more

    async def until_all_is_used(self, at_most_s: float) -> float:
        """Until every server uses every shard; how long that took."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while any(len(server.used()) < len(self.stores) for server in self.servers):
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
        for shard_id in self.network.stores:
            able = [each for each in used if shard_id in used[each] and self.network.way(each, shard_id) is Way.WELL]
            if not able or any(shard_id in owned[each] for each in able):
                self._without_since.pop(shard_id, None)
                continue
            since_s = self._without_since.setdefault(shard_id, now_s)
            self.unowned_s[shard_id] = max(self.unowned_s.get(shard_id, 0.0), now_s - since_s)

    def _look_at_maxima(self) -> None:
        for queue, maximum in self.maxima.items():
            in_progress = sum(store.jobs.in_progress(queue) for store in self.stores if queue in store.jobs.queues)
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
