"""The parts that all pollers of a process share, and the states of one."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from pinlater.clock import Clock
from pinlater.service.descriptors import ClaimTokens
from pinlater.service.longpoll.due import DueQuery, DueTimes
from pinlater.service.longpoll.round_watch import RoundWatch
from pinlater.service.longpoll.subscriptions import Subscriptions
from pinlater.service.queue_limits import QueueLimits
from pinlater.service.requeuer import Requeuer
from pinlater.service.settings import ServiceSettings
from pinlater.shards.router import Router

if TYPE_CHECKING:
    from pinlater.service.longpoll.poller import QueuePoller


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


@dataclass(slots=True)
class PollerContext:
    """The parts that all pollers of a process share."""

    router: Router
    clock: Clock
    settings: ServiceSettings
    limits: QueueLimits
    claims: ClaimTokens
    requeuer: Requeuer
    subscriptions: Subscriptions
    due_query: DueQuery
    due: DueTimes = field(default_factory=DueTimes)
    pollers: dict[str, QueuePoller] = field(default_factory=dict)
    phase_s: float = field(default_factory=random.random)
    """All poll on one beat, so that one question serves them all; servers do not poll at the same moments."""

    failures: dict[str, int] = field(default_factory=dict)
    """Queues whose last round failed in an unforeseen way: how many rounds did, in a row."""

    watch: RoundWatch = field(init=False)
    logged: dict[str, tuple[float, str]] = field(default_factory=dict)
    is_draining: bool = False

    def __post_init__(self) -> None:
        self.watch = RoundWatch(self.pollers)


class Outlook(Enum):
    """What a dequeue from several queues can expect of one of them."""

    EMPTY = "empty"
    """The last poll found nothing, and whatever changes is reported."""
    TAKEN = "taken"
    """Others wait for what comes, or nothing can be handed out now."""
    FULL = "full"
    """It had jobs a moment ago."""
    UNKNOWN = "unknown"
