"""The poller of one queue: it looks for jobs, claims for the first that wait, and answers them, round after round.

The package's docstring draws its states.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from functools import partial

import structlog

from pinlater.backends.aged_levels import Level, split_levels
from pinlater.backends.base import ClaimRequest
from pinlater.background_tasks import exponential_backoff_s
from pinlater.eager import InlineFuture
from pinlater.errors import DequeueRateLimited, Draining, PinLaterError, QueueNotFound, UnknownError
from pinlater.model import DequeuedJob
from pinlater.queues.settings import QueueSettings
from pinlater.service.longpoll.known_claims import all_notify, claim_at_candidates, claim_at_sole, known_shards
from pinlater.service.longpoll.known_queue import SOME_JOBS, KnownQueue
from pinlater.service.longpoll.poller_context import PollerContext
from pinlater.service.longpoll.poller_state import Outlook, PollerState
from pinlater.service.longpoll.shared_waiter import SharedWaiter
from pinlater.service.longpoll.wait_queue import Waiter, WaitQueue, fresh

_log = structlog.get_logger("pinlater.service")

_READY_LIMIT = 1_000
_POLLERS_PER_MS = 5
"""The most polls per millisecond, of all queues together."""

_TICK_S = 0.001
"""uvloop's timers have whole milliseconds, from a time of their own, and may fire so early or so late."""

KEEP_S = 10.0
"""How long the poller of a queue that is one of several to a waiter is kept, parked, after the last of them: most come
back at once, and to begin a hundred pollers each time would cost more than all else.
"""

TRUSTED_POLLS = 2
"""What all shards said is trusted for so many pauses between two polls of a queue of which the stores notify."""

FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 10.0
"""After an unforeseen error a queue is served again so much later, twice as long after each further one."""

LOG_FAILURES_EVERY_S = 60.0
"""How often a queue's failures are logged with a traceback."""


_AT_REST = (PollerState.IDLE, PollerState.PARKED)


