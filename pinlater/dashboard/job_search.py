"""A search for jobs over many queues, within a second: what it found so far, how far it looked, and how to go on.

Queues are searched in groups, by name; those of a group at the same time, a few calls at once, and what they find is
merged, newest first. A cursor says where each queue of the group stands, so that it can be kept in an address.
"""

from __future__ import annotations

import asyncio
import base64
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from pinlater.api import Api
from pinlater.errors import (
    ContinuationInvalid,
    MethodUnknown,
    PinLaterError,
    PriorityNotSupported,
    QueueNotFound,
    RequestInvalid,
)
from pinlater.job_filters.job_filter import FilterLine
from pinlater.job_filters.meant_queues import MeantQueues
from pinlater.model import (
    CONTINUATION_END,
    CONTINUATION_START,
    JobInfo,
    KeyRef,
    QueueStatus,
    RequestContext,
    queue_order,
)
from pinlater.model.job_selection import FoundJobs, JobSelection, phase_of

WITHIN_S = 0.8
AT_ONCE = 4
GROUP = 16
"""Queues that are merged; the cursor holds a place for each."""

LEAST_MS = 50
MAX_CURSOR = 6_000


class QueuePlace(msgspec.Struct, array_like=True):
    """Where one queue of a group stands: the continuation of its next page, and the last job of that page that was
    shown already ("" for none).
    """

    queue: str
    continuation: str
    shown: str = ""


class Cursor(msgspec.Struct, array_like=True):
    """Where a search stands: the queues of its group, the last queue of all groups so far, jobs that were looked at."""

    group: list[QueuePlace]
    last: str
    examined: int = 0

    def text(self) -> str:
        return base64.urlsafe_b64encode(zlib.compress(msgspec.msgpack.encode(self), 9)).rstrip(b"=").decode()


def read_cursor(text: str) -> Cursor | None:
    """None: the search begins; so it does with what is no cursor."""
    if not text or len(text) > MAX_CURSOR:
        return None
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        plain = zlib.decompressobj().decompress(packed, 64 * 1024)
        return msgspec.msgpack.decode(plain, type=Cursor)
    except (ValueError, zlib.error, msgspec.MsgspecError):
        return None


@dataclass(slots=True)
class SearchedPage:
    """What one page of a search shows.

    `of_about`: jobs that the filter could mean by queue, state and priority, as they were last counted. `problems`: by
    queue, why it could not be searched. `cursor` is "" at the end. `has_begun_anew`: the cursor that was given is none.
    """

    jobs: list[JobInfo]
    examined: int
    of_about: int
    cursor: str
    problems: dict[str, str] = field(default_factory=dict)
    missing_shards: list[str] = field(default_factory=list)
    is_over: bool = False
    """Its time was over before the page was full."""

    has_begun_anew: bool = False

    took_s: float = 0.0


@dataclass(slots=True)
class _Queue:
    """A queue of a group, in one page."""

    selection: JobSelection
    place: QueuePlace
    found: list[JobInfo] = field(default_factory=list)
    next: str = CONTINUATION_END
    """Behind what it found."""

    was_searched: bool = False

    @property
    def is_over(self) -> bool:
        return self.place.continuation == CONTINUATION_END


