"""Looking at jobs, and counting them."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.base import CensusPage, CensusPlace, JobKey, LevelCounts, ScanRequest
from pinlater.backends.redis.calling import Calling
from pinlater.backends.redis.packing import described, key_args
from pinlater.model import JobInfo, JobState


class Looking(Calling):
    async def lookup(
        self, queue: str, jobs: Sequence[JobKey], *, with_body: bool, max_bytes: int
    ) -> list[JobInfo | None]:
        flat = await self._call("lookup", queue, [int(with_body), max_bytes, *key_args(jobs)])
        found: list[JobInfo | None] = [None] * len(jobs)
        for place, info in described(flat, queue, self.shard_id):
            found[place] = info
        return found

    async def count(self, queue: str, state: JobState, priorities: Sequence[int], future: bool, now_ms: int) -> int:
        low, high = _run_after_range(future, now_ms)
        count: int = await self._known("count", queue, (queue, int(state), low, high, *priorities))
        return count

    async def scan(self, queue: str, request: ScanRequest, now_ms: int) -> list[JobInfo]:
        low, high = _run_after_range(request.future, now_ms)
        place: tuple[int | str, int | str] = ("", "")
        after = request.after
        if after is not None:
            if request.future or after.run_after_ms <= now_ms:
                high = f"({after.run_after_ms}"
            if (after.run_after_ms > now_ms) is request.future:
                place = (after.run_after_ms, after.id)
        state, bodies = int(request.state), int(request.with_body)
        args = (queue, state, low, high, request.limit, *place, bodies, request.max_bytes, *request.priorities)
        return [info for _, info in described(await self._known("scan", queue, args), queue, self.shard_id)]

    async def census(
        self, queue: str, priorities: Sequence[int], now_ms: int, after: CensusPlace | None, limit: int
    ) -> CensusPage:
        """Redis keeps counts, so everything is in one page, and of one moment."""
        parts = iter(await self._known("census", queue, (queue, now_ms, *priorities)))
        levels = {
            priority: LevelCounts(ready, scheduled, in_progress, succeeded, failed, int(oldest) if oldest else None)
            for priority, ready, scheduled, in_progress, succeeded, failed, oldest in zip(
                priorities, *[parts] * 6, strict=True
            )
        }
        return CensusPage(levels, None)


def _run_after_range(future: bool, now_ms: int) -> tuple[str, str]:
    return (f"({now_ms}", "+inf") if future else ("-inf", f"{now_ms}")
