"""Serving a line: one task that looks for jobs, claims for the first who wait, and answers them, round after round."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence, Sized
from time import perf_counter

import structlog

from pinlater.backends.base import ClaimRequest
from pinlater.clock import Clock
from pinlater.eager import InlineFuture
from pinlater.errors import PinLaterError, QueueNotFound, UnknownError
from pinlater.model import DequeuedJob
from pinlater.queues.settings import QueueSettings
from pinlater.service.longpoll.due import DueQuery, DueTimes
from pinlater.service.longpoll.wait_queue import LongPollSettings, Waiter, WaitQueue, covering
from pinlater.service.queue_limits import QueueLimits, Throttle
from pinlater.shards.router import Router

_log = structlog.get_logger("pinlater.service")

_READY_LIMIT = 1_000
_SOME = 1_000
"""How many jobs are expected where nobody said how many there are."""

_LINES_PER_MS = 5
"""Lines are looked at no more often, all together, than this many times a millisecond."""

_TICK_S = 0.001
"""uvloop's timers have whole milliseconds, from a time of their own, and may ring so early or so late."""

_MAX_HOLD_MS = 1_000
"""A line whose queue has a slow rate is looked at this often all the same: others may have given tokens back."""

FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 10.0
"""After an unforeseen error a queue is looked at again so much later, twice as long after each further one."""

LOG_FAILURES_EVERY_S = 60.0
"""With its traceback, for one queue."""


