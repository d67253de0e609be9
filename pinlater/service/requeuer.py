"""The way back of claimed jobs that nobody got: to PENDING with all attempts, their tokens refunded."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from pinlater.backends.base import UnrenewedClaim
from pinlater.background_tasks import BackgroundTasks
from pinlater.errors import PinLaterError
from pinlater.model import DequeuedJob, Unreceived, parse_descriptor
from pinlater.service.service_context import ServiceContext

_log = structlog.get_logger("pinlater.service")

CLAIMS_PER_CALL = 1_000
"""The most claims that one call of a shard names."""


class Requeuer:
    """Requeues the claims of one service that nobody received. It raises nothing: what fails is left to the time-outs
    of the claims.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._router = context.router
        self._clock = context.clock
        self._limits = context.limits
        self._metrics = context.metrics
        self._events = context.events
        self._tasks = BackgroundTasks()

    async def drain(self) -> None:
        """Wait until the jobs on their way back to their queues are there."""
        await self._tasks.drain()

    def requeue_later(self, jobs: Sequence[DequeuedJob]) -> None:
        """Without waiting for it."""
        self._tasks.start(self.requeue(jobs))

    async def requeue(self, jobs: Sequence[DequeuedJob]) -> None:
        """Jobs whose caller can no longer be answered."""
        groups: dict[tuple[str, str], list[tuple[int, DequeuedJob]]] = {}
        for job in jobs:
            ref = parse_descriptor(job.descriptor)
            if ref is not None and job.claim_descriptor:
                groups.setdefault((ref.queue, ref.shard), []).append((ref.id, job))
        for (queue, shard_id), claimed in groups.items():
            some = [job for _, job in claimed]
            back = await self._router.requeue(queue, shard_id, some, self._clock.now_ms())
            self._metrics.add(back, "jobs_given_back", queue)
            self._limits.refund_tokens(queue, back)
            self._limits.groups.may_have_ended(queue, shard_id, [job_id for job_id, _ in claimed])
            self._events.ready(queue, back, (), shard_id)

    async def requeue_undelivered(self, jobs: Sequence[Unreceived]) -> None:
        """Jobs whose answer nobody received, where their claims stand as they were made, and not too often in a row."""
        groups: dict[tuple[str, str], list[UnrenewedClaim]] = {}
        for job in jobs:
            ref = parse_descriptor(job.descriptor)
            if ref is not None:
                claim = UnrenewedClaim(ref.priority, ref.id, job.claim_descriptor, job.expires_at_ms)
                groups.setdefault((ref.queue, ref.shard), []).append(claim)
        for (queue, shard_id), claims in groups.items():
            for start in range(0, len(claims), CLAIMS_PER_CALL):
                back = await self._undelivered_on(queue, shard_id, claims[start : start + CLAIMS_PER_CALL])
                if back:
                    self._metrics.add(back, "jobs_undelivered", queue)
                    _log.info("jobs_undelivered", queue=queue, shard=shard_id, jobs=back)
                    self._limits.refund_tokens(queue, back)
                    some = claims[start : start + CLAIMS_PER_CALL]
                    self._limits.groups.may_have_ended(queue, shard_id, [claim.id for claim in some])
                    self._events.ready(queue, back, (), shard_id)
                    self._events.freed(queue)

    async def _undelivered_on(self, queue: str, shard_id: str, claims: Sequence[UnrenewedClaim]) -> int:
        now_ms = self._clock.now_ms()
        try:
            (back,) = await self._router.call_by_shard(
                [(shard_id, lambda shard: shard.requeue_undelivered(queue, claims, now_ms))]
            )
        except PinLaterError as error:
            _log.warning("undelivered_jobs_left", queue=queue, shard=shard_id, jobs=len(claims), error=error.message)
            return 0
        return back or 0
