"""The keeper of flows: what goes on by itself. Items come into their queues, callbacks are made, and what is stuck is
found: jobs that are gone with their shard, cancelling that was broken off, flows whose time to live is over.

One process of the cluster keeps all flows at a time, by a row in their database that it renews while there is something
to do. Another one takes over when it does not any more. Where no queue takes items there is no task; where no flow runs
it looks once a minute.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import structlog

from pinlater.backends.base import JobKey
from pinlater.backends.extended import Offered
from pinlater.background_tasks import exponential_backoff_s
from pinlater.clock import Clock
from pinlater.errors import (
    FlowNotFound,
    FlowsUnavailable,
    GroupsNotSupported,
    GroupsNotYet,
    PinLaterError,
    TagsNotSupported,
    TagsNotYet,
)
from pinlater.flows.callbacks import FlowCallbacks
from pinlater.flows.connection import FlowConnection
from pinlater.flows.ends import QueuedJob, WaitingItem
from pinlater.flows.item_jobs import item_job
from pinlater.metrics import Metrics
from pinlater.model import ClaimOutcome, JobInfo, JobState, parse_descriptor
from pinlater.queues.directory import QueueDirectory
from pinlater.shards.router import Router

_log = structlog.get_logger("pinlater.flows")

WINDOW = 10_000
"""Items of a stage that are in its queue at most; the others wait in the database."""

BATCH = 1_000
"""Items that come into queues in one step, and jobs looked at in one."""

SHUT_S = 1.0
"""A queue into which items could not be put is left out for so long, so that those of others have their turn."""

WORK_S = 0.1
"""What may go on for long, as the removal of a flow, takes no more of one turn."""

COLLECT_S = 0.01
"""Behind such a step that was not full: items that come meanwhile go together, in one step for many."""

BUSY_S, OPEN_S, ALONE_S, IDLE_S = 0.025, 0.25, 1.0, 60.0
"""The pause after a look that found nothing: at first, while a flow runs to which other processes may add items, while
one runs whose items all come by this process, and while none does.
"""

STANDBY_S = 1.0
"""The pause of a process that is not the keeper, while a flow runs."""

ASK_OPEN_S = 2.0
"""A flow that ran is taken to run for so long."""

KEPT_MS = 3_000
"""For so long a process says that it is the keeper, and says so again after a third of it; one of an older version
after 2.5 s. After its death the other servers wait so long; processes of its own server do not, nor does the one that
is started in its place.
"""

CANCELLED_BY = "the end of its flow"
CANCEL_EVERY_S, CALLBACKS_EVERY_S, STOP_EVERY_S, CHECK_EVERY_S, REAP_EVERY_S = 1.0, 1.0, 1.0, 10.0, 60.0
RECOUNT_EVERY_S, RECOUNT_AT_ONCE = 3_600.0, 20
MAX_LEFT = 100_000
"""Jobs that are kept in mind to be cancelled."""

HELD_MS = 30_000
"""Jobs are looked at that have been in their queues for so long."""

_NO_TAGS = (TagsNotSupported.reason, TagsNotYet.reason)
_NO_GROUPS = (GroupsNotSupported.reason, GroupsNotYet.reason)

_LONGEST_TROUBLE_S = 5.0
PASS_ON_AFTER = 5
"""So many failures in a row of its own, the keeper lets another process be it."""


class FlowKeeper:
    """Keeps the flows of a cluster, or waits until it is this process's turn. `jobs_ready` hears of jobs that may be
    handed out: the queue, how many now, and when others may. `over` hears of flows that are over; `has_others`: there
    are live processes beside this one.
    """

    def __init__(
        self,
        name: str,
        connection: FlowConnection,
        router: Router,
        queues: QueueDirectory,
        callbacks: FlowCallbacks,
        clock: Clock,
        metrics: Metrics,
        jobs_ready: Callable[[str, int, Sequence[int]], None],
        over: Callable[[Sequence[str]], None],
        has_others: Callable[[], bool] = bool,
    ) -> None:
        self._name = name
        self._connection = connection
        self._router = router
        self._queues = queues
        self._callbacks = callbacks
        self._clock = clock
        self._metrics = metrics
        self._jobs_ready = jobs_ready
        self._over = over
        self._has_others = has_others
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_started = False
        self._kept_until_s = 0.0
        self._seen_until_ms, self._seen_s = -1, 0.0
        """What the keeper said last, and when this process has seen it first."""
        self._pause_s = 0.0
        self._ran_until_s = 0.0
        self._next_s: dict[str, float] = {}
        self._checked_to = (0, 0, 0)
        self._recounted_to = ""
        self._errors: dict[str, str] = {}
        """What this process was told when it put items into a queue, by the queue."""
        self._shut_until_s: dict[str, float] = {}
        self._left_out: dict[str, int] = {}
        """Items of a queue whose shards cannot be used now, by the last attempt."""
        self._left: list[QueuedJob] = []
        """Jobs of items that have ended, on shards that could not be asked."""

    def start(self) -> None:
        self._is_started = True
        self._queues.on_change(lambda _: self.wake())
        self.wake()

    def wake(self) -> None:
        """There may be something to do. Where no queue takes items there is nothing."""
        self._news.set()
        if self._is_started and self._task is None and self._queues.flow_queues:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def settle(self) -> bool:
        """Bring items into their queues and stop what is to be stopped, as a turn does; whether there was any."""
        return await self._keep() and (await self._feed() > 0 or await self._stop_some())

    async def close(self) -> None:
        self._is_started = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            if self._kept_until_s:
                await asyncio.gather(self._give_up(), return_exceptions=True)

    async def _run(self) -> None:
        failures, logged = 0, ""
        while self._is_started:
            self._news.clear()
            try:
                pause_s = await self._turn()
                failures, logged = 0, ""
            except PinLaterError as error:
                failures += 1
                if failures == 1:
                    _log.warning("flows_interrupted", error=error.message)
                pause_s = exponential_backoff_s(failures, OPEN_S, _LONGEST_TROUBLE_S)
            except Exception as error:
                failures += 1
                if logged != repr(error):
                    logged = repr(error)
                    _log.exception("flows_interrupted")
                if failures % PASS_ON_AFTER == 0:
                    await self._pass_on()
                pause_s = exponential_backoff_s(failures, OPEN_S, _LONGEST_TROUBLE_S)
            if failures:  # news do not mend it
                await asyncio.sleep(pause_s)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._news.wait()
                    self._pause_s = 0.0

    # -- turns ---------------------------------------------------------------------------------------------------------

    async def _turn(self) -> float:
        """Do what is to be done now; in how many seconds to look again at the latest."""
        if self._left:
            await self._every("cancel", CANCEL_EVERY_S, self._cancel_left)
        if not await self._keep():
            return STANDBY_S if await self._runs() else IDLE_S
        async with self._staying():
            fed = await self._feed()
            if 0 < fed < BATCH:
                await asyncio.sleep(COLLECT_S)
            is_busy = await self._keep_up()
        if is_busy or fed > 0:
            self._pause_s = 0.0
            return 0.0
        if self._pause_s < OPEN_S:
            self._pause_s = min(OPEN_S, max(BUSY_S, 2 * self._pause_s))
            return self._pause_s
        if await self._runs():
            return OPEN_S if self._has_others() or self._errors or self._left_out else ALONE_S
        if self._left:
            return CANCEL_EVERY_S
        await self._give_up()
        return IDLE_S

    async def _runs(self) -> bool:
        """Whether there is a flow that runs, or a callback to be made; or was a moment ago."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._ran_until_s and await self._connection.call(lambda database: database.open_flows()):
            self._ran_until_s = loop.time() + ASK_OPEN_S
        return loop.time() < self._ran_until_s

    async def _keep_up(self) -> bool:
        """What is done now and then; whether some of it is to go on. One that fails keeps no other from its turn."""
        is_busy, failed = False, None
        for name, interval_s, step in (
            ("callbacks", CALLBACKS_EVERY_S, self._callbacks.make_due),
            ("stop", STOP_EVERY_S, self._stop_some),
            ("check", CHECK_EVERY_S, self._check_jobs),
            ("reap", REAP_EVERY_S, self._reap_some),
            ("recount", RECOUNT_EVERY_S, self._recount),
        ):
            try:
                is_busy |= await self._every(name, interval_s, step)
            except PinLaterError:
                raise
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return is_busy

    async def _keep(self) -> bool:
        """Whether this process is the keeper, for some time yet. That time is measured by a clock that nobody sets."""
        loop, kept_s = asyncio.get_running_loop(), KEPT_MS / 1_000
        now_s, until_ms = loop.time(), self._clock.now_ms() + KEPT_MS
        if now_s < self._kept_until_s - kept_s * 2 / 3:
            return True
        over_ms = self._seen_until_ms if now_s >= self._seen_s + kept_s else -1
        is_kept, seen_until_ms = await self._connection.call(
            lambda database: database.keep(self._name, until_ms, over_ms, self._is_dead)
        )
        if seen_until_ms != self._seen_until_ms:
            self._seen_until_ms, self._seen_s = seen_until_ms, loop.time()
        self._kept_until_s = now_s + kept_s if is_kept else 0.0
        return is_kept

    @asynccontextmanager
    async def _staying(self) -> AsyncIterator[None]:
        """This process stays the keeper meanwhile: a shard that is away may hold it up for longer than KEPT_MS."""
        renewal = asyncio.get_running_loop().create_task(self._renew())
        try:
            yield
        finally:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)  # what fails there fails the next turn too

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(KEPT_MS / 3_000)
            await self._keep()

    async def _pass_on(self) -> None:
        """It fails here again and again, and may go well in another process, which is the keeper before this one tries
        again.
        """
        with suppress(Exception):  # it cannot even say so: the others see that it says nothing
            await self._give_up()

    def _is_dead(self, name: str) -> bool:
        """It was a process of this server, and so on this machine, and is none any more."""
        server, _, pid = name.rpartition("/")
        if server != self._name.rpartition("/")[0] or not pid.isdecimal() or name == self._name:
            return False
        with suppress(PermissionError, OverflowError):
            try:
                os.kill(int(pid), 0)
            except ProcessLookupError:
                return True
        return False

    async def _give_up(self) -> None:
        """Nothing is to be kept: whoever has something next need not wait."""
        self._kept_until_s = 0.0
        await self._connection.call(lambda database: database.keep(self._name, 0))

    async def _every(self, name: str, interval_s: float, step: Callable[[], Awaitable[bool]]) -> bool:
        """Steps of a work, if it is time for it, until one has left nothing to do or it has taken long enough; whether
        it is to go on at the next turn.
        """
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        if began_s < self._next_s.get(name, 0.0):
            return False
        while await step():
            if loop.time() >= began_s + WORK_S:
                return True
        self._next_s[name] = began_s + interval_s
        return False

    # -- into queues ---------------------------------------------------------------------------------------------------

    async def _feed(self) -> int:
        """Put items that wait into their queues; how many."""
        now_s = asyncio.get_running_loop().time()
        shut = [
            queue
            for queue in self._errors
            if queue not in self._queues.flow_queues or self._shut_until_s.get(queue, 0.0) > now_s
        ]
        limit = BATCH + min(WINDOW, max(self._left_out.values(), default=0))  # those behind them may go elsewhere
        items = await self._connection.call(lambda database: database.waiting(WINDOW, limit, shut))
        if not items:
            return 0
        by_queue: dict[str, list[WaitingItem]] = defaultdict(list)
        for item in items:
            by_queue[item.stage.queue].append(item)
        fed = 0
        for queue, some in by_queue.items():
            if asyncio.get_running_loop().time() >= self._kept_until_s:
                break  # this process was held up, and another one may be the keeper by now
            try:
                fed += await self._feed_queue(queue, some)
            except FlowsUnavailable:
                raise
            except Exception as error:  # whatever it is, other queues go on
                self._note_error(queue, len(some), error)
        return fed

    async def bring(self, number: int) -> ClaimOutcome | None:
        """Put an item that waits into its queue now, whichever process is the keeper: twice does no harm. Why it may
        not be there, if so. Errors of the router, where it cannot be put there now.
        """
        item = await self._connection.call(lambda database: database.waiting_item(number))
        if isinstance(item, ClaimOutcome):
            return item
        await self._feed_queue(item.stage.queue, [item])
        return None

    def _note_error(self, queue: str, items: int, error: Exception) -> None:
        text = "a fault of the server, whose log has it (items_not_queued)"
        unforeseen: Exception | None = error
        if isinstance(error, PinLaterError):
            text, unforeseen = error.message, None
        if self._errors.get(queue) != text:
            _log.warning("items_not_queued", queue=queue, items=items, error=text, exc_info=unforeseen)
        self._errors[queue] = text
        self._shut_until_s[queue] = asyncio.get_running_loop().time() + SHUT_S

    def problem_of(self, queue: str) -> str:
        """Why items do not come into a queue, as far as this process knows; "" if they do."""
        if queue in self._queues.flow_queues:
            return self._errors.get(queue, "")
        why = "takes no items of flows now:" if self._queues.has(queue) else "is not there; it was deleted:"
        return f"queue {queue!r} {why} `pinlater flow resume` brings the items into it"

    def forget_problems(self) -> None:
        """Items are put into all queues again."""
        self._errors.clear()
        self.wake()

    async def _feed_queue(self, queue: str, items: Sequence[WaitingItem]) -> int:
        """How many came into their queue."""
        now_ms = self._clock.now_ms()
        if queue not in self._queues.flow_queues:
            raise PinLaterError(self.problem_of(queue))
        try:
            offered = await self._offer(queue, items, now_ms)
        except PinLaterError as error:  # a shard is away, and others have taken what lives there
            stored = error.job_descriptors or ()
            jobs = {item.number: each for item, each in zip(items, stored, strict=False) if each}
            self._left_out[queue] = len(items) - len(jobs)
            if not jobs:
                raise
            self._jobs_ready(queue, len(jobs), ())
            await self._note_queued(queue, jobs, now_ms)
            self._note_error(queue, self._left_out[queue], error)
            return len(jobs)
        jobs = {item.number: each.descriptor for item, each in zip(items, offered, strict=True)}
        ready = [each.ready_at_ms for each in offered if each.ready_at_ms is not None]
        later_ms = [time_ms for time_ms in ready if time_ms > now_ms]
        self._jobs_ready(queue, len(ready) - len(later_ms), later_ms)
        self._errors.pop(queue, None)
        self._left_out.pop(queue, None)
        await self._note_queued(queue, jobs, now_ms)
        return len(jobs)

    async def _offer(self, queue: str, items: Sequence[WaitingItem], now_ms: int) -> Sequence[Offered]:
        """Where tags or groups cannot be kept, on DynamoDB or beside an older server, the jobs come without tags, and
        without their flow as their group: work waits for neither. It waits where its stage asks for a group.
        """
        with_tags, by_flow = True, self._queues.settings(queue).flows_by_group
        while True:
            jobs = [item_job(item, by_flow=by_flow) for item in items]
            if not with_tags:
                jobs = [replace(job, tags=()) for job in jobs]
            try:
                if any(job.tags or job.group for job in jobs):
                    self._router.keys.homes.check_jobs(jobs)
                return await self._router.enqueue_extended(queue, jobs, now_ms)
            except PinLaterError as error:  # of the same reason also where some of the jobs were stored
                if with_tags and error.reason in _NO_TAGS:
                    with_tags = False
                elif by_flow and error.reason in _NO_GROUPS:
                    by_flow = False
                else:
                    raise

    async def _note_queued(self, queue: str, jobs: Mapping[int, str], now_ms: int) -> None:
        needless = await self._connection.call(lambda database: database.queued(jobs, now_ms))
        if needless:
            await self.cancel_jobs([QueuedJob(0, queue, job) for job in needless])
        self._metrics.add(len(jobs), "flow_items_queued", queue)

    # -- out of queues -------------------------------------------------------------------------------------------------

    async def cancel_jobs(self, jobs: Sequence[QueuedJob]) -> None:
        """Take the jobs of items that have ended out of their queues; those that run are asked to stop. A shard that
        cannot be reached is asked again; what their workers say until then changes nothing.
        """
        for (queue, shard_id), named in _by_place(jobs).items():
            if not await self._cancel_on(queue, shard_id, [key for _, key in named]):
                self._left += [each for each, _ in named]
        if self._left:
            self.wake()

    async def _cancel_on(self, queue: str, shard_id: str, keys: Sequence[JobKey]) -> bool:
        """Whether the shard answered."""
        now_ms = self._clock.now_ms()
        (outcome,) = await self._router.ask_by_shard(
            [(shard_id, lambda shard: shard.cancel(queue, keys, now_ms, CANCELLED_BY))]
        )
        return not isinstance(outcome, PinLaterError)

    async def _cancel_left(self) -> bool:
        """Ask again what could not be asked."""
        jobs, self._left = self._left[-MAX_LEFT:], []
        await self.cancel_jobs(jobs)
        return False

    async def stop(self, flow_id: str) -> None:
        """Fail what is to be stopped of a flow, in steps. FlowNotFound."""
        while not await self._stop_step(flow_id):
            pass

    async def _stop_step(self, flow_id: str) -> bool:
        """Whether it is done."""
        now_ms = self._clock.now_ms()
        jobs, is_done = await self._connection.call(lambda database: database.stop(flow_id, now_ms, BATCH))
        await self.cancel_jobs(jobs)
        if is_done:
            self._over([flow_id])
        return is_done

    async def _stop_some(self) -> bool:
        """Whether there is more to stop."""
        flow_ids = await self._connection.call(lambda database: database.stopping())
        for flow_id in flow_ids[:1]:
            with suppress(FlowNotFound):  # it was deleted meanwhile
                await self._stop_step(flow_id)
        return bool(flow_ids)

    # -- what is stuck -------------------------------------------------------------------------------------------------

    async def _check_jobs(self) -> bool:
        """Items whose jobs are gone, or ended without a word, wait in the database again. One slice at a time; where a
        store has lost its jobs each slice has some, and the next one follows at once.
        """
        after, before_ms = self._checked_to, self._clock.now_ms() - HELD_MS
        held, self._checked_to = await self._connection.call(lambda database: database.held(after, before_ms, BATCH))
        lost: dict[int, str] = {}
        for (queue, shard_id), named in _by_place(held).items():
            infos = await self._look_up(queue, shard_id, [key for _, key in named])
            for (each, _), info in zip(named, infos, strict=False):
                if info is None or info.state in (JobState.SUCCEEDED, JobState.FAILED):
                    lost[each.number] = each.job
        if lost:
            amount = await self._connection.call(lambda database: database.lost(lost))
            self._metrics.add(amount, "flow_items_lost")
            _log.warning("item_jobs_gone", items=amount, hint="they are enqueued again")
        return bool(lost)

    async def _look_up(self, queue: str, shard_id: str, keys: Sequence[JobKey]) -> Sequence[JobInfo | None]:
        """Nothing of a shard that is away: it has lost nothing yet."""
        (infos,) = await self._router.ask_by_shard(
            [(shard_id, lambda shard: shard.lookup(queue, keys, with_body=False, max_bytes=0))]
        )
        if isinstance(infos, PinLaterError):
            return ()
        return [None] * len(keys) if infos is None else infos

    async def _recount(self) -> bool:
        """Whether there are owners left to count."""
        after = self._recounted_to
        self._recounted_to = await self._connection.call(lambda database: database.recount(after, RECOUNT_AT_ONCE))
        return bool(self._recounted_to)

    async def _reap_some(self) -> bool:
        """Whether there is more to reap."""
        now_ms = self._clock.now_ms()
        return await self._connection.call(lambda database: database.reap(now_ms, BATCH)) > 0


def _by_place(jobs: Sequence[QueuedJob]) -> Mapping[tuple[str, str], list[tuple[QueuedJob, JobKey]]]:
    """Jobs by queue and shard."""
    places: dict[tuple[str, str], list[tuple[QueuedJob, JobKey]]] = defaultdict(list)
    for each in jobs:
        ref = parse_descriptor(each.job)
        if ref is not None:
            places[ref.queue, ref.shard].append((each, JobKey(ref.priority, ref.id)))
    return places
