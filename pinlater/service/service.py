"""The calls of the contract over the shards. Satisfies pinlater.api.Api; docs/wire.md says what each call does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pinlater.clock import Clock
from pinlater.errors import PinLaterError
from pinlater.model import (
    CONTINUATION_START,
    Ack,
    CancelOutcome,
    Checkpoint,
    DequeuedJob,
    DequeueRequest,
    Job,
    JobFilter,
    JobInfo,
    RequestContext,
    ScanPage,
)
from pinlater.service import checks
from pinlater.service.admin import AdminPassword
from pinlater.service.attempts import Attempts
from pinlater.service.checks import Checks
from pinlater.service.claims import ClaimNames
from pinlater.service.handing_out import HandingOut
from pinlater.service.looking import Looking
from pinlater.service.operating import Operating
from pinlater.service.refs import References
from pinlater.service.settings import ServiceSettings
from pinlater.shards.router import Router


class Service:
    """The product's rules. Opened and closed with its router; `claims` must be of this process alone."""

    def __init__(
        self, router: Router, clock: Clock, claims: ClaimNames, settings: ServiceSettings | None = None
    ) -> None:
        self.router = router
        self.settings = settings = settings or ServiceSettings()
        self._clock = clock
        self._checks = Checks(settings)
        self._refs = References()
        self._admin = AdminPassword(settings.admin_password_hash)
        self._looking = Looking(router, clock, settings, self._checks, self._refs)
        self._operating = Operating(router, clock, settings, self._checks, self._refs, self._looking)
        self._handing_out = HandingOut(router, clock, settings, self._checks, claims)
        self._waiting = self._handing_out.waiting
        self._attempts = Attempts(router, clock, settings, self._checks, self._refs, self._waiting.became_pending)

    async def open(self) -> None:
        """Open the shards; see Members.open."""
        await self.router.open()

    def start_draining(self) -> None:
        """Long polls are answered now, with nothing, and no new one waits."""
        self._waiting.start_draining()

    async def close(self) -> None:
        """End the long polls, give back what nobody takes, close the shards."""
        await self._handing_out.drain()
        await self._attempts.drain()
        await self.router.close()

    def wake(self, queue: str, jobs: int) -> None:
        """So many jobs of a queue became eligible, by a hand other than a call of this service."""
        self._waiting.wake(queue, jobs)

    # -- queues ------------------------------------------------------------------------------------------------------

    async def create_queue(self, name: str, *, context: RequestContext | None = None) -> None:
        checks.new_queue(name)
        await self.router.create_queue(name, self._clock.now_ms())

    async def delete_queue(self, name: str, password: str, *, context: RequestContext | None = None) -> None:
        await self._admin.check(password)
        if checks.is_queue_name(name):
            await self.router.delete_queue(name, self._clock.now_ms())
            self._waiting.queue_deleted(name)

    async def queue_names(self, *, context: RequestContext | None = None) -> set[str]:
        return await self.router.queue_names()

    # -- the life of a job -------------------------------------------------------------------------------------------

    async def enqueue(self, queue: str, jobs: Sequence[Job], *, context: RequestContext | None = None) -> list[str]:
        now_ms = self._clock.now_ms()
        jobs, later = self._checks.jobs(jobs, now_ms)
        checks.existing_queue(queue)
        if not jobs:
            return []
        descriptors = await self.router.enqueue(queue, jobs, now_ms)
        self._waiting.became_pending(queue, len(jobs) - len(later), later)
        return descriptors

    async def dequeue(self, request: DequeueRequest, *, context: RequestContext | None = None) -> list[DequeuedJob]:
        if not request.succeeded and not request.failed:
            limit = self._handing_out.check(request)
            return await self._handing_out.hand_out(request, limit, self._checks.source(context))
        is_applied = False
        try:
            queue = request.ack_queue or request.queue
            acks = self._attempts.read_acks(queue, request.succeeded, request.failed)
            limit = self._handing_out.check(request)
            source = self._checks.source(context)
            await (self._attempts.ack_whole if request.wait_ms else self._attempts.ack)(queue, acks)
            is_applied = True
            return await self._handing_out.hand_out(request, limit, source)
        except PinLaterError as error:
            error.acks_applied = is_applied
            raise

    async def ack(
        self, queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack], *, context: RequestContext | None = None
    ) -> None:
        await self._attempts.ack(queue, self._attempts.read_acks(queue, succeeded, failed))

    async def checkpoint(
        self, queue: str, checkpoints: Sequence[Checkpoint], *, context: RequestContext | None = None
    ) -> None:
        await self._attempts.checkpoint(queue, self._checks.source(context), checkpoints)

    async def cancel(
        self, queue: str, descriptors: Sequence[str], *, context: RequestContext | None = None
    ) -> Mapping[str, CancelOutcome]:
        return await self._attempts.cancel(queue, descriptors)

    async def give_back(self, jobs: Sequence[DequeuedJob]) -> None:
        """Jobs whose caller can no longer be answered go back to PENDING with all attempts. Raises nothing."""
        await self._handing_out.give_back(jobs)

    # -- looking -----------------------------------------------------------------------------------------------------

    async def lookup(
        self, descriptors: Sequence[str], *, include_body: bool = False, context: RequestContext | None = None
    ) -> dict[str, JobInfo]:
        return await self._looking.lookup(descriptors, include_body)

    async def count(
        self, filter: JobFilter, *, allow_partial: bool = False, context: RequestContext | None = None
    ) -> int:
        return await self._looking.count(filter, allow_partial)

    async def scan(
        self,
        filter: JobFilter,
        *,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
    ) -> ScanPage:
        return await self._looking.scan(filter, continuation, limit)

    # -- operators ---------------------------------------------------------------------------------------------------

    async def retry_failed(
        self,
        queue: str,
        *,
        priority: int = 1,
        attempts: int = 1,
        run_after_ms: int | None = None,
        limit: int = 1000,
        context: RequestContext | None = None,
    ) -> int:
        retried = await self._operating.retry_failed(queue, priority, attempts, run_after_ms, limit)
        is_later = run_after_ms is not None and run_after_ms > self._clock.now_ms()
        self._waiting.became_pending(
            queue, 0 if is_later else retried, [run_after_ms] if is_later and run_after_ms else []
        )
        return retried

    async def delete_jobs(self, filter: JobFilter, *, limit: int = 1000, context: RequestContext | None = None) -> int:
        return await self._operating.delete_jobs(filter, limit)
