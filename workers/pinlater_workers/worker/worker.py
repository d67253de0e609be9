"""A worker: claims as many jobs as it has free slots, runs them in its pool, and acks them; and its stop, in order."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from enum import Enum
from typing import Any, Self

from pinlater.client.pool import PoolLimits
from pinlater.errors import PinLaterError, QueueNotFound
from pinlater.model import DequeueRequest
from pinlater.near_names import meant_name
from pinlater_workers.app.app import App
from pinlater_workers.app.settings import WorkerSettings, worker_settings
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.heartbeat.messages import BlockedBy, WorkerState
from pinlater_workers.jobs.running_job import RunningJob
from pinlater_workers.observability.metrics import QueueSummary, WorkerMetrics, WorkerView
from pinlater_workers.pools.router import PoolRouter, pool_of, served_by
from pinlater_workers.worker.ack_sender import AckSender
from pinlater_workers.worker.batches import BatchQueues
from pinlater_workers.worker.claims import CheckpointWriter, ClaimKeeper
from pinlater_workers.worker.commands import CommandedState
from pinlater_workers.worker.fetcher import Fetcher
from pinlater_workers.worker.identity import WorkerIdentity
from pinlater_workers.worker.jobs import JobLoader, RunningJobs, TimeLimitReaper
from pinlater_workers.worker.prefetch import PrefetchPlan
from pinlater_workers.worker.queue_state import IncidentLog, log
from pinlater_workers.worker.unknown_jobs import UnknownJobs
from pinlater_workers.worker.worker_thread import WorkerThread

STAY_S = 60.0
"""About how long the calls stay with one of several servers."""
IDLE_S = 1800.0
"""A connection that claims are bound to is not closed for being idle."""
STUCK_S = 2.0
"""How long half of the slots are stuck before the worker is replaced: a thread that is told returns in a moment."""
NAMED = 20
"""The most stuck jobs that are named."""
LAST_ACKS_S = 5.0
HURRIED_ACKS_S = 2.0
EMPTY_LOOK_S = 0.5


class ExitReason(Enum):
    """Why a worker's run is over."""

    DONE = "it was stopped"
    REPLACE = "half of its slots are stuck: it is to be started anew"