class QueuePoller:
    """Rounds for all lines of a process. `requeue` gets what was claimed for a waiter that is gone."""

    def __init__(
        self,
        router: Router,
        clock: Clock,
        bounds: LongPollSettings,
        limits: QueueLimits,
        due: DueTimes,
        looks: DueQuery,
        is_told: Callable[[str], bool],
        lines: Sized,
        renew: Callable[[ClaimRequest], ClaimRequest],
        requeue: Callable[[Sequence[DequeuedJob]], None],
    ) -> None:
        self._router = router
        self._clock = clock
        self._bounds = bounds
        self._limits = limits
        self._due = due
        self._looks = looks
        self._is_told = is_told
        self._lines = lines
        self._phase_s = random.random()
        self._renew = renew
        self._give_back = requeue
        self._failures: dict[str, int] = {}
        """Of queues whose last round failed in an unforeseen way: how many did, in a row."""
        self._logged_s: dict[str, float] = {}
        self.is_draining = False

    async def serve(self, line: WaitQueue) -> None:
        """Until nobody is in line, and it is known when the next delayed job is due: who left comes back."""
        while line or line.was_due:
            try:
                if line.expected <= 0 or line.held_s() > 0:
                    await self._pause(line)
                if line or line.was_due:
                    await self._round(line)
                    self._failures.pop(line.queue, None)
            except Exception as error:
                await self._back_off(line, error)

    async def _back_off(self, line: WaitQueue, error: Exception) -> None:
        """After what nobody foresaw: whoever waits is told, and the line rests, longer from failure to failure, also
        where it is empty: those who come meanwhile wait for its end.
        """
        loop, queue = asyncio.get_running_loop(), line.queue
        failures = self._failures[queue] = self._failures.get(queue, 0) + 1
        pause_s = min(FIRST_BACKOFF_S * 2 ** min(failures - 1, 10), MAX_BACKOFF_S)
        if failures == 1 or loop.time() - self._logged_s.get(queue, -math.inf) >= LOG_FAILURES_EVERY_S:
            self._logged_s[queue] = loop.time()
            _log.error("serving_failed", queue=queue, failures=failures, again_in_s=pause_s, exc_info=error)
        text = f"queue {queue!r} cannot be served: {type(error).__name__}: {error}"
        line.error = UnknownError(
            text, reason="SERVING_FAILED", retryable=True, retry_after_ms=max(1_000, int(pause_s * 1000))
        )
        del error
        line.expected, line.was_due = 0, False
        line.hold(None, 0)
        self._due.invalidate(queue)
        line.fail(line.error)
        ends_at = loop.time() + pause_s
        while not self.is_draining and loop.time() < ends_at:
            await self._rest(line, ends_at)
        line.pause_ms = 0

    async def _pause(self, line: WaitQueue) -> None:
        """Until jobs are expected, or it is time to look again; while the line is held, nothing helps but the bell."""
        held_s = line.held_s()
        if held_s > 0:
            await self._rest(line, asyncio.get_running_loop().time() + held_s)
            return
        loop = asyncio.get_running_loop()
        look_at = self._look_at(loop.time(), line.pause_ms / 1000)
        while line and line.expected <= 0 and line.pause_ms > 0:
            now_ms, now = self._clock.now_ms(), loop.time()
            if self._due.take(line.queue, now_ms):
                line.expected, line.was_due = _SOME, True
                return
            due_ms = self._due.next(line.queue)
            if look_at <= now + _TICK_S:
                return
            if due_ms is None:
                await self._rest(line, look_at)
            elif due_ms > now_ms + 1:
                await self._rest(line, min(look_at, now + (due_ms - now_ms) / 1000 - _TICK_S))
            else:
                await self._last_ms(line, due_ms)

    async def _last_ms(self, line: WaitQueue, due_ms: int) -> None:
        """Turn after turn of the loop: a timer would ring half a millisecond late on average."""
        until = perf_counter() + _TICK_S
        while line and line.expected <= 0 and self._clock.now_ms() < due_ms and perf_counter() < until:  # noqa: ASYNC110
            await asyncio.sleep(0)

    def _look_at(self, now: float, pause_s: float) -> float:
        """On a beat that all lines of this process share, so that one question serves them all."""
        if pause_s == 0:
            return now
        beats = (now + self._phase_s) / pause_s
        return (math.floor(beats + 0.25) + 1) * pause_s - self._phase_s

    async def _rest(self, line: WaitQueue, until: float) -> None:
        """Until then, or until the bell rings."""
        loop = asyncio.get_running_loop()
        line.bell = InlineFuture(loop)
        timer = loop.call_at(until, line.ring)
        try:
            await line.bell
        finally:
            timer.cancel()
            line.bell = None

    async def _round(self, line: WaitQueue) -> None:
        """Look, unless jobs are expected anyway; claim for as many waiters as there are jobs; answer them."""
        batch: list[Waiter] = []
        try:
            settings = self._limits.of(line.queue)
            if settings is None:
                claimed = await self._claim(line, batch)
            else:
                claimed = await self._claim_limited(line, batch, settings)
        except QueueNotFound:
            line.fail(QueueNotFound.of(line.queue))
            return
        except PinLaterError as error:
            line.error = error
            line.expected = 0
            line.pause_ms = self._bounds.poll_max_ms
            claimed = [[] for _ in batch]
            for waiter in batch:
                waiter.request = self._renew(waiter.request)
        else:
            line.error = None
        self._answer(line, batch, claimed)

    async def _look(self, line: WaitQueue) -> None:
        """See whether jobs are to be expected, or when the next one is due."""
        line.was_due = line.is_doubted = False
        due_ms = await self._looks.next_due(line.queue, line.priorities)
        is_told, slower_ms = self._is_told(line.queue), self._slower_ms(line)
        if due_ms is not None and due_ms <= self._clock.now_ms():
            line.expected = max(line.expected, _SOME)
            line.pause_ms = slower_ms
            self._due.invalidate(line.queue)
            return
        if due_ms is not None:
            self._due.add(line.queue, (due_ms,))
        if line.is_doubted:
            return  # what was found may be older than what there is: once more, without a pause
        line.pause_ms = self._bounds.poll_told_ms if is_told else slower_ms
        if is_told:
            self._due.confirm(line.queue)

    def _slower_ms(self, line: WaitQueue) -> int:
        slowest_ms = max(self._bounds.poll_max_ms, len(self._lines) // _LINES_PER_MS)
        return min(max(self._bounds.poll_min_ms, line.pause_ms * 2), slowest_ms)

    async def _claim(self, line: WaitQueue, batch: list[Waiter]) -> list[list[DequeuedJob]]:
        """For a queue without limits; puts those it claims for into the batch."""
        foretold = line.foretold
        line.hold(None, 0)
        if line.expected <= 0:
            await self._look(line)
        _put_in(batch, covering(line.waiters(), line.expected))
        line.expected = 0
        if not batch:
            return []
        requests = [waiter.request for waiter in batch]
        claimed = await self._router.claim(line.queue, requests, self._clock.now_ms())
        if foretold:
            line.expected -= min(foretold, sum(map(len, claimed)))
        return claimed

    async def _claim_limited(
        self, line: WaitQueue, batch: list[Waiter], settings: QueueSettings
    ) -> list[list[DequeuedJob]]:
        """Always counts first: tokens are asked for no more than what is ready, and whether anything is, is what those
        are told whose time is over. What frees room elsewhere is told by nobody, so it looks at the pace of those.
        """
        if line.expected <= 0:
            await self._look(line)
        if line.expected <= 0:
            line.hold(None, 0)
            return []
        line.expected = 0
        wanted = min(_READY_LIMIT, sum(waiter.request.limit for waiter in line.waiters()))
        found = await self._router.count_ready(line.queue, line.priorities, wanted, self._clock.now_ms())
        line.pause_ms = self._slower_ms(line)
        _put_in(batch, covering(line.waiters(), found))
        claimed = await self._limits.claim(line.queue, settings, found, [waiter.request for waiter in batch])
        self.hold(line, claimed.held)
        if claimed.held is not None:
            self._count_held(claimed.held.reason, line.queue, batch, claimed.jobs)
        return claimed.jobs

    def hold(self, line: WaitQueue, held: Throttle | None) -> None:
        """Until the rate allows a job, or until the next look where there was no room, unless some came meanwhile."""
        if held is not None and held.reason == "rate":
            line.hold(held, min(max(held.retry_after_ms, self._bounds.poll_min_ms), _MAX_HOLD_MS))
        else:
            line.hold(held, line.pause_ms)

    def _count_held(self, reason: str, queue: str, batch: list[Waiter], claimed: list[list[DequeuedJob]]) -> None:
        """Each waiter once, however often it is passed over."""
        new = [waiter for waiter, jobs in zip(batch, claimed, strict=True) if not jobs and not waiter.was_held]
        for waiter in new:
            waiter.was_held = True
        if new:
            self._limits.count(len(new), queue, reason)

    def _answer(self, line: WaitQueue, batch: list[Waiter], claimed: list[list[DequeuedJob]]) -> None:
        served = 0
        if len(claimed) < len(batch):  # the bodies are large: the others are claimed for in another call
            claimed += [[] for _ in batch[len(claimed) :]]
            line.expected = max(line.expected, _SOME)
        for waiter, jobs in zip(batch, claimed, strict=True):
            waiter.in_claim = False
            if jobs:
                served += 1
                self._hand_over(line, waiter, jobs)
            elif waiter.is_over:
                line.end_wait(waiter, self.is_draining)
        if served or line.was_due:
            line.pause_ms = 0 if line else self._bounds.poll_min_ms

    def _hand_over(self, line: WaitQueue, waiter: Waiter, jobs: list[DequeuedJob]) -> None:
        if waiter.answer.done():
            self._give_back(jobs)
            return
        line.leave(waiter)
        waiter.answer.set_result(jobs)


def _put_in(batch: list[Waiter], waiters: list[Waiter]) -> None:
    """These are being claimed for: what comes is theirs, also when their time ends meanwhile."""
    for waiter in waiters:
        waiter.in_claim = True
    batch += waiters
