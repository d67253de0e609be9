"""The waits for ends of flows: calls that are answered when a flow is over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from pinlater.background_tasks import BackgroundTasks
from pinlater.errors import PinLaterError
from pinlater.flows.connection import FlowConnection
from pinlater.metrics import Metrics
from pinlater.shared_pool import SharedPool

LOOK_EVERY_S = 0.25
"""At the flows that are waited for, all at once: another process may have seen their ends."""

MAX_WAITERS = 10_000


class FlowWaits:
    """Those of one process. While nobody waits it asks nothing."""

    def __init__(self, connection: FlowConnection, metrics: Metrics) -> None:
        self._connection = connection
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        self._room = SharedPool(MAX_WAITERS, "flow_waiters", "calls wait for flows", metrics)
        self._is_draining = False
        self._tasks = BackgroundTasks()

    async def until_over(self, flow_id: str, wait_s: float, holder: str) -> None:
        """Until something says that the flow is over, or so long, or until another caller needs the room of `holder`.
        Overloaded.
        """
        if self._is_draining:
            return
        place = self._room.enter(holder)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(flow_id, set()).add(future)
        place.give_way = partial(_settle, future)
        if not len(self._tasks):
            self._tasks.start(self._look())
        try:
            await asyncio.wait([future], timeout=wait_s)
        finally:
            place.leave()
            waiters = self._waiters.get(flow_id, set())
            waiters.discard(future)
            if not waiters:
                self._waiters.pop(flow_id, None)

    def over(self, flow_ids: Iterable[str]) -> None:
        """These are over."""
        for flow_id in flow_ids:
            for future in self._waiters.get(flow_id, ()):
                _settle(future)

    def start_draining(self) -> None:
        """All are answered now."""
        self._is_draining = True
        self.over(list(self._waiters))

    async def close(self) -> None:
        await self._tasks.cancel()

    async def _look(self) -> None:
        while self._waiters:
            await asyncio.sleep(LOOK_EVERY_S)
            named = list(self._waiters)
            try:
                self.over(await self._connection.call(lambda database: database.over_among(named)))  # noqa: B023
            except PinLaterError:
                continue  # who waits asks again by itself


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
