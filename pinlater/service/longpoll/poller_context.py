"""The parts that all pollers of a process share."""

from __future__ import annotations

import random
from collections.abc import Callable, Sized
from dataclasses import dataclass, field

from pinlater.clock import Clock
from pinlater.service.descriptors import ClaimTokens
from pinlater.service.longpoll.due import DueQuery, DueTimes
from pinlater.service.longpoll.round_watch import RoundWatch
from pinlater.service.longpoll.subscriptions import Subscriptions
from pinlater.service.queue_limits import QueueLimits
from pinlater.service.requeuer import Requeuer
from pinlater.service.settings import ServiceSettings
from pinlater.shards.router import Router


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
    pollers: Sized
    """All of them."""

    ended: Callable[[str], None]
    """Called when the poller of a queue serves it no longer."""

    due: DueTimes = field(default_factory=DueTimes)
    phase_s: float = field(default_factory=random.random)
    """All poll on one beat, so that one question serves them all; servers do not poll at the same moments."""

    failures: dict[str, int] = field(default_factory=dict)
    """Queues whose last round failed in an unforeseen way: how many rounds did, in a row."""

    watch: RoundWatch = field(default_factory=RoundWatch)
    logged: dict[str, tuple[float, str]] = field(default_factory=dict)
    is_draining: bool = False
