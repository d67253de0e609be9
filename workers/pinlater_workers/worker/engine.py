"""The parts of a running worker, and how they hold on to each other.

polling -> jobs -> pool -> jobs -> delivery -> polling     from the claim to the ack
jobs    -> keeping                                         claims kept alive, from the claim on
sweep   -> jobs                                            those over their time limit are ended
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

from pinlater.client.pool import PoolLimits
from pinlater_workers.app import App
from pinlater_workers.metrics import Metrics
from pinlater_workers.pools.mixed import MixedPool
from pinlater_workers.running import Running
from pinlater_workers.view import WorkerView
from pinlater_workers.worker.delivery import Delivery
from pinlater_workers.worker.intake import Intake
from pinlater_workers.worker.jobs import Jobs
from pinlater_workers.worker.keeping import Keeping
from pinlater_workers.worker.polling import Polling
from pinlater_workers.worker.saving import Saving
from pinlater_workers.worker.stopping import Stop
from pinlater_workers.worker.sweep import Sweep
from pinlater_workers.worker.trouble import Troubles, log
from pinlater_workers.worker_settings import WorkerSettings

STAY_S = 60.0
"""About how long the calls stay with one of several servers."""

IDLE_S = 1800.0
"""A connection that claims are tied to is not closed for being idle."""

STUCK_S = 2.0
"""So long half of the slots are stuck before the worker is replaced: a thread that is told returns in a moment."""

NAMED = 20
"""So many stuck jobs are named at most."""

LAST_ACKS_S = 5.0
HURRIED_ACKS_S = 2.0


class Engine:
    """Made on the event loop that runs it, for one run."""

    def __init__(self, app: App, app_spec: str, settings: WorkerSettings, metrics: Metrics, stop: Stop) -> None:
        self._settings = settings
        self._stop = stop
        self._client = app.connect(
            on_disconnect=self._disconnected,
            stay_s=STAY_S,
            pool=PoolLimits(idle_s=IDLE_S),
            patient=False,
            wait_for_rate=False,
        )
        if settings.polls_too_long:
            text = "poll_wait is %g s, more than a third of the lease of %g s: dequeues wait for %g s at most"
            log.warning(text, settings.poll_wait_s, settings.lease_s, settings.poll_s)
        self._keeping = Keeping(
            app.servers, self._client.source, settings.lease_s, [] if app.names_its_source else list(settings.queues)
        )
        troubles = Troubles()
        self._delivery = Delivery(
            self._client, self._keeping, settings.ack_delay_s, app.clock, troubles, metrics, stop.look_at
        )
        self._saving = saving = Saving(self._client)
        self._jobs = Jobs(
            settings.concurrency,
            Intake(app, settings.unknown_delay_s, metrics),
            lambda jobs: MixedPool(app, app_spec, settings, jobs.ended, saving),
            self._delivery,
            self._keeping,
            metrics,
            app.clock,
        )
        self._polling = Polling(
            self._client, settings, self._delivery, troubles, self._jobs.free, self._jobs.take, stop.look_at
        )
        self._sweep = Sweep(self._jobs, self._keeping, self._swept)
        self._keeping.lost = self._jobs.lost
        self._keeping.is_answered = self._jobs.is_answered
        self._jobs.begun = self._sweep.begin
        self._jobs.freed = self._polling.go_on
        self._binding: asyncio.Task[None] | None = None
        self.is_stuck = False
        self._stuck_s = math.inf
        """Since when half of the slots are stuck."""

    async def run(self) -> None:
        """Until it is stopped, in order. ConfigurationError: the pool cannot be opened."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._client.close)
            stack.push_async_callback(self._end_binding)
            stack.push_async_callback(self._keeping.close)
            await self._keeping.open()
            stack.push_async_callback(self._delivery.close, 0.0)
            stack.push_async_callback(self._jobs.close)
            await self._jobs.pool.open()
            stack.callback(self._sweep.close)
            stack.push_async_callback(self._polling.stop)
            self._polling.go_on()
            await self._stop.asked.wait()
            await self._finish()
        if self._stop.failure is not None:
            raise self._stop.failure

    def view(self) -> WorkerView:
        now_s = time.monotonic()
        running = self._jobs.running_of()
        is_full = self._jobs.free() <= 0
        queues = {
            name: replace(queue, running=running[name], state="full" if is_full and not queue.trouble else queue.state)
            for name, queue in self._polling.view().items()
        }
        return WorkerView(
            0.0 if is_full else now_s - max(self._polling.good_s, self._jobs.freed_s),
            self._settings.concurrency,
            running.total(),
            self._jobs.pool.stuck,
            self._delivery.unacked,
            self._stop.asked.is_set(),
            queues,
        )

    async def _finish(self) -> None:
        """Claims first: the connections that they are tied to close with the polls. The heartbeat process may have just
        been started, or be slow.
        """
        self._keeping.hand_over_all()
        self._jobs.take_no_more()
        await self._saving.keep(list(self._jobs.running))
        await self._polling.stop()
        await self._stop.unless_hurried(self._jobs.idle, self._settings.grace_s)
        left = await self._jobs.close()
        if left:
            log.warning("%d jobs did not end in time; they are given back, and no attempt is spent", left)
        await self._delivery.close(HURRIED_ACKS_S if self._stop.hurried.is_set() else LAST_ACKS_S)

    async def _end_binding(self) -> None:
        if self._binding is not None:
            self._binding.cancel()
            await asyncio.gather(self._binding, return_exceptions=True)

    def _swept(self) -> None:
        """Slots of stuck threads may have become free; or too many are stuck."""
        stuck, slots, now_s = self._jobs.pool.stuck, self._settings.concurrency, time.monotonic()
        self._stuck_s = min(self._stuck_s, now_s) if stuck * 2 >= slots else math.inf
        if now_s - self._stuck_s >= STUCK_S and not self._stop.asked.is_set():
            text = "%d of %d slots are stuck in jobs that do not return: this worker is replaced; they are %s"
            log.error(text, stuck, slots, _named(self._jobs.pool.stuck_jobs()))
            self.is_stuck = True
            self._stop.ask()
        self._polling.go_on()

    def _disconnected(self) -> None:
        """Claims may have been tied to it. The heartbeat process may be slow, so this one binds them too: once for all
        that break together.
        """
        self._keeping.hand_over_all()
        if self._binding is None or self._binding.done():
            self._binding = asyncio.get_running_loop().create_task(self._bind())

    async def _bind(self) -> None:
        await asyncio.sleep(0)
        await self._saving.keep(list(self._jobs.running))


def _named(jobs: Sequence[Running]) -> str:
    """Types and descriptors."""
    names = [f"{running.type.name} {running.job.descriptor}" for running in jobs[:NAMED] if running.type is not None]
    return ", ".join(names) + (f", and {len(jobs) - NAMED} more" if len(jobs) > NAMED else "")
