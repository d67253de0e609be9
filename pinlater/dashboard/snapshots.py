"""Snapshots: the data of pages, loaded once for all callers that ask within a moment.

Callers see different things, so each has snapshots of its own (`RequestContext.shown` tells them apart). Loads of one
thing are joined while one is under way. What is large is kept for longer, so that open pages cost the servers a bounded
share of their time, however many pages and queues there are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from pinlater.api import Api
from pinlater.dashboard.queue_rows import QueueRow, rows_of
from pinlater.errors import (
    FlowsUnavailable,
    Forbidden,
    PinLaterError,
    QueueNotFound,
    ServerUnreachable,
    UnknownError,
)
from pinlater.http.fair_shares import FairEntries
from pinlater.model import AccessView, ClusterStatus, QueueStatus, QueueView, RequestContext, WorkersPage
from pinlater.model.alarm_views import AlarmsPage

KEPT_S = 2.0
"""At least; a page asks anew as often."""

KEPT_QUEUES = 1_000
"""So many queues in a status are kept for KEPT_S, more of them for longer in proportion: each takes a server some five
microseconds, so that the queues of an open page stay well below 1 % of a core.
"""

MAX_SNAPSHOTS = 2_000
MAX_ROWS = 50
"""Callers whose rows are kept."""

MAX_RIGHTS = 2_000
"""Callers of whom is known what they may, for when no server answers."""

MAX_WORKERS = 500
"""Of one page."""

WITHIN_S = 4.0
"""A load that takes longer has failed. Where no server answers all others fail at once for KEPT_S, so that nobody
waits for each in turn.
"""

PROBE_S = 0.5
CLOCK_SLACK_MS = 1_000
"""Clocks of this machine and a server that differ by less are taken for one."""

P = ParamSpec("P")
T = TypeVar("T")
_LATE: dict[Any, type[PinLaterError]] = {
    Api.get_access: ServerUnreachable,
    **dict.fromkeys((Api.get_flow, Api.get_flows, Api.get_flow_items), FlowsUnavailable),
}
"""The errors of calls that take too long; of others it is UnknownError."""


def too_late(kind: type[PinLaterError]) -> PinLaterError:
    """The error of what did not come within WITHIN_S."""
    return kind(f"no answer came within {WITHIN_S:g} s")


@dataclass(slots=True, eq=False)
class _Snapshot:
    """`until_s` None: the load is under way."""

    task: asyncio.Task[Any]
    until_s: float | None = None


class Snapshots:
    """Those of one process."""

    def __init__(
        self, api: Api, owner_of: Callable[[RequestContext], Hashable] = lambda context: context.shown
    ) -> None:
        """`owner_of`: whom a caller counts as."""
        self._api = api
        self._owner_of = owner_of
        self._kept: FairEntries[_Snapshot] = FairEntries("http_snapshots", MAX_SNAPSHOTS)
        self._loads: set[asyncio.Task[Any]] = set()
        self._rows: FairEntries[tuple[ClusterStatus, list[QueueRow]]] = FairEntries("http_queue_rows", MAX_ROWS)
        self._rights: FairEntries[AccessView] = FairEntries("http_rights", MAX_RIGHTS)
        self._ahead_ms = 0
        self._away: FairEntries[float] = FairEntries("http_away", MAX_RIGHTS)
        """Until when the loads of a caller fail at once."""
        self.pools: Sequence[FairEntries[Any]] = (self._kept, self._rows, self._rights, self._away)

    async def get(
        self,
        context: RequestContext,
        name: Hashable,
        load: Callable[[], Awaitable[T]],
        kept_s: Callable[[T], float] = lambda _: KEPT_S,
        late: type[PinLaterError] = UnknownError,
    ) -> T:
        """What `load` gives, or gave a moment ago to the same caller under this name; its error too. `late`: the error
        of a load that takes too long. ServerUnreachable is for what every server answers whatever its stores do: all
        other loads fail with it for a moment.
        """
        key = (context.shown, name)
        now_s = asyncio.get_running_loop().time()
        found = self._kept.get(key)
        if found is None or (found.until_s is not None and found.until_s <= now_s):
            found = _Snapshot(asyncio.ensure_future(self._within(context, load, late)))
            self._kept.put(self._owner_of(context), key, found)
            self._loads.add(found.task)
            found.task.add_done_callback(lambda task: self._loaded(key, task, kept_s))
        return cast(T, await asyncio.shield(found.task))  # who leaves ends the load of nobody else

    async def call(
        self,
        context: RequestContext,
        method: Callable[Concatenate[Api, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """What a call of Api gives, or gave a moment ago. Its arguments are hashable."""
        call, late = getattr(self._api, method.__name__), _LATE.get(method, UnknownError)
        name = (method.__name__, args, *kwargs.items())
        return await self.get(context, name, lambda: call(*args, **kwargs, context=context), late=late)

    async def _within(self, context: RequestContext, load: Callable[[], Awaitable[T]], late: type[PinLaterError]) -> T:
        loop = asyncio.get_running_loop()
        if loop.time() < (self._away.get(context.shown) or 0.0):
            raise too_late(ServerUnreachable)
        try:
            async with asyncio.timeout(WITHIN_S):
                return await load()
        except TimeoutError:
            if late is not ServerUnreachable and await self._answers(context):
                raise too_late(late) from None
            self._away.put(self._owner_of(context), context.shown, loop.time() + KEPT_S)
            raise too_late(ServerUnreachable) from None

    async def _answers(self, context: RequestContext) -> bool:
        """Whether any server does, when something else has taken too long."""
        try:
            async with asyncio.timeout(PROBE_S):
                await self._api.get_access(context=context)
        except (TimeoutError, ServerUnreachable):
            return False
        except PinLaterError:
            pass
        return True

    def forget(self, context: RequestContext) -> None:
        """The caller has changed something: what it asks for from now on is to show it. Others see it soon."""
        self._kept.forget(self._owner_of(context))

    def now_ms(self) -> int:
        """By the servers' clock, which is not always that of this machine."""
        return int(time.time() * 1000) + self._ahead_ms

    async def close(self) -> None:
        for task in self._loads:
            task.cancel()
        await asyncio.gather(*self._loads, return_exceptions=True)

    # -- what more than one page shows ---------------------------------------------------------------------------------

    async def access(self, context: RequestContext) -> AccessView:
        view = await self.call(context, Api.get_access)
        self._rights.put(self._owner_of(context), context.shown, view)
        return view

    def last_access(self, context: RequestContext) -> AccessView | None:
        """What the servers said last that the caller may; None: that is not known."""
        return self._rights.get(context.shown)

    async def cluster(self, context: RequestContext, *, fresh: bool = False) -> ClusterStatus:
        """Servers, shards and all queues that the caller may read. Forbidden: it may read none. `fresh`: no older one
        than this call.
        """
        if fresh:
            self._kept.pop((context.shown, "cluster"))
        return await self.get(
            context,
            "cluster",
            lambda: self._cluster(context),
            lambda status: KEPT_S * max(1.0, len(status.queues) / KEPT_QUEUES),
        )

    async def queue_rows(self, context: RequestContext) -> tuple[ClusterStatus, list[QueueRow]]:
        """The cluster, and its queues as rows by name. They are made once for all that look: not to be changed."""
        status = await self.cluster(context)
        known = self._rows.get(context.shown)
        if known is None or known[0] is not status:
            known = status, rows_of(status.queues)
            self._rows.put(self._owner_of(context), context.shown, known)
        return known

    async def _cluster(self, context: RequestContext) -> ClusterStatus:
        began_ms = int(time.time() * 1000)
        status = await self._cluster_status(context)
        ended_ms = int(time.time() * 1000)
        is_same = began_ms - CLOCK_SLACK_MS <= status.now_ms <= ended_ms + CLOCK_SLACK_MS
        self._ahead_ms = 0 if is_same else status.now_ms - ended_ms
        return status

    async def _cluster_status(self, context: RequestContext) -> ClusterStatus:
        try:
            return await self._api.cluster_status(context=context)
        except Forbidden:
            names = sorted(await self._api.queue_names(context=context))
            if not names:
                raise
            return await self._api.cluster_status(queues=names, context=context)

    async def queue(self, context: RequestContext, name: str) -> QueueStatus:
        """One queue in numbers. QueueNotFound."""
        status = await self.call(context, Api.cluster_status, queues=(name,))
        for queue in status.queues:
            if queue.name == name:
                return queue
        raise QueueNotFound.of(name[:100])

    async def settings(self, context: RequestContext, name: str) -> QueueView:
        """Of a queue, or of "@defaults". QueueNotFound."""
        (view,) = await self.call(context, Api.get_queues, (name,))
        return view

    async def alarms(self, context: RequestContext) -> AlarmsPage:
        """What is broken, as the servers judge it, of the queues that the caller may read."""
        return await self.call(context, Api.get_alarms)

    async def workers(self, context: RequestContext, queue: str = "") -> WorkersPage:
        """Of one queue, or of all: the first page, with what they run."""
        return await self.call(context, Api.get_workers, queue=queue, include_running=True, limit=MAX_WORKERS)

    def _loaded(self, key: Hashable, task: asyncio.Task[Any], kept_s: Callable[[Any], float]) -> None:
        self._loads.discard(task)
        failed = task.cancelled() or task.exception() is not None
        kept = self._kept.get(key)
        if kept is not None and kept.task is task:
            now_s = asyncio.get_running_loop().time()
            kept.until_s = now_s + (KEPT_S / 2 if failed else kept_s(task.result()))
