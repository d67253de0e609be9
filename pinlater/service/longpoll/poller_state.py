"""The states of a poller, and the part of one that its waiters and its watch use."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from pinlater.errors import PinLaterError
from pinlater.service.longpoll.wait_queue import WaitQueue


class PollerState(Enum):
    """See the package's docstring."""

    IDLE = "idle"
    DUE = "due"
    POLLING = "polling"
    CLAIMING = "claiming"
    THROTTLED = "throttled"
    BACKING_OFF = "backing_off"
    PARKED = "parked"
    ENDED = "ended"


class Outlook(Enum):
    """What a dequeue from several queues can expect of one of them."""

    EMPTY = "empty"
    """The last poll found nothing, and whatever changes is reported."""
    TAKEN = "taken"
    """Others wait for what comes, or nothing can be handed out now."""
    FULL = "full"
    """It had jobs a moment ago."""
    UNKNOWN = "unknown"


class Poller(Protocol):
    """The part of a `QueuePoller` that its waiters and its watch call; the class itself is made of them."""

    queue: str
    state: PollerState
    waiters: WaitQueue

    def serve_passed_over(self) -> None:
        """A waiter is free, or a new one has come, that can be claimed for: there were jobs."""

    def reason_for_nothing(self) -> PinLaterError | None:
        """The error of a waiter whose time is over; None: there was no job."""
