"""A cluster whose servers callers reach by simulated connections."""

from __future__ import annotations

from tests.simulation.caller_network import CallerNetwork
from tests.simulation.cluster import Cluster
from tests.simulation.server import SimulatedServer


class ServedCluster(Cluster):
    """Each of its servers listens under its name while it lives."""

    def __init__(self, callers: CallerNetwork, shards: int, *, notifies: bool = True, lease_ms: int = 5_000) -> None:
        super().__init__(shards, notifies=notifies, lease_ms=lease_ms)
        self._callers = callers

    async def start(self, name: str, *, ahead_ms: int = 0) -> SimulatedServer:
        server = await super().start(name, ahead_ms=ahead_ms)
        await self._callers.listen(name, server.service, server.clock, server.metrics)
        return server

    async def stop(self, server: SimulatedServer) -> None:
        await self._callers.drain(server.name)
        await super().stop(server)

    def kill(self, server: SimulatedServer) -> None:
        super().kill(server)
        self._callers.kill(server.name)

    async def close(self) -> None:
        await self._callers.close()
        await super().close()
