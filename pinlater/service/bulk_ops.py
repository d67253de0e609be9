"""The calls that change many jobs at once, a bounded slice per call; counted, and recorded with their author.

Two ways lead through a slice. Where a store can choose the jobs by itself, it is asked shard after shard, in steps.
Else jobs are read in pages, and changed page by page (bulk_slices.py). `changeJobs` goes on where a slice ended, by a
continuation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from pinlater import job_limits
from pinlater.backends.base import STORED_STATES, Shard
from pinlater.clock import Clock
from pinlater.errors import PinLaterError, QueueNotFound, RequestInvalid, ShardConnectionFailed, UnknownError
from pinlater.metrics import Metrics
from pinlater.model import (
    CONTINUATION_END,
    Cancelled,
    CancelOutcome,
    JobAction,
    JobChange,
    JobFilter,
    JobsChanged,
    JobState,
    KeyRef,
)
from pinlater.model.job_selection import FoundJobsChange, JobSelection, TextCondition
from pinlater.service import validation
from pinlater.service.audit import OPEN, Audit
from pinlater.service.bulk_slices import BulkSlices, Slice, SliceOrder
from pinlater.service.job_commands import NamedJobChanges
from pinlater.service.longpoll import LongPolls
from pinlater.service.searches import read_mark, write_mark
from pinlater.service.selection import Conditions, SearchPart
from pinlater.shards.handle import ShardHandle, answers, missing
from pinlater.shards.router import Router

Step = Callable[[Shard, int], Coroutine[Any, Any, int]]
"""One bounded step on one shard, for at most so many jobs; how many it was."""

RETRIED_METRIC = "jobs_retried_by_operator"
DELETED_METRIC = "jobs_deleted_by_operator"
ASKED_METRIC = "jobs_asked_to_stop"

_TAKES: dict[JobAction, tuple[JobState, ...]] = {
    JobAction.RETRY: (JobState.FAILED,),
    JobAction.DELETE: (),
    JobAction.CANCEL: (JobState.PENDING,),
    JobAction.REPLAY: (JobState.PENDING, JobState.FAILED),
}
"""The states that an action is for; a deletion has to name one."""


class BulkOps:
    """Changes of many jobs, for one service; `who` is the caller's source. A call that changed nothing leaves nothing
    in the audit.
    """

    def __init__(
        self,
        router: Router,
        clock: Clock,
        slices: BulkSlices,
        commands: NamedJobChanges,
        long_polls: LongPolls,
        metrics: Metrics,
        audit: Audit,
    ) -> None:
        self._router = router
        self._clock = clock
        self._slices = slices
        self._settings = slices.settings
        self._validator = slices.validator
        self._commands = commands
        self._long_polls = long_polls
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
        await self._record(who, "retry_failed_jobs", queue, retried, f" of priority {priority}", RETRIED_METRIC)
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
        slice_ = Slice(self._order(change, (JobState.FAILED,), tells_refusals=False), self._slices.ends_at())
        continuation = await self._page_by_page(slice_, change)
        await self._record(who, "retry_failed_jobs", queue, slice_.changed, f" of priority {priority}", RETRIED_METRIC)
        if slice_.missing and not slice_.is_full():
            raise ShardConnectionFailed(
                f"{slice_.changed} jobs were changed on the other shards; {missing(slice_.missing).message}"
            )
        return slice_.changed if continuation == CONTINUATION_END or slice_.is_full() else self._so_far(slice_.changed)

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
        await self._record(who, "delete_jobs", queue, deleted, detail, DELETED_METRIC)
        return deleted

    async def cancel(
        self, who: str, queue: str, descriptors: Sequence[str], keys: Sequence[KeyRef], running: bool
    ) -> Cancelled:
        cancelled = await self._commands.cancel(queue, descriptors, keys, running, who)
        outcomes = [*cancelled.values(), *cancelled.by_key]
        removed, named = outcomes.count(CancelOutcome.CANCELLED), f", of {len(outcomes)} that were named"
        await self._record(who, "cancel_jobs", queue, removed, named, DELETED_METRIC)
        asked = outcomes.count(CancelOutcome.REQUESTED)
        await self._record(who, "ask_jobs_to_stop", queue, asked, named, ASKED_METRIC)
        return cancelled

    async def change_jobs(self, who: str, change: JobChange) -> JobsChanged:
        """RequestInvalid, ContinuationInvalid, QueueNotFound; a shard that fails is named, and the others go on."""
        slice_ = Slice(self._order(change, self._states(change)), self._slices.ends_at())
        done = slice_.answer(await self._page_by_page(slice_, change))
        if not change.dry_run:
            is_retry = change.action in (JobAction.RETRY, JobAction.REPLAY)
            action = f"{change.action.name.lower()}_jobs"
            count = RETRIED_METRIC if is_retry else DELETED_METRIC
            await self._record(who, action, change.queue, done.changed, _filter(change), count)
        return done

    async def _record(self, who: str, action: str, queue: str, jobs: int, detail: str, metric: str) -> None:
        if jobs:
            self._metrics.add(jobs, metric, queue)
            await self._audit.write(who, action, queue, jobs_text(jobs) + detail, part=OPEN)

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
        slice_ = Slice(self._order(change, (state,), spares_new=False), self._slices.ends_at())
        continuation = await self._page_by_page(slice_, change)
        if slice_.is_full():
            return slice_.changed
        if continuation != CONTINUATION_END:
            return self._so_far(slice_.changed)
        if slice_.missing:
            raise missing(slice_.missing)
        return slice_.changed

    async def _page_by_page(self, slice_: Slice, change: JobChange) -> str:
        """One slice; the continuation of the next one."""
        meant = _meant(change)
        mark = read_mark(change.continuation, self._slices.begins_ms(), len(slice_.order.parts), meant)
        reached = await self._slices.run(slice_, mark)
        return CONTINUATION_END if reached is None else write_mark(reached, meant)

    def _order(self, change: JobChange, states: Sequence[JobState], **fields: Any) -> SliceOrder:
        """By state, and what is later behind what is due; what somebody stopped is not what failed."""
        parts = [
            SearchPart((STORED_STATES[state][:1] if change.action is JobAction.RETRY else STORED_STATES[state]), future)
            for state in states
            for future in (False, True)
        ]
        patterns = (TextCondition(change.body_regex),) if change.body_regex else ()
        selection = JobSelection(
            change.queue,
            body_conditions=patterns,
            created_before_ms=change.created_before_ms,
            created_after_ms=change.created_after_ms,
        )
        return SliceOrder(
            change.queue,
            change.action,
            parts,
            self._validator.priorities if change.priority is None else (change.priority,),
            Conditions(selection, "bodyRegexToMatch"),
            change.limit,
            change.attempts,
            change.run_after_ms,
            change.dry_run,
            **fields,
        )

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
        check_gifts(change)
        return takes if change.state is None else (change.state,)


def check_gifts(change: JobChange | FoundJobsChange) -> None:
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


def _meant(change: JobChange) -> tuple[object, ...]:
    """For a continuation; as servers of before wrote it."""
    return (
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
    )


def jobs_text(amount: int) -> str:
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
