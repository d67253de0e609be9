"""Dequeues that wait for jobs: one line per queue, served in order of arrival, and one task per line that looks.

What this server learns (an enqueue, a retry, jobs given back, a delayed job that is due) wakes the line at once. What
other processes do is found by looking: one look per queue and process, however many wait, rarer while nothing comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pinlater.backends.base import ClaimRequest
from pinlater.clock import Clock
from pinlater.errors import Overloaded, PinLaterError, QueueNotFound
from pinlater.model import DequeuedJob
from pinlater.service.due import DueTimes
from pinlater.service.line import Arrival, Line, WaitBounds, Waiter, covering
from pinlater.shards.router import Router

_READY_LIMIT = 1_000
_LINES_PER_MS = 1
"""Lines are looked at no more often, all together, than this many times a millisecond."""


class Waiting:
    """The lines of all queues. `give_back` gets what was claimed for a waiter that is gone."""

    def __init__(
        self,
        router: Router,
        clock: Clock,
        bounds: WaitBounds,
        renew: Callable[[ClaimRequest], ClaimRequest],
        give_back: Callable[[Sequence[DequeuedJob]], None],
    ) -> None:
        self._router = router
        self._clock = clock
        self._bounds = bounds
        self._renew = renew
        self._give_back = give_back
        self._lines: dict[str, Line] = {}
        self._due = DueTimes()
        self._arrivals = self._wakes = self._waiting = 0
        self.is_draining = False

    # -- what wakes a line -------------------------------------------------------------------------------------------

    def wake(self, queue: str, jobs: int) -> None:
        """So many jobs became eligible."""
        self._wakes += 1
        line = self._lines.get(queue)
        if line is not None and jobs > 0:
            line.expected += jobs
            line.ring()

    def due_at(self, queue: str, times_ms: Sequence[int]) -> None:
        """Jobs become eligible at these times."""
        self._due.add(queue, times_ms, self._clock.now_ms())
        line = self._lines.get(queue)
        if line is not None:
            line.ring()

    def became_pending(self, queue: str, now: int, later_ms: Sequence[int]) -> None:
        """So many jobs are eligible again, and others will be at these times."""
        if now:
            self.wake(queue, now)
        if later_ms:
            self.due_at(queue, later_ms)

    def queue_deleted(self, queue: str) -> None:
        """Everyone in line gets QueueNotFound."""
        line = self._lines.get(queue)
        if line is not None:
            self._fail_all(line)

    def start_draining(self) -> None:
        """From now on nobody waits: who is in line gets nothing, who is being served what he gets."""
        self.is_draining = True
        for line in list(self._lines.values()):
            for waiter in list(line.waiters()):
                self._end_wait(line, waiter)
            line.ring()

    async def drain(self) -> None:
        """Until no line has anybody in it."""
        self.start_draining()
        tasks = [line.task for line in self._lines.values() if line.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    # -- waiting -----------------------------------------------------------------------------------------------------

    def arrive(self) -> Arrival:
        self._arrivals += 1
        return Arrival(self._arrivals, self._wakes)

    def has_line(self, queue: str) -> bool:
        return queue in self._lines

    async def wait(self, queue: str, request: ClaimRequest, wait_ms: int, arrival: Arrival) -> list[DequeuedJob]:
        """Jobs as soon as there are some; none when the time is over, or on a draining server.

        QueueNotFound, also later; Overloaded; and where the shards could not be looked at to the end, that error.
        """
        if self.is_draining:
            return []
        if self._waiting >= self._bounds.max_waiters:
            raise Overloaded(f"{self._waiting} dequeues wait already", retry_after_ms=1_000)
        loop = asyncio.get_running_loop()
        line = self._line(queue)
        waiter = Waiter(arrival.number, request)
        line.join(waiter)
        if arrival.wakes != self._wakes:
            line.pause_ms = 0
            line.ring()
        timer = loop.call_later(wait_ms / 1000, self._end_wait, line, waiter)
        self._waiting += 1
        try:
            return await waiter.answer
        except asyncio.CancelledError:
            if not waiter.answer.cancelled() and waiter.answer.exception() is None:
                self._give_back(waiter.answer.result())
            raise
        finally:
            timer.cancel()
            self._waiting -= 1
            line.leave(waiter)
            if not line:
                line.ring()

    def _line(self, queue: str) -> Line:
        line = self._lines.get(queue)
        if line is None:
            line = self._lines[queue] = Line(queue, self._bounds.poll_min_ms)
            line.task = asyncio.get_running_loop().create_task(self._serve(line))
        return line

    def _end_wait(self, line: Line, waiter: Waiter) -> None:
        """The time is over: an answer now, or when the claim that is under way for it returns."""
        waiter.is_over = True
        if waiter.in_claim or waiter.answer.done():
            return
        line.leave(waiter)
        if line.error is None:
            waiter.answer.set_result([])
        else:
            waiter.answer.set_exception(_fresh(line.error))

    def _fail_all(self, line: Line) -> None:
        for waiter in list(line.waiters()):
            line.leave(waiter)
            if not waiter.answer.done():
                waiter.answer.set_exception(QueueNotFound.of(line.queue))
        line.ring()

    # -- serving -----------------------------------------------------------------------------------------------------

    async def _serve(self, line: Line) -> None:
        try:
            while line:
                if line.expected <= 0:
                    await self._pause(line)
                if line:
                    await self._round(line)
        finally:
            del self._lines[line.queue]
            self._fail_rest(line)

    def _fail_rest(self, line: Line) -> None:
        """Whoever is left when serving broke off gets an empty answer rather than none."""
        for waiter in line.waiters():
            if not waiter.answer.done():
                waiter.answer.set_result([])

    async def _pause(self, line: Line) -> None:
        """Until the bell rings, a job is due, or it is time to look again."""
        loop = asyncio.get_running_loop()
        now_ms = self._clock.now_ms()
        if self._due.take(line.queue, now_ms):
            return
        pause_ms = line.pause_ms
        next_ms = self._due.next(line.queue)
        if next_ms is not None:
            pause_ms = min(pause_ms, next_ms - now_ms + 1)
        line.bell = loop.create_future()
        timer = loop.call_later(pause_ms / 1000, line.ring)
        try:
            await line.bell
        finally:
            timer.cancel()
            line.bell = None

    async def _round(self, line: Line) -> None:
        """Look, unless jobs are expected anyway; claim for as many waiters as there are jobs; answer them."""
        batch: list[Waiter] = []
        try:
            if line.expected <= 0:
                line.expected = await self._look(line)
            batch = covering(line.waiters(), line.expected)
            line.expected = 0
            for waiter in batch:
                waiter.in_claim = True
            claimed = await self._claim(line, batch)
        except QueueNotFound:
            self._fail_all(line)
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

    async def _look(self, line: Line) -> int:
        wanted = min(_READY_LIMIT, sum(waiter.request.limit for waiter in line.waiters()))
        priorities = next(iter(line.waiters())).request.priorities
        found = await self._router.ready(line.queue, priorities, wanted, self._clock.now_ms())
        slowest_ms = max(self._bounds.poll_max_ms, len(self._lines) // _LINES_PER_MS)
        line.pause_ms = min(max(self._bounds.poll_min_ms, line.pause_ms * 2), slowest_ms)
        return line.expected + found

    async def _claim(self, line: Line, batch: list[Waiter]) -> list[list[DequeuedJob]]:
        if not batch:
            return []
        return await self._router.claim(line.queue, [waiter.request for waiter in batch], self._clock.now_ms())

    def _answer(self, line: Line, batch: list[Waiter], claimed: list[list[DequeuedJob]]) -> None:
        served = 0
        for waiter, jobs in zip(batch, claimed, strict=True):
            waiter.in_claim = False
            if jobs:
                served += 1
                self._hand_over(line, waiter, jobs)
            elif waiter.is_over:
                self._end_wait(line, waiter)
        if served:
            line.pause_ms = 0 if line else self._bounds.poll_min_ms

    def _hand_over(self, line: Line, waiter: Waiter, jobs: list[DequeuedJob]) -> None:
        if waiter.answer.done():
            self._give_back(jobs)
            return
        waiter.answer.set_result(jobs)
        line.leave(waiter)


def _fresh(error: PinLaterError) -> PinLaterError:
    """The same error for one more caller: an error carries what is true for one call only."""
    return type(error)(
        error.message, reason=error.reason, retryable=error.retryable, retry_after_ms=error.retry_after_ms
    )
