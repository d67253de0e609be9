"""Changes to all jobs that match: retry, delete, cancel, or send dead letters back; a bounded slice per call.

Jobs are read in pages, newest run_after first, and changed page by page. A change is meant for the jobs that were there
when it began: one made since, or that ended since (it was retried, and failed again), is left alone, so that a change
ends however fast jobs come.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from pinlater.backends.base import JobKey, Shard
from pinlater.clock import Clock
from pinlater.errors import PinLaterError, RequestInvalid
from pinlater.model import CONTINUATION_END, CancelOutcome, JobAction, JobChange, JobInfo, JobsChanged, JobState
from pinlater.regex import BodyPattern
from pinlater.service import checks
from pinlater.service.attempts import BecamePending
from pinlater.service.change_continuation import Mark, read_mark, write_mark
from pinlater.service.checks import Checks
from pinlater.service.looking import Search
from pinlater.service.refs import References
from pinlater.service.settings import ServiceSettings
from pinlater.shards.member import ask_all
from pinlater.shards.merge import ScanQuery, place_of
from pinlater.shards.router import Router

_SAMPLES = 10
_TAKES: dict[JobAction, tuple[JobState, ...]] = {
    JobAction.RETRY: (JobState.FAILED,),
    JobAction.DELETE: (),
    JobAction.CANCEL: (JobState.PENDING,),
    JobAction.REPLAY: (JobState.PENDING, JobState.FAILED),
}
"""The states that an action is for; a deletion has to name one."""

Pending = Counter[str]
"""How many jobs of each queue became pending."""

_Act = Callable[[Shard, Sequence[JobKey]], Coroutine[Any, Any, Pending | int]]
"""Changes jobs on one shard; how many, or how many became pending, by queue."""


class _Part(NamedTuple):
    """One of the scans that a change consists of."""

    state: JobState
    future: bool


class Changing:
    """Changes by filter, for one service."""

    def __init__(
        self,
        router: Router,
        clock: Clock,
        settings: ServiceSettings,
        bounds: Checks,
        refs: References,
        became_pending: BecamePending,
    ) -> None:
        self._router = router
        self._clock = clock
        self._settings = settings
        self._checks = bounds
        self._refs = refs
        self._became_pending = became_pending

    async def change(self, change: JobChange) -> JobsChanged:
        """RequestInvalid, ContinuationInvalid, QueueNotFound; a shard that fails is named, and the others go on."""
        parts = [_Part(state, future) for state in self._states(change) for future in (False, True)]
        pattern = BodyPattern(change.body_regex) if change.body_regex else None
        began_ms = self._clock.now_ms() + self._clock.uncertainty_ms  # jobs that end now end at the latest time
        mark: Mark | None = read_mark(change, began_ms, len(parts))
        slice_ = _Slice(self._settings, change)
        while mark is not None:
            part = parts[mark.part]
            query = ScanQuery(change.queue, part.state, self._priorities(change), part.future, mark.began_ms)
            search = Search(self._router, self._settings, query, pattern, mark.after, ends_at=slice_.ends_at)
            mark = await self._search(search, slice_, mark, len(parts))
            if slice_.is_full() or search.is_over():
                break
        return slice_.answer(mark)

    async def _search(self, search: Search, slice_: _Slice, mark: Mark, parts: int) -> Mark | None:
        """One part, up to the end of the slice; where the next slice begins, None at the end of all."""
        change = slice_.change
        while not search.ended:
            found = [job for job in await search.page() if _is_meant(job, change, mark.began_ms)]
            slice_.miss(search.missing)
            while found and not slice_.is_full():
                taken = found[: slice_.room()]
                found = found[len(taken) :]
                await self._apply(taken, slice_)
                mark = mark._replace(after=place_of(taken[-1]))
            if not found:
                mark = mark._replace(after=search.after)
            slice_.looked_at += search.take_looked_at()
            if found or (not search.ended and (slice_.is_full() or search.is_over())):
                return mark
        return Mark(mark.part + 1, None, mark.began_ms) if mark.part + 1 < parts else None

    async def _apply(self, jobs: list[JobInfo], slice_: _Slice) -> None:
        if slice_.change.dry_run:
            slice_.sample(jobs)
            return
        act = self._act(slice_.change)
        groups = self._refs.keys(slice_.change.queue, [job.descriptor for job in jobs])
        named = [member for member in self._router.members.all if member.shard.shard_id in groups]
        members = [member for member in named if member.is_in]
        slice_.miss([member for member in named if not member.is_in])
        outcomes = await ask_all(members, lambda shard: act(shard, [key for _, key in groups[shard.shard_id]]))
        pending: Pending = Counter()
        for member, outcome in zip(members, outcomes, strict=True):
            if isinstance(outcome, PinLaterError):
                slice_.miss([member])
            elif isinstance(outcome, int):
                slice_.changed += outcome
            else:
                slice_.changed += outcome.total()
                pending += outcome
        now_ms = self._clock.now_ms()
        at_ms = slice_.change.run_after_ms or now_ms
        for queue, amount in pending.items():
            self._became_pending(queue, *((0, [at_ms]) if at_ms > now_ms else (amount, [])))

    def _act(self, change: JobChange) -> _Act:
        """What is done to jobs of one shard."""
        queue, now_ms = change.queue, self._clock.now_ms()

        async def retry(shard: Shard, jobs: Sequence[JobKey]) -> Pending:
            retried = await shard.retry_listed(queue, jobs, change.attempts, change.run_after_ms, now_ms)
            return Counter({queue: retried})

        async def delete(shard: Shard, jobs: Sequence[JobKey]) -> int:
            assert change.state is not None
            return await shard.delete_listed(queue, change.state, jobs, now_ms)

        async def cancel(shard: Shard, jobs: Sequence[JobKey]) -> int:
            return (await shard.cancel(queue, jobs, now_ms)).count(CancelOutcome.CANCELLED)

        async def replay(shard: Shard, jobs: Sequence[JobKey]) -> Pending:
            descriptors = await shard.replay(queue, jobs, now_ms, change.attempts)
            return Counter(descriptor.partition(":")[0] for descriptor in descriptors if descriptor)

        acts: dict[JobAction, _Act] = {
            JobAction.RETRY: retry,
            JobAction.DELETE: delete,
            JobAction.CANCEL: cancel,
            JobAction.REPLAY: replay,
        }
        return acts[change.action]

    def _priorities(self, change: JobChange) -> Sequence[int]:
        return self._checks.priorities if change.priority is None else (change.priority,)

    def _states(self, change: JobChange) -> Sequence[JobState]:
        """The states that are meant; the whole request is checked."""
        checks.existing_queue(change.queue)
        if change.action not in _TAKES:
            raise RequestInvalid.of("action", change.action, ", ".join(f"{each.name} {each}" for each in JobAction))
        takes = _TAKES[change.action] or tuple(JobState)
        if change.state not in ((None, *takes) if _TAKES[change.action] else takes):
            allowed = " or ".join(f"{state.name} {state}" for state in takes)
            raise RequestInvalid.of(f"jobState for {change.action.name}", change.state, allowed)
        if change.priority is not None:
            self._checks.priority(change.priority)
        checks.at_least_1("limit", change.limit)
        for field, value in (
            ("createdBeforeMillis", change.created_before_ms),
            ("createdAfterMillis", change.created_after_ms),
        ):
            if value is not None:
                checks.time(field, value)
        _check_gifts(change)
        return takes if change.state is None else (change.state,)


def _check_gifts(change: JobChange) -> None:
    """What jobs are given, where the action gives something."""
    if change.attempts is not None:
        if change.action not in (JobAction.RETRY, JobAction.REPLAY):
            raise RequestInvalid.of("attempts", change.attempts, "nothing, but for RETRY and REPLAY")
        checks.at_least_1("attempts", change.attempts)
        checks.attempts("attempts", change.attempts)
    if change.run_after_ms is not None:
        if change.action is not JobAction.RETRY:
            raise RequestInvalid.of("runAfterMillis", change.run_after_ms, "nothing, but for RETRY")
        checks.time("runAfterMillis", change.run_after_ms)


def _is_meant(job: JobInfo, change: JobChange, began_ms: int) -> bool:
    if job.created_at_ms > began_ms or (job.finished_at_ms or 0) > began_ms:
        return False
    if change.created_before_ms is not None and job.created_at_ms >= change.created_before_ms:
        return False
    if change.created_after_ms is not None and job.created_at_ms < change.created_after_ms:
        return False
    return change.action is not JobAction.REPLAY or job.origin is not None


class _Slice:
    """What one call has done so far."""

    def __init__(self, settings: ServiceSettings, change: JobChange) -> None:
        self.change = change
        self.ends_at = asyncio.get_running_loop().time() + settings.long_call_ms / 1000
        self.changed = 0
        self.looked_at = 0
        self._samples: list[JobInfo] = []
        self._missing: list[str] = []

    def room(self) -> int:
        return self.change.limit - self.changed

    def is_full(self) -> bool:
        return self.room() <= 0

    def miss(self, members: Sequence[Any]) -> None:
        for member in members:
            shard_id = member.shard.shard_id or "?"
            if shard_id not in self._missing:
                self._missing.append(shard_id)

    def sample(self, jobs: Sequence[JobInfo]) -> None:
        self.changed += len(jobs)
        for job in jobs[: _SAMPLES - len(self._samples)]:
            job.body = None
            self._samples.append(job)

    def answer(self, mark: Mark | None) -> JobsChanged:
        continuation = CONTINUATION_END if mark is None else write_mark(self.change, mark)
        return JobsChanged(self.changed, self.looked_at, self._samples, continuation, self._missing)
