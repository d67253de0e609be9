"""The waiters of one queue, in order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

from pinlater.backends.aged_levels import Level
from pinlater.backends.base import ClaimRequest
from pinlater.eager import InlineFuture
from pinlater.errors import PinLaterError
from pinlater.model import DequeuedJob

_BATCH = 64
"""Waiters that one joined claim serves."""

_BATCH_BYTES = 128 * 1024 * 1024
"""What it may bring, if all its jobs are as large as can be."""


class Ticket(NamedTuple):
    """The arrival of a dequeue: its place among all, and how many wakeups there had been by then."""

    number: int
    wakeups: int


class Waiter:
    """One dequeue that waits. `in_claim`: a claim for it is under way; `is_over`: its time ended meanwhile;
    `throttled`: the queues of which it was counted that a limit left it nothing.
    """

    __slots__ = ("answer", "in_claim", "is_over", "number", "request", "throttled")
    is_shared: ClassVar[bool] = False
    """It waits for several queues at once: a SharedWaiter."""

    def __init__(self, number: int, request: ClaimRequest) -> None:
        self.number = number
        self.request = request
        self.answer: InlineFuture[list[DequeuedJob]] = InlineFuture(asyncio.get_running_loop())
        self.in_claim = False
        self.is_over = False
        self.throttled: tuple[str, ...] = ()

    def claim_for(self, queue: str) -> ClaimRequest:
        """The claim that is made for it at this queue, one of those that it waits for."""
        return self.request


class WaitQueue:
    """The dequeues that wait for one queue. To join and to leave costs the same however many wait: thousands may leave
    at once.

    `entries` is empty where nobody waits; only `waiters` reads it in order.
    """

    __slots__ = ("_is_in_order", "_last_number", "entries", "has_passed_over", "priorities")

    def __init__(self) -> None:
        self.entries: dict[Waiter, None] = {}
        self._last_number = 0
        self._is_in_order = True
        self.has_passed_over = False
        """The last batch lacks a waiter for which another queue's claim was under way."""
        self.priorities: Sequence[Level] = ()
        """The priorities of the waiter that joined last, or its levels: all dequeues of a server ask for the same."""

    def __len__(self) -> int:
        return len(self.entries)

    def join(self, waiter: Waiter) -> None:
        """Take the place of its arrival: a first claim may have taken longer than that of a later one."""
        self.entries[waiter] = None
        self.priorities = waiter.request.priorities
        if waiter.number < self._last_number:
            self._is_in_order = False
        else:
            self._last_number = waiter.number

    def leave(self, waiter: Waiter) -> None:
        """Nothing happens where it left before."""
        self.entries.pop(waiter, None)

    def waiters(self) -> Iterable[Waiter]:
        """The waiters in order of arrival; none may join or leave until they are read."""
        if not self._is_in_order:
            self.entries = dict.fromkeys(sorted(self.entries, key=lambda waiter: waiter.number))
            self._is_in_order = True
        return self.entries

    def first_for(self, jobs: int) -> list[Waiter]:
        """The first waiters, as many as so many jobs can serve if each takes all it may."""
        batch: list[Waiter] = []
        size = 0
        self.has_passed_over = False
        for waiter in self.entries if self._is_in_order else self.waiters():
            if jobs <= 0 or len(batch) == _BATCH or size >= _BATCH_BYTES:
                break
            if waiter.in_claim:
                self.has_passed_over = True
                continue
            batch.append(waiter)
            jobs -= waiter.request.limit
            size += waiter.request.max_bytes
        return batch

    def can_take(self, jobs: int) -> bool:
        """Whether those for which no claim is under way may have so many jobs, all together."""
        for waiter in self.entries:
            if not waiter.in_claim:
                jobs -= waiter.request.limit
                if jobs <= 0:
                    return True
        return False

    def fail(self, error: PinLaterError) -> None:
        """Every waiter of this queue alone gets this error, and what is claimed for them meanwhile goes back."""
        for waiter in list(self.waiters()):
            if waiter.is_shared:
                continue
            self.leave(waiter)
            if not waiter.answer.done():
                waiter.answer.set_exception(fresh(error))


def fresh(error: PinLaterError) -> PinLaterError:
    """The same error for one more caller: an error carries what is true for one call only."""
    return type(error)(
        error.message, reason=error.reason, retryable=error.retryable, retry_after_ms=error.retry_after_ms
    )
