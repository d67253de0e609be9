"""The door to overflow shards: the calls that a service hands over because of jobs that are on none of its shards.

Other calls never pass here. A call comes here only after an error: no usable shard, or a descriptor of an overflow
shard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pinlater.errors import NoHealthyShards, NothingStored, PinLaterError
from pinlater.model import (
    Ack,
    AckOutcome,
    CancelOutcome,
    Checkpoint,
    DequeuedFromQueues,
    DequeuedJob,
    DequeueFromQueuesRequest,
    DequeueRequest,
    ExtendedJob,
    Heartbeat,
    HeartbeatAnswer,
    Job,
    JobInfo,
    RequestContext,
    RescheduleJob,
    RescheduleOutcome,
)


class NamesOverflow(Exception):
    """A call names a job of an overflow shard. Nothing of the call has been carried out."""


class OverflowCalls(Protocol):
    """The calls that stand in for a service's own after such an error; arguments, results and errors are those of
    pinlater.api.Api.
    """

    async def enqueue(
        self,
        queue: str,
        jobs: Sequence[Job],
        context: RequestContext | None,
        refusal: NoHealthyShards | NothingStored,
    ) -> list[str]:
        """Jobs that no shard took; `refusal` says why, and is raised where they cannot be kept either."""

    async def enqueue_extended(
        self, queue: str, jobs: Sequence[ExtendedJob], context: RequestContext | None, refusal: PinLaterError
    ) -> list[str]:
        """Keep the jobs that `refusal` does not name as stored (`job_descriptors`); the descriptors of all. `refusal`
        is raised where they cannot be kept, which are jobs that must stay in order, be refused as duplicates or be
        known by a send id alone.
        """

    async def dequeue(
        self, request: DequeueRequest, context: RequestContext | None, began_s: float, refusal: NoHealthyShards
    ) -> list[DequeuedJob]:
        """Jobs of the overflow shard, as no shard can be used. `began_s`: when a long poll began, by time.monotonic.
        The riding acks were carried out.
        """

    async def dequeue_from_queues(
        self,
        request: DequeueFromQueuesRequest,
        context: RequestContext | None,
        began_s: float,
        refusal: NoHealthyShards,
    ) -> DequeuedFromQueues:
        """As `dequeue`, from several queues."""

    async def ack(
        self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack], context: RequestContext | None
    ) -> Sequence[AckOutcome]:
        """Carried out to the end although the caller goes meanwhile."""

    async def checkpoint(
        self, queue: str, checkpoints: Sequence[Checkpoint], context: RequestContext | None
    ) -> None: ...

    async def heartbeat(
        self, queue: str, heartbeats: Sequence[Heartbeat], context: RequestContext | None
    ) -> list[HeartbeatAnswer]: ...

    async def lookup(
        self,
        descriptors: Sequence[str],
        include_body: bool,
        include_result: bool,
        include_trail: bool,
        context: RequestContext | None,
    ) -> dict[str, JobInfo]: ...

    async def cancel(
        self, queue: str, descriptors: Sequence[str], running: bool, context: RequestContext | None
    ) -> Mapping[str, CancelOutcome]: ...

    async def reschedule(
        self, queue: str, changes: Sequence[RescheduleJob], audited: bool, context: RequestContext | None
    ) -> list[RescheduleOutcome]: ...

    async def requeue(self, jobs: Sequence[DequeuedJob]) -> Sequence[DequeuedJob]:
        """Takes back those of overflow shards, and returns the others."""

    def start_draining(self) -> None:
        """The server stops."""
