"""A line of dequeues that wait for one queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pinlater.backends.base import ClaimRequest
from pinlater.eager import InlineFuture
from pinlater.errors import PinLaterError
from pinlater.model import DequeuedJob
from pinlater.service.queue_limits import Throttle

_BATCH = 64
"""Waiters that one joined claim serves."""

_BATCH_BYTES = 128 * 1024 * 1024
"""What it may bring, if all its jobs are as large as can be."""


class Ticket(NamedTuple):
    """When a dequeue came: its place among all, and how much had happened by then."""

    number: int
    wakes: int


class Waiter:
    """One dequeue in line."""

    __slots__ = ("answer", "in_claim", "is_over", "number", "request", "was_held")

    def __init__(self, number: int, request: ClaimRequest) -> None:
        self.number = number
        self.request = request
        self.answer: InlineFuture[list[DequeuedJob]] = InlineFuture(asyncio.get_running_loop())
        self.in_claim = False
        self.is_over = False
        self.was_held = False


class WaitQueue:
    """Those who wait for one queue, and what is known of it.

    To join and to leave costs the same however long the line is: thousands may leave at once.
    """

    __slots__ = (
        "_held_until_s",
        "_is_in_order",
        "_last_number",
        "_waiters",
        "bell",
        "error",
        "expected",
        "foretold",
        "held",
        "is_doubted",
        "pause_ms",
        "priorities",
        "queue",
        "task",
        "was_due",
    )

    def __init__(self, queue: str, pause_ms: int) -> None:
        self.queue = queue
        self._waiters: dict[Waiter, None] = {}
        self._last_number = 0
        self._is_in_order = True
        self.priorities: Sequence[int] = ()
        """Those of the last who joined: all dequeues of a server ask for the same."""
        self.expected = 0
        """How many jobs are. Below 0: so many were handed out already that are yet to be announced."""
        self.foretold = 0
        """How many the claim that begins next may meet before they are announced."""
        self.pause_ms = pause_ms
        self.is_doubted = False
        """Something may have happened since the look that is under way, or the last one, began."""
        self.error: PinLaterError | None = None
        self.held: Throttle | None = None
        """What kept the last round from handing out what was eligible."""
        self._held_until_s = 0.0
        self.was_due = False
        """A delayed job's time has come: when the next one's will, is not known."""
        self.bell: InlineFuture[None] | None = None
        self.task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiters)

    def join(self, waiter: Waiter) -> None:
        """Stand where one belongs that came then: a first look may have taken longer than that of who came later."""
        self._waiters[waiter] = None
        self.priorities = waiter.request.priorities
        if waiter.number < self._last_number:
            self._is_in_order = False
        else:
            self._last_number = waiter.number

    def leave(self, waiter: Waiter) -> None:
        """Nothing happens where it left before."""
        self._waiters.pop(waiter, None)

    def waiters(self) -> Iterable[Waiter]:
        """In order of arrival; nobody may join or leave until they are read."""
        if not self._is_in_order:
            self._waiters = dict.fromkeys(sorted(self._waiters, key=lambda waiter: waiter.number))
            self._is_in_order = True
        return self._waiters

    # -- waking ------------------------------------------------------------------------------------------------------

    def look_now(self) -> None:
        """Something may have happened that nobody tells of; of no use to a line that is held."""
        if self.held_s() == 0:
            self.pause_ms = 0
            self.is_doubted = True
            self.ring()

    def ring(self) -> None:
        """Go on now, whatever keeps the line waiting."""
        if self.bell is not None and not self.bell.done():
            self.bell.set_result(None)

    def wake(self, jobs: int) -> None:
        """So many jobs became eligible; of no use to a line that is held."""
        if self.held_s() == 0:
            self.expected += jobs
            self.ring()

    @property
    def is_resting(self) -> bool:
        """Nothing is under way for it, so that its bell begins a round at once."""
        return self.bell is not None and not self.bell.done()

    def foretell(self, jobs: int) -> None:
        """So many jobs are on their way to the store, ahead of any claim that begins now. `wake` announces them."""
        self.foretold = jobs
        self.wake(jobs)
        self.foretold = 0

    def hold(self, held: Throttle | None, hold_ms: int) -> None:
        """Nothing can be handed out for so long, whatever becomes eligible."""
        self.held = held
        self._held_until_s = 0.0 if held is None else asyncio.get_running_loop().time() + hold_ms / 1000

    def held_s(self) -> float:
        """How long it is held yet."""
        return max(0.0, self._held_until_s - asyncio.get_running_loop().time()) if self._held_until_s else 0.0

    def capacity_freed(self) -> None:
        """Fewer jobs are in progress: worth a look where that is what the line waits for, or is perhaps about to."""
        if not self.is_resting or (self.held is not None and self.held.reason == "in_progress"):
            self.let_go()

    def let_go(self) -> None:
        """What held it may be over: look now."""
        self._held_until_s = 0.0
        self.pause_ms = 0
        self.ring()

    # -- leaving with nothing ----------------------------------------------------------------------------------------

    def end_wait(self, waiter: Waiter, is_draining: bool) -> None:
        """The time is over: an answer now, or when the claim that is under way for it returns."""
        waiter.is_over = True
        if waiter.in_claim or waiter.answer.done():
            return
        self.leave(waiter)
        error = self.error
        if error is None and self.held is not None and not is_draining:
            error = self.held.error()
        if error is None:
            waiter.answer.set_result([])
        else:
            waiter.answer.set_exception(_fresh(error))

    def fail(self, error: PinLaterError) -> None:
        """Everyone gets this error, and what is claimed for them meanwhile goes back."""
        for waiter in list(self.waiters()):
            self.leave(waiter)
            if not waiter.answer.done():
                waiter.answer.set_exception(_fresh(error))
        self.ring()


def _fresh(error: PinLaterError) -> PinLaterError:
    """The same error for one more caller: an error carries what is true for one call only."""
    return type(error)(
        error.message, reason=error.reason, retryable=error.retryable, retry_after_ms=error.retry_after_ms
    )


@dataclass(frozen=True, slots=True)
class LongPollSettings:
    max_waiters: int
    poll_min_ms: int
    poll_max_ms: int
    poll_told_ms: int


def covering(waiters: Iterable[Waiter], jobs: int) -> list[Waiter]:
    """The first in line, as many as so many jobs can serve if each takes all it may."""
    batch: list[Waiter] = []
    size = 0
    for waiter in waiters:
        if jobs <= 0 or len(batch) == _BATCH or size >= _BATCH_BYTES:
            break
        batch.append(waiter)
        jobs -= waiter.request.limit
        size += waiter.request.max_bytes
    return batch
