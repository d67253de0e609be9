"""The servers of an app, and its clients of them: one for threads, one for each event loop, new ones for a worker."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pinlater.client.async_client import AsyncClient
from pinlater.client.client import Client
from pinlater.client.target import target_servers
from pinlater.model import Job
from pinlater_workers.errors import ConfigurationError

_making = threading.Lock()
"""Held for an assignment, so that many threads at once have one client."""


@dataclass(frozen=True, slots=True)
class Target:
    """Servers, or a cluster; with neither the environment decides, when the first client is made."""

    servers: Sequence[str] = ()
    cluster: str | None = None
    clusters_file: str | Path | None = None
    source: str | None = None


class Connections:
    """The clients to one target. An Outbox: jobs go to the servers. Clients are made when they are needed first."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._client: Client | None = None
        self._async_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient]
        self._async_clients = weakref.WeakKeyDictionary()

    @property
    def addresses(self) -> list[str]:
        """As HOST:PORT. ConfigurationError: no such address or cluster."""
        target = self.target
        try:
            return [str(each) for each in target_servers(target.servers, target.cluster, target.clusters_file)]
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    @property
    def client(self) -> Client:
        """For any number of threads, and for the children of a fork."""
        if self._client is None:
            made = Client(servers=self.addresses, source=self.target.source)
            with _making:
                self._client = self._client or made
        return self._client

    def async_client(self) -> AsyncClient:
        """That of the running event loop."""
        loop = asyncio.get_running_loop()
        client = self._async_clients.get(loop)
        if client is None:
            client = self._async_clients[loop] = self.connect()
        return client

    def connect(self, **options: Any) -> AsyncClient:
        """A new client, which the caller closes; `options` as for AsyncClient."""
        return AsyncClient(servers=self.addresses, **{"source": self.target.source, **options})

    def send(self, queue: str, jobs: Sequence[Job]) -> list[str]:
        return self.client.enqueue(queue, jobs)

    async def send_async(self, queue: str, jobs: Sequence[Job]) -> list[str]:
        return await self.async_client().enqueue(queue, jobs)

    def close(self) -> None:
        """Close the client for threads. A later call makes a new one."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    async def close_async(self) -> None:
        """Close that of the running event loop."""
        client = self._async_clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()
