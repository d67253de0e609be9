"""The enqueue of jobs with keys, an expiry or a send id: to the homes of their keys, answered job by job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pinlater.backends.extended import Offered, OfferOutcome
from pinlater.errors import EnqueueRejected, PinLaterError, RequestInvalid
from pinlater.model import (
    EnqueuedJobs,
    EnqueueOutcome,
    ExtendedJob,
    OnDuplicate,
    ReplaceRunning,
    RequestContext,
    parse_descriptor,
)
from pinlater.queues.settings import QueueSettings
from pinlater.service.longpoll import LongPolls
from pinlater.service.service_context import UNKNOWN_CALLER, ServiceContext

_STORED, _REPLACE = OfferOutcome.STORED, OnDuplicate.REPLACE  # looking a member up is a call
_DEDUPLICATED = {
    OfferOutcome.KEPT: "kept",
    OfferOutcome.REPLACED: "replaced",
    OfferOutcome.REJECTED: "rejected",
}


class ExtendedEnqueue:
    """Enqueues of jobs with keys, for one service."""

    def __init__(self, context: ServiceContext, long_polls: LongPolls) -> None:
        self._router = context.router
        self._who = context.who
        self._pending = context.pending
        self._metrics = context.metrics
        self._long_polls = long_polls
        self._events = context.events

    async def store(
        self,
        queue: str,
        jobs: Sequence[ExtendedJob],
        ready: int,
        now_ms: int,
        settings: QueueSettings,
        caller: RequestContext | None,
    ) -> EnqueuedJobs:
        """Jobs that were checked, of which so many may run at once. EnqueueRejected, reason DUPLICATE; RequestInvalid
        for a REPLACE of what cannot be replaced; TagsNotYet, GroupsNotYet; errors of the router.
        """
        if any(job.tags or job.group for job in jobs):
            self._router.keys.homes.check_jobs(jobs)
        by = self._who_replaces(jobs, caller) if _REPLACE in [job.on_duplicate for job in jobs] else ""
        storing = self._router.enqueue_extended(queue, jobs, now_ms, by)
        try:
            offered = await self._long_polls.claim_behind(queue, ready, settings, storing)
        except PinLaterError as error:
            self._count(queue, jobs, error.job_outcomes)
            some = [outcome for outcome in error.job_outcomes if outcome is not None]
            self._events.ready(queue, len(some))  # some of them; a claim tells
            raise
        outcomes = [each.outcome for each in offered]
        self._count(queue, jobs, outcomes)
        times_ms = [each.ready_at_ms for each in offered if each.ready_at_ms is not None]
        ref = parse_descriptor(offered[0].descriptor) if len(offered) == 1 else None
        self._events.ready_at(queue, times_ms, now_ms, "" if ref is None else ref.shard)
        if settings.group_max_pending is not None:
            stored = [job for job, outcome in zip(jobs, outcomes, strict=True) if outcome == _STORED]
            self._pending.groups.added(queue, due_by_group(stored, now_ms))
        descriptors = [each.descriptor for each in offered]
        if outcomes.count(_STORED) == len(outcomes):
            return EnqueuedJobs(descriptors)
        _raise_refusals(jobs, offered)
        return EnqueuedJobs(descriptors, [EnqueueOutcome(outcome) for outcome in outcomes])

    def _who_replaces(self, jobs: Sequence[ExtendedJob], caller: RequestContext | None) -> str:
        """In whose name running jobs are asked to stop; "": in nobody's. ReplaceRulesNotYet."""
        if any(job.replace_running or job.replace_within_ms is not None for job in jobs):
            self._router.keys.homes.check_replace_rules()
        stops = any(job.replace_running is ReplaceRunning.CANCEL for job in jobs)
        return (self._who(caller) or UNKNOWN_CALLER) if stops else ""

    def _count(self, queue: str, jobs: Sequence[ExtendedJob], outcomes: Sequence[int | None]) -> None:
        """`outcomes`: of each job, or of none."""
        stored = [job.priority for job, outcome in zip(jobs, outcomes, strict=False) if outcome == _STORED]
        for priority, amount in Counter(stored).items():
            self._metrics.add(amount, "jobs_enqueued", queue, priority)
        self._pending.added(queue, len(stored))
        if len(stored) < len(jobs):
            for outcome, word in _DEDUPLICATED.items():
                amount = outcomes.count(outcome)
                if amount:
                    self._metrics.add(amount, "jobs_deduplicated", queue, word)


def due_by_group(jobs: Sequence[ExtendedJob], now_ms: int) -> Counter[str]:
    """How many of the jobs that are due have each group; those without one are left out."""
    return Counter(
        [job.group for job in jobs if job.group and (job.run_after_ms is None or job.run_after_ms <= now_ms)]
    )


def _raise_refusals(jobs: Sequence[ExtendedJob], offered: Sequence[Offered]) -> None:
    """Raise the error of the first job that the store would not take, with the descriptors of those that it took."""
    for number, (job, each) in enumerate(zip(jobs, offered, strict=True), 1):
        if each.outcome is OfferOutcome.REJECTED:
            message = f"dedupeKey {job.dedupe_key[:100]!r} is taken by {each.descriptor}"
            raise EnqueueRejected(message, reason="DUPLICATE", retryable=False)
        if each.outcome is OfferOutcome.DIFFERENT:
            error = RequestInvalid.of(
                f"priority or serializeKey of job {number}",
                (job.priority, job.serialize_key),
                f"those of {each.descriptor}, which it would replace",
            )
            if len(jobs) > 1:
                error.job_descriptors = [
                    "" if other.outcome is OfferOutcome.DIFFERENT else other.descriptor for other in offered
                ]
            raise error
