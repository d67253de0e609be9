"""The calls that change many jobs at once, a bounded slice per call; counted, and recorded with their author.

Two ways lead through a slice. Where a store can choose the jobs by itself, it is asked shard after shard, in steps.
Else jobs are read in pages, newest run_after first, and changed page by page. `changeJobs` goes on where a slice ended,
by a continuation. It is meant for the jobs that were there when it began: one made since, or that ended since (it was
retried, and failed again), is left alone, so that a change ends however fast jobs come.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from pinlater import job_limits
from pinlater.backends.base import JobKey, Shard
from pinlater.clock import Clock
from pinlater.errors import (
    ContinuationInvalid,
    HomesChanged,
    PinLaterError,
    QueueNotFound,
    RequestInvalid,
    ShardConnectionFailed,
    UnknownError,
)
from pinlater.flows.item_jobs import item_number
from pinlater.metrics import Metrics
from pinlater.model import (
    CONTINUATION_END,
    CONTINUATION_START,
    MAX_TIME_MS,
    Cancelled,
    CancelOutcome,
    JobAction,
    JobChange,
    JobFilter,
    JobInfo,
    JobsChanged,
    JobState,
    KeyRef,
    descriptor_prefix,
    parse_descriptor,
)
from pinlater.service import validation
from pinlater.service.audit import OPEN, Audit
from pinlater.service.body_pattern import BodyPattern
from pinlater.service.descriptors import DescriptorParser
from pinlater.service.end_waits import EndWaits
from pinlater.service.job_commands import NamedJobChanges
from pinlater.service.job_queries import Search
from pinlater.service.longpoll import LongPolls
from pinlater.service.settings import ServiceSettings
from pinlater.service.validation import Validator
from pinlater.shards.handle import ShardHandle, answers, ask_all, missing
from pinlater.shards.keys.key_router import TRIES
from pinlater.shards.router import Router
from pinlater.shards.scan import Place, ScanQuery, place_of

Step = Callable[[Shard, int], Coroutine[Any, Any, int]]
"""One bounded step on one shard, for at most so many jobs; how many it was."""

_RETRIED = "jobs_retried_by_operator"
_DELETED = "jobs_deleted_by_operator"

_SAMPLES = 10
_REFUSALS = 1_000
"""Told in one answer; the next slice has the others."""

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


class BulkOps:
    """Changes of many jobs, for one service; `who` is the caller's source. A call that changed nothing leaves nothing
    in the audit.
    """

    def __init__(
        self,
        router: Router,
        clock: Clock,
        settings: ServiceSettings,
        validator: Validator,
        parser: DescriptorParser,
        commands: NamedJobChanges,
        long_polls: LongPolls,
        end_waits: EndWaits,
        metrics: Metrics,
        audit: Audit,
    ) -> None:
        self._router = router
        self._clock = clock
        self._settings = settings
        self._validator = validator
        self._parser = parser
        self._commands = commands
        self._long_polls = long_polls
        self._end_waits = end_waits
        self._metrics = metrics
        self._audit = audit

    # -- the calls ---------------------------------------------------------------------------------------------------

    async def retry_failed(
        self, who: str, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int, has_items: bool
    ) -> int:
        """When the time is over, what was done so far is the answer: callers ask again until nothing is left to do."""
        self._validator.priority(priority)
        validation.existing_queue(queue)
        granted = job_limits.attempts("attemptsToAllow", attempts)
        validation.at_least_1("limit", limit)
        at_ms = job_limits.run_at("runAfterTimestampMillis", run_after_ms)

        def step(shard: Shard, amount: int) -> Coroutine[Any, Any, int]:
            return shard.retry_failed(queue, priority, granted, at_ms, amount, self._clock.now_ms())

        if has_items or await self._router.keys.may_have_moved():
            return await self._retry_pages(who, queue, priority, granted, run_after_ms, limit)
        retried = await self._shard_by_shard(step, limit)
        if run_after_ms is not None and run_after_ms > self._clock.now_ms():
            self._long_polls.jobs_ready(queue, 0, [run_after_ms])
        else:
            self._long_polls.jobs_ready(queue, retried)
        await self._record(who, "retry_failed_jobs", queue, retried, f" of priority {priority}", _RETRIED)
        return retried

    async def _retry_pages(
        self, who: str, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int
    ) -> int:
        """Jobs whose keys live elsewhere now stay, and those of items; stores cannot tell them, so jobs are read first.
        However many stay, those behind them come in turn: this call has no continuation, and tells no refusals.
        """
        change = JobChange(
            queue,
            JobAction.RETRY,
            JobState.FAILED,
            priority=priority,
            attempts=attempts,
            run_after_ms=run_after_ms,
            limit=limit,
        )
        slice_ = _Slice(self._settings, change, (JobState.FAILED,), spares_new=True, tells_refusals=False)
        mark = await self._page_by_page(slice_)
        await self._record(who, "retry_failed_jobs", queue, slice_.changed, f" of priority {priority}", _RETRIED)
        if slice_.missing and not slice_.is_full():
            raise ShardConnectionFailed(
                f"{slice_.changed} jobs were changed on the other shards; {missing(slice_.missing).message}"
            )
        return slice_.changed if mark is None or slice_.is_full() else self._so_far(slice_.changed)

    async def delete_jobs(self, who: str, filter: JobFilter, limit: int) -> int:
        """As `retry_failed`; with a pattern, page by page."""
        queue, state = filter.queue, filter.state
        priority = 1 if filter.priority is None else filter.priority
        self._validator.filter(JobFilter(queue, state, priority, False, filter.body_regex))
        validation.at_least_1("limit", limit)

        def step(shard: Shard, amount: int) -> Coroutine[Any, Any, int]:
            return shard.delete_jobs(queue, state, priority, amount, self._clock.now_ms())

        if filter.body_regex:
            deleted = await self._delete_matching(queue, state, priority, filter.body_regex, limit)
        else:
            deleted = await self._shard_by_shard(step, limit)
        detail = f", {state.name}, priority {filter.priority or 1}" + _pattern(filter.body_regex)
        await self._record(who, "delete_jobs", queue, deleted, detail, _DELETED)
        return deleted

    async def cancel(
        self, who: str, queue: str, descriptors: Sequence[str], keys: Sequence[KeyRef], running: bool
    ) -> Cancelled:
        cancelled = await self._commands.cancel(queue, descriptors, keys, running, who)
        outcomes = [*cancelled.values(), *cancelled.by_key]
        removed, named = outcomes.count(CancelOutcome.CANCELLED), f", of {len(outcomes)} that were named"
        await self._record(who, "cancel_jobs", queue, removed, named, _DELETED)
        asked = outcomes.count(CancelOutcome.REQUESTED)
        await self._record(who, "ask_jobs_to_stop", queue, asked, named, "jobs_asked_to_stop")
        return cancelled

    async def change_jobs(self, who: str, change: JobChange) -> JobsChanged:
        """RequestInvalid, ContinuationInvalid, QueueNotFound; a shard that fails is named, and the others go on."""
        slice_ = _Slice(self._settings, change, self._states(change), spares_new=True)
        done = slice_.answer(await self._page_by_page(slice_))
        if not change.dry_run:
            is_retry = change.action in (JobAction.RETRY, JobAction.REPLAY)
            action = f"{change.action.name.lower()}_jobs"
            count = _RETRIED if is_retry else _DELETED
            await self._record(who, action, change.queue, done.changed, _filter(change), count)
        return done

    async def _record(self, who: str, action: str, queue: str, jobs: int, detail: str, metric: str) -> None:
        if jobs:
            self._metrics.add(jobs, metric, queue)
            await self._audit.write(who, action, queue, _jobs(jobs) + detail, part=OPEN)

    # -- shard after shard, which choose the jobs themselves ---------------------------------------------------------

    async def _shard_by_shard(self, step: Step, limit: int) -> int:
        """Up to `limit` jobs in all. A shard that is missing is an error, after the others were done."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._settings.long_call_ms / 1000
        total = 0
        outcomes: list[int | PinLaterError] = []
        for member in self._router.members.healthy():
            if outcomes and loop.time() >= ends_at:
                if all(isinstance(outcome, int) for outcome in outcomes):
                    return self._so_far(total)
                break
            done, error = await self._on_one(member, step, limit - total, ends_at)
            total += done
            outcomes.append(done if error is None else error)
            if total >= limit:
                return total
        self._router.members.require_any()
        lost = [each for each in outcomes if not isinstance(each, (int, QueueNotFound))]
        away = [member for member in self._router.members.all if not member.is_healthy]
        if lost or away:
            text = "; ".join([error.message for error in lost] + ([missing(away).message] if away else []))
            raise ShardConnectionFailed(f"{total} jobs were changed on the other shards; {text}")
        answers(outcomes)
        return total

    async def _on_one(
        self, member: ShardHandle, step: Step, limit: int, ends_at: float
    ) -> tuple[int, PinLaterError | None]:
        done = 0
        while done < limit and (done == 0 or asyncio.get_running_loop().time() < ends_at):
            amount = min(limit - done, self._settings.page_jobs)
            try:
                changed = await step(member.shard, amount)
            except PinLaterError as error:
                return done, error
            done += changed
            if changed < amount:
                break
        return done, None

    def _so_far(self, total: int) -> int:
        if total == 0:
            text = f"no job was found within {self._settings.long_call_ms} ms, and not all were looked at"
            raise UnknownError(text, reason="DEADLINE_EXCEEDED", retryable=True)
        return total

    # -- page after page ---------------------------------------------------------------------------------------------

    async def _delete_matching(self, queue: str, state: JobState, priority: int, body_regex: str, limit: int) -> int:
        """A shard that is missing is an error, after the others were done."""
        change = JobChange(queue, JobAction.DELETE, state, priority=priority, body_regex=body_regex, limit=limit)
        slice_ = _Slice(self._settings, change, (state,), spares_new=False)
        mark = await self._page_by_page(slice_)
        if slice_.is_full():
            return slice_.changed
        if mark is not None:
            return self._so_far(slice_.changed)
        if slice_.missing:
            raise missing(slice_.missing)
        return slice_.changed

    async def _page_by_page(self, slice_: _Slice) -> Mark | None:
        """One slice; where the next one begins, None at the end of all."""
        change, parts = slice_.change, slice_.parts
        pattern = BodyPattern(change.body_regex) if change.body_regex else None
        began_ms = self._clock.now_ms() + self._clock.uncertainty_ms  # jobs that end now end at the latest time
        mark: Mark | None = read_mark(change, began_ms, len(parts))
        priorities = self._validator.priorities if change.priority is None else (change.priority,)
        while mark is not None:
            part = parts[mark.part]
            query = ScanQuery(change.queue, part.state, priorities, part.future, mark.began_ms)
            search = Search(self._router, self._settings, query, pattern, mark.after, ends_at=slice_.ends_at)
            mark = await self._search(search, slice_, mark, len(parts))
            if slice_.is_full() or search.is_over():
                break
        return mark

    async def _search(self, search: Search, slice_: _Slice, mark: Mark, parts: int) -> Mark | None:
        """One part, up to the end of the slice; where the next slice begins, None at the end of all."""
        change = slice_.change
        while not search.ended:
            found = [
                job for job in await search.page() if not slice_.spares_new or _is_meant(job, change, mark.began_ms)
            ]
            slice_.miss(search.missing)
            while found and not slice_.is_full():
                taken = found[: slice_.remaining()]
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
        for _ in range(TRIES):
            jobs, unaware = await self._try_apply(jobs, slice_)
            if not jobs:
                return
        slice_.miss(unaware)

    async def _try_apply(self, jobs: list[JobInfo], slice_: _Slice) -> tuple[list[JobInfo], list[ShardHandle]]:
        """The jobs for which it is to be decided anew, and their shards: these know newer homes of keys."""
        act = self._act(slice_, self._router.keys.homes_version)
        if slice_.change.action in (JobAction.RETRY, JobAction.REPLAY):
            jobs = self._at_home(jobs, slice_)
        groups = self._parser.keys(slice_.change.queue, [job.descriptor for job in jobs])
        named = [member for member in self._router.members.all if member.shard.shard_id in groups]
        members = [member for member in named if member.is_healthy]
        slice_.miss([member for member in named if not member.is_healthy])
        outcomes = await ask_all(members, lambda shard: act(shard, [key for _, key in groups[shard.shard_id]]))
        pending: Pending = Counter()
        unaware: list[ShardHandle] = []
        for member, outcome in zip(members, outcomes, strict=True):
            if isinstance(outcome, QueueNotFound):
                continue  # it went meanwhile
            if isinstance(outcome, HomesChanged):
                await self._router.keys.homes.catch_up(member)
                unaware.append(member)
            elif isinstance(outcome, PinLaterError):
                slice_.miss([member])
            elif isinstance(outcome, int):
                slice_.changed += outcome
            else:
                slice_.changed += outcome.total()
                pending += outcome
        now_ms = self._clock.now_ms()
        at_ms = slice_.change.run_after_ms or now_ms
        for queue, amount in pending.items():
            self._long_polls.jobs_ready(queue, *((0, [at_ms]) if at_ms > now_ms else (amount, [])))
        names = {descriptor for member in unaware for descriptor, _ in groups[member.shard.shard_id]}
        return [job for job in jobs if job.descriptor in names], unaware

    def _at_home(self, jobs: list[JobInfo], slice_: _Slice) -> list[JobInfo]:
        """Those that would become pending where their keys live now. The others are refused: their shard alone cannot
        tell whether a key is taken, nor what is before a job.
        """
        allowed = []
        for job in jobs:
            ref = self._parser.parse(job.descriptor)
            why = None if ref is None else self._router.keys.why_not_here(ref.shard, _queue_of(job, ref.queue), job)
            if why is None:
                allowed.append(job)
            else:
                slice_.refuse(job.descriptor, why)
        return allowed

    def _act(self, slice_: _Slice, homes_version: str) -> _Act:
        """What is done to jobs of one shard."""
        change, now_ms = slice_.change, self._clock.now_ms()
        queue = change.queue

        async def retry(shard: Shard, jobs: Sequence[JobKey]) -> Pending:
            retried = await shard.retry_listed(queue, jobs, change.attempts, change.run_after_ms, now_ms, homes_version)
            if retried < len(jobs):
                await slice_.tell_refusals(shard, jobs)
            return Counter({queue: retried})

        async def delete(shard: Shard, jobs: Sequence[JobKey]) -> int:
            assert change.state is not None
            deleted = await shard.delete_listed(queue, change.state, jobs, now_ms)
            self._end_waits.ended(shard.shard_id, queue, [job.id for job in jobs])
            return deleted

        async def cancel(shard: Shard, jobs: Sequence[JobKey]) -> int:
            outcomes = await shard.cancel(queue, jobs, now_ms)
            self._end_waits.ended(shard.shard_id, queue, [job.id for job in jobs])
            return outcomes.count(CancelOutcome.CANCELLED)

        async def replay(shard: Shard, jobs: Sequence[JobKey]) -> Pending:
            descriptors = await shard.replay(queue, jobs, now_ms, change.attempts, homes_version)
            left = [job for job, descriptor in zip(jobs, descriptors, strict=True) if descriptor is None]
            if left:
                await slice_.tell_refusals(shard, left)
            return Counter(descriptor.partition(":")[0] for descriptor in descriptors if descriptor)

        acts: dict[JobAction, _Act] = {
            JobAction.RETRY: retry,
            JobAction.DELETE: delete,
            JobAction.CANCEL: cancel,
            JobAction.REPLAY: replay,
        }
        return acts[change.action]

    def _states(self, change: JobChange) -> Sequence[JobState]:
        """The states that are meant; the whole request is checked."""
        validation.existing_queue(change.queue)
        if change.action not in _TAKES:
            raise RequestInvalid.of("action", change.action, ", ".join(f"{each.name} {each}" for each in JobAction))
        takes = _TAKES[change.action] or tuple(JobState)
        if change.state not in ((None, *takes) if _TAKES[change.action] else takes):
            allowed = " or ".join(f"{state.name} {state}" for state in takes)
            raise RequestInvalid.of(f"jobState for {change.action.name}", change.state, allowed)
        if change.priority is not None:
            self._validator.priority(change.priority)
        validation.at_least_1("limit", change.limit)
        for field, value in (
            ("createdBeforeMillis", change.created_before_ms),
            ("createdAfterMillis", change.created_after_ms),
        ):
            if value is not None:
                job_limits.time(field, value)
        _check_gifts(change)
        return takes if change.state is None else (change.state,)


