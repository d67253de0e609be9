"""The dequeues of a process that wait for jobs, of all queues.

What this server learns (an enqueue, a retry, requeued jobs, a delayed job that is due, other settings) wakes the poller
of the queue at once, and so does what a store reports of other processes (subscriptions.py). A store that tells nothing
is polled: with one question for all queues, however many wait, and rarer while nothing comes. The poller of a queue
that is at its rate rests until the next job is allowed, whatever comes meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from pinlater.backends.base import UNKNOWN_CHANGE, ClaimRequest, Notification
from pinlater.eager import after_first_suspend
from pinlater.errors import DequeueRateLimited, PinLaterError, QueueNotFound
from pinlater.model import DequeuedJob
from pinlater.queues.settings import QueueSettings
from pinlater.service.longpoll.due import DueQuery
from pinlater.service.longpoll.poller import QueuePoller
from pinlater.service.longpoll.poller_context import PollerContext
from pinlater.service.longpoll.poller_state import Outlook, PollerState
from pinlater.service.longpoll.shared_waiter import SetAside, SharedWaiter
from pinlater.service.longpoll.subscriptions import Subscriptions
from pinlater.service.longpoll.wait_queue import Ticket, Waiter, fresh
from pinlater.service.queue_limits import Throttle
from pinlater.service.requeuer import Requeuer
from pinlater.service.service_context import ServiceContext
from pinlater.shared_pool import SharedPool

R = TypeVar("R")


class LongPolls:
    """The long polls of one service, to which its `JobEvents` report jobs; an enqueue and an ack report theirs at once.
    `requeuer` takes the jobs that were claimed for a waiter that has gone.
    """

    def __init__(self, context: ServiceContext) -> None:
        context.events.on_ready, context.events.freed = self.jobs_ready, self.capacity_freed
        context.events.claims_at_once = self.claims_at_once
        context.limits.groups.on_ready = self.jobs_ready
        self._settings = context.settings
        self._limits, self._queues = context.limits, context.queues
        self.subscriptions = Subscriptions(context.router.members, self)
        self.requeuer = Requeuer(context)
        self._pollers: dict[str, QueuePoller] = {}
        self._context = PollerContext(
            context.router,
            context.clock,
            context.settings,
            context.limits,
            context.claims,
            self.requeuer,
            self.subscriptions,
            DueQuery(context.router.members),
            self._pollers,
            self._pollers.__delitem__,
        )
        self._due = self._context.due
        self._aside = SetAside()
        self._keeps_order = context.router.members.keep_order()
        self._tickets = self._wakeups = 0
        self._room = SharedPool(context.settings.max_waiters, "waiting_dequeues", "dequeues wait", context.metrics)

    @property
    def waiters(self) -> int:
        """Dequeues that wait now."""
        return self._room.used

    @property
    def is_draining(self) -> bool:
        """Whether dequeues wait no more."""
        return self._context.is_draining

    def has_waiters(self, queue: str) -> bool:
        """Whether somebody waits for its jobs."""
        poller = self._pollers.get(queue)
        return poller is not None and bool(poller.waiters.entries)

    def joins(self, queue: str) -> bool:
        """Whether a dequeue that may wait has nothing to claim at first: others wait, or no shard has a job."""
        poller = self._pollers.get(queue)
        return poller is not None and (bool(poller.waiters.entries) or poller.is_empty())

    def longest_round_s(self) -> float:
        """How long the oldest poll or claim for those who wait has been under way; 0: none is."""
        return self._context.watch.longest_s()

    def poller(self, queue: str) -> QueuePoller | None:
        """The poller of a queue for which somebody waits, or did a moment ago; see `poller.KEEP_S`."""
        return self._pollers.get(queue)

    # -- what wakes a poller -----------------------------------------------------------------------------------------

    def jobs_ready(self, queue: str, now: int, later_ms: Sequence[int] = (), shard_id: str = "") -> None:
        """So many jobs are eligible, and others will be at these times; `shard_id`: where, if that is known."""
        if now > 0:
            self._wakeups += 1
            poller = self._pollers.get(queue)
            if poller is not None and poller.known.expect(now, shard_id):
                poller.notify()
        if later_ms and self._due.add(queue, later_ms):
            poller = self._pollers.get(queue)
            if poller is not None:
                poller.due_changed()

    def claims_at_once(self, queue: str, jobs: int) -> bool:
        """Whether callers wait who claim so many jobs of this queue as soon as they are stored."""
        poller = self._pollers.get(queue)
        return (
            poller is not None
            and (poller.is_at_rest or poller.state is PollerState.POLLING)
            and poller.waiters.can_take(jobs)
            and self._limits.of(queue) is None
        )

    def claim_behind(
        self, queue: str, jobs: int, settings: QueueSettings, enqueue: Coroutine[Any, Any, R], shard_id: str = ""
    ) -> Coroutine[Any, Any, R]:
        """The enqueue of so many eligible jobs, with the claim of the waiters sent right behind it, in the same write
        or transaction of the store, where that keeps the order. The jobs are to be announced as any others. `shard_id`:
        the one that is tried first, if that is known.
        """
        poller = self._pollers.get(queue)
        if poller is None or not poller.is_at_rest:
            return enqueue
        if not jobs or not self._keeps_order or settings.is_limited:
            return enqueue
        shard_id = shard_id or self._context.router.sole_shard() or ""
        if jobs == 1 and not shard_id:
            return enqueue  # the announcement names its shard, which alone is asked then
        return self._with_claim(poller, jobs, enqueue, shard_id)

    async def _with_claim(self, poller: QueuePoller, jobs: int, enqueue: Coroutine[Any, Any, R], shard_id: str) -> R:
        try:
            return await after_first_suspend(enqueue, partial(poller.expect_inflight, jobs, shard_id))
        except BaseException:
            if poller.known.expect(jobs):  # whether they were stored or not: a claim tells
                poller.notify()
            raise

    def on_event(self, queue: str, event: Notification, shard_id: str = "") -> None:
        """A store, that of this shard, reports what another process did, or that it may have done something."""
        if event == UNKNOWN_CHANGE:
            self.on_subscription_changed(queue)
        else:
            self.jobs_ready(queue, event.ready, () if event.due_ms is None else (event.due_ms,), shard_id)

    def on_subscription_changed(self, queue: str) -> None:
        """The stores begin or cease to report on a queue: what happened just before may not have been reported."""
        self._due.invalidate(queue)
        poller = self._pollers.get(queue)
        if poller is not None:
            poller.poll_now()

    def capacity_freed(self, queue: str) -> None:
        """Fewer jobs are in progress than before."""
        if not self._queues.settings(queue).counts_jobs:
            return
        self._wakeups += 1
        poller = self._pollers.get(queue)
        if poller is not None:
            poller.capacity_freed()

    def settings_changed(self, queue: str) -> None:
        """Other settings count for a queue, or ("") for any: who waits on a paused one is told so now."""
        pollers = list(self._pollers.values()) if queue == "" else [self._pollers.get(queue)]
        for poller in pollers:
            if poller is None:
                continue
            rejection = self._limits.rejection_of(poller.queue)
            if rejection is None:
                poller.unthrottle()
            else:
                self._limits.count(len(poller.waiters), poller.queue, "paused")
                poller.fail(rejection)
        for name in self._aside.queues(queue):
            if self._limits.rejection_of(name) is None:
                self._come_back(name)

    def queue_deleted(self, queue: str) -> None:
        """Every waiter gets QueueNotFound."""
        poller = self._pollers.get(queue)
        if poller is not None:
            poller.fail(QueueNotFound.of(queue))

    # -- the end -----------------------------------------------------------------------------------------------------

    def start_draining(self) -> None:
        """From now on nobody waits: waiters get nothing, those in a claim what it brings."""
        self._context.is_draining = True
        for poller in list(self._pollers.values()):
            poller.end_waits()

    async def drain(self) -> None:
        """Return when nobody waits, and the jobs that nobody got went back to their queues."""
        self.start_draining()
        tasks = [poller.task for poller in self._pollers.values() if poller.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        await self.subscriptions.close()
        await self.requeuer.drain()

    # -- waiting -----------------------------------------------------------------------------------------------------

    def ticket(self) -> Ticket:
        """The place in order of arrival of a dequeue that comes now, and may wait later."""
        self._tickets = number = self._tickets + 1
        return Ticket(number, self._wakeups)

    async def wait(
        self,
        queue: str,
        request: ClaimRequest,
        wait_ms: int,
        ticket: Ticket,
        holder: str,
        throttle: Throttle | None = None,
        *,
        found_none: bool = False,
    ) -> list[DequeuedJob]:
        """Jobs as soon as there are some; none when the time is over, on a draining server, or where `holder` has most
        of those that wait and another one needs room. `throttle`: what left nothing for a claim that was made before;
        `found_none`: that claim found no job on any shard.

        DequeueRateLimited on a paused queue at once, and when the time is over where the rate kept eligible jobs back;
        QueueNotFound, also later; Overloaded; and where the shards could not be looked at to the end, that error.
        """
        if self._context.is_draining:
            return []
        rejection = self._limits.rejection_of(queue)  # it may be paused since its first claim began
        if rejection is not None:
            self._limits.count(1, queue, "paused")
            raise rejection
        place = self._room.enter(holder)
        missed_wakeup = ticket.wakeups != self._wakeups
        poller = self._pollers.get(queue)
        if poller is None:
            poller = self._begin(queue, None if missed_wakeup else throttle)
            if found_none:
                poller.begins_empty()
        waiter = Waiter(ticket.number, request)
        waiters = poller.waiters
        waiters.join(waiter)
        if not found_none:
            poller.joined_unseen()
        if missed_wakeup:
            poller.poll_now()
        if waiters.has_passed_over or poller.state is PollerState.PARKED:
            poller.joined()
        place.give_way = partial(poller.end_wait, waiter)
        timer = asyncio.get_running_loop().call_later(wait_ms / 1000, poller.end_wait, waiter)
        try:
            return await waiter.answer
        finally:
            timer.cancel()
            place.leave()
            waiters.entries.pop(waiter, None)
            if not waiters.entries and poller.wakeup is not None:
                poller.notify()

    def _begin(self, queue: str, throttle: Throttle | None, *, is_there: bool = True) -> QueuePoller:
        """Without `is_there`, nobody has seen the queue yet: there is no subscription to what any caller may name."""
        is_known = (
            is_there and throttle is None and self.subscriptions.is_subscribed(queue) and self._due.is_known(queue)
        )
        pause_ms = self._settings.poll_subscribed_ms if is_known else self._settings.poll_min_ms
        poller = self._pollers[queue] = QueuePoller(queue, pause_ms, self._context)
        poller.known.throttle_by(throttle, self._settings.poll_min_ms)
        poller.task = asyncio.get_running_loop().create_task(poller.run())
        return poller

    # -- waiting for several queues ----------------------------------------------------------------------------------

    def outlooks(self, queues: Iterable[str]) -> list[Outlook]:
        """What a dequeue that may wait can expect of each of these queues, in their order."""
        now_s, now_ms = asyncio.get_running_loop().time(), self._context.clock.now_ms()
        outlooks = []
        for queue in queues:
            poller = self._pollers.get(queue) or self._begin(queue, None, is_there=False)
            poller.keep(now_s)
            outlooks.append(poller.outlook(now_s, now_ms))
        return outlooks

    async def due_now(self, queues: Sequence[str], priorities: Sequence[int]) -> dict[str, bool]:
        """Whether each has eligible jobs, by one question; one that is not there is left out. Errors of the shards."""
        context = self._context
        now_ms = context.clock.now_ms()
        before = []
        for queue in queues:
            poller = self._pollers.get(queue)
            if self._due.take(queue, now_ms) and poller is not None:  # what comes next is told by the answer
                poller.due_taken()
            before.append(-1 if poller is None else poller.known.events)
        times = await context.due_query.next_due_of(queues, priorities)
        now_ms = context.clock.now_ms()
        found: dict[str, bool] = {}
        for queue, events in zip(queues, before, strict=True):
            poller = self._pollers.get(queue)
            if queue not in times:
                if poller is not None:
                    poller.keep_no_longer()
                continue
            due_ms = times[queue]
            is_due = found[queue] = due_ms is not None and due_ms <= now_ms
            if poller is None:
                continue
            poller.known.is_full = is_due
            if due_ms is not None and not is_due:
                self._due.add(queue, (due_ms,))
            if not is_due:
                poller.found_empty(events)
        return found

    def claimed(self, queue: str, *, is_full: bool, throttle: Throttle | None) -> None:
        """Note what the first claim of a dequeue from several queues found out about this one."""
        poller = self._pollers.get(queue)
        if poller is not None:
            poller.known.is_full = is_full
            if throttle is not None and not poller.waiters.entries:
                poller.known.throttle_by(throttle, self._settings.poll_min_ms)

    async def wait_for_several(
        self,
        queues: Sequence[str],
        request: ClaimRequest,
        claim_for: Callable[[str], ClaimRequest],
        wait_ms: int,
        ticket: Ticket,
        holder: str,
        errors: Mapping[str, PinLaterError],
    ) -> tuple[list[DequeuedJob], dict[str, PinLaterError]]:
        """Jobs of the first of these queues that has some, and why others cannot be served; `errors`: of those of which
        that is known by now. With no jobs, also why a queue gave none although it has some.

        Overloaded. The error of the shards, where no queue could be looked at.
        """
        if self._context.is_draining:
            return [], dict(errors)
        errors = {**errors, **self._rejections(queues)}
        queues = [queue for queue in queues if queue not in errors]
        if not queues:
            return [], errors
        place = self._room.enter(holder)
        has_missed = ticket.wakeups != self._wakeups
        waiter = SharedWaiter(ticket.number, request, claim_for, self._aside)
        for queue, error in errors.items():
            waiter.set_aside(queue, error)
        place.give_way = waiter.end
        timer = asyncio.get_running_loop().call_later(wait_ms / 1000, waiter.end)
        try:
            self._join(waiter, queues, has_missed)
            jobs = await waiter.answer
            return jobs, waiter.errors if jobs else self._reasons(waiter)
        finally:
            timer.cancel()
            place.leave()
            waiter.leave()

    def _rejections(self, queues: Iterable[str]) -> dict[str, PinLaterError]:
        """The refusals, by queue, of those that have been paused since the dequeue began; each is counted."""
        rejections: dict[str, PinLaterError] = {}
        for queue in queues:
            rejection = self._limits.rejection_of(queue)
            if rejection is not None:
                self._limits.count(1, queue, "paused")
                rejections[queue] = rejection
        return rejections

    def _join(self, waiter: SharedWaiter, queues: Iterable[str], has_missed: bool) -> None:
        now_s = asyncio.get_running_loop().time()
        for queue in queues:
            poller = self._pollers.get(queue)
            if poller is None:
                poller = self._begin(queue, None)
                if has_missed:
                    poller.poll_now()
            poller.keep(now_s)
            waiter.join(queue, poller)
            poller.joined_unseen()
            poller.joined()

    def _come_back(self, queue: str) -> None:
        """A queue that was set aside may be served again."""
        for waiter in self._aside.take(queue):
            waiter.errors.pop(queue, None)
            if not waiter.answer.done():
                self._join(waiter, (queue,), True)

    def _reasons(self, waiter: SharedWaiter) -> dict[str, PinLaterError]:
        """The errors, by queue, for which a waiter got nothing. Raises one where the shards failed it in all queues."""
        errors = waiter.errors
        of_shards: list[PinLaterError] = []
        for queue, poller in waiter.pollers.items():
            error = poller.reason_for_nothing()
            if error is not None:
                errors[queue] = fresh(error)
                if not isinstance(error, DequeueRateLimited):
                    of_shards.append(errors[queue])
        if of_shards and len(of_shards) == len(waiter.pollers) and len(errors) == len(of_shards):
            raise of_shards[0]
        return errors
