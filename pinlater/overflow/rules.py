"""What an overflow shard needs of the server around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pinlater.backends.base import DeadLetterTarget, EndRules, PerQueue, Retention
from pinlater.clock import Clock
from pinlater.metrics import Metrics
from pinlater.queues.settings import QueueSettings
from pinlater.server.limits import ServerLimits
from pinlater.service import ClaimTokens, Service
from pinlater.shards.calls import GuardSettings
from pinlater.shards.member import Member
from pinlater.shards.router import Router


class QueueRules(Protocol):
    """The part of the registry of queues that counts here."""

    def settings(self, queue: str) -> QueueSettings: ...

    async def bring_up(self, member: Member) -> None:
        """Both know afterwards what either knew. PinLaterError."""

    def end_rules(self) -> PerQueue[EndRules]: ...

    def retention(self) -> PerQueue[Retention]: ...

    def graves(self) -> Mapping[str, DeadLetterTarget]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """`service` and `router` are those of this process over the shards; `new_service` makes one like it over others.

    `addresses` is asked for the owners that other servers tell of: overflow shard id to HOST:PORT.
    """

    service: Service
    router: Router
    queues: QueueRules
    clock: Clock
    new_service: Callable[[Router, ClaimTokens], Service]
    addresses: Callable[[], Mapping[str, str]] = dict
    metrics: Metrics = field(default_factory=Metrics)
    limits: ServerLimits = field(default_factory=ServerLimits)
    guard: GuardSettings = field(default_factory=GuardSettings)
