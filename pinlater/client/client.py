"""Client: the calls of AsyncClient for programs without asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

from pinlater.client.addresses import Target
from pinlater.client.async_client import DEFAULT_TIMEOUT_S, AsyncClient
from pinlater.client.background import BackgroundClient
from pinlater.client.cluster_client import ClusterClient
from pinlater.client.flow_client import FlowClient
from pinlater.client.job_client import JobClient
from pinlater.client.job_life_client import JobLifeClient
from pinlater.client.queue_client import QueueClient
from pinlater.client.token import Token


class Client(QueueClient, JobLifeClient, JobClient, ClusterClient, FlowClient):
    """AsyncClient for programs without asyncio: the same arguments, calls and errors.

    May be used by many threads at once. A call is sent and answered in the thread that makes it; those that meet many
    others, wait for jobs or go on after a failure share a thread of the client, which starts with the first of these.
    """

    def __init__(
        self,
        *addresses: str,
        servers: Sequence[str] = (),
        cluster: str | None = None,
        clusters_file: str | Path | None = None,
        source: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
        token: str | Path | Token | None = None,
        **limits: Any,
    ) -> None:
        self._background = BackgroundClient(
            partial(
                AsyncClient,
                *addresses,
                servers=servers,
                cluster=cluster,
                clusters_file=clusters_file,
                source=source,
                timeout=timeout,
                token=Token.of(token),  # the repr of a partial shows its arguments
                **limits,
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes every connection. Calls under way in other threads fail."""
        self._background.close()

    @property
    def servers(self) -> list[Target]:
        """The servers this client talks to, as they were given: a name in the DNS stands for all its addresses."""
        return self._background.client.servers

    @property
    def source(self) -> str:
        """The name of this client in the claims made for it."""
        return self._background.client.source
