"""Looking at jobs, and counting them."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.base import JobKey, LevelCounts, ScanPosition, ScanRequest, StatsPage, StatsPosition
from pinlater.backends.redis.calling import Calling
from pinlater.backends.redis.packing import described, key_args
from pinlater.model import JobInfo, JobState

_NO_BODIES, _BODIES_THAT_FIT, _FIRST_HOWEVER_LARGE = 0, 1, 2
_LEAST_KEYS = 16
"""Of a slice that goes on behind large values; it names twice as many jobs as the last one could read."""


class Looking(Calling):
    async def lookup(
        self, queue: str, jobs: Sequence[JobKey], *, with_body: bool, max_bytes: int
    ) -> list[JobInfo | None]:
        """A script reads a slice, and the next one goes on behind it."""
        found: list[JobInfo | None] = [None] * len(jobs)
        start, slice_jobs, bodies = 0, len(jobs), _FIRST_HOWEVER_LARGE if with_body else _NO_BODIES
        while start < len(jobs):
            args = [bodies, max_bytes, *key_args(jobs[start : start + slice_jobs])]
            looked_at, *flat = await self._call("lookup", queue, args)
            for place, info in described(flat, queue, self.shard_id):
                found[start + place] = info
                max_bytes -= len(info.body or b"")
                if info.body is None:
                    bodies = _NO_BODIES
            if bodies and (flat or max_bytes < 0):
                bodies = _BODIES_THAT_FIT if max_bytes >= 0 else _NO_BODIES
            start += looked_at
            slice_jobs = max(_LEAST_KEYS, 2 * looked_at)
        return found

    async def count(self, queue: str, state: JobState, priorities: Sequence[int], future: bool, now_ms: int) -> int:
        low, high = _run_after_range(future, now_ms)
        count: int = await self._known("count", queue, (queue, int(state), low, high, *priorities))
        return count

    async def scan(self, queue: str, request: ScanRequest, now_ms: int) -> list[JobInfo]:
        """A script reads a slice, and the next one goes on behind its last job."""
        found: list[JobInfo] = []
        bodies = _FIRST_HOWEVER_LARGE if request.with_body else _NO_BODIES
        after, limit, room = request.after, request.limit, request.max_bytes
        while True:
            low, high, *place = _behind(after, request.future, now_ms)
            args = (queue, int(request.state), low, high, limit, *place, bodies, room, *request.priorities)
            goes_on, *flat = await self._known("scan", queue, args)
            page = [info for _, info in described(flat, queue, self.shard_id)]
            found += page
            left = request.limit - len(found)
            if left <= 0 or not page or not (goes_on or len(page) == limit):
                return found
            room -= sum([len(info.body or b"") for info in page])
            if bodies:
                bodies = _BODIES_THAT_FIT
            after = ScanPosition(page[-1].run_after_ms, int(page[-1].descriptor.rpartition(":")[2]))
            limit = min(left, max(_LEAST_KEYS, 2 * len(page)))

    async def stats(
        self, queue: str, priorities: Sequence[int], now_ms: int, after: StatsPosition | None, limit: int
    ) -> StatsPage:
        """Redis keeps counts, so everything is in one page, and of one moment."""
        parts = iter(await self._known("census", queue, (queue, now_ms, *priorities)))
        levels = {
            priority: LevelCounts(ready, scheduled, in_progress, succeeded, failed, int(oldest) if oldest else None)
            for priority, ready, scheduled, in_progress, succeeded, failed, oldest in zip(
                priorities, *[parts] * 6, strict=True
            )
        }
        return StatsPage(levels, None)


def _behind(after: ScanPosition | None, future: bool, now_ms: int) -> tuple[int | str, ...]:
    """The run_after of what is scanned, lowest and highest, and the place in the order to go on from."""
    low, high = _run_after_range(future, now_ms)
    place: tuple[int | str, int | str] = ("", "")
    if after is not None:
        if future or after.run_after_ms <= now_ms:
            high = f"({after.run_after_ms}"
        if (after.run_after_ms > now_ms) is future:
            place = (after.run_after_ms, after.id)
    return (low, high, *place)


def _run_after_range(future: bool, now_ms: int) -> tuple[str, str]:
    return (f"({now_ms}", "+inf") if future else ("-inf", f"{now_ms}")
