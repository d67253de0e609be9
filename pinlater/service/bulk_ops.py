"""The classic calls that change many jobs at once, bounded in time; counted, and recorded with their author.

Where a store can choose the jobs by itself, it is asked shard after shard, in steps. Else jobs are read in pages, and
changed page by page (bulk_slices.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from pinlater import job_limits
from pinlater.backends.base import Shard
from pinlater.errors import PinLaterError, QueueNotFound, ShardConnectionFailed, UnknownError
from pinlater.model import (
    Cancelled,
    CancelOutcome,
    JobAction,
    JobFilter,
    KeyRef,
    RescheduleJob,
    RescheduleOutcome,
)
from pinlater.model.job_selection import JobPhase, JobSelection, TextCondition, phases_of
from pinlater.schedule import utc_text
from pinlater.service import validation
from pinlater.service.audit import OPEN
from pinlater.service.bulk_slices import BulkSlices, Slice, SliceOrder, named_text
from pinlater.service.job_commands import NamedJobChanges
from pinlater.service.searches import Mark
from pinlater.service.selection import Conditions, parts_of
from pinlater.service.service_context import ServiceContext
from pinlater.shards.handle import ShardHandle, answers, missing

Step = Callable[[Shard, int], Coroutine[Any, Any, int]]
"""One bounded step on one shard, for at most so many jobs; how many it was."""

RETRIED_METRIC = "jobs_retried_by_operator"
DELETED_METRIC = "jobs_deleted_by_operator"
ASKED_METRIC = "jobs_asked_to_stop"


class BulkOps:
    """Changes of many jobs, for one service; `who` is the caller's source. A call that changed nothing leaves nothing
    in the audit.
    """

    def __init__(self, context: ServiceContext, slices: BulkSlices, commands: NamedJobChanges) -> None:
        self._router = context.router
        self._clock = context.clock
        self._slices = slices
        self._settings = context.settings
        self._validator = context.validator
        self._commands = commands
        self._events = context.events
        self._metrics = context.metrics
        self._audit = context.audit

    # -- the calls ---------------------------------------------------------------------------------------------------

    async def retry_failed(
        self, who: str, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int, has_items: bool
    ) -> int:
        """Retry up to `limit` failed jobs; how many were. When the time is over, fewer are, so callers ask again until
        none is left.
        """
        self._validator.priority(priority)
        validation.existing_queue(queue)
        granted = job_limits.attempts("attemptsToAllow", attempts)
        validation.at_least_1("limit", limit)
        at_ms = job_limits.run_at("runAfterTimestampMillis", run_after_ms)

        def step(shard: Shard, amount: int) -> Coroutine[Any, Any, int]:
            return shard.retry_failed(queue, priority, granted, at_ms, amount, self._clock.now_ms())

        detail = f" of priority {priority}"
        if has_items or await self._router.keys.may_have_moved():
            # Jobs whose keys live elsewhere now stay, and those of items; stores cannot tell them, so jobs are read
            # first. However many stay, those behind them come in turn: this call has no continuation.
            order = SliceOrder(
                queue,
                JobAction.RETRY,
                parts_of((JobPhase.FAILED,)),
                (priority,),
                None,
                limit,
                granted,
                run_after_ms,
                reports_refusals=False,
            )
            return await self._page_by_page(who, "retry_failed_jobs", order, detail, RETRIED_METRIC)
        retried = await self._shard_by_shard(step, limit)
        self._events.ready_at(queue, [run_after_ms or 0] * retried, self._clock.now_ms())
        await self._record(who, "retry_failed_jobs", queue, retried, detail, RETRIED_METRIC)
        return retried

    async def delete_jobs(self, who: str, filter: JobFilter, limit: int) -> int:
        """Delete up to `limit` jobs of the filter; how many were deleted. With a pattern jobs are read page by page."""
        queue, state = filter.queue, filter.state
        priority = 1 if filter.priority is None else filter.priority
        self._validator.filter(JobFilter(queue, state, priority, False, filter.body_regex))
        validation.at_least_1("limit", limit)

        def step(shard: Shard, amount: int) -> Coroutine[Any, Any, int]:
            return shard.delete_jobs(queue, state, priority, amount, self._clock.now_ms())

        detail = f", {state.name}, priority {priority}"
        if filter.body_regex:
            conditions = Conditions(
                JobSelection(queue, body_conditions=(TextCondition(filter.body_regex),)), "bodyRegexToMatch"
            )
            order = SliceOrder(
                queue, JobAction.DELETE, parts_of(phases_of(state)), (priority,), conditions, limit, spares_new=False
            )
            detail += f", body matches {filter.body_regex}"
            return await self._page_by_page(who, "delete_jobs", order, detail, DELETED_METRIC)
        deleted = await self._shard_by_shard(step, limit)
        await self._record(who, "delete_jobs", queue, deleted, detail, DELETED_METRIC)
        return deleted

    async def cancel(
        self, who: str, queue: str, descriptors: Sequence[str], keys: Sequence[KeyRef], running: bool
    ) -> Cancelled:
        cancelled = await self._commands.cancel(queue, descriptors, keys, running, who)
        outcomes = [*cancelled.values(), *cancelled.by_key]
        for action, outcome, metric in (
            ("cancel_jobs", CancelOutcome.CANCELLED, DELETED_METRIC),
            ("ask_jobs_to_stop", CancelOutcome.REQUESTED, ASKED_METRIC),
        ):
            amount = outcomes.count(outcome)
            named = [descriptor for descriptor, each in cancelled.items() if each is outcome]
            detail = named_text(named, amount) if named else f"of {len(outcomes)} that were named"
            await self._record(who, action, queue, amount, f", {detail}", metric)
        return cancelled

    async def reschedule(
        self, who: str | None, queue: str, changes: Sequence[RescheduleJob]
    ) -> list[RescheduleOutcome]:
        """`who` None: a program, whose changes are not recorded: it makes them all the time, as it enqueues."""
        outcomes, changed = await self._commands.reschedule(queue, changes)
        if who is not None and changed:
            detail = f"{jobs_text(len(changed))}{_reschedule_text(changes)}, {named_text(changed, len(changed))}"
            await self._audit.write(who, "reschedule_jobs", queue, detail, part=OPEN)
        return outcomes

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
            text = f"no job was found within {self._settings.long_call_ms} ms, and not all were examined"
            raise UnknownError(text, reason="DEADLINE_EXCEEDED", retryable=True)
        return total

    # -- page after page ---------------------------------------------------------------------------------------------

    async def _page_by_page(self, who: str, action: str, order: SliceOrder, detail: str, metric: str) -> int:
        """A shard that is missing is an error, after the others were done."""
        slice_ = Slice(order, self._slices.ends_at())
        reached = await self._slices.run(slice_, Mark(0, None, self._slices.begins_ms()))
        await self._record(who, action, order.queue, slice_.changed, detail, metric)
        if slice_.is_full():
            return slice_.changed
        if reached is not None:
            return self._so_far(slice_.changed)
        if slice_.missing:
            text = f"{slice_.changed} jobs were changed on the other shards; {missing(slice_.missing).message}"
            raise ShardConnectionFailed(text)
        return slice_.changed


def _reschedule_text(changes: Sequence[RescheduleJob]) -> str:
    """What is the same of all changes, for the audit: ", part, part"."""
    times = {each.run_after_ms for each in changes}
    attempts = {each.attempts_allowed for each in changes}
    bodies = {each.body is not None for each in changes}
    parts = []
    if len(times) == 1 and (time_ms := times.pop()) is not None:
        parts.append(f"runs after {utc_text(time_ms)}" if time_ms else "runs at once")
    if len(attempts) == 1 and (allowed := attempts.pop()) is not None:
        parts.append(f"gets attempts {allowed}")
    if bodies == {True}:
        parts.append("another body")
    return "".join(f", {each}" for each in parts)


def jobs_text(amount: int) -> str:
    return f"{amount} job" if amount == 1 else f"{amount} jobs"