class QueuePoller:
    """Begins with the first waiter of a queue, and ends when none is left."""

    __slots__ = (
        "_context",
        "_keep_until_s",
        "_loop",
        "_parked",
        "_timer",
        "error",
        "inflight_jobs",
        "known",
        "queue",
        "state",
        "task",
        "waiters",
        "wakeup",
    )

    def __init__(self, queue: str, pause_ms: int, context: PollerContext) -> None:
        self.queue = queue
        self.waiters = WaitQueue()
        self.state = PollerState.IDLE
        self._loop = asyncio.get_running_loop()
        self.known = KnownQueue(pause_ms, self._loop.time, TRUSTED_POLLS * context.settings.poll_subscribed_ms / 1000)
        self.inflight_jobs = 0
        """How many jobs the claim that begins next may meet before they are announced."""
        self.error: PinLaterError | None = None
        """What the last round failed with."""
        self._keep_until_s = 0.0
        self._parked: InlineFuture[None] | None = None
        """What ends its parking; None: it is not parked."""
        self._context = context
        self.wakeup: InlineFuture[None] | None = None
        """What ends its rest; None: it does not rest."""
        self._timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None

    # -- events ------------------------------------------------------------------------------------------------------

    def notify(self) -> None:
        """End a rest now; nothing happens where there is none."""
        wakeup = self.wakeup
        if wakeup is not None:
            self.wakeup = None
            if self._timer is not None:
                self._timer.cancel()
            if not wakeup.done():
                wakeup.set_result(None)

    @property
    def is_at_rest(self) -> bool:
        """Callers wait, and the next event makes it claim at once."""
        return self.wakeup is not None and self.state is PollerState.IDLE and bool(self.waiters.entries)

    def expect_inflight(self, jobs: int, shard_id: str) -> None:
        """So many jobs are on their way to this shard, or ("") to one that is not known, ahead of any claim that begins
        now. They are announced later. For a poller that rests in IDLE: it claims at once.
        """
        self.known.expect_ahead(jobs, shard_id)
        self.inflight_jobs = jobs
        self.notify()
        self.inflight_jobs = 0

    def due_changed(self) -> None:
        """The next due time is earlier than it was; of no use to a queue that is throttled."""
        if self.known.throttled_for() == 0:
            self.notify()

    def poll_now(self) -> None:
        """Something may have happened that no store reports; of no use to a queue that is throttled."""
        if self.known.distrust():
            self.notify()

    def capacity_freed(self) -> None:
        """Fewer jobs are in progress: worth a poll where that is what keeps jobs back, or perhaps will in a moment."""
        throttle = self.known.throttle
        if self.wakeup is None or (throttle is not None and throttle.reason == "in_progress"):
            self.unthrottle()

    def unthrottle(self) -> None:
        """What kept jobs back may be over: poll now."""
        self.known.unthrottle()
        self.notify()

    def end_wait(self, waiter: Waiter) -> None:
        """The time is over: an answer now, or when the claim that is under way for it returns."""
        if isinstance(waiter, SharedWaiter):
            waiter.end()
            return
        waiter.is_over = True
        if waiter.in_claim or waiter.answer.done():
            return
        self.waiters.leave(waiter)
        self._stay()
        error = self.reason_for_nothing()
        if error is None:
            waiter.answer.set_result([])
        else:
            waiter.answer.set_exception(fresh(error))

    def reason_for_nothing(self) -> PinLaterError | None:
        """The error of a waiter whose time is over; None: there was no job."""
        throttle = self.known.throttle
        if self.error is None and throttle is not None and not self._context.is_draining:
            return throttle.error()
        return self.error

    def end_waits(self) -> None:
        """The server drains: waiters get nothing, those in a claim what it brings."""
        for waiter in list(self.waiters.waiters()):
            self.end_wait(waiter)
        self.notify()
        self._unpark()

    def fail(self, error: PinLaterError) -> None:
        """Every waiter of this queue alone gets this error now; those of several set the queue aside, but for errors
        that pass by themselves.
        """
        self.known.fail()
        waiters = self.waiters
        waiters.fail(error)
        for waiter in list(waiters.entries):
            if not isinstance(waiter, SharedWaiter):
                continue
            if isinstance(error, QueueNotFound | DequeueRateLimited):
                waiter.set_aside(self.queue, error)
            elif all(poller.state is PollerState.BACKING_OFF for poller in waiter.pollers.values()):
                waiter.end()
        self.notify()

    # -- waiters of several queues -----------------------------------------------------------------------------------

    def keep(self, now_s: float) -> None:
        """Callers ask for its queue who come again and again."""
        self._keep_until_s = now_s + KEEP_S

    def _stay(self) -> None:
        """Where it knows which shards may have jobs: callers come back."""
        if all_notify(self._context, self.queue):
            self.keep(self._loop.time())

    def keep_no_longer(self) -> None:
        """The queue is not there: callers can name any number of such queues."""
        self._keep_until_s = 0.0
        self._unpark()

    def outlook(self, now_s: float, now_ms: int) -> Outlook:
        """What a dequeue that may wait can expect of the queue."""
        known = self.known
        if known.is_empty(now_s):
            due_ms = self._context.due.next(self.queue)
            if due_ms is None or due_ms > now_ms:
                return Outlook.EMPTY
        if self.waiters.entries or self.state is PollerState.BACKING_OFF or now_s < known.throttled_until_s:
            return Outlook.TAKEN
        return Outlook.FULL if known.is_full or known_shards(self._context, self.queue, self.known) else Outlook.UNKNOWN

    def due_taken(self) -> None:
        """A dequeue that waits for nothing asks for jobs of the queue, whose next time has come: that time will not be
        announced any more to those who wait for it.
        """
        self.known.expect_any()
        if self.waiters.entries:
            self.poll_now()

    def found_empty(self, events: int) -> None:
        """A question that was not this poller's own found nothing eligible, and began after so many events."""
        known = self.known
        if known.events == events and not self.waiters.entries and self.state in _AT_REST:
            known.throttle, known.throttled_until_s, self.error = None, 0.0, None
            self._was_empty(events)

    def _was_empty(self, events: int) -> None:
        """A poll found nothing eligible that began after so many events."""
        context, known = self._context, self.known
        is_subscribed = context.subscriptions.is_subscribed(self.queue)
        known.found_empty(events, context.settings.poll_subscribed_ms if is_subscribed else self._slower_ms())
        if is_subscribed:
            context.due.confirm(self.queue)
        if events == known.events and not self.waiters.entries:
            known.ready_estimate, known.is_stale = 0, False

    def begins_empty(self) -> None:
        """Whoever began it found no job on any shard."""
        if all_notify(self._context, self.queue):
            self.known.found_at((), self.known.changes)

    def is_empty(self) -> bool:
        """No shard has a job, as far as it is known."""
        return known_shards(self._context, self.queue, self.known) == set()

    async def claim_at_known(self, request: ClaimRequest) -> list[DequeuedJob] | None:
        """Jobs for a dequeue that comes while nobody waits; none: the queue is empty. None: all shards are to be asked,
        as it is not known which of them may have jobs, or those that may have some have jobs of a later priority.
        """
        context, known = self._context, self.known
        shard_ids = None if self.waiters.entries else known_shards(self._context, self.queue, self.known)
        if shard_ids is None:
            return None
        events, changes = known.events, known.changes
        if shard_ids:
            claimed = await context.router.claim_of_first(shard_ids, self.queue, (request,), context.clock.now_ms())
            if claimed is None:
                return None
            if any(claimed):
                return claimed[0]
            known.found_none_at(shard_ids, changes)
        self.found_empty(events)
        return []

    def note_look(
        self, events: int, changes: int, looks: int, priorities: Sequence[Level], *, found_none: bool
    ) -> None:
        """A claim of others has asked all shards, after so many events, changes, and looks of all claims."""
        look = self._context.router.claims.last_look(self.queue, priorities)
        if look is not None and look.number > looks and all_notify(self._context, self.queue):
            self.known.found_at(look.shard_ids, changes)
            if found_none:
                self.found_empty(events)

    def joined_unseen(self) -> None:
        """A waiter has joined that did not ask all shards itself."""
        self.known.joined_unseen()

    def joined(self) -> None:
        """A waiter of several queues has joined: it is polled again, unless it is known to be empty."""
        known = self.known
        if self.waiters.has_passed_over:
            self.serve_passed_over()
        elif self._parked is not None:
            if not known.was_empty():
                known.pause_ms = 0
            self._unpark()
        elif self.wakeup is not None and not known.was_empty() and known.throttled_for() == 0:
            known.pause_ms = 0
            self.notify()

    def serve_passed_over(self) -> None:
        """A waiter is free, or a new one has come, that can be claimed for: there were jobs."""
        self.waiters.has_passed_over = False
        if self._parked is not None:
            self.known.pause_ms = 0
            self._unpark()
        elif self.known.expect(SOME_JOBS):
            self.notify()

    async def _park(self) -> None:
        """Rest, while nobody waits, until somebody does; events that come meanwhile are noted."""
        self.state = PollerState.PARKED
        self._timer = self._loop.call_at(self._keep_until_s, self._unpark)
        self._parked = InlineFuture(self._loop)
        await self._parked

    def _unpark(self) -> None:
        parked = self._parked
        if parked is not None:
            self._parked = None
            if self._timer is not None:
                self._timer.cancel()
            parked.set_result(None)

    def _is_kept(self) -> bool:
        return self._loop.time() < self._keep_until_s and not self._context.is_draining

    # -- the rounds --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve those who wait, and stay a while, as callers come back, until the next delayed job's time is known."""
        context, waiters, known = self._context, self.waiters, self.known
        try:
            while waiters.entries or known.due_passed or self._is_kept():
                try:
                    if not waiters.entries and not known.due_passed:
                        await self._park()
                        continue
                    if known.throttled_until_s and (left_s := known.throttled_for()) > 0:
                        self.state = PollerState.THROTTLED
                        await self._rest(self._loop.time() + left_s)
                    elif known.ready_estimate <= 0:
                        since_s = self._loop.time() if known.worth_asking() is None else known.look_s
                        next_poll_at_s = self._next_poll_at(since_s)
                        while known.ready_estimate <= 0 and (until_s := self._idle_until(next_poll_at_s)) is not None:
                            if until_s > 0:
                                self.state = PollerState.IDLE
                                await self._rest(until_s)
                            else:  # turn after turn of the loop: a timer would fire half a millisecond late on average
                                self.state = PollerState.DUE
                                await asyncio.sleep(0)
                    if waiters.entries or known.due_passed:
                        context.watch.begun(self)
                        try:
                            await self._round()
                        finally:
                            context.watch.ended(self)
                        context.failures.pop(self.queue, None)
                except Exception as error:
                    await self._back_off(error)
        finally:
            self.state = PollerState.ENDED
            self.wakeup = None
            if self._timer is not None:
                self._timer.cancel()
            context.ended(self.queue)
            if waiters.entries:  # it was cancelled
                waiters.fail(Draining("this server stops serving dequeues"))
                for waiter in list(waiters.entries):  # of several queues
                    waiter.answer.set_exception(Draining("this server stops serving dequeues"))
            context.subscriptions.left(self.queue)

    def _rest(self, until_s: float) -> InlineFuture[None]:
        """Awaited: until then, or until something is notified."""
        self._timer = self._loop.call_at(until_s, self.notify)
        self.wakeup = InlineFuture(self._loop)
        return self.wakeup

    def _next_poll_at(self, since_s: float) -> float:
        """A pause later, on the beat that all pollers of this process share."""
        pause_s = self.known.pause_ms / 1000
        if pause_s == 0:
            return since_s
        phase_s = self._context.phase_s
        beats = (since_s + phase_s) / pause_s
        return (math.floor(beats + 0.25) + 1) * pause_s - phase_s

    def _idle_until(self, next_poll_at_s: float) -> float | None:
        """The loop's time until which it rests; 0: for one turn of the loop; None: a round begins."""
        if not self.waiters.entries or self.known.pause_ms <= 0:
            return None
        due = self._context.due
        now_ms, now_s = self._context.clock.now_ms(), self._loop.time()
        if due.take(self.queue, now_ms):
            self.known.due_passed = True
            self.known.found_due()
            return None
        if next_poll_at_s <= now_s + _TICK_S:
            return None
        due_ms = due.next(self.queue)
        if due_ms is None:
            return next_poll_at_s
        if due_ms > now_ms + 1:
            return min(next_poll_at_s, now_s + (due_ms - now_ms) / 1000 - _TICK_S)
        return 0.0

    async def _round(self) -> None:
        """Poll, unless jobs are expected anyway; claim for as many waiters as there are jobs; answer them."""
        batch: list[Waiter] = []
        context, known = self._context, self.known
        try:
            settings = context.limits.of(self.queue)
            if settings is not None:
                claimed = await self._claim_limited(batch, settings)
            else:
                inflight = self.inflight_jobs
                known.throttle, known.throttled_until_s = None, 0.0
                if known.ready_estimate <= 0:
                    await self._poll()
                batch += self.waiters.first_for(known.ready_estimate)
                claimed = []
                if not batch:
                    known.ready_estimate = 0
                else:
                    self.state = PollerState.CLAIMING
                    expected = known.ready_estimate
                    known.begin_claim()
                    requests = []
                    for waiter in batch:
                        waiter.in_claim = True
                        requests.append(waiter.claim_for(self.queue) if waiter.is_shared else waiter.request)
                    if context.router.has_several_shards():
                        claimed = await claim_at_candidates(context, self.queue, known, requests)
                    else:
                        claimed = await claim_at_sole(context, self.queue, known, requests, expected)
                if inflight:
                    known.ready_estimate -= min(inflight, sum(map(len, claimed)))
        except QueueNotFound:
            self._keep_until_s = 0.0
            self.fail(QueueNotFound.of(self.queue))
            _free(batch)
            return
        except PinLaterError as error:
            self.error = error
            context.watch.failed(self.queue, len(self.waiters), error)
            known.ready_estimate = 0
            known.forget_shards()
            known.pause_ms = context.settings.poll_max_ms
            claimed = [[] for _ in batch]
            for waiter in batch:  # the old claim may still be under way
                waiter.request = context.claims.renew(waiter.request)
        except BaseException:
            _free(batch)
            raise
        else:
            self.error = None
        self._answer(batch, claimed)

    async def _poll(self) -> None:
        """Ask the stores whether jobs are to be expected, or when the next one is due."""
        self.state = PollerState.POLLING
        context, known = self._context, self.known
        events, changes = known.events, known.changes
        known.due_passed = known.is_stale = False
        priorities, _ = split_levels(self.waiters.priorities)
        due_ms = await context.due_query.next_due(self.queue, priorities)
        if due_ms is not None and due_ms <= context.clock.now_ms():
            known.found_due()
            known.pause_ms = self._slower_ms()
            context.due.invalidate(self.queue)
            return
        if due_ms is not None:
            context.due.add(self.queue, (due_ms,))
        if known.is_stale:
            return  # what was found may be older than what there is: once more, without a pause
        self._was_empty(events)
        if context.subscriptions.is_subscribed(self.queue):
            known.found_at((), changes)

    def _slower_ms(self) -> int:
        settings = self._context.settings
        slowest_ms = max(settings.poll_max_ms, len(self._context.pollers) // _POLLERS_PER_MS)
        return min(max(settings.poll_min_ms, self.known.pause_ms * 2), slowest_ms)

    async def _claim_limited(self, batch: list[Waiter], settings: QueueSettings) -> list[list[DequeuedJob]]:
        """Counts first, where a limit is of all jobs: tokens are asked for no more than what is ready, and whether
        anything is, is what waiters are told whose time is over. Nobody reports capacity that is freed elsewhere, so it
        polls at the pace of those. Where only groups have limits shards notify of those that have room again.
        """
        context, waiters, known = self._context, self.waiters, self.known
        if known.ready_estimate <= 0:
            await self._poll()
        if known.ready_estimate <= 0:
            known.throttle, known.throttled_until_s = None, 0.0
            return []
        self.state = PollerState.CLAIMING
        known.begin_claim()
        claim_from = None
        if not settings.counts_jobs and context.router.has_several_shards():
            claim_from = partial(claim_at_candidates, context, self.queue, known)
        else:
            known.forget_shards()
        wanted = min(_READY_LIMIT, sum([waiter.request.limit for waiter in waiters.waiters()]))
        ready = wanted
        if settings.counts_jobs:
            ready = await context.router.count_ready(self.queue, waiters.priorities, wanted, context.clock.now_ms())
        known.pause_ms = self._slower_ms()
        batch += waiters.first_for(ready)
        requests = []
        for waiter in batch:
            waiter.in_claim = True
            requests.append(waiter.claim_for(self.queue) if waiter.is_shared else waiter.request)
        claimed = await context.limits.claim(self.queue, settings, ready, requests, claim_from=claim_from)
        known.throttle_by(claimed.throttle, context.settings.poll_min_ms)
        known.is_exhausted = not settings.counts_jobs and sum(map(len, claimed.jobs)) < wanted
        if claimed.throttle is not None:
            self._count_throttled(claimed.throttle.reason, batch, claimed.jobs)
        return claimed.jobs

    def _count_throttled(self, reason: str, batch: Sequence[Waiter], claimed: Sequence[Sequence[DequeuedJob]]) -> None:
        """Count the waiters that got nothing for this reason, each once, however often it is passed over."""
        new = 0
        for waiter, jobs in zip(batch, claimed, strict=True):
            if not jobs and self.queue not in waiter.throttled:
                waiter.throttled += (self.queue,)
                new += 1
        if new:
            self._context.limits.count(new, self.queue, reason)

    def _answer(self, batch: Sequence[Waiter], claimed: list[list[DequeuedJob]]) -> None:
        served, known = False, self.known
        if len(claimed) < len(batch):  # the bodies are large: the others are claimed for in another call
            claimed += [[] for _ in batch[len(claimed) :]]
            known.found_due()
        for waiter, jobs in zip(batch, claimed, strict=True):
            if jobs:
                served = True
                waiter.in_claim = False
                if waiter.answer.done():
                    self._context.requeuer.requeue_later(jobs)
                elif waiter.is_shared and waiter not in self.waiters.entries:  # the queue was set aside meanwhile
                    self._context.requeuer.requeue_later(jobs)
                    _free((waiter,))
                else:
                    self.waiters.entries.pop(waiter, None)
                    waiter.answer.set_result(jobs)
            elif waiter.is_shared:
                _free((waiter,))
            else:
                waiter.in_claim = False
                if waiter.is_over:
                    self.end_wait(waiter)
        if served:
            self._stay()
            may_expect = bool(self.waiters.entries) and not known.due_passed
            if may_expect and all_notify(self._context, self.queue) and known.expect_left():
                return
        if (served and not known.is_exhausted) or known.due_passed:
            known.pause_ms = 0 if self.waiters.entries else self._context.settings.poll_min_ms

    # -- what nobody foresaw -----------------------------------------------------------------------------------------

    async def _back_off(self, error: Exception) -> None:
        """Waiters get the error, and the poller rests, longer from failure to failure, also where nobody waits: those
        who come meanwhile wait for its end.
        """
        self.state = PollerState.BACKING_OFF
        context, loop, queue = self._context, self._loop, self.queue
        failures = context.failures[queue] = context.failures.get(queue, 0) + 1
        pause_s = exponential_backoff_s(failures, FIRST_BACKOFF_S, MAX_BACKOFF_S)
        logged_s, fault = context.logged.get(queue, (-math.inf, ""))
        is_news = failures == 1 or loop.time() - logged_s >= LOG_FAILURES_EVERY_S
        self.error = unknown = UnknownError.by_fault(
            f"queue {queue!r} cannot be served",
            "" if is_news else fault,
            reason="SERVING_FAILED",
            retry_after_ms=max(1_000, int(pause_s * 1000)),
        )
        if is_news:
            context.logged[queue] = loop.time(), unknown.fault
            fields = {"queue": queue, "failures": failures, "again_in_s": pause_s, "fault": unknown.fault}
            _log.error("serving_failed", **fields, exc_info=error)
        del error
        known = self.known
        known.ready_estimate, known.due_passed = 0, False
        known.throttle, known.throttled_until_s = None, 0.0
        context.due.invalidate(queue)
        self.fail(self.error)
        ends_at_s = loop.time() + pause_s
        while not context.is_draining and loop.time() < ends_at_s:
            await self._rest(ends_at_s)
        known.pause_ms = 0


def _free(batch: Iterable[Waiter]) -> None:
    """A claim brought those of them nothing that wait for several queues: others may claim for them."""
    for waiter in batch:
        if isinstance(waiter, SharedWaiter):
            waiter.free()
