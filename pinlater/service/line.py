"""A line of dequeues that wait for one queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pinlater.backends.base import ClaimRequest
from pinlater.errors import PinLaterError
from pinlater.model import DequeuedJob

_BATCH = 64
"""Waiters that one joined claim serves."""

_BATCH_BYTES = 128 * 1024 * 1024
"""What it may bring, if all its jobs are as large as can be."""


class Arrival(NamedTuple):
    """When a dequeue came: its place among all, and how much had happened by then."""

    number: int
    wakes: int


class Waiter:
    """One dequeue in line."""

    __slots__ = ("answer", "in_claim", "is_over", "number", "request")

    def __init__(self, number: int, request: ClaimRequest) -> None:
        self.number = number
        self.request = request
        self.answer: asyncio.Future[list[DequeuedJob]] = asyncio.get_running_loop().create_future()
        self.in_claim = False
        self.is_over = False


class Line:
    """Those who wait for one queue, and what is known of it.

    To join and to leave costs the same however long the line is: thousands may leave at once.
    """

    __slots__ = ("_is_in_order", "_last_number", "_waiters", "bell", "error", "expected", "pause_ms", "queue", "task")

    def __init__(self, queue: str, pause_ms: int) -> None:
        self.queue = queue
        self._waiters: dict[Waiter, None] = {}
        self._last_number = 0
        self._is_in_order = True
        self.expected = 0
        self.pause_ms = pause_ms
        self.error: PinLaterError | None = None
        self.bell: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiters)

    def join(self, waiter: Waiter) -> None:
        """Stand where one belongs that came then: a first look may have taken longer than that of who came later."""
        self._waiters[waiter] = None
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

    def ring(self) -> None:
        if self.bell is not None and not self.bell.done():
            self.bell.set_result(None)


@dataclass(frozen=True, slots=True)
class WaitBounds:
    max_waiters: int
    poll_min_ms: int
    poll_max_ms: int


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