class JobSearch:
    """A filter over the queues of a cluster, for one caller."""

    def __init__(
        self,
        api: Api,
        context: RequestContext,
        line: FilterLine,
        statuses: Sequence[QueueStatus],
        now_ms: int,
        sees_bodies: Callable[[str], bool],
        *,
        bodies: bool = True,
    ) -> None:
        """`statuses`: all queues that the caller may read, as they were last counted. `bodies`: jobs come with them."""
        self._api = api
        self._context = context
        self._line = line
        self._now_ms = now_ms
        self._sees_bodies = sees_bodies
        self._with_bodies = bodies
        meant = MeantQueues(line, statuses)
        self._priorities_of = meant.priorities_of
        self.counts, self.by_queue = meant.counts, meant.by_queue

    @property
    def of_about(self) -> int:
        return sum(self.by_queue.values())

    # -- a page --------------------------------------------------------------------------------------------------------

    async def page(self, cursor_text: str, limit: int, within_s: float | None = None) -> SearchedPage:
        """Up to `limit` jobs, as far as it gets in so long (None: WITHIN_S). MethodUnknown: the servers are older."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        ends_s = began_s + (WITHIN_S if within_s is None else within_s)
        known = read_cursor(cursor_text)
        cursor = known or Cursor([], "")
        page = SearchedPage([], cursor.examined, self.of_about, "", has_begun_anew=bool(cursor_text) and known is None)
        if not cursor_text:
            page.jobs = await self._by_key()
        by_key = {job.descriptor for job in page.jobs}
        order = sorted(self.by_queue, key=queue_order)
        group = self._group(cursor.group, page)
        last = cursor.last
        while True:
            if not group:
                following = [name for name in order if not last or queue_order(name) > queue_order(last)][:GROUP]
                if not following:
                    break
                last = following[-1]
                group = self._group([QueuePlace(name, CONTINUATION_START) for name in following], page)
                continue
            await self._ask(group, page, ends_s, limit)
            room = limit - len(page.jobs)
            taken = self._take(group, room, by_key)
            page.jobs += taken
            group = [each for each in group if not each.is_over]
            if len(page.jobs) >= limit:
                break
            if loop.time() >= ends_s:
                page.is_over = True
                break
        page.took_s = loop.time() - began_s
        is_last = not group and not any(queue_order(name) > queue_order(last) for name in order) if last else not group
        if not is_last:
            page.cursor = Cursor([each.place for each in group], last, page.examined).text()
        return page

    def _group(self, places: Sequence[QueuePlace], page: SearchedPage) -> list[_Queue]:
        group = []
        for place in places:
            if self._line.reads_texts and not self._sees_bodies(place.queue):
                page.problems[place.queue] = (
                    "bodies and statuses are hidden from you, so it cannot be searched for them"
                )
                continue
            selection = self._line.selection(place.queue, self._now_ms, self._priorities_of(place.queue))
            if selection is not None:
                group.append(_Queue(selection, place))
        return group

    async def _ask(self, group: Sequence[_Queue], page: SearchedPage, ends_s: float, limit: int) -> None:
        """The next page of each queue, a few at once, each with its part of the time that is left."""
        loop = asyncio.get_running_loop()
        turns = asyncio.Semaphore(AT_ONCE)
        left = len(group)

        async def ask(each: _Queue) -> None:
            nonlocal left
            async with turns:
                left_s = ends_s - loop.time()
                rounds = -(-left // AT_ONCE)
                left -= 1
                if left_s <= 0 and each is not group[0]:
                    return
                await self._ask_one(each, page, max(LEAST_MS, int(left_s * 1000 / max(1, rounds))), limit)

        await asyncio.gather(*[ask(each) for each in group])

    async def _ask_one(self, each: _Queue, page: SearchedPage, max_ms: int, limit: int) -> None:
        queue = each.place.queue
        try:
            found = await self._found(each, max_ms, limit)
        except ContinuationInvalid:  # the servers were replaced, or the address was made by hand
            each.place.continuation, each.place.shown = CONTINUATION_START, ""
            page.has_begun_anew = True
            try:
                found = await self._found(each, max_ms, limit)
            except PinLaterError as error:
                self._failed(each, page, error)
                return
        except MethodUnknown:
            raise
        except PinLaterError as error:
            self._failed(each, page, error)
            return
        each.was_searched = True
        each.next = found.continuation
        each.found = found.jobs
        if each.place.shown:
            names = [job.descriptor for job in found.jobs]
            if each.place.shown in names:
                each.found = found.jobs[names.index(each.place.shown) + 1 :]
        page.examined += found.looked_at
        page.missing_shards += [shard for shard in found.missing_shards if shard not in page.missing_shards]
        if queue in page.problems:
            del page.problems[queue]

    async def _found(self, each: _Queue, max_ms: int, limit: int) -> FoundJobs:
        return await self._api.search_jobs(
            each.selection,
            limit=limit,
            include_body=self._with_bodies and self._sees_bodies(each.place.queue),
            max_ms=max_ms,
            continuation=each.place.continuation,
            context=self._context,
        )

    def _failed(self, each: _Queue, page: SearchedPage, error: PinLaterError) -> None:
        """The others go on. A filter that is wrong for one queue is wrong for all."""
        if isinstance(error, RequestInvalid):
            raise error
        if not isinstance(error, QueueNotFound | PriorityNotSupported) or each.place.queue in self._line.named_queues:
            page.problems[each.place.queue] = error.message
        each.place.continuation, each.next = CONTINUATION_END, CONTINUATION_END

    def _take(self, group: Sequence[_Queue], room: int, by_key: set[str]) -> list[JobInfo]:
        """The newest of what the queues of a group found; each queue then stands behind what is taken of it."""
        order = _order_of_tag if self._line.of("tag") else _order
        candidates = [(order(job, self._now_ms), job, each) for each in group for job in each.found]
        candidates.sort(key=lambda candidate: candidate[0])
        taken = candidates[:room]
        counts: dict[int, int] = {}
        for _, job, each in taken:
            counts[id(each)] = counts.get(id(each), 0) + 1
            each.place.shown = job.descriptor
        for each in group:
            if each.was_searched and counts.get(id(each), 0) == len(each.found):
                each.place.continuation, each.place.shown = each.next, ""
            each.found, each.was_searched = [], False
        return [job for _, job, _ in taken if job.descriptor not in by_key]

    async def _by_key(self) -> list[JobInfo]:
        """The job that has a dedupe key now, which an index finds, before all that the search finds after a while."""
        keys = self._line.of("key")
        others = {term.field for term in self._line.terms} - {"queue", "state", "key"}
        if not keys or others or len(self.by_queue) > GROUP:
            return []
        found: list[JobInfo] = []
        for name in self.by_queue:
            try:
                infos = await self._api.lookup(
                    (),
                    queue=name,
                    keys=[KeyRef(keys[0].values[0])],
                    include_body=self._sees_bodies(name),
                    context=self._context,
                )
            except PinLaterError:
                continue  # the search says what is wrong
            found += [info for info in infos.values() if phase_of(info, self._now_ms) in self._line.phases]
        return found


def _order(job: JobInfo, now_ms: int) -> tuple[bool, int, str]:
    """What may run by now, or could have, and then what is for later; of each the newest first."""
    return job.run_after_ms > now_ms, -job.run_after_ms, job.descriptor


def _order_of_tag(job: JobInfo, now_ms: int) -> tuple[bool, int, str]:
    """That of a search by tag: of each the last that came first."""
    return job.run_after_ms > now_ms, -int(job.descriptor.rpartition(":")[2]), job.descriptor
