"""The reasons why pending jobs do not run, worked out on request for all interfaces.

What holds a job back by itself comes first (its shard, its time, the job before it), then what holds its queue back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pinlater.backends.aged_levels import AgedLevel, levels_of, split_levels
from pinlater.backends.base import STORED_STATES
from pinlater.durations import age_text
from pinlater.errors import QueueNotFound, RequestInvalid
from pinlater.model import HIDDEN_JOB, ClusterStatus, JobInfo, JobState, RequestContext, WorkersPage, parse_descriptor
from pinlater.model.job_holds import HoldReason, JobHold
from pinlater.model.job_selection import JobPhase, phase_of
from pinlater.queues.settings import QueueSettings
from pinlater.schedule import utc_text
from pinlater.service.longpoll import LongPolls
from pinlater.service.queue_limits import pause_text
from pinlater.service.service_context import ServiceContext
from pinlater.setting_kinds import rate_text
from pinlater.shards.scan import ScanQuery

MAX_JOBS = 100
_SLOW_PER_SECOND = 1.0
"""Rates are seen over a few seconds: a queue below this one can seem to have nobody who polls it."""


class HoldFacts(Protocol):
    """The calls of the service whose answers a judgement stands on."""

    long_polls: LongPolls

    async def lookup(self, descriptors: Sequence[str], *, context: RequestContext | None = None) -> dict[str, JobInfo]:
        """See Api.lookup."""

    async def get_workers(self, *, queue: str = "", limit: int = 100) -> WorkersPage:
        """See Api.get_workers."""

    async def cluster_status(self, *, queues: Sequence[str] | None = None) -> ClusterStatus:
        """See Api.cluster_status."""


@dataclass(frozen=True, slots=True)
class _Takers:
    """Who takes the jobs of a queue, as far as this process knows."""

    workers: int
    slots: int
    busy_slots: int
    per_second: float
    waits_here: bool

    @property
    def are_there(self) -> bool:
        return bool(self.workers or self.per_second or self.waits_here)

    @property
    def text(self) -> str:
        """Whether they have room."""
        if not self.workers:
            return ""
        who = "its worker" if self.workers == 1 else f"its {self.workers:,} workers"
        if self.busy_slots >= self.slots:
            return f", and all {self.slots:,} slots of {who} are busy"
        return f", and {self.busy_slots:,} of {self.slots:,} slots of {who} are busy"


class HoldReasons:
    """The judgement, for one service."""

    def __init__(self, context: ServiceContext, facts: HoldFacts) -> None:
        self._router = context.router
        self._clock = context.clock
        self._queues = context.queues
        self._probes, self._groups = context.limits.probes, context.limits.groups
        self._validator = context.validator
        self._facts = facts

    async def explain(self, descriptors: Sequence[str], context: RequestContext | None) -> list[JobHold]:
        """What holds those of these jobs back that are pending, in their order; a job whose shard is out may be in any
        state. RequestInvalid: they are too many.
        """
        wanted = list(dict.fromkeys(descriptors))
        if len(wanted) > MAX_JOBS:
            raise RequestInvalid.of("the length of jobDescriptors", len(wanted), f"at most {MAX_JOBS}")
        holds = {each: hold for each in wanted if (hold := self._of_shard(each)) is not None}
        found = await self._facts.lookup([each for each in wanted if each not in holds], context=context)
        for descriptor, info in found.items():
            if info.state is JobState.PENDING:
                holds[descriptor] = await self._of_job(descriptor, info)
        return [holds[each] for each in wanted if each in holds]

    def _of_shard(self, descriptor: str) -> JobHold | None:
        ref = parse_descriptor(descriptor)
        member = None if ref is None else self._router.members.by_id(ref.shard)
        if ref is None or member is None or (member.store_id is not None and member.is_healthy):
            return None
        text = f"Its shard {ref.shard} is out: {member.last_error or 'no answer'}."
        return JobHold(descriptor, HoldReason.SHARD_OUT, text)

    async def _of_job(self, descriptor: str, info: JobInfo) -> JobHold:
        now_ms = self._clock.now_ms()
        phase = phase_of(info, now_ms)
        if phase is JobPhase.SCHEDULED:
            text = f"It is not due before {utc_text(info.run_after_ms)}."
            return JobHold(descriptor, HoldReason.NOT_DUE, text, until_ms=info.run_after_ms)
        if phase is JobPhase.WAITING:
            before = "a job of a queue that you may not read" if info.waits_for == HIDDEN_JOB else info.waits_for
            what = "is before it in its serialize key" if info.serialize_key else "runs under its dedupe key"
            text = f"It waits for {before}, which {what}."
            behind = None if info.waits_for == HIDDEN_JOB else info.waits_for
            return JobHold(descriptor, HoldReason.BEHIND_JOB, text, behind=behind)
        # where it is now: a job that was moved is looked up by its first name
        queue = (info.moved_to or info.descriptor).partition(":")[0]
        return await self._of_queue(descriptor, queue, info, now_ms)

    async def _of_queue(self, descriptor: str, queue: str, info: JobInfo, now_ms: int) -> JobHold:
        settings = self._queues.settings(queue)
        opened = self._queues.open_breakers.get(queue)
        if opened is not None:
            since, outlook = utc_text(opened.opened_ms), self._probes.outlook(queue)
            text = f"The circuit breaker of its queue is open since {since}: {opened.why}; {outlook}."
            return JobHold(descriptor, HoldReason.PAUSED, text)
        if settings.paused:
            text = f"{pause_text('Its queue', settings)}."
            return JobHold(descriptor, HoldReason.PAUSED, text, until_ms=settings.paused_until_ms)
        if info.group and (own := self._queues.group_rules.of(queue, info.group)).paused:
            text = f"{pause_text(f'Its group {info.group!r}', own)}."
            return JobHold(descriptor, HoldReason.PAUSED, text, until_ms=own.paused_until_ms)
        if settings.max_jobs_per_second == 0:
            return JobHold(descriptor, HoldReason.PAUSED, "Its queue hands out no jobs: its rate is 0.")
        if await self._is_at_maximum(queue, settings, now_ms):
            most = settings.max_in_progress
            text = f"Its queue has reached its maximum of {most:,} job{'' if most == 1 else 's'} in progress."
            return JobHold(descriptor, HoldReason.MAX_IN_PROGRESS, text)
        if info.group and (hold := await self._of_group(descriptor, queue, info.group)) is not None:
            return hold
        takers = await self._takers(queue)
        per_second = settings.max_jobs_per_second
        is_slow = per_second is not None and per_second < _SLOW_PER_SECOND
        if not takers.are_there and not is_slow:
            return JobHold(descriptor, HoldReason.NO_WORKER, "No worker polls its queue.")
        level = _aged_level(self._validator.priorities, settings, info, now_ms)
        before = await self._before(queue, info, level, now_ms)
        aged = ""
        if level is not None and level.number < info.priority:
            aged = f" It counts as priority {level.number}: it has been due for {age_text(now_ms - info.run_after_ms)}."
        line = f"it is number {before + 1:,} in line" if before else "it is the next in line"
        if per_second is not None and (before or is_slow):
            until_ms = now_ms + int((before + 1) * 1000 / per_second)
            text = (
                f"Its queue is limited to {rate_text(per_second)}: {line}, about {age_text(until_ms - now_ms)} to go."
                f"{aged}"
            )
            return JobHold(descriptor, HoldReason.RATE_LIMITED, text, until_ms=until_ms, jobs_before=before)
        text = f"{line[0].upper()}{line[1:]} of its queue{takers.text}.{aged}"
        return JobHold(descriptor, HoldReason.IN_LINE, text, jobs_before=before)

    async def _of_group(self, descriptor: str, queue: str, group: str) -> JobHold | None:
        """Its group has reached its maximum in progress, or its limits cannot be counted; None: neither. A rate is not
        looked at: it seldom holds a job for long.
        """
        if queue not in self._queues.group_limited:
            return None
        if self._groups.is_uncounted(queue):
            text = f"The limits of its group {group!r} cannot be counted: {self._groups.home_text(queue)}."
            return JobHold(descriptor, HoldReason.MAX_IN_PROGRESS, text)
        most = self._groups.limit(queue, group).concurrency
        if most is None or (await self._groups.running(queue, [group])).get(group, 0) < most:
            return None
        text = f"Its group {group!r} has reached its maximum of {most:,} job{'' if most == 1 else 's'} in progress."
        return JobHold(descriptor, HoldReason.MAX_IN_PROGRESS, text)

    async def _is_at_maximum(self, queue: str, settings: QueueSettings, now_ms: int) -> bool:
        most = settings.max_in_progress
        if not most:
            return most is not None
        return await self._count(queue, JobState.IN_PROGRESS, self._validator.priorities, now_ms) >= most

    async def _takers(self, queue: str) -> _Takers:
        page = await self._facts.get_workers(queue=queue, limit=1)
        status = await self._facts.cluster_status(queues=[queue])
        per_second = sum(each.rates.get("dequeued", 0.0) for each in status.queues)
        waits_here = self._facts.long_polls.has_waiters(queue)
        return _Takers(page.total, page.slots, page.busy_slots, per_second, waits_here)

    async def _before(self, queue: str, info: JobInfo, level: AgedLevel | None, now_ms: int) -> int:
        """How many jobs of its queue are ready and come before it: by priority or level, then by their time."""
        if level is not None:
            bounds = {each: level.before_ms(each, info.run_after_ms, now_ms) for each in level.priorities}
            return sum([await self._count(queue, JobState.PENDING, [each], bounds[each]) for each in bounds])
        higher = [each for each in self._validator.priorities if each < info.priority]
        earlier = await self._count(queue, JobState.PENDING, [info.priority], info.run_after_ms - 1)
        return earlier + (await self._count(queue, JobState.PENDING, higher, now_ms) if higher else 0)

    async def _count(self, queue: str, state: JobState, priorities: Sequence[int], until_ms: int) -> int:
        query = ScanQuery(queue, STORED_STATES[state], priorities, False, until_ms)
        try:
            return await self._router.count(query, state, allow_partial=True)
        except QueueNotFound:
            return 0


def _aged_level(priorities: tuple[int, ...], settings: QueueSettings, info: JobInfo, now_ms: int) -> AgedLevel | None:
    """The level at which a job counts; None: jobs of its queue do not age."""
    _, last = split_levels(levels_of(priorities, settings.priority_aging_ms))
    return last and last._replace(number=last.of(info.priority, info.run_after_ms, now_ms))


class HoldsApi:
    """The call of `Api` that says why jobs do not run, of a service that has HoldReasons."""

    _holds: HoldReasons

    async def explain_jobs(self, descriptors: Sequence[str], *, context: RequestContext | None = None) -> list[JobHold]:
        return await self._holds.explain(descriptors, context)