def _check_gifts(change: JobChange) -> None:
    """What jobs are given, where the action gives something."""
    if change.attempts is not None:
        if change.action not in (JobAction.RETRY, JobAction.REPLAY):
            raise RequestInvalid.of("attempts", change.attempts, "nothing, but for RETRY and REPLAY")
        validation.at_least_1("attempts", change.attempts)
        job_limits.attempts("attempts", change.attempts)
    if change.run_after_ms is not None:
        if change.action is not JobAction.RETRY:
            raise RequestInvalid.of("runAfterMillis", change.run_after_ms, "nothing, but for RETRY")
        job_limits.time("runAfterMillis", change.run_after_ms)


def _queue_of(job: JobInfo, queue: str) -> str:
    """The queue that a dedupe key belongs to: of a dead letter that of its origin."""
    origin = None if job.origin is None else parse_descriptor(job.origin)
    return queue if origin is None else origin.queue


def _is_meant(job: JobInfo, change: JobChange, began_ms: int) -> bool:
    if job.created_at_ms > began_ms or (job.finished_at_ms or 0) > began_ms:
        return False
    if change.created_before_ms is not None and job.created_at_ms >= change.created_before_ms:
        return False
    if change.created_after_ms is not None and job.created_at_ms < change.created_after_ms:
        return False
    if change.action is JobAction.RETRY:  # what somebody stopped is not what failed
        return not job.cancelled and not item_number(job.dedupe_key)  # nor is the end of an item taken back
    return change.action is not JobAction.REPLAY or job.origin is not None


