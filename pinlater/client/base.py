"""What every call of a client needs: its servers, its deadline, its event loop, and the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from pinlater.client.calls import Dispatcher, Outgoing
from pinlater.client.enqueuing import Enqueuer
from pinlater.client.fleet import Fleet, Resolve, look_up
from pinlater.client.joining import JoiningLimits
from pinlater.client.pool import PoolLimits
from pinlater.client.server import Server
from pinlater.client.target import default_source, target_servers
from pinlater.model import RequestContext
from pinlater.wire.convert import call_args
from pinlater.wire.methods import Idempotency

DEFAULT_TIMEOUT_S = 10.0


class ConnectedClient:
    """The servers, and one call to whichever of them answers."""

    def __init__(
        self,
        *addresses: str,
        servers: Sequence[str] = (),
        cluster: str | None = None,
        clusters_file: str | Path | None = None,
        source: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
        pool: PoolLimits | None = None,
        joining: JoiningLimits | None = None,
        patient: bool = True,
        on_disconnect: Callable[[], None] | None = None,
        stay_s: float = 0.0,
        wait_for_rate: bool = True,
        resolve: Resolve = look_up,
    ) -> None:
        pool_limits = pool or PoolLimits()
        self.servers = target_servers([*addresses, *servers], cluster, clusters_file)
        self.source = source or default_source()
        self._context = RequestContext(self.source)
        self._timeout_s = timeout
        self._on_disconnect = on_disconnect
        on_lost = None if on_disconnect is None else self._lost
        fleet = Fleet(self.servers, lambda address: Server(address, pool_limits, on_lost), resolve)
        self._dispatcher = Dispatcher(
            fleet, random.Random(), patient=patient, stay_s=stay_s, wait_for_rate=wait_for_rate
        )
        self._enqueuer = Enqueuer(self._dispatcher, self._context, joining or JoiningLimits())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes every connection. Calls under way fail, so await those that matter first."""
        self._closed = True
        why = "the client was closed"
        await self._enqueuer.close(RuntimeError(why))
        await self._dispatcher.close(why)
        await asyncio.sleep(0)  # the transports report their end in the loop's next turn

    def _lost(self) -> None:
        if self._on_disconnect is not None and not self._closed:
            self._on_disconnect()

    async def _call(
        self,
        method: str,
        safety: Idempotency,
        context: RequestContext | None,
        timeout: float | None,
        *,
        pipelined: bool = False,
        **arguments: Any,
    ) -> Any:
        args = call_args(method, context or self._context, **arguments)
        return await self._dispatcher.call(
            Outgoing(method, args, safety, self._deadline_s(timeout), pipelined=pipelined)
        )

    def _deadline_s(self, timeout: float | None) -> float:
        return self._check_usable().time() + (self._timeout_s if timeout is None else timeout)

    def _check_usable(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._closed:
            raise RuntimeError("this client is closed")
        if self._loop is None:
            self._loop = loop
        if self._loop is not loop:
            raise RuntimeError("this client belongs to another event loop; make one client per loop")
        return loop
