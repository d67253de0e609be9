"""The calls that read jobs: lookup, count and scan, with the continuations of scans and the bound of an answer.

With a pattern they read bodies in bounded pages, and for a bounded time. A lookup may wait for the end of a job.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from pinlater.backends.base import STORED_STATES, JobKey, Shard
from pinlater.errors import ContinuationInvalid, Overloaded, RequestInvalid, UnknownError
from pinlater.extended_limits import read_keys
from pinlater.job_limits import MAX_INT32
from pinlater.model import (
    CONTINUATION_END,
    CONTINUATION_START,
    MAX_TIME_MS,
    JobFilter,
    JobInfo,
    JobRef,
    JobState,
    KeyRef,
    ScanPage,
)
from pinlater.model.job_selection import JobSelection, TextCondition
from pinlater.service.continuations import digest_of
from pinlater.service.end_waits import MAX_JOBS, EndWaits, has_ended
from pinlater.service.overflow_calls import NamesOverflow
from pinlater.service.searches import Search
from pinlater.service.selection import Conditions
from pinlater.service.service_context import ServiceContext
from pinlater.shards.handle import ShardHandle, missing
from pinlater.shards.scan import Place, ScanQuery, place_of

_GROUPS_AT_ONCE = 16
"""Queues and shards that one lookup asks at the same time: each may bring a body, whatever the bound."""

_LOOKUP_AGAIN_S = 0.25
"""The pause between lookups of a job in an overflow shard, whose end nobody reports."""

_CALM_S = (0.05, 0.5)
"""The pause of a lookup that waits, when too many look."""

_Group = tuple[tuple[str, str], list[tuple[str, JobKey]]]
"""A shard and queue, and the jobs named there."""


def _is_moved(info: JobInfo) -> bool:
    """It left a shard that is emptied, and goes on elsewhere. (The original of a dead letter is FAILED.)"""
    return info.state is JobState.SUCCEEDED


class JobQueries:
    """Reads, for one service."""

    def __init__(self, context: ServiceContext, end_waits: EndWaits) -> None:
        self._end_waits = end_waits
        self._router = context.router
        self._clock = context.clock
        self._settings = context.settings
        self._validator = context.validator
        self._parser = context.parser

    # -- lookup ------------------------------------------------------------------------------------------------------

    async def find(self, queue: str, keys: Sequence[KeyRef], may_read: Callable[[str], bool]) -> list[str | None]:
        """The descriptors of the jobs that have these keys, in queues that the caller may read: a serialize key alone
        may find one of any queue. HomeOut.
        """
        self._validator.amount("keys", keys)
        read_keys(keys)
        found = await self._router.find_keys(queue, keys) if keys else []
        named = [None if each is None else each.descriptor for each in found]
        return [None if each is None or not may_read(each.partition(":")[0]) else each for each in named]

    async def until_ended(
        self, descriptors: Sequence[str], wait_ms: int, holder: str, lookup: Callable[[], Awaitable[dict[str, JobInfo]]]
    ) -> dict[str, JobInfo]:
        """What `lookup` finds when the first of these jobs has ended or is not there, the time is over, or
        another caller needs the room of `holder`. Overloaded.
        """
        if len(descriptors) > MAX_JOBS:
            allowed = f"at most {MAX_JOBS} with waitMillis"
            raise RequestInvalid.of("the number of jobs", len(descriptors), allowed)
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + min(wait_ms, self._settings.max_wait_ms) / 1000
        watched = list(descriptors)
        while True:
            refs, lookup_again_s = self._watchable(watched)
            waiter = self._end_waits.join(refs, ends_s, holder)
            try:
                await waiter.until_watched()  # before the lookup: an end between the two would be seen by neither
                while True:
                    is_over = waiter.is_over
                    try:
                        found = await lookup()
                    except Overloaded:  # thousands come at once after a restart: as waiters they have room
                        if is_over:
                            raise
                        await waiter.until_hinted(random.uniform(*_CALM_S))
                        continue
                    if is_over or any(has_ended(found.get(descriptor)) for descriptor in descriptors):
                        return found
                    places = [found[descriptor].moved_to or descriptor for descriptor in descriptors]
                    if places != watched:
                        break
                    await waiter.until_hinted(lookup_again_s)
                    if self._end_waits.is_draining:
                        return found
            finally:
                self._end_waits.leave(waiter)
            watched = places

    def _watchable(self, descriptors: Sequence[str]) -> tuple[list[JobRef], float | None]:
        """The jobs of whose ends shards may tell; and how often to look at others."""
        refs, lookup_again_s = [], None
        for descriptor in descriptors:
            try:
                ref = self._parser.parse(descriptor)
            except NamesOverflow:  # its owner may be another process, and it moves
                lookup_again_s = _LOOKUP_AGAIN_S
            else:
                refs += [] if ref is None else [ref]
        return refs, lookup_again_s

    async def lookup(
        self,
        descriptors: Sequence[str],
        include_body: bool,
        include_result: bool = False,
        include_trail: bool = False,
    ) -> dict[str, JobInfo]:
        """The jobs that are there, by descriptor; of one that was moved, its copy. UnknownError after `long_call_ms`.

        It goes in steps, since each job may bring a long status, and each group of a queue and shard is a call.
        """
        ends_at = asyncio.get_running_loop().time() + self._settings.long_call_ms / 1000
        wanted = list(dict.fromkeys(descriptors))
        found: dict[str, JobInfo] = {}
        room = self._settings.max_answer_bytes if include_body or include_result else 0
        for start in range(0, len(wanted), self._settings.page_jobs):
            groups = list(self._parser.places(wanted[start : start + self._settings.page_jobs]).items())
            for first in range(0, len(groups), _GROUPS_AT_ONCE):
                if (start or first) and asyncio.get_running_loop().time() >= ends_at:
                    raise self._too_late("lookup", "look up fewer at a time")
                some = groups[first : first + _GROUPS_AT_ONCE]
                for descriptor, info in await self._look_up(
                    some, room, with_body=include_body, with_result=include_result, with_trail=include_trail
                ):
                    found[descriptor] = info
                    room = max(0, room - _value_bytes(info))
            self._fit(found)
        moved = {descriptor: info.moved_to for descriptor, info in found.items() if info.moved_to and _is_moved(info)}
        if moved:
            copies = await self.lookup(list(moved.values()), include_body, include_result, include_trail)
            for old, new in moved.items():
                if new in copies:
                    found[old] = replace(copies[new], descriptor=old, moved_to=copies[new].moved_to or new)
            self._fit(found)
        return found

    async def _look_up(
        self, groups: Sequence[_Group], max_bytes: int, *, with_body: bool, with_result: bool, with_trail: bool
    ) -> list[tuple[str, JobInfo]]:
        lookup = partial(
            _lookup_on, with_body=with_body, with_result=with_result, with_trail=with_trail, max_bytes=max_bytes
        )
        calls = [
            (shard_id, partial(lookup, queue=queue, keys=[key for _, key in named]))
            for (shard_id, queue), named in groups
        ]
        return [
            (descriptor, info)
            for (_, named), infos in zip(groups, await self._router.call_by_shard(calls), strict=True)
            for (descriptor, _), info in zip(named, infos or (), strict=False)
            if info is not None
        ]

    def _fit(self, found: dict[str, JobInfo]) -> None:
        """RequestInvalid: what is no body and no result does not fit."""
        bound = self._settings.max_answer_bytes
        bare = sum(info_bytes(info) - _value_bytes(info) for info in found.values())
        if bare > bound and len(found) > 1:
            allowed = f"fewer: these take {bare} bytes, and an answer may have {bound}"
            raise RequestInvalid.of("the length of jobDescriptors", len(found), allowed)
        fit_values(found.values(), bound)

    # -- count -------------------------------------------------------------------------------------------------------

    async def count(self, filter: JobFilter, allow_partial: bool) -> int:
        query = self.query(filter, self._clock.now_ms())
        if not filter.body_regex:
            return min(await self._router.count(query, filter.state, allow_partial=allow_partial), MAX_INT32)
        search = Search(self._router, self._settings, query, _body_conditions(filter))
        total = 0
        while not search.ended and total < MAX_INT32:
            if search.is_over():
                if allow_partial:
                    break
                raise self._too_late("count", "count without a pattern, or scan")
            total += len(await search.page())
            if search.missing and not allow_partial:
                raise missing(search.missing)
        return min(total, MAX_INT32)

    # -- scan --------------------------------------------------------------------------------------------------------

    async def scan(self, filter: JobFilter, continuation: str, limit: int) -> ScanPage:
        limit = self._validator.limit(limit)
        now_ms = self._clock.now_ms()
        query = self.query(filter, now_ms)
        after, query.now_ms = read_continuation(filter, continuation, now_ms)
        if filter.body_regex:
            return await self._search(filter, query, after, limit)
        return await self._list(filter, query, after, limit)

    async def _list(self, filter: JobFilter, query: ScanQuery, after: Place | None, limit: int) -> ScanPage:
        """A page of up to `limit` jobs; fewer where more do not fit an answer, or `long_call_ms` is over."""
        ends_at = asyncio.get_running_loop().time() + self._settings.long_call_ms / 1000
        jobs: list[JobInfo] = []
        missed: list[ShardHandle] = []
        while True:
            scanned = await self._router.scan(query, after, min(limit - len(jobs), self._settings.page_jobs))
            jobs += scanned.jobs
            missed += [member for member in scanned.missing if member not in missed]
            fits = fitting_infos(jobs, self._settings.max_answer_bytes)
            if fits < len(jobs):
                return _page(filter, query, jobs[:fits], place_of(jobs[fits - 1]), missed)
            if scanned.ended or not scanned.jobs:
                return _page(filter, query, jobs, None, missed)
            after = place_of(jobs[-1])
            if len(jobs) >= limit or asyncio.get_running_loop().time() >= ends_at:
                return _page(filter, query, jobs, after, missed)

    async def _search(self, filter: JobFilter, query: ScanQuery, after: Place | None, limit: int) -> ScanPage:
        """A page may be empty and yet not the last: when the time was over before a body matched."""
        search = Search(self._router, self._settings, query, _body_conditions(filter), after)
        jobs: list[JobInfo] = []
        place = None
        while place is None and not search.ended:
            for job in await search.page():
                if place is None:
                    job.body = None
                    jobs.append(job)
                    if len(jobs) == limit:
                        place = place_of(job)
            fits = fitting_infos(jobs, self._settings.max_answer_bytes)
            if fits < len(jobs):
                del jobs[fits:]
                place = place_of(jobs[-1])
            elif place is None and search.is_over() and not search.ended:
                place = search.after
        return _page(filter, query, jobs, place, search.missing)

    def _too_late(self, what: str, advice: str) -> UnknownError:
        text = f"the {what} did not end within {self._settings.long_call_ms} ms; {advice}"
        return UnknownError(text, reason="DEADLINE_EXCEEDED")

    def query(self, filter: JobFilter, now_ms: int) -> ScanQuery:
        """The filter, checked."""
        priorities = self._validator.filter(filter)
        return ScanQuery(filter.queue, STORED_STATES[filter.state], priorities, filter.future, now_ms)


def _body_conditions(filter: JobFilter) -> Conditions:
    selection = JobSelection(filter.queue, body_conditions=(TextCondition(filter.body_regex),))
    return Conditions(selection, "bodyRegexToMatch")


def _page(
    filter: JobFilter, query: ScanQuery, jobs: list[JobInfo], place: Place | None, missed: list[ShardHandle]
) -> ScanPage:
    continuation = CONTINUATION_END if place is None else write_continuation(filter, query.now_ms, place)
    return ScanPage(jobs, continuation, [member.shard.shard_id or "?" for member in missed])


async def _lookup_on(
    shard: Shard,
    *,
    queue: str,
    keys: list[JobKey],
    with_body: bool,
    with_result: bool,
    with_trail: bool,
    max_bytes: int,
) -> list[JobInfo | None]:
    infos = await shard.lookup(queue, keys, with_body=with_body, max_bytes=max_bytes, with_result=with_result)
    if with_trail:
        for info, trail in zip(infos, await shard.read_trails(queue, keys), strict=True):
            if info is not None and trail is not None:
                info.attempts, info.log_lines = trail
    return infos


_TOKEN = re.compile(r"([0-9]{1,16})\.([A-Za-z0-9]{1,16})\.([0-9]{1,16})\.([0-9]{1,16})\.([0-9a-f]{16})", re.ASCII)


def write_continuation(filter: JobFilter, now_ms: int, place: Place) -> str:
    """The text for "behind this place"; only for the same filter."""
    return f"{place.run_after_ms}.{place.shard}.{place.id}.{now_ms}.{_digest(filter, now_ms, place)}"


def read_continuation(filter: JobFilter, text: str, now_ms: int) -> tuple[Place | None, int]:
    """The place to go on behind, and the now the scan began with. ContinuationInvalid for any text not made for it."""
    if text == CONTINUATION_START:
        return None, now_ms
    match = _TOKEN.fullmatch(text)
    if match is not None:
        place = Place(int(match[1]), match[2], int(match[3]))
        began_ms = int(match[4])
        in_range = max(place.run_after_ms, place.id, began_ms) <= MAX_TIME_MS
        if in_range and text == write_continuation(filter, began_ms, place):
            return place, began_ms
    raise ContinuationInvalid(
        f"continuation {text[:100]!r} was not given for this filter; begin with {CONTINUATION_START!r}"
    )


def _digest(filter: JobFilter, now_ms: int, place: Place) -> str:
    meant = (filter.queue, int(filter.state), filter.priority, filter.future, filter.body_regex, now_ms, tuple(place))
    return digest_of(meant)


_FIELDS_BYTES = 160
"""Bytes of one job in an answer: its numbers, and the headers of its fields; on the safe side."""


_EXTENDED_BYTES = 200
_ATTEMPT_BYTES, _LINE_BYTES = 80, 40


def info_bytes(job: JobInfo) -> int:
    """The bytes that one job of a scan or lookup takes in an answer."""
    size = _FIELDS_BYTES + 2 * len(job.descriptor) + _bytes(job.custom_status)
    if job.claim_descriptor:
        size += _bytes(job.claim_descriptor)
    progress = job.progress and job.progress.text
    keys = job.dedupe_key, job.serialize_key
    for text in (*keys, progress, job.cancel_requested_by, job.body_stored_at, job.replayed_to, job.successor):
        if text is not None:
            size += _EXTENDED_BYTES + _bytes(text)
    for attempt in job.attempts or ():
        size += _ATTEMPT_BYTES + _bytes(attempt.worker)
    for tag in job.tags or ():
        size += _LINE_BYTES + _bytes(tag)
    for line in job.log_lines or ():
        size += _LINE_BYTES + _bytes(line.text)
    return size + _value_bytes(job)


def _value_bytes(job: JobInfo) -> int:
    """The body and the result, where they were asked for."""
    return len(job.body or b"") + len(job.result or b"")


def fit_values(infos: Collection[JobInfo], max_answer_bytes: int) -> None:
    """Take away the bodies and results that do not fit one answer, but for the first, and have the jobs say so."""
    size = sum(info_bytes(info) - _value_bytes(info) for info in infos)
    is_first = True
    for info in infos:
        for value, name in ((info.body, "body"), (info.result, "result")):
            if value is None:
                continue
            if size + len(value) > max_answer_bytes and not is_first:
                setattr(info, name, None)
                setattr(info, f"{name}_left_out", True)
            else:
                size += len(value)
            is_first = False


def fitting_infos(jobs: Sequence[JobInfo], max_answer_bytes: int) -> int:
    """How many of the first jobs fit into an answer of that size; at least one."""
    size = 0
    for index, job in enumerate(jobs):
        size += info_bytes(job)
        if size > max_answer_bytes and index:
            return index
    return len(jobs)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