class _Slice:
    """What one call has done so far."""

    def __init__(
        self,
        settings: ServiceSettings,
        change: JobChange,
        states: Sequence[JobState],
        *,
        spares_new: bool,
        tells_refusals: bool = True,
    ) -> None:
        """`spares_new`: jobs that are new since it began are left alone."""
        self.change = change
        self.parts = [_Part(state, future) for state in states for future in (False, True)]
        self.spares_new = spares_new
        self.ends_at = asyncio.get_running_loop().time() + settings.long_call_ms / 1000
        self.changed = 0
        self.looked_at = 0
        self._samples: list[JobInfo] = []
        self.missing: list[ShardHandle] = []
        self._tells_refusals = tells_refusals
        self._refusals: dict[str, str] = {}

    def remaining(self) -> int:
        return self.change.limit - self.changed

    def is_full(self) -> bool:
        return self.remaining() <= 0 or len(self._refusals) >= _REFUSALS

    def miss(self, members: Sequence[ShardHandle]) -> None:
        self.missing += [member for member in members if member not in self.missing]

    def sample(self, jobs: Sequence[JobInfo]) -> None:
        self.changed += len(jobs)
        for job in jobs[: _SAMPLES - len(self._samples)]:
            job.body = None
            self._samples.append(job)

    def refuse(self, descriptor: str, why: str) -> None:
        if self._tells_refusals:
            self._refusals[descriptor] = why

    async def tell_refusals(self, shard: Shard, jobs: Sequence[JobKey]) -> None:
        """Of these, some were left alone: those whose dedupe key has another live job are named. Raises nothing."""
        queue = self.change.queue
        if not self._tells_refusals:
            return
        try:
            taken = await shard.taken_keys(queue, jobs)
        except PinLaterError:
            return  # the others are done, and that counts
        for job, live in zip(jobs, taken, strict=True):
            if live is not None:
                descriptor = f"{descriptor_prefix(queue, shard.shard_id, job.priority)}{job.id}"
                self._refusals[descriptor] = f"its dedupeKey has another live job, {live}"

    def answer(self, mark: Mark | None) -> JobsChanged:
        shard_ids = [member.shard.shard_id or "?" for member in self.missing]
        continuation = CONTINUATION_END if mark is None else write_mark(self.change, mark)
        return JobsChanged(self.changed, self.looked_at, self._samples, continuation, shard_ids, self._refusals)


