"""Dequeues that wait for jobs: one line per queue, served in order of arrival, and one task per line that looks.

What this server learns (an enqueue, a retry, jobs given back, a delayed job that is due, other settings) wakes the line
at once, and so does what a store tells of other processes (following.py). A store that tells nothing is looked at: with
one question for all queues, however many wait, and rarer while nothing comes. A line whose queue is at its rate sleeps
until the next job is allowed, whatever comes meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from pinlater.backends.base import UNKNOWN_CHANGE, ClaimRequest, Notification
from pinlater.clock import Clock
from pinlater.eager import after_first_suspend
from pinlater.errors import Draining, Overloaded, QueueNotFound
from pinlater.model import DequeuedJob
from pinlater.service.longpoll.due import DueQuery, DueTimes
from pinlater.service.longpoll.poller import QueuePoller
from pinlater.service.longpoll.subscriptions import Subscriptions
from pinlater.service.longpoll.wait_queue import LongPollSettings, Ticket, Waiter, WaitQueue
from pinlater.service.queue_limits import QueueLimits, Throttle
from pinlater.shards.router import Router

R = TypeVar("R")


class LongPolls:
    """The lines of all queues. `requeue` gets what was claimed for a waiter that is gone."""

    def __init__(
        self,
        router: Router,
        clock: Clock,
        bounds: LongPollSettings,
        limits: QueueLimits,
        renew: Callable[[ClaimRequest], ClaimRequest],
        requeue: Callable[[Sequence[DequeuedJob]], None],
    ) -> None:
        self._clock = clock
        self._bounds = bounds
        self._limits = limits
        self._give_back = requeue
        self._lines: dict[str, WaitQueue] = {}
        self._due = DueTimes()
        self.subscriptions = following = Subscriptions(router.members, self._has_poller, self.on_event, self._look_now)
        looks = DueQuery(router.members)
        self._serving = QueuePoller(
            router, clock, bounds, limits, self._due, looks, following.is_subscribed, self._lines, renew, requeue
        )
        self._keeps_order = router.members.keep_order()
        self._arrivals = self._wakes = self._waiting = 0
        self.is_draining = False

    # -- what wakes a line -------------------------------------------------------------------------------------------

    def wake(self, queue: str, jobs: int) -> None:
        """So many jobs became eligible."""
        self._wakes += 1
        line = self._lines.get(queue)
        if line is not None and jobs > 0:
            line.wake(jobs)

    def claim_behind(self, queue: str, jobs: int, enqueue: Coroutine[Any, Any, R]) -> Coroutine[Any, Any, R]:
        """The enqueue of so many eligible jobs, with the claim of who waits for them sent right behind it, in the same
        write or transaction of the store, where that keeps the order. They are to be announced as any others.
        """
        line = self._lines.get(queue)
        if line is None or not jobs or not line.is_resting or line.held_s() > 0 or self._limits.of(queue) is not None:
            return enqueue
        if not self._keeps_order:
            return enqueue
        return self._with_claim(line, jobs, enqueue)

    async def _with_claim(self, line: WaitQueue, jobs: int, enqueue: Coroutine[Any, Any, R]) -> R:
        try:
            return await after_first_suspend(enqueue, partial(line.foretell, jobs))
        except BaseException:
            line.wake(jobs)  # whether they were stored or not: a look tells
            raise

    def due_at(self, queue: str, times_ms: Sequence[int]) -> None:
        """Jobs become eligible at these times."""
        is_first = self._due.add(queue, times_ms)
        line = self._lines.get(queue)
        if is_first and line is not None and line.held_s() == 0:
            line.ring()

    def jobs_ready(self, queue: str, now: int, later_ms: Sequence[int]) -> None:
        """So many jobs are eligible again, and others will be at these times."""
        if now:
            self.wake(queue, now)
        if later_ms:
            self.due_at(queue, later_ms)

    def on_event(self, queue: str, news: Notification) -> None:
        """A store tells of what another process did, or that it may have done something."""
        if news == UNKNOWN_CHANGE:
            self._look_now(queue)
            return
        self.jobs_ready(queue, news.ready, () if news.due_ms is None else (news.due_ms,))

    def _look_now(self, queue: str) -> None:
        """The stores begin or cease to tell of a queue: what happened just before may not have been told."""
        self._due.invalidate(queue)
        line = self._lines.get(queue)
        if line is not None:
            line.look_now()

    def capacity_freed(self, queue: str) -> None:
        """Fewer jobs are in progress than before."""
        if self._limits.of(queue) is None:
            return
        self._wakes += 1
        line = self._lines.get(queue)
        if line is not None:
            line.capacity_freed()

    def settings_changed(self, queue: str) -> None:
        """Other settings count for a queue, or ("") for any: who waits on a paused one is told so now."""
        lines = list(self._lines.values()) if queue == "" else [self._lines.get(queue)]
        for line in lines:
            if line is None:
                continue
            rejection = self._limits.rejection_of(line.queue)
            if rejection is None:
                line.let_go()
            else:
                self._limits.count(len(line), line.queue, "paused")
                line.fail(rejection)

    def queue_deleted(self, queue: str) -> None:
        """Everyone in line gets QueueNotFound."""
        line = self._lines.get(queue)
        if line is not None:
            line.fail(QueueNotFound.of(queue))

    def start_draining(self) -> None:
        """From now on nobody waits: who is in line gets nothing, who is being served what he gets."""
        self.is_draining = self._serving.is_draining = True
        for line in list(self._lines.values()):
            for waiter in list(line.waiters()):
                line.end_wait(waiter, True)
            line.ring()

    async def drain(self) -> None:
        """Until no line has anybody in it."""
        self.start_draining()
        tasks = [line.task for line in self._lines.values() if line.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        await self.subscriptions.close()

    # -- waiting -----------------------------------------------------------------------------------------------------

    def arrive(self) -> Ticket:
        self._arrivals += 1
        return Ticket(self._arrivals, self._wakes)

    @property
    def waiters(self) -> int:
        """Dequeues that wait now."""
        return self._waiting

    def poller(self, queue: str) -> WaitQueue | None:
        """What looks after a queue for which somebody waits, or did a moment ago."""
        return self._lines.get(queue)

    def _has_poller(self, queue: str) -> bool:
        return queue in self._lines

    async def wait(
        self, queue: str, request: ClaimRequest, wait_ms: int, arrival: Ticket, held: Throttle | None = None
    ) -> list[DequeuedJob]:
        """Jobs as soon as there are some; none when the time is over, or on a draining server. `held`: what left
        nothing for a look that was made before.

        DequeueRateLimited on a paused queue at once, and when the time is over where the rate kept eligible jobs back;
        QueueNotFound, also later; Overloaded; and where the shards could not be looked at to the end, that error.
        """
        if self.is_draining:
            return []
        if self._waiting >= self._bounds.max_waiters:
            raise Overloaded.by("waiting_dequeues", f"{self._waiting} dequeues wait already", retry_after_ms=1_000)
        rejection = self._limits.rejection_of(queue)  # it may be paused since its first look began
        if rejection is not None:
            self._limits.count(1, queue, "paused")
            raise rejection
        loop = asyncio.get_running_loop()
        is_news = arrival.wakes != self._wakes
        line = self._line(queue, None if is_news else held)
        waiter = Waiter(arrival.number, request)
        line.join(waiter)
        if is_news:
            line.look_now()
        timer = loop.call_later(wait_ms / 1000, self._end_wait, line, waiter)
        self._waiting += 1
        try:
            return await waiter.answer
        finally:
            timer.cancel()
            self._waiting -= 1
            line.leave(waiter)
            if not line:
                line.ring()

    def _end_wait(self, line: WaitQueue, waiter: Waiter) -> None:
        line.end_wait(waiter, self.is_draining)

    def _line(self, queue: str, held: Throttle | None) -> WaitQueue:
        line = self._lines.get(queue)
        if line is None:
            is_known = self.subscriptions.is_subscribed(queue) and self._due.is_known(queue) and held is None
            line = WaitQueue(queue, self._bounds.poll_told_ms if is_known else self._bounds.poll_min_ms)
            self._serving.hold(line, held)
            self._lines[queue] = line
            line.task = asyncio.get_running_loop().create_task(self._serve(line))
        return line

    async def _serve(self, line: WaitQueue) -> None:
        try:
            await self._serving.serve(line)
        finally:
            del self._lines[line.queue]
            line.fail(Draining("this server stops serving dequeues"))  # nobody is left in line unless it was cancelled
            self.subscriptions.left(line.queue)
