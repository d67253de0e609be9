"""Searches through the jobs of a queue, a bounded page at a time, and the texts by which a later call goes on.

A search is one scan after the other, each newest run_after first. A mark says where it stands; as a text it works only
for the call that it was given for.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from pinlater.errors import ContinuationInvalid
from pinlater.model import CONTINUATION_START, MAX_TIME_MS, JobInfo
from pinlater.service.continuations import digest_of
from pinlater.service.selection import Conditions, SearchPart
from pinlater.service.settings import ServiceSettings
from pinlater.shards.handle import ShardHandle
from pinlater.shards.router import Router
from pinlater.shards.scan import Place, ScanQuery, place_of


class Search:
    """Pages of jobs that meet conditions, or of all jobs; `after` is where the next one begins."""

    def __init__(
        self,
        router: Router,
        settings: ServiceSettings,
        query: ScanQuery,
        conditions: Conditions | None,
        after: Place | None = None,
        *,
        ends_at: float | None = None,
        limit: int | None = None,
    ) -> None:
        """`limit`: how many jobs the caller wants, which is as many as have to be examined where all of them match."""
        self._router = router
        self._limit = settings.page_jobs
        if limit is not None and (conditions is None or conditions.admit_all):
            self._limit = min(limit, self._limit)
        reads_bodies = conditions is not None and conditions.reads_bodies
        self._query = replace(query, with_body=True, max_bytes=settings.page_bytes) if reads_bodies else query
        self._conditions = conditions
        self._ends_at = ends_at or asyncio.get_running_loop().time() + settings.long_call_ms / 1000
        self.after = after
        self.ended = False
        self.examined = 0
        self.missing: list[ShardHandle] = []
        self.searched: list[JobInfo] = []
        """The jobs of the last page that were examined."""

    def is_over(self) -> bool:
        return asyncio.get_running_loop().time() >= self._ends_at

    async def page(self) -> list[JobInfo]:
        """The matching jobs of the next page, with their bodies where those were examined."""
        scanned = await self._router.scan(self._query, self.after, self._limit)
        self.missing += [member for member in scanned.missing if member not in self.missing]
        hits = [True] * len(scanned.jobs)
        if self._conditions is not None:
            hits = await self._conditions.select(scanned.jobs, self._ends_at)
        searched = self.searched = scanned.jobs[: len(hits)]
        self.examined += len(searched)
        self.ended = scanned.ended and len(searched) == len(scanned.jobs)
        if searched:
            self.after = place_of(searched[-1])
        return [job for job, hit in zip(searched, hits, strict=True) if hit]


class Mark(NamedTuple):
    """Which of the scans a search consists of, the place in it that was reached (None: none yet), when all began.

    Of a change that is recorded as a whole: the name of its run, and how many jobs it changed before.
    """

    part: int
    after: Place | None
    began_ms: int
    run: str = ""
    changed: int = 0


class Walk:
    """A search through all its parts, one after the other. `mark` is where the next page begins; None: at the end."""

    def __init__(
        self,
        router: Router,
        settings: ServiceSettings,
        queue: str,
        parts: Sequence[SearchPart],
        priorities: Sequence[int],
        conditions: Conditions | None,
        mark: Mark,
        ends_at: float,
        limit: int | None = None,
    ) -> None:
        self._router = router
        self._settings = settings
        self._limit = limit
        self._queue = queue
        self._parts = parts
        self._priorities = priorities
        self._conditions = conditions
        self._ends_at = ends_at
        self._search: Search | None = None
        self._page_mark = mark
        self._page: list[JobInfo] = []
        self.mark: Mark | None = mark if parts else None
        self.examined = 0
        self.missing: list[ShardHandle] = []

    def is_over(self) -> bool:
        return asyncio.get_running_loop().time() >= self._ends_at

    async def page(self) -> list[JobInfo]:
        """The matching jobs of the next page, of the part that `mark` names; a page may have none."""
        mark = self.mark
        assert mark is not None
        self._page_mark = mark
        if self._search is None:
            part = self._parts[mark.part]
            query = ScanQuery(self._queue, part.states, self._priorities, part.future, mark.began_ms)
            if self._conditions is not None:
                query.tag = self._conditions.tag
            self._search = Search(
                self._router,
                self._settings,
                query,
                self._conditions,
                mark.after,
                ends_at=self._ends_at,
                limit=self._limit,
            )
        search = self._search
        before = search.examined
        found = await search.page()
        self._page = search.searched
        self.examined += search.examined - before
        self.missing += [member for member in search.missing if member not in self.missing]
        if not search.ended:
            self.mark = mark._replace(after=search.after)
        else:
            self._search = None
            is_last = mark.part + 1 == len(self._parts)
            self.mark = None if is_last else mark._replace(part=mark.part + 1, after=None)
        return found

    def turn_back(self, job: JobInfo) -> Mark:
        """The mark where a later call goes on that has had a job of the last page, and none behind it: those count as
        not examined.
        """
        for place, each in enumerate(reversed(self._page)):
            if each is job:
                self.examined -= place
                break
        return self._page_mark._replace(after=place_of(job))


_PLACE = r"([0-9]{1,16})\.([A-Za-z0-9]{1,16})\.([0-9]{1,16})|-"
_MARK = re.compile(
    rf"([0-9])\.(?:{_PLACE})\.([0-9]{{1,16}})(?:\.([0-9a-f]{{16}})\.([0-9]{{1,16}}))?\.([0-9a-f]{{16}})", re.ASCII
)


def write_mark(mark: Mark, meant: tuple[object, ...]) -> str:
    """The text for "go on here"; only for a call that means the same, though its limit may be another one."""
    place = "-" if mark.after is None else ".".join(map(str, mark.after))
    run = f".{mark.run}.{mark.changed}" if mark.run else ""
    return f"{mark.part}.{place}.{mark.began_ms}{run}.{_digest(mark, meant)}"


def read_mark(text: str, now_ms: int, parts: int, meant: tuple[object, ...], run: str = "") -> Mark:
    """The mark of a continuation, where a call is to begin; `run` is the name of a run that begins now.
    ContinuationInvalid for any text that was not made for such a call.
    """
    if text == CONTINUATION_START:
        return Mark(0, None, now_ms, run)
    match = _MARK.fullmatch(text)
    if match is not None:
        after = None if match[2] is None else Place(int(match[2]), match[3], int(match[4]))
        mark = Mark(int(match[1]), after, int(match[5]), match[6] or "", int(match[7] or 0))
        in_range = max(mark.began_ms, mark.changed, *((after.run_after_ms, after.id) if after else (0,))) <= MAX_TIME_MS
        if in_range and mark.part < parts and bool(run) is bool(mark.run) and text == write_mark(mark, meant):
            return mark
    raise ContinuationInvalid(
        f"continuation {text[:100]!r} was not given for this call; begin with {CONTINUATION_START!r}"
    )


def _digest(mark: Mark, meant: tuple[object, ...]) -> str:
    run = (mark.run, mark.changed) if mark.run else ()
    return digest_of((*meant, mark.part, None if mark.after is None else tuple(mark.after), mark.began_ms, *run))