_PLACE = r"([0-9]{1,16})\.([A-Za-z0-9]{1,16})\.([0-9]{1,16})|-"
_MARK = re.compile(rf"([0-9])\.(?:{_PLACE})\.([0-9]{{1,16}})\.([0-9a-f]{{16}})", re.ASCII)


class Mark(NamedTuple):
    """Which of the scans a change consists of, the place in it that was reached (None: none yet), when all began."""

    part: int
    after: Place | None
    began_ms: int


def write_mark(change: JobChange, mark: Mark) -> str:
    """The text for "go on here"; only for the same change, though its limit may be another one."""
    place = "-" if mark.after is None else ".".join(map(str, mark.after))
    return f"{mark.part}.{place}.{mark.began_ms}.{_digest(change, mark)}"


def read_mark(change: JobChange, now_ms: int, parts: int) -> Mark:
    """Where to begin. ContinuationInvalid for any text that was not made for this change."""
    text = change.continuation
    if text == CONTINUATION_START:
        return Mark(0, None, now_ms)
    match = _MARK.fullmatch(text)
    if match is not None:
        after = None if match[2] is None else Place(int(match[2]), match[3], int(match[4]))
        mark = Mark(int(match[1]), after, int(match[5]))
        in_range = max(mark.began_ms, *((after.run_after_ms, after.id) if after else (0,))) <= MAX_TIME_MS
        if in_range and mark.part < parts and text == write_mark(change, mark):
            return mark
    raise ContinuationInvalid(
        f"continuation {text[:100]!r} was not given for this change; begin with {CONTINUATION_START!r}"
    )


def _digest(change: JobChange, mark: Mark) -> str:
    meant = (
        change.queue,
        int(change.action),
        None if change.state is None else int(change.state),
        change.priority,
        change.created_before_ms,
        change.created_after_ms,
        change.body_regex,
        change.dry_run,
        change.attempts,
        change.run_after_ms,
        mark.part,
        None if mark.after is None else tuple(mark.after),
        mark.began_ms,
    )
    return hashlib.blake2b(repr(meant).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _jobs(amount: int) -> str:
    return f"{amount} job" if amount == 1 else f"{amount} jobs"


def _filter(change: JobChange) -> str:
    """What was asked for, for the record."""
    said = {
        "state": None if change.state is None else change.state.name,
        "priority": change.priority,
        "created before": change.created_before_ms,
        "created after": change.created_after_ms,
        "attempts": change.attempts,
        "run after": change.run_after_ms,
    }
    told = "".join(f", {key} {value}" for key, value in said.items() if value is not None)
    return told + _pattern(change.body_regex)


def _pattern(body_regex: str) -> str:
    return f", body matches {body_regex}" if body_regex else ""