class Worker:
    """A worker of an app: one run at a time.

    `settings`: else those of the app's file. `options` take precedence, by the names that they have in a file's table
    [worker]: `queues` (else those of all the app's jobs), `concurrency`, `grace`. `app_spec` names the app for
    processes, as in "shop.jobs:app", where jobs run in some. `may_end`: this process is the worker's alone, and may be
    killed where a job blocks it for good.

        with Worker(app, queues=["mail"], concurrency=8):
            ...

    ConfigurationError: settings that cannot be.
    """

    def __init__(
        self,
        app: App,
        settings: WorkerSettings | None = None,
        app_spec: str = "",
        metrics: WorkerMetrics | None = None,
        *,
        may_end: bool = False,
        until_empty: bool = False,
        **options: Any,
    ) -> None:
        settings = app.worker_settings if settings is None else settings
        if options:
            settings = worker_settings(options, "Worker", settings)
        self._may_end = may_end
        self._until_empty = until_empty
        self._app = app
        self._settings = with_queues(app, settings) if not settings.queues else settings
        self._app_spec = app_spec
        self._metrics = metrics or WorkerMetrics()
        self._stop = StopRequest()
        self._engine: Engine | None = None
        self._thread: WorkerThread | None = None
        self._made_s = time.monotonic()

    async def run(self, on_begun: Callable[[], None] = lambda: None) -> ExitReason:
        """Until it is stopped, half of its slots are stuck, or its queues are empty, where it is to end then; with the
        hooks of the app before and after. `on_begun` is called when it takes jobs. ConfigurationError: its own
        processes do not start, or a hook failed.
        """
        hooks, settings = self._app.hooks, self._settings
        served = served_by(self._app, settings)
        here = [each for each in served if pool_of(each, settings.pool) != "process"]
        if not self._app_spec and len(here) < len(served):
            raise ConfigurationError('some jobs run in processes: name the app, as in app_spec="shop.jobs:app"')
        async with AsyncExitStack() as stack:
            stack.push_async_callback(hooks.end_process)
            if here:
                await hooks.begin_process(here)
            await hooks.begin_worker()
            stack.push_async_callback(hooks.end_worker)
            self._engine = Engine(self._app, self._app_spec, settings, self._metrics, self._stop, may_end=self._may_end)
            ending = asyncio.ensure_future(self._engine.end_when_empty()) if self._until_empty else None
            try:
                await self._engine.run(on_begun)
            finally:
                if ending is not None:
                    ending.cancel()
                    await asyncio.wait([ending])
        return ExitReason.REPLACE if self._engine.is_stuck else ExitReason.DONE

    def start(self) -> Self:
        """Run it in a thread of its own, inside a program, and return when it takes jobs. It handles no signals: call
        `stop`, or use it as a context manager. ConfigurationError: it cannot begin.
        """
        if self._thread is not None:
            raise RuntimeError("this worker has been started already")
        self._app.check()
        self._stop = StopRequest()
        self._thread = WorkerThread(self._run_again)
        try:
            self._thread.start()
        except BaseException:
            self._thread = None
            raise
        return self

    def stop(self) -> None:
        """No new jobs, and running ones have the grace time to end. Asked again: no time at all. Of one that `start`
        began, returns when it has ended, and raises what ended it before; do not call it in a job.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            self._stop.ask()
        else:
            thread.end(self._stop.ask)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    async def _run_again(self, on_begun: Callable[[], None]) -> None:
        """Where half of its slots are stuck, it begins anew; their threads are left behind."""
        try:
            while await self.run(on_begun) is ExitReason.REPLACE:
                self._stop = StopRequest()
        finally:
            await self._app.close_async()

    def view(self) -> WorkerView:
        if self._engine is not None:
            return self._engine.view()
        queues = {name: QueueSummary(weight, "starting") for name, weight in self._settings.queues.items()}
        return WorkerView(time.monotonic() - self._made_s, self._settings.concurrency, queues=queues)


def with_queues(app: App, settings: WorkerSettings) -> WorkerSettings:
    """The queues of all types of job, where none is named. ConfigurationError: there is nothing to run."""
    own = sorted({job_type.settings.queue for job_type in app.job_types.values()})
    if not own:
        raise ConfigurationError(
            "the app has no jobs: decorate a function with @app.job(queue=...), and import the module that does so "
            "in the app's module; or name functions in a file (conf/jobs.toml)"
        )
    if not settings.queues:
        return worker_settings({"queues": own}, "the app's jobs", settings)
    for queue in settings.queues.keys() - own:
        meant = meant_name(queue, own)
        log.warning("no job of this app belongs to queue %s%s: what comes there will be requeued", queue, meant)
    return settings


class Engine:
    """The parts of a running worker. Made on the event loop that runs it, for one run.

    fetcher ─► jobs ─► pool ─► jobs ─► acks ─► fetcher      from the claim to the ack
               jobs ─► claims                               kept alive, from the claim on
    reaper ──► jobs                                         those over their time limit are ended
    """

    def __init__(
        self,
        app: App,
        app_spec: str,
        settings: WorkerSettings,
        metrics: WorkerMetrics,
        stop: StopRequest,
        *,
        may_end: bool,
    ) -> None:
        self._settings = settings
        self._stop = stop
        self._client = app.connect(
            on_disconnect=self._disconnected,
            sticky_s=STAY_S,
            pool=PoolLimits(idle_s=IDLE_S),
            retry_unavailable=False,
            wait_for_rate=False,
        )
        if settings.polls_too_long:
            text = "poll_wait is %g s, more than a third of the lease of %g s: dequeues wait for %g s at most"
            log.warning(text, settings.poll_wait_s, settings.lease_s, settings.poll_s)
        self._identity = WorkerIdentity(settings, app_spec, app)
        self._claims = ClaimKeeper(
            app.servers,
            self._client.source,
            settings.lease_s,
            [] if app.names_its_source else list(settings.queues),
            self._describe,
            app.tls,
            app.token,
            stop.fail,
            self._blocked_by,
            lambda command: self._commanded.receive(command),
            may_end=may_end,
        )
        incidents = IncidentLog()
        others = self._identity.others(self._client)
        self._unknown = unknown = UnknownJobs(
            self._client, settings.unknown_delay_s, settings.unknown_limit_s, app.clock, metrics, others
        )
        self._acks = AckSender(
            self._client, unknown, self._claims, settings.ack_delay_s, app.clock, incidents, metrics, stop.look_at
        )
        self._checkpoints = checkpoints = CheckpointWriter(self._client)
        prefetch = PrefetchPlan(settings.queues, settings.concurrency, settings.prefetch_s)
        types = app.job_types.values()
        batch_queues = BatchQueues(types) if any(each.is_batch for each in types) else None
        self._jobs = RunningJobs(
            settings.concurrency,
            prefetch,
            settings.prefetch_s,
            JobLoader(app, metrics),
            lambda jobs: PoolRouter(
                app, app_spec, settings, jobs.ended, checkpoints, self._claims.progress_made, stop.fail
            ),
            self._acks,
            self._claims,
            metrics,
            app.clock,
            self,
            batches=batch_queues is not None,
        )
        parts = self._acks, incidents, self._jobs, prefetch, stop.look_at, batch_queues
        self._fetcher = Fetcher(self._client, settings, *parts)
        self._commanded = CommandedState(self._fetcher, self._has_jobs, self._rest_or_go_on, self._leave)
        self._resting: asyncio.Task[None] | None = None
        self._reaper = TimeLimitReaper(self._jobs, self._claims, self._on_reaped)
        self._binding: asyncio.Task[None] | None = None
        self.is_stuck = False
        self._stuck_s = math.inf
        """Since when half of the slots are stuck."""

    async def run(self, on_begun: Callable[[], None]) -> None:
        """Until it is stopped, in order. ConfigurationError: a process of the worker's own cannot be started."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._client.close)
            stack.push_async_callback(self._end_binding)
            stack.push_async_callback(self._claims.close)
            await self._claims.open(self._jobs)
            stack.push_async_callback(self._acks.close, 0.0)
            stack.push_async_callback(self._jobs.close)
            await self._jobs.pool.open()
            await self._claims.ready()
            stack.callback(self._reaper.close)
            stack.push_async_callback(self._fetcher.stop)
            self._fetcher.go_on()
            on_begun()
            await self._stop.requested.wait()
            await self._finish()
        if self._stop.failure is not None:
            raise self._stop.failure

    async def end_when_empty(self) -> None:
        """Ask for the stop when, at two looks in a row, nothing runs here and no queue has a job that is ready. A job
        that was claimed in between arrives before the second.
        """
        empty = 0
        while empty < 2:
            await asyncio.sleep(EMPTY_LOOK_S)
            idle = not self._has_jobs() and not self._acks.unacked
            empty = empty + 1 if idle and not await self._has_ready() and not self._has_jobs() else 0
        log.info("nothing runs, and no queue has a job that is ready: it ends")
        self._leave()

    async def _has_ready(self) -> bool:
        """Whether a queue has a job that is ready, though it may be paused or at a limit. As long as no server says,
        there may be one.
        """
        for queue in self._settings.queues:
            try:
                if await self._client.dequeue(DequeueRequest(queue, 1, dry_run=True)):
                    return True
            except QueueNotFound:
                continue
            except PinLaterError:
                return True
        return False

    def view(self) -> WorkerView:
        now_s = time.monotonic()
        running = self._jobs.running_of()
        is_full = self._jobs.free() <= 0
        queues = {
            name: replace(queue, running=running[name], state="full" if is_full and not queue.trouble else queue.state)
            for name, queue in self._fetcher.view().items()
        }
        return WorkerView(
            0.0 if is_full or self._commanded.is_quiet else now_s - max(self._fetcher.good_s, self._jobs.freed_s),
            self._settings.concurrency,
            running.total(),
            self._jobs.pool.stuck,
            self._acks.unacked,
            self._is_ending,
            queues,
            self._jobs.at_hand_of().total() + self._jobs.gathered,
        )

    def _describe(self) -> WorkerState:
        unknown = self._unknown.met()
        return self._identity.state(self._jobs, unknown, is_stopping=self._is_ending, is_quiet=self._commanded.is_quiet)

    @property
    def _is_ending(self) -> bool:
        return self._commanded.is_leaving or self._stop.requested.is_set()

    def _has_jobs(self) -> bool:
        return next(self._jobs.held(), None) is not None

    def _rest_or_go_on(self) -> None:
        """As an operator wants. The connection of a dequeue that waits closes when it rests, and claims are bound to
        it: they are bound to another one first.
        """
        self._claims.say_alive()
        if self._commanded.is_quiet and (self._resting is None or self._resting.done()):
            self._claims.hand_over_all()
            self._resting = asyncio.get_running_loop().create_task(self._rest())

    async def _rest(self) -> None:
        await self._checkpoints.keep(list(self._jobs.held()))
        self._fetcher.cancel_wait()

    def _leave(self) -> None:
        if not self._stop.requested.is_set():
            self._stop.ask()

    def _blocked_by(self) -> BlockedBy:
        """In the thread of the witness."""
        running, where = self._jobs.pool.on_loop()
        if running is None or running.type is None:
            return BlockedBy(where=where)
        return BlockedBy(running.job.descriptor, running.type.name, running.until_s, where)

    def jobs_began(self) -> None:
        self._reaper.begin()

    def slots_freed(self) -> None:
        self._fetcher.go_on()

    async def _finish(self) -> None:
        """Claims first: the connections that they are bound to close with the polls. The heartbeat process may have
        just been started, or be slow.
        """
        self._claims.hand_over_all()
        self._jobs.take_no_more()
        self._claims.say_alive()
        await self._checkpoints.keep(list(self._jobs.held()))
        await self._fetcher.stop()
        await self._stop.unless_hurried(self._jobs.idle, self._settings.grace_s)
        left = await self._jobs.close()
        if left:
            log.warning("%d jobs did not end in time; they are requeued, and no attempt is spent", left)
        await self._acks.close(HURRIED_ACKS_S if self._stop.hurried.is_set() else LAST_ACKS_S)

    async def _end_binding(self) -> None:
        tasks = [task for task in (self._binding, self._resting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_reaped(self) -> None:
        """Slots of stuck threads may have become free; or too many are stuck."""
        stuck, slots, now_s = self._jobs.pool.stuck, self._settings.concurrency, time.monotonic()
        self._stuck_s = min(self._stuck_s, now_s) if stuck * 2 >= slots else math.inf
        if now_s - self._stuck_s >= STUCK_S and not self._stop.requested.is_set():
            text = "%d of %d slots are stuck in jobs that do not return: this worker is replaced; they are %s"
            log.error(text, stuck, slots, _named(self._jobs.pool.stuck_jobs()))
            self.is_stuck = True
            self._stop.ask()
        self._fetcher.go_on()

    def _disconnected(self) -> None:
        """Claims may have been bound to it. The heartbeat process may be slow, so this one binds them too: once for all
        that break together.
        """
        self._claims.hand_over_all()
        if self._binding is None or self._binding.done():
            self._binding = asyncio.get_running_loop().create_task(self._bind())

    async def _bind(self) -> None:
        await asyncio.sleep(0)
        await self._checkpoints.keep(list(self._jobs.held()))


def _named(jobs: Sequence[RunningJob]) -> str:
    """Types and descriptors."""
    names = [f"{running.type.name} {running.job.descriptor}" for running in jobs[:NAMED] if running.type is not None]
    return ", ".join(names) + (f", and {len(jobs) - NAMED} more" if len(jobs) > NAMED else "")


class StopRequest:
    """Asked once: no new jobs, and the grace time for those that run. Asked again: none."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.hurried = asyncio.Event()
        self.failure: BaseException | None = None

    def ask(self) -> None:
        (self.hurried if self.requested.is_set() else self.requested).set()

    def fail(self, error: ConfigurationError) -> None:
        """A helper does not come back: what runs may end, and then the error is raised."""
        if not self.requested.is_set():
            log.error("the worker ends: %s", error)
            self.failure = self.failure or error
            self.ask()

    def look_at(self, task: asyncio.Task[None]) -> None:
        """A part of the worker has ended. One that broke ends the whole: better than a worker that does nothing."""
        if not task.cancelled() and (failure := task.exception()) is not None:
            self.failure = self.failure or failure
            self.requested.set()
            self.hurried.set()

    async def unless_hurried(self, done: asyncio.Event, within_s: float) -> None:
        """Until that is done, the time is over, or the worker is hurried."""
        waits = [asyncio.ensure_future(event.wait()) for event in (done, self.hurried)]
        try:
            await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
