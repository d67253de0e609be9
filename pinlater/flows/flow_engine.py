"""Flows in one process: the parts, put together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import methodcaller

import structlog

from pinlater.background_tasks import BackgroundTasks
from pinlater.clock import Clock
from pinlater.errors import FlowsUnavailable, PinLaterError, QueueNotFound
from pinlater.flows.budgets import MAX_STEPS
from pinlater.flows.callbacks import FlowCallbacks, PostCall
from pinlater.flows.child_maker import MAX_HELD_BYTES, QUICK_STEPS, ChildMaker
from pinlater.flows.connection import FlowConnection
from pinlater.flows.ends import MadeChildren, Recorded, RetriedItems, UnmadeChildren, WantedItems
from pinlater.flows.item_ends import ItemEnds
from pinlater.flows.keeper import FlowKeeper
from pinlater.flows.waits import FlowWaits
from pinlater.metrics import Metrics
from pinlater.model import Job
from pinlater.model.flow_words import Applet, AppletKind, Stage
from pinlater.model.owner_bounds import NO_BOUNDS, OwnerBounds
from pinlater.queues.directory import QueueDirectory
from pinlater.shards.router import Router

_log = structlog.get_logger("pinlater.flows")

_SELF = "flows"
"""Who makes queues anew, for the audit."""

_LONGEST_PAUSE_S = 60.0

_OLDER_SERVER = "server {} is of a version that retries no items of flows: upgrade it first"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSettings:
    """`url`: of SQLAlchemy, "" for none. `callback_hosts`, `callback_secret`: see FlowCallbacks."""

    url: str
    callback_hosts: Collection[str] = ()
    callback_secret: str = ""


class Flows:
    """`name` is this process's among all of the cluster. `refusal` says why this server must have no flows now, "" if
    it may; `has_others`: there are live processes beside this one; `unaware_of_retries` names those
    of them that do not know flows which were opened again. `jobs_ready` hears of jobs that may be handed
    out, as `JobEvents.ready`. `bounds` says what an owner of flows may have. `post`: see FlowCallbacks.
    """

    def __init__(
        self,
        settings: FlowSettings,
        name: str,
        router: Router,
        queues: QueueDirectory,
        clock: Clock,
        metrics: Metrics,
        jobs_ready: Callable[[str, int, Sequence[int]], None],
        refusal: Callable[[], str] = str,
        has_others: Callable[[], bool] = bool,
        bounds: Callable[[str], OwnerBounds] = lambda owner: NO_BOUNDS,
        unaware_of_retries: Callable[[], Sequence[str]] = tuple,
        post: PostCall | None = None,
    ) -> None:
        self._router, self._queues, self._clock, self._jobs_ready = router, queues, clock, jobs_ready
        self.has_others, self.unaware_of_retries = has_others, unaware_of_retries
        self.connection = connection = FlowConnection(settings.url, refusal, bounds)
        self.waits = FlowWaits(connection, metrics)
        self.callbacks = FlowCallbacks(
            connection, self._enqueue, clock, metrics, settings.callback_hosts, settings.callback_secret, post
        )
        self.keeper = FlowKeeper(
            name, connection, router, queues, self.callbacks, clock, metrics, jobs_ready, self.are_over, has_others
        )
        self.maker = ChildMaker(lambda outcome: metrics.add(1, "flow_expressions", outcome))
        self.ends = ItemEnds(connection, router, clock, self._recorded, self.maker)
        self._tasks = BackgroundTasks()

    def start(self) -> None:
        self.keeper.start()
        if self.connection.is_made:
            self._tasks.start(self._mark_queues())

    async def settle(self) -> None:
        """Do all that is to be done by now, for a process that has not started; its own work is the only one."""
        while True:
            await self._tasks.drain()
            await self.callbacks.make_due()
            await self.callbacks.drain()
            if not await self.keeper.settle() and not self._tasks and not self.callbacks.is_busy:
                return

    async def _mark_queues(self) -> None:
        """Queues that flows need, and of which no store knows any more: the one that did has lost all. One that
        somebody has deleted stays so.
        """
        pause_s = 1.0
        while True:
            try:
                needed = await self.connection.call(lambda database: database.open_queues())
                lost = [
                    queue for queue in needed if not self._queues.has(queue) and not self._queues.was_deleted(queue)
                ]
                for queue in lost:
                    await self._queues.take_items(queue, _SELF)
                    _log.warning("flow_queue_made_anew", queue=queue, hint="the stores had lost it, with its settings")
                return
            except PinLaterError as error:
                _log.warning("flow_queues_unknown", error=error.message)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def close(self) -> None:
        """Ends are recorded that are under way; all else is done by another process, or later."""
        await self.ends.drain()
        await self.keeper.close()
        await self.waits.close()
        await self.callbacks.close()
        await self._tasks.cancel()
        await self.maker.close()
        await self.connection.close()

    async def resume(self, flow_id: str, stage: str, expression: str, caller: str) -> list[str]:
        """Make the children that could not be made, by another expression where one is given; see FlowDatabase.mend.
        The id of the flow, if it is over by that. FlowNotFound, RequestInvalid; FlowsUnavailable: it goes on when it is
        called again.
        """
        if expression:
            await self.maker.check([Stage(stage, "", "", "-", Applet(AppletKind.MAP, expression))])
        now_ms = self._clock.now_ms()
        await self.connection.call(lambda database: database.mend(flow_id, stage, expression, now_ms))
        return await self._make_missing(flow_id, (), caller)

    async def retry(
        self, flow_id: str, numbers: Sequence[int], stage: str, and_follows: bool, caller: str
    ) -> AsyncIterator[RetriedItems]:
        """Try items again that have ended: those of these numbers, or all that have failed by now, of a stage where it
        is named; see FlowDatabase.retry. In steps, each of which is done whole. FlowNotFound, RequestInvalid;
        FlowsUnavailable: it goes on when it is called again.
        """
        behind = self.unaware_of_retries()
        if behind:
            raise FlowsUnavailable(_OLDER_SERVER.format(behind[0]), retry_after_ms=5_000)
        until_ms = self._clock.now_ms()
        wanted = WantedItems(numbers=numbers, stage=stage, until_ms=until_ms, and_follows=and_follows)
        is_last = False
        while not is_last:
            now_ms = self._clock.now_ms()
            step = await self.connection.call(lambda database: database.retry(flow_id, wanted, now_ms))  # noqa: B023
            is_last = step.is_last
            if step.retried:
                self.keeper.wake()
            await self.keeper.cancel_jobs(step.jobs)
            if step.broken:
                self.are_over(await self._make_missing(flow_id, step.broken, caller))
            yield step

    async def _make_missing(self, flow_id: str, only: Sequence[int], caller: str) -> list[str]:
        """See FlowDatabase.make_children. The id of the flow, if it is over by that."""
        now_ms = self._clock.now_ms()
        over: list[str] = []
        after = 0
        made: Mapping[int, Sequence[MadeChildren]] = {}
        while True:
            step = methodcaller("make_children", flow_id, after, made, now_ms, only)
            resumed = await self.connection.call(step)
            over += resumed.over
            if resumed.unmade:
                made = await self._make_some(resumed.unmade, caller)
            elif resumed.last:
                after, made = resumed.last, {}
            else:
                return over

    async def _make_some(
        self, unmade: Mapping[int, UnmadeChildren], caller: str
    ) -> Mapping[int, Sequence[MadeChildren]]:
        """Children of the first of these items, by their numbers: as many as may be held in memory."""
        made: dict[int, Sequence[MadeChildren]] = {}
        held = 0
        for number, each in unmade.items():
            (made[number],), _ = await self.maker.make([each], caller, MAX_STEPS + QUICK_STEPS)
            held += sum(children.size for children in made[number])
            if held > MAX_HELD_BYTES:
                break
            await asyncio.sleep(0)
        return made

    def _recorded(self, recorded: Recorded) -> None:
        if recorded.has_waiting:
            self.keeper.wake()
        if recorded.over:
            self.are_over(recorded.over)
        for flow_id in recorded.stopping:
            self._tasks.start(self._stop(flow_id))

    async def _stop(self, flow_id: str) -> None:
        with suppress(PinLaterError):  # the keeper does it then
            await self.keeper.stop(flow_id)

    async def _enqueue(self, queue: str, jobs: Sequence[Job]) -> None:
        """Jobs that are not a caller's. QueueNotFound and others."""
        if not self._queues.has(queue):
            raise QueueNotFound.of(queue)
        await self._router.enqueue_extended(queue, jobs, self._clock.now_ms())
        self._jobs_ready(queue, len(jobs), ())

    def are_over(self, flow_ids: Sequence[str]) -> None:
        """These flows have ended: whoever waits is told."""
        self.waits.over(flow_ids)
        self.callbacks.make_soon(flow_ids)
