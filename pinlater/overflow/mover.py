"""Takes the jobs of an overflow shard to the shards, as soon as one takes jobs again.

A job is claimed here, stored there, and marked here as moved, with the descriptor of its copy. The claim has no end of
its own: an expired one would cost the job an attempt. What a mover that died had under its claims is requeued when the
file is opened next. A job whose copy may or may not be stored is requeued a while later, and moved again: at least
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields

import structlog

from pinlater.backends.base import ClaimKey, ClaimRequest, JobKey, ScanPosition, ScanRequest, Shard
from pinlater.clock import Clock
from pinlater.errors import OutcomeUnknown, PinLaterError, QueueNotFound
from pinlater.model import MAX_TIME_MS, DequeuedJob, Job, JobInfo, JobState, parse_descriptor
from pinlater.service import ClaimTokens
from pinlater.shards.compensation import claim_keys
from pinlater.shards.router import Router

_log = structlog.get_logger("pinlater.overflow")

PRIORITIES = tuple(range(1, 11))
"""All that a server can be configured with, now or before."""

BATCH_JOBS = 500
BATCH_BYTES = 4 * 2**20
UNSURE_MS = 30_000
"""How long a job is left alone whose copy may be stored."""

CLAIMED_BY = "overflow-mover"
_PAGE = 1_000


_FIELDS = tuple(each.name for each in fields(Job))


def _copy(job: DequeuedJob, info: JobInfo | None) -> Job:
    """A job to enqueue: every field of Job that the store tells, and the attempts that remain."""
    told = {name: getattr(info, name) for name in _FIELDS if hasattr(info, name)}
    told |= {name: getattr(job, name) for name in _FIELDS if hasattr(job, name)}
    return Job(**told | {"attempts_allowed": job.attempts_remaining})


class OverflowMover:
    """`holding`: the queues that may have jobs here, each with how often it got some."""

    def __init__(
        self,
        store: Shard,
        router: Router,
        clock: Clock,
        names: ClaimTokens,
        on_moved: Callable[[str, int, bool], None],
    ) -> None:
        """`on_moved` is told the queue, how many jobs, and whether they are eligible now. `names` begin CLAIMED_BY."""
        self.holding: dict[str, int] = {}
        self._store = store
        self._router = router
        self._clock = clock
        self._names = names
        self._on_moved = on_moved
        self._turn = asyncio.Lock()
        self._is_stopping = False
        self._unmarked: list[tuple[str, list[tuple[ClaimKey, str]]]] = []
        self._unsure: list[tuple[int, str, list[ClaimKey]]] = []

    def jobs_arrived(self, queue: str) -> None:
        """Jobs of this queue were stored here."""
        self.holding[queue] = self.holding.get(queue, 0) + 1

    def can_move(self) -> bool:
        """Whether a shard takes new jobs."""
        return not self._is_stopping and any(member.takes_jobs for member in self._router.members.healthy())

    def stop(self) -> None:
        """No further batch begins."""
        self._is_stopping = True

    async def move(self) -> int:
        """All that can be moved now; how many. Errors end it, and are logged only."""
        moved = 0
        async with self._turn:
            try:
                await self._settle()
                for queue in sorted(self.holding):
                    moved += await self._move_queue(queue)
            except PinLaterError as error:
                _log.warning("overflow_move_interrupted", moved=moved, error=error.message)
        return moved

    async def _move_queue(self, queue: str) -> int:
        """Those that are eligible, in order; then those for later, as seen from the end of time."""
        moved = 0
        for is_ready in (True, False):
            while self.can_move():
                try:
                    batch = await self._move_batch(queue, is_ready)
                except QueueNotFound:  # deleted meanwhile: here or there, and soon everywhere
                    return moved
                if batch == 0:
                    break
                moved += batch
        return moved

    async def _move_batch(self, queue: str, is_ready: bool) -> int:
        now_ms = self._clock.now_ms()
        seen_from_ms = now_ms if is_ready else MAX_TIME_MS
        request = ClaimRequest(self._names.next(""), BATCH_JOBS, PRIORITIES, MAX_TIME_MS - now_ms, BATCH_BYTES)
        (jobs,) = await self._store.claim(queue, [request], seen_from_ms)
        if not jobs:
            return 0
        keys = claim_keys(jobs)
        try:
            copies = await self._router.enqueue(queue, await self._copies(queue, jobs, keys), now_ms)
        except OutcomeUnknown:
            self._unsure.append((now_ms + UNSURE_MS, queue, keys))
            raise
        except PinLaterError:
            self._unsure.append((now_ms, queue, keys))
            await self._settle()
            raise
        self._unmarked.append((queue, list(zip(keys, copies, strict=True))))
        self._on_moved(queue, len(jobs), is_ready)
        await self._settle()
        return len(jobs)

    async def _copies(self, queue: str, jobs: Sequence[DequeuedJob], keys: Sequence[ClaimKey]) -> list[Job]:
        """As they are here: with the attempts that remain, and the status."""
        named = [JobKey(key.priority, key.id) for key in keys]
        infos = await self._store.lookup(queue, named, with_body=False, max_bytes=0)
        return [_copy(job, info) for job, info in zip(jobs, infos, strict=True)]

    async def _settle(self) -> None:
        """Mark what was moved, also what could not be marked before; requeue what was unsure for long enough."""
        now_ms = self._clock.now_ms()
        while self._unmarked:
            queue, pairs = self._unmarked[0]
            await self._store.mark_moved(queue, pairs, now_ms)
            del self._unmarked[0]
        for unsure in [each for each in self._unsure if each[0] <= now_ms]:
            _, queue, keys = unsure
            await self._store.requeue(queue, keys, now_ms)
            self._unsure.remove(unsure)

    async def recover(self, queues: Iterable[str]) -> int:
        """Requeue what a mover before this one had claimed; how many."""
        recovered = 0
        for queue in queues:
            self.jobs_arrived(queue)
            for future in (False, True):
                recovered += await self._recover(queue, future)
        if recovered:
            _log.info("overflow_jobs_recovered", jobs=recovered)
        return recovered

    async def _recover(self, queue: str, future: bool) -> int:
        after: ScanPosition | None = None
        recovered = 0
        now_ms = self._clock.now_ms()
        while True:
            request = ScanRequest(JobState.IN_PROGRESS, PRIORITIES, future, _PAGE, after)
            page = await self._store.scan(queue, request, now_ms)
            if not page:
                return recovered
            keys = []
            for info in page:
                ref, claim = parse_descriptor(info.descriptor), info.claim_descriptor or ""
                if ref is not None:
                    after = ScanPosition(info.run_after_ms, ref.id)
                    if claim.startswith(CLAIMED_BY):
                        keys.append(ClaimKey(ref.priority, ref.id, claim))
            recovered += await self._store.requeue(queue, keys, now_ms) if keys else 0
