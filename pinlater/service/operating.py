"""Calls that change many jobs at once: retry and delete, in slices, shard after shard, and for a bounded time.

When the time is over, what was done so far is the answer: the callers of both ask again until nothing is left to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from pinlater.backends.base import JobKey, Shard
from pinlater.clock import Clock
from pinlater.errors import PinLaterError, QueueNotFound, ShardConnectionFailed, UnknownError
from pinlater.model import JobFilter, JobInfo
from pinlater.regex import BodyPattern
from pinlater.service import checks
from pinlater.service.checks import Checks
from pinlater.service.looking import Looking, Search
from pinlater.service.refs import References
from pinlater.service.settings import ServiceSettings
from pinlater.shards.member import Member, answers, missing
from pinlater.shards.router import Router

Slice = Callable[[Shard, int], Coroutine[Any, Any, int]]
"""One bounded step on one shard, for at most so many jobs; how many it was."""


class Operating:
    """Changes of many jobs, for one service."""

    def __init__(
        self,
        router: Router,
        clock: Clock,
        settings: ServiceSettings,
        bounds: Checks,
        refs: References,
        looking: Looking,
    ) -> None:
        self._router = router
        self._clock = clock
        self._settings = settings
        self._checks = bounds
        self._refs = refs
        self._looking = looking

    async def retry_failed(self, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int) -> int:
        self._checks.priority(priority)
        checks.existing_queue(queue)
        granted = checks.attempts("attemptsToAllow", attempts)
        checks.at_least_1("limit", limit)
        at_ms = checks.run_at("runAfterTimestampMillis", run_after_ms)

        def step(shard: Shard, amount: int) -> Coroutine[Any, Any, int]:
            return shard.retry_failed(queue, priority, granted, at_ms, amount, self._clock.now_ms())

        return await self._in_slices(step, limit)

    async def delete_jobs(self, filter: JobFilter, limit: int) -> int:
        priority = 1 if filter.priority is None else filter.priority
        filter = JobFilter(filter.queue, filter.state, priority, False, filter.body_regex)
        self._checks.filter(filter)
        checks.at_least_1("limit", limit)
        if filter.body_regex:
            return await self._delete_matching(filter, limit)

        def step(shard: Shard, amount: int) -> Coroutine[Any, Any, int]:
            return shard.delete_jobs(filter.queue, filter.state, priority, amount, self._clock.now_ms())

        return await self._in_slices(step, limit)

    async def _in_slices(self, step: Slice, limit: int) -> int:
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
        away = [member for member in self._router.members.all if not member.is_in]
        if lost or away:
            text = "; ".join([error.message for error in lost] + ([missing(away).message] if away else []))
            raise ShardConnectionFailed(f"{total} jobs were changed on the other shards; {text}")
        answers(outcomes)
        return total

    async def _on_one(
        self, member: Member, step: Slice, limit: int, ends_at: float
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

    async def _delete_matching(self, filter: JobFilter, limit: int) -> int:
        pattern = BodyPattern(filter.body_regex)
        now_ms = self._clock.now_ms()
        total = 0
        for future in (False, True):
            query = self._looking.query(filter, now_ms)
            query.future = future
            search = Search(self._router, self._settings, query, pattern)
            while not search.ended:
                if search.is_over():
                    return self._so_far(total)
                jobs = (await search.page())[: limit - total]
                total += await self._delete_found(filter, jobs)
                if total >= limit:
                    return total
            if search.missing:
                raise missing(search.missing)
        return total

    def _so_far(self, total: int) -> int:
        if total == 0:
            text = f"no job was found within {self._settings.long_call_ms} ms, and not all were looked at"
            raise UnknownError(text, reason="DEADLINE_EXCEEDED", retryable=True)
        return total

    async def _delete_found(self, filter: JobFilter, jobs: list[JobInfo]) -> int:
        if not jobs:
            return 0
        groups = self._refs.keys(filter.queue, [job.descriptor for job in jobs])
        calls = [
            (shard_id, partial(_delete_on, filter=filter, named=named, now_ms=self._clock.now_ms()))
            for shard_id, named in groups.items()
        ]
        return sum(count or 0 for count in await self._router.named(calls))


async def _delete_on(shard: Shard, *, filter: JobFilter, named: list[tuple[str, JobKey]], now_ms: int) -> int:
    try:
        return await shard.delete_listed(filter.queue, filter.state, [key for _, key in named], now_ms)
    except QueueNotFound:
        return 0
