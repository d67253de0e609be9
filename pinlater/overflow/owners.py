"""The way to the owners of overflow shards, this server's own among them, and the connections to those."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from pinlater.client.async_client import AsyncClient
from pinlater.client.pool import PoolLimits
from pinlater.wire.limits import WireLimits

TIMEOUT_S = 3.0
"""An owner that does not answer counts as one that cannot be reached."""


class Owners:
    """Remembers where each owner was seen last: when it is needed, the stores that told of it may be gone."""

    def __init__(self, addresses: Callable[[], Mapping[str, str]], own: str, wire: WireLimits) -> None:
        """`addresses` tells of other servers; where the owner of `own` is, this machine knows better."""
        self._ask = addresses
        self._own = own
        self._limits = PoolLimits(connections=8, connect_timeout_s=1.0, wire=wire)
        self._addresses: dict[str, str] = {}
        self._clients: dict[str, AsyncClient] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def learn(self) -> None:
        """Ask again what the other servers tell."""
        for shard_id, address in self._ask().items():
            if shard_id != self._own:
                self.seen(shard_id, address)

    def seen(self, shard_id: str, address: str | None) -> None:
        before = self._addresses.get(shard_id)
        if address is not None and address != before:
            self._addresses[shard_id] = address
            self._drop(before)

    def forget(self, shard_id: str) -> None:
        self._drop(self._addresses.pop(shard_id, None))

    def client(self, shard_id: str) -> AsyncClient | None:
        """None: nobody has told where its owner is."""
        address = self._addresses.get(shard_id)
        if address is None:
            return None
        client = self._clients.get(address)
        if client is None:
            client = self._clients[address] = AsyncClient(address, timeout=TIMEOUT_S, pool=self._limits)
        return client

    def _drop(self, address: str | None) -> None:
        client = self._clients.pop(address, None) if address is not None else None
        if client is not None:
            task = asyncio.get_running_loop().create_task(client.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for shard_id in list(self._addresses):
            self.forget(shard_id)
        while self._closing:
            await asyncio.wait(self._closing)


class Telling(Protocol):
    """A lease, as far as it counts here."""

    @property
    def more(self) -> Mapping[str, Any]:
        """What its process has described."""


def told(leases: Iterable[Telling]) -> dict[str, str]:
    """Where the owners are that the leases tell of, by overflow shard. Of two the one that took it over last counts:
    the lease of a process that died lives on for a while.
    """
    latest: dict[str, tuple[int, str]] = {}
    for lease in leases:
        shard_id, address, since = (lease.more.get(f"overflow_{name}") for name in ("id", "address", "since_ms"))
        if isinstance(shard_id, str) and isinstance(address, str) and isinstance(since, int):
            latest[shard_id] = max(latest.get(shard_id, (0, "")), (since, address))
    return {shard_id: address for shard_id, (_, address) in latest.items()}
