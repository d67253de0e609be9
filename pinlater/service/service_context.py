"""The objects that most parts of a service share. Each part keeps those that its calls use, one step away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pinlater.clock import Clock
from pinlater.flows.flow_engine import Flows
from pinlater.metrics import Metrics
from pinlater.model import RequestContext
from pinlater.queues.breakers import Breakers
from pinlater.queues.cluster_limits import PendingCounts
from pinlater.queues.directory import QueueDirectory
from pinlater.service.admin_password import AdminPassword, Operator
from pinlater.service.audit import Audit
from pinlater.service.descriptors import ClaimTokens, DescriptorParser
from pinlater.service.job_events import JobEvents
from pinlater.service.queue_limits import QueueLimits
from pinlater.service.rights import named, operator_of
from pinlater.service.settings import ServiceSettings
from pinlater.service.validation import Validator
from pinlater.shards.router import Router

if TYPE_CHECKING:
    from pinlater.bodies.body_operations import TierOperations


@dataclass(frozen=True, slots=True)
class Features:
    """Features that not every server has. Without `flows` it has none; without `bodies` all bodies are in shards.
    `unaware_of` names the live processes of others that do not know one of `lease.KNOWS`.
    """

    flows: Flows | None = None
    bodies: TierOperations | None = None
    unaware_of: Callable[[str], Sequence[str]] = lambda feature: ()


NO_FEATURES = Features()
UNKNOWN_CALLER = "unknown"
"""Who asks a job to stop, where the caller does not say who it is."""


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """The objects that the parts of one service share."""

    router: Router
    clock: Clock
    claims: ClaimTokens
    settings: ServiceSettings
    queues: QueueDirectory
    metrics: Metrics
    pending: PendingCounts
    validator: Validator
    breakers: Breakers
    limits: QueueLimits
    audit: Audit
    admin: AdminPassword
    events: JobEvents
    features: Features
    parser: DescriptorParser = field(default_factory=DescriptorParser)

    def who(self, caller: RequestContext | None) -> str:
        """The caller, for the audit. RequestInvalid: its source is too long."""
        return named(caller, self.validator.source(caller))

    def operator(self, caller: RequestContext | None) -> Operator:
        """The operator who asks for a change. RequestInvalid: its source is too long."""
        return operator_of(caller, self.validator.source(caller))
