"""A server process: the product's own `ServerProcess` on a simulated machine (machines.py)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any, TypeVar

from pinlater.app import ServerProcess
from pinlater.cluster.clocks import ClusterClock
from pinlater.config import Config
from pinlater.metrics import Metrics
from pinlater.queues.directory import QueueDirectory
from pinlater.service import Service
from tests.simulation.machines import PLACE, Machine, Place
from tests.simulation.network import Network
from tests.simulation.virtual_time import as_process, virtual_loop

R = TypeVar("R")
DRAIN_S = 5.0


class SimulatedServer:
    """Built, opened and stopped in the order of a real one; or frozen, or killed."""

    def __init__(self, machine: Machine, network: Network, config: Config) -> None:
        machine.starts += 1
        self.machine, self.name, self.process = machine, machine.name, machine.process
        self.shard_ids = [store.id for store in config.stores]
        self.is_alive = True
        self._network = network
        self._context = as_process(self.process)
        self._context.run(PLACE.set, Place(machine, network, self.process))
        self._app: ServerProcess = self._context.run(ServerProcess, config, {}, f"{self.name}:9010")

    def begin(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        """Work of this process."""
        return asyncio.get_running_loop().create_task(work, context=self._context.copy())

    async def open(self) -> None:
        await self.begin(self._app.open())

    def adopt(self, connection: socket.socket) -> None:
        """A caller has connected."""
        self._context.copy().run(self._app.adopt, connection)

    async def stop(self) -> None:
        """As after SIGTERM."""
        await self.begin(self._app.drain(None, DRAIN_S))
        await self.begin(self._app.close())
        self.is_alive = False
        self._network.kill(self.process)

    def freeze(self) -> None:
        """As after SIGSTOP."""
        virtual_loop().freeze(self.process)

    def thaw(self) -> None:
        """As after SIGCONT."""
        virtual_loop().thaw(self.process)

    def kill(self) -> None:
        """As after kill -9: from this moment on nothing of it runs any more."""
        self.is_alive = False
        self._network.kill(self.process)
        self.freeze()

    async def bury(self) -> None:
        """End the tasks of a process that was killed, when nobody is left who could hear of it."""
        self.thaw()
        await self.begin(self._app.close())

    # -- what is watched ---------------------------------------------------------------------------------------------

    @property
    def service(self) -> Service:
        return self._app.service

    @property
    def queues(self) -> QueueDirectory:
        return self._app.service.queues

    @property
    def clock(self) -> ClusterClock:
        return self._app.clock

    @property
    def metrics(self) -> Metrics:
        return self._app.metrics

    def used(self) -> set[str]:
        """The shards that are in, as it sees them."""
        return {each.shard.shard_id for each in self.service.router.members.healthy()}

    def owned(self) -> set[str]:
        """The shards that it takes for its own."""
        owns = self._app.membership.owns
        return {each.shard.shard_id for each in self.service.router.members.all if owns(each.shard.shard_id)}
