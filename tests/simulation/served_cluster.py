"""A cluster whose servers callers reach by simulated connections."""

from __future__ import annotations

from pinlater.config import Config
from tests.simulation.caller_network import CallerNetwork
from tests.simulation.cluster import Cluster
from tests.simulation.server import SimulatedServer


class ServedCluster(Cluster):
    """Each of its servers listens under its name while it lives."""

    def __init__(
        self, callers: CallerNetwork, shards: int, *, notifies: bool = True, config: Config | None = None
    ) -> None:
        super().__init__(shards, notifies=notifies, config=config)
        self._callers = callers
        self.network.listen, self.network.leave = callers.listen, callers.leave

    async def start(self, name: str) -> SimulatedServer:
        server = await super().start(name)
        self._callers.listen(name, server.adopt)
        return server

    async def stop(self, server: SimulatedServer) -> None:
        self._callers.leave(server.name)
        await super().stop(server)

    def kill(self, server: SimulatedServer) -> None:
        super().kill(server)
        self._callers.kill(server.name)
