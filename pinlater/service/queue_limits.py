"""The limits that the settings of a queue put on its dequeues: a pause, a rate, a maximum in progress.

Limits of its groups are kept by pinlater.queues.group_limits, behind each claim.

A rate is counted by `pinlater.queues.cluster_limits.RateLimiter`, whose tokens `QueueLimits.claim` takes before a claim
and refunds where it brought less. A queue that its circuit breaker has paused hands out one job now and then, for which
`QueueLimits.claim` takes the slot of the breaker's probe.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from pinlater.backends.base import ClaimRequest, JobKey
from pinlater.background_tasks import BackgroundTasks
from pinlater.clock import Clock
from pinlater.errors import DequeueRateLimited, PinLaterError
from pinlater.metrics import Metrics
from pinlater.model import ClaimAnswer, ClaimOutcome, DequeuedJob, parse_descriptor
from pinlater.queues.breaker_probes import BreakerProbes, Probe
from pinlater.queues.cluster_limits import RateLimiter
from pinlater.queues.directory import QueueDirectory
from pinlater.queues.group_hand_outs import GroupHandOuts
from pinlater.queues.group_limits import GroupLimits
from pinlater.queues.settings import PauseSettings, QueueSettings
from pinlater.schedule import utc_text
from pinlater.service.descriptors import ClaimTokens
from pinlater.shards.router import Router

ClaimFrom = Callable[[Sequence[ClaimRequest]], Awaitable[list[list[DequeuedJob]]]]
"""A claim of jobs of one queue, from shards that its maker has chosen."""

_MOST_CLAIMS = 5
"""The most claims for one answer, the first among them. Where jobs of one are refused, the next claim passes over their
groups and finds others.
"""


class Throttle(NamedTuple):
    """Jobs could not be handed out: the rate does not allow them yet, too many are in progress, or the circuit breaker
    is open, which `pause` says in words.
    """

    queue: str
    per_second: float | None
    retry_after_ms: int = 0
    pause: str = ""

    @property
    def reason(self) -> str:
        if self.pause:
            return "paused"
        return "in_progress" if self.per_second is None else "rate"

    def error(self) -> DequeueRateLimited | None:
        """The error of a dequeue that got nothing; None: its answer is empty."""
        if self.pause:
            return DequeueRateLimited(self.pause, reason="QUEUE_PAUSED", retry_after_ms=self.retry_after_ms)
        if self.per_second is None:
            return None
        text = f"queue {self.queue!r} hands out {self.per_second:g} jobs a second, over all servers"
        return DequeueRateLimited(text, reason="RATE_LIMITED", retry_after_ms=self.retry_after_ms)


class Claimed(NamedTuple):
    """The jobs of each request, and what kept it from more."""

    jobs: list[list[DequeuedJob]]
    throttle: Throttle | None


class QueueLimits:
    """The limits of all queues on the way from the shards to those who dequeue."""

    def __init__(
        self,
        router: Router,
        clock: Clock,
        queues: QueueDirectory,
        metrics: Metrics,
        claims: ClaimTokens,
    ) -> None:
        self._router = router
        self._clock = clock
        self._queues = queues
        self._metrics = metrics
        self._claims = claims
        self.groups = GroupLimits(router, queues, clock)
        self.hand_outs = GroupHandOuts(router.members, queues, clock, metrics, claims.process)
        self.probes = BreakerProbes(router.members, queues, clock)
        self._rate = RateLimiter(router.members, router.members.clock)
        self._returning = BackgroundTasks()

    async def drain(self) -> None:
        """Wait until the tokens and permits on their way back are there."""
        await self._returning.drain()
        await self.groups.drain()

    def of(self, queue: str) -> QueueSettings | None:
        """The settings of a queue that limit its dequeues; None: nothing does."""
        settings = self._queues.settings(queue)
        return settings if settings.is_limited else None

    def count(self, dequeues: int, queue: str, reason: str) -> None:
        self._metrics.add(dequeues, "dequeues_limited", queue, reason)

    def rejection_of(self, queue: str) -> DequeueRateLimited | None:
        """The error of a dequeue while the queue is paused, or its rate is 0; while its circuit breaker is open alone,
        a claim tells.
        """
        settings = self._queues.settings(queue)
        if (not settings.paused or queue in self._queues.open_breakers) and settings.max_jobs_per_second != 0:
            return None
        if not settings.paused:
            return DequeueRateLimited(f"queue {queue!r} is paused: its rate is 0", reason="QUEUE_PAUSED")
        until_ms = settings.paused_until_ms
        wait_ms = None if until_ms is None else max(0, until_ms - self._clock.now_ms())
        return DequeueRateLimited(
            pause_text(f"queue {queue!r}", settings), reason="QUEUE_PAUSED", retry_after_ms=wait_ms
        )

    async def count_and_claim(
        self, queue: str, settings: QueueSettings, request: ClaimRequest, coverage: float
    ) -> Claimed:
        """As `claim`, after a count of what is ready: an empty queue costs no token."""
        if settings.paused and (throttle := self._held_by_breaker(queue, settings)) is not None:
            return Claimed([[]], throttle)
        ready = request.limit
        if settings.counts_jobs:
            ready = await self._router.count_ready(queue, request.priorities, request.limit, self._clock.now_ms())
        return await self.claim(queue, settings, ready, (request,), coverage=coverage)

    async def claim(
        self,
        queue: str,
        settings: QueueSettings,
        ready: int,
        requests: Sequence[ClaimRequest],
        *,
        coverage: float = 1.0,
        claim_from: ClaimFrom | None = None,
    ) -> Claimed:
        """Jobs for each request in turn, of so many that are ready: as many as the limits allow, with one call for
        tokens. Where the bodies are large it is shorter, as the store's answer: who is left out asks again. What is not
        handed out is not charged. `claim_from` claims in place of the router, which asks all shards; for a queue of
        which only groups have limits. QueueNotFound, and the errors of RateLimiter.take.
        """
        per_second = settings.max_jobs_per_second
        enforce_quota = settings.max_in_progress is not None
        wanted = min(ready, sum([request.limit for request in requests]))
        if wanted == 0:
            return Claimed([[] for _ in requests], None)
        if settings.paused:
            return await self._claim_probe(queue, settings, requests, coverage)
        if settings.max_in_progress == 0:
            return Claimed([[] for _ in requests], Throttle(queue, None))
        granted, retry_after_ms = wanted, 0
        if per_second is not None:
            granted, retry_after_ms = await self._rate.take(queue, wanted, per_second)
        if granted == 0:
            return Claimed([[] for _ in requests], Throttle(queue, per_second, retry_after_ms))
        kept = _cut(requests, granted)
        got = 0
        try:
            jobs = await self._claim(queue, settings, kept, coverage, claim_from)
            got = sum(map(len, jobs))
        finally:
            self.refund_tokens(queue, granted - got)
        if len(jobs) < len(kept):  # the bodies are large: a further call might fail, and leave these to nobody
            return Claimed(jobs, None)
        jobs += [[] for _ in range(len(requests) - len(kept))]
        if granted < wanted:
            return Claimed(jobs, Throttle(queue, per_second, retry_after_ms))
        return Claimed(jobs, Throttle(queue, None) if enforce_quota and got < wanted else None)

    async def _claim(
        self,
        queue: str,
        settings: QueueSettings,
        requests: Sequence[ClaimRequest],
        coverage: float,
        claim_from: ClaimFrom | None,
    ) -> list[list[DequeuedJob]]:
        """The jobs of a claim; where groups have limits, those that may be handed out, and others for the rest."""
        enforce_quota = settings.max_in_progress is not None

        def claim_over_shards(requests: Sequence[ClaimRequest]) -> Awaitable[list[list[DequeuedJob]]]:
            now_ms = self._clock.now_ms()
            return self._router.claim(queue, requests, now_ms, coverage=coverage, enforce_quota=enforce_quota)

        claim = claim_from or claim_over_shards
        if not settings.limits_groups:
            return await claim(requests)
        most = self.groups.most_at_once(queue)
        wanted = [replace(request, most_of_group=most) for request in requests]
        jobs: list[list[DequeuedJob]] = [[] for _ in requests]
        places: Sequence[int] = range(len(requests))
        for _ in range(_MOST_CLAIMS):
            try:
                found = await claim(wanted)
                refused = await self.groups.admit(queue, found)
            except PinLaterError:
                if any(jobs):
                    break  # what there is already is an answer
                raise
            except BaseException:
                self._returning.start(self.groups.give_back(queue, [job for each in jobs for job in each]))
                raise
            for place, more in zip(places, found, strict=False):
                jobs[place] += more
            if not refused or len(found) < len(wanted):
                break
            left = [(place, *_left(requests[place], jobs[place])) for place in places]
            places = [place for place, limit, room in left if limit > 0 and room > 0]
            wanted = [
                replace(self._claims.renew(requests[place]), limit=limit, max_bytes=room, most_of_group=most)
                for place, limit, room in left
                if place in places
            ]
            if not wanted:
                break
        return jobs

    # -- while a circuit breaker is open -------------------------------------------------------------------------------

    def _held_by_breaker(self, queue: str, settings: QueueSettings) -> Throttle | None:
        """What keeps all jobs of a paused queue back; None: one may be tried now."""
        wait_ms = self.probes.wait_ms(queue)
        if wait_ms == 0:
            return None
        rule = settings.pause_on_failures
        if wait_ms is None:  # whoever waits is told when this changes
            wait_ms = 0 if rule is None else rule.probe_every_ms
        return Throttle(queue, None, wait_ms, pause_text(f"queue {queue!r}", settings))

    async def _claim_probe(
        self, queue: str, settings: QueueSettings, requests: Sequence[ClaimRequest], coverage: float
    ) -> Claimed:
        """One job for the first request, as the probe of the breaker, where no other one is in anybody's hands."""
        nothing: list[list[DequeuedJob]] = [[] for _ in requests]
        first = replace(requests[0], limit=1)
        probe = await self.probes.take(queue, first.claim_descriptor)
        if probe is None:
            return Claimed(nothing, self._held_by_breaker(queue, settings))
        jobs: list[DequeuedJob] = []
        try:
            claimed = await self.claim(queue, replace(settings, paused=False), 1, (first,), coverage=coverage)
            jobs = claimed.jobs[0] if claimed.jobs else []
        finally:
            if not jobs:
                self._returning.start(self.probes.give_back(probe))
        if jobs and await self._is_probe(probe, jobs[0]):
            return Claimed([jobs, *nothing[1:]], self._held_by_breaker(queue, settings))
        return Claimed(nothing, claimed.throttle or self._held_by_breaker(queue, settings))

    async def _is_probe(self, probe: Probe, job: DequeuedJob) -> bool:
        """Whether this job may be handed out as the probe; it is back in its queue where not."""
        if await self.probes.hand_out(probe, job.descriptor, job.claim_descriptor):
            return True
        ref = parse_descriptor(job.descriptor)
        if ref is not None:
            back = await self._router.requeue(probe.queue, ref.shard, [job], self._clock.now_ms())
            self.refund_tokens(probe.queue, back)
            self.groups.may_have_ended(probe.queue, ref.shard, [ref.id])
        return False

    async def claim_listed(
        self, queue: str, shard_id: str, job: JobKey, request: ClaimRequest
    ) -> tuple[ClaimOutcome, DequeuedJob | None]:
        """This very job, if the limits allow; as the probe of the queue's breaker while that is open. QueueNotFound;
        errors of the shard and of RateLimiter.take.
        """
        settings = self._queues.settings(queue)
        if not settings.paused:
            return await self._claim_listed(queue, settings, shard_id, job, request)
        probe = await self.probes.take(queue, request.claim_descriptor)
        if probe is None:
            return ClaimOutcome.LIMITED, None
        found: DequeuedJob | None = None
        try:
            outcome, found = await self._claim_listed(queue, settings, shard_id, job, request)
        finally:
            if found is None:
                self._returning.start(self.probes.give_back(probe))
        if found is None or await self._is_probe(probe, found):
            return outcome, found
        return ClaimOutcome.LIMITED, None

    # -- one job that is named -----------------------------------------------------------------------------------------

    async def _claim_listed(
        self, queue: str, settings: QueueSettings, shard_id: str, job: JobKey, request: ClaimRequest
    ) -> tuple[ClaimOutcome, DequeuedJob | None]:
        per_second = settings.max_jobs_per_second
        if settings.max_in_progress == 0 or per_second == 0:
            return ClaimOutcome.LIMITED, None
        if per_second is not None and not (await self._rate.take(queue, 1, per_second))[0]:
            return ClaimOutcome.LIMITED, None
        enforce_quota = settings.max_in_progress is not None
        now_ms = self._clock.now_ms()
        if settings.limits_groups:
            request = replace(request, most_of_group=self.groups.most_at_once(queue))
        answer: ClaimAnswer | None = None
        try:
            (answers,) = await self._router.call_by_shard(
                [
                    (
                        shard_id,
                        lambda shard: shard.claim_listed(queue, [job], request, now_ms, enforce_quota=enforce_quota),
                    )
                ]
            )
            answer = answers[0] if answers else None
            claimed = None if answer is None else answer.job
            if claimed is not None and settings.limits_groups and await self.groups.admit(queue, [[claimed]]):
                answer = ClaimAnswer(ClaimOutcome.GROUP_LIMITED)
        finally:
            if answer is None or answer.job is None:
                self.refund_tokens(queue, 1)
        return (ClaimOutcome.NOT_FOUND, None) if answer is None else (answer.outcome, answer.job)

    def refund_tokens(self, queue: str, jobs: int) -> None:
        """Jobs that were paid for and are in nobody's hands: their tokens go back, where the queue has a rate."""
        per_second = self._queues.settings(queue).max_jobs_per_second
        if jobs > 0 and per_second:
            self._returning.start(self._rate.refund(queue, jobs, per_second))


def _left(request: ClaimRequest, jobs: Sequence[DequeuedJob]) -> tuple[int, int]:
    """How many jobs, and bytes of their bodies, a request may get beside these."""
    return request.limit - len(jobs), request.max_bytes - sum([len(job.body) for job in jobs])


def _cut(requests: Sequence[ClaimRequest], jobs: int) -> list[ClaimRequest]:
    """The first requests, the last of them with a lower limit, for so many jobs in all."""
    kept: list[ClaimRequest] = []
    for request in requests:
        if jobs <= 0:
            break
        kept.append(request if request.limit <= jobs else replace(request, limit=jobs))
        jobs -= request.limit
    return kept


def pause_text(subject: str, settings: PauseSettings) -> str:
    """Who paused the subject, a queue or a group, since when, until when and why, as far as that is known."""
    text = f"{subject} is paused"
    if settings.paused_by:
        text += f" by {settings.paused_by}"
    if settings.paused_at_ms is not None:
        text += f" since {utc_text(settings.paused_at_ms)}"
    if settings.paused_until_ms is not None:
        text += f" until {utc_text(settings.paused_until_ms)}"
    return f"{text}: {settings.paused_why}" if settings.paused_why else text
