"""What operators do to jobs, and where jobs go that leave."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.base import ClaimKey, JobKey
from pinlater.backends.redis.calling import Calling, lowest_id
from pinlater.backends.redis.packing import ID, Args, key_args
from pinlater.model import JobState


class Operating(Calling):
    async def retry_failed(
        self, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int, now_ms: int
    ) -> int:
        run_after_ms = now_ms if run_after_ms is None else run_after_ms
        args = (queue, priority, attempts, run_after_ms, limit, now_ms)
        count: int = await self._known("retry_failed", queue, args)
        return count

    async def retry_listed(
        self, queue: str, jobs: Sequence[JobKey], attempts: int | None, run_after_ms: int | None, now_ms: int
    ) -> int:
        run_after_ms = now_ms if run_after_ms is None else run_after_ms
        args = [queue, "" if attempts is None else attempts, run_after_ms, now_ms, *key_args(jobs)]
        count: int = await self._known("retry_listed", queue, args)
        return count

    async def delete_jobs(self, queue: str, state: JobState, priority: int, limit: int, now_ms: int) -> int:
        count: int = await self._known("delete_jobs", queue, (queue, int(state), priority, limit))
        return count

    async def delete_listed(self, queue: str, state: JobState, jobs: Sequence[JobKey], now_ms: int) -> int:
        count: int = await self._known("delete_listed", queue, [queue, int(state), *key_args(jobs)])
        return count

    async def replay(self, queue: str, jobs: Sequence[JobKey], now_ms: int, attempts: int | None) -> list[str | None]:
        allowed = "" if attempts is None else attempts
        args = [queue, now_ms, lowest_id(now_ms), self.shard_id, allowed, *key_args(jobs)]
        return [descriptor.decode() or None for descriptor in await self._known("replay", queue, args)]

    async def mark_moved(self, queue: str, moved: Sequence[tuple[ClaimKey, str]], now_ms: int) -> list[bool]:
        args: Args = [queue, now_ms]
        for claim, descriptor in moved:
            args += (claim.priority, ID.pack(claim.id), claim.claim_descriptor, descriptor)
        return [code == ord("1") for code in await self._call("mark_moved", queue, args)]
