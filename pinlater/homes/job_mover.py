"""The mover of jobs from one store to where they belong: those of an overflow shard as soon as a shard takes jobs,
those of a shard that is being emptied where they are not due soon.

A job is claimed here, stored there, and marked here as moved, with the descriptor of its copy. The claim has no end of
its own: an expired one would cost the job an attempt. What a mover that died had under its claims is requeued by
`recover`. A job whose copy may or may not be stored is requeued a while later, and moved again: at least once. A job
whose dedupe key has a live job there is marked as moved to that one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial

import structlog

from pinlater.backends.base import STORED_STATES, ClaimKey, ClaimRequest, JobKey, ScanPosition, ScanRequest, Shard
from pinlater.backends.extended import OfferOutcome
from pinlater.clock import Clock
from pinlater.errors import HomeOut, OutcomeUnknown, PinLaterError, QueueNotFound
from pinlater.model import MAX_TIME_MS, DequeuedJob, ExtendedJob, Job, JobInfo, JobState, JobTrail, parse_descriptor
from pinlater.service import ClaimTokens
from pinlater.shards.compensation import claim_keys
from pinlater.shards.router import Router

_log = structlog.get_logger("pinlater.homes")

PRIORITIES = tuple(range(1, 11))
"""All that a server can be configured with, now or before."""

BATCH_JOBS = 500
BATCH_BYTES = 4 * 2**20
UNSURE_MS = 30_000
"""How long a job is left alone whose copy may be stored."""

HOME_OUT_MS = 5_000
"""And one whose home cannot be used: others move meanwhile."""

DUE_SOON_MS = 10_000
"""A job of a shard that is being emptied is left to its workers where it is due within this time."""

_PAGE = 1_000
_MOST_CHAINS = 1_000

_FIELDS = tuple(each.name for each in fields(Job))
_EXTENDED = tuple(each.name for each in fields(ExtendedJob) if each.name not in _FIELDS)


def _copy(job: DequeuedJob, info: JobInfo | None) -> Job:
    """A job to enqueue: every field of Job that the store tells, and the attempts that remain. It has an ExtendedJob's
    fields where one of them says something.
    """
    values = {name: getattr(info, name) for name in _FIELDS if hasattr(info, name)}
    values |= {name: getattr(job, name) for name in _FIELDS if hasattr(job, name)}
    values |= {"attempts_allowed": job.attempts_remaining}
    more = {name: value for name in _EXTENDED if (value := getattr(info, name, None))}
    return ExtendedJob(**values, **more) if more else Job(**values)


async def _put_trails(shard: Shard, *, queue: str, given: Sequence[tuple[JobKey, JobTrail]]) -> list[bool]:
    return await shard.put_trails(queue, given)


class JobMover:
    """`holding`: the queues that may have jobs here, each with how often it got some."""

    def __init__(
        self,
        store: Shard,
        router: Router,
        clock: Clock,
        names: ClaimTokens,
        on_moved: Callable[[str, int, bool], None] | None = None,
        *,
        leaving: str = "",
    ) -> None:
        """`on_moved` is told the queue, how many jobs, and whether they are eligible now. `leaving`: `store` is this
        shard of the router, and jobs that are due soon stay.
        """
        self.holding: dict[str, int] = {}
        self._store = store
        self._router = router
        self._clock = clock
        self._names = names
        self._on_moved = on_moved
        self._leaving = leaving
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
                await self.settle()
                for queue in sorted(self.holding):
                    moved += await self._move_queue(queue)
            except PinLaterError as error:
                _log.warning("jobs_not_moved", shard=self._store.shard_id, moved=moved, error=error.message)
        return moved

    async def _move_queue(self, queue: str) -> int:
        """Those that are eligible, in order; then those for later, as seen from the end of time."""
        moved = 0
        for is_ready in (False,) if self._leaving else (True, False):
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
        priorities = await self._quiet_priorities(queue, now_ms) if self._leaving else PRIORITIES
        if not priorities:
            return 0
        timeout_ms = MAX_TIME_MS - now_ms if is_ready else 1
        request = ClaimRequest(self._names.next(""), BATCH_JOBS, priorities, timeout_ms, BATCH_BYTES)
        (jobs,) = await self._store.claim(queue, [request], now_ms if is_ready else MAX_TIME_MS)
        copies = await self._copies(queue, jobs, claim_keys(jobs)) if jobs else []
        jobs, copies = await self._without_those_that_stay(queue, jobs, copies, now_ms)
        if not jobs:
            return 0
        keys = claim_keys(jobs)
        plain = [number for number, copy in enumerate(copies) if not isinstance(copy, ExtendedJob)]
        keyed = [number for number, copy in enumerate(copies) if isinstance(copy, ExtendedJob)]
        left = {*plain, *keyed}
        try:
            for numbers, store in ((plain, self._store_plain), (keyed, self._store_extended)):
                if numbers:
                    stored = await store(queue, [copies[number] for number in numbers], now_ms)
                    left -= set(numbers)
                    self._note_moved(
                        queue, [(keys[n], name) for n, name in zip(numbers, stored, strict=True)], is_ready
                    )
                    with suppress(PinLaterError):  # what a move must not lose is the jobs
                        await self._carry_trails(queue, [keys[number] for number in numbers], stored)
        except PinLaterError as error:
            is_out = error.reason == HomeOut.reason
            until_ms = now_ms + (UNSURE_MS if isinstance(error, OutcomeUnknown) else HOME_OUT_MS if is_out else 0)
            done = dict(zip(keyed, error.job_descriptors or (), strict=False))
            pairs = [(keys[number], name) for number, name in done.items() if name]
            if pairs:
                self._note_moved(queue, pairs, is_ready)
            self._unsure.append((until_ms, queue, [keys[n] for n in sorted(left) if not done.get(n)]))
            await self.settle()
            if not is_out:
                raise
        await self.settle()
        return len(jobs)

    def _note_moved(self, queue: str, pairs: list[tuple[ClaimKey, str]], is_ready: bool) -> None:
        self._unmarked.append((queue, pairs))
        if self._on_moved is not None:
            self._on_moved(queue, len(pairs), is_ready)

    async def _carry_trails(self, queue: str, keys: Sequence[ClaimKey], copies: Sequence[str]) -> None:
        """Give the copies the trails that the jobs have here, as far as they have none yet."""
        trails = await self._store.read_trails(queue, [JobKey(key.priority, key.id) for key in keys])
        by_shard: dict[str, list[tuple[JobKey, JobTrail]]] = {}
        for trail, copy in zip(trails, copies, strict=True):
            ref = parse_descriptor(copy)
            if ref is not None and trail is not None and (len(trail.attempts) > 1 or trail.log):  # one is the mover's
                by_shard.setdefault(ref.shard, []).append((JobKey(ref.priority, ref.id), trail))
        calls = [(shard_id, partial(_put_trails, queue=queue, given=given)) for shard_id, given in by_shard.items()]
        await self._router.ask_by_shard(calls)

    async def _store_plain(self, queue: str, copies: Sequence[Job], now_ms: int) -> Sequence[str]:
        return await self._router.enqueue(queue, copies, now_ms)

    async def _store_extended(self, queue: str, copies: Sequence[Job], now_ms: int) -> Sequence[str]:
        """The jobs that stand for them now."""
        offered = await self._router.keys.enqueue(queue, copies, now_ms, leaving=self._leaving)
        assert all(each.outcome in (OfferOutcome.STORED, OfferOutcome.KEPT) for each in offered)
        return [each.descriptor for each in offered]

    async def _quiet_priorities(self, queue: str, now_ms: int) -> tuple[int, ...]:
        """Those of which no job is due soon: a claim takes the first that is due."""
        quiet = []
        for priority in PRIORITIES:
            due_ms = (await self._store.next_due([queue], [priority])).get(queue)
            if due_ms is not None and due_ms > now_ms + DUE_SOON_MS:
                quiet.append(priority)
        return tuple(quiet)

    async def _without_those_that_stay(
        self, queue: str, jobs: list[DequeuedJob], copies: list[Job], now_ms: int
    ) -> tuple[list[DequeuedJob], list[Job]]:
        """On a shard that is being emptied, the first of several jobs of a serialize key: behind the others it would
        come too late.
        """
        if not self._leaving or not any(isinstance(copy, ExtendedJob) and copy.serialize_key for copy in copies):
            return jobs, copies
        chains = await self._store.blocked_chains(_MOST_CHAINS, now_ms)
        waited_for = {chain.serialize_key for chain in chains}
        is_whole = len(chains) < _MOST_CHAINS
        stays = [
            isinstance(copy, ExtendedJob)
            and copy.serialize_key != ""
            and (copy.serialize_key in waited_for or not is_whole)
            for copy in copies
        ]
        if any(stays):
            await self._store.requeue(
                queue, claim_keys(job for job, stay in zip(jobs, stays, strict=True) if stay), now_ms
            )
        goes = [number for number, stay in enumerate(stays) if not stay]
        return [jobs[number] for number in goes], [copies[number] for number in goes]

    async def _copies(self, queue: str, jobs: Sequence[DequeuedJob], keys: Sequence[ClaimKey]) -> list[Job]:
        """As they are here: with the attempts that remain, and the status."""
        named = [JobKey(key.priority, key.id) for key in keys]
        infos = await self._store.lookup(queue, named, with_body=False, max_bytes=0)
        return [_copy(job, info) for job, info in zip(jobs, infos, strict=True)]

    @property
    def is_settled(self) -> bool:
        """Nothing is under a claim of this mover."""
        return not self._unmarked and not self._unsure

    async def settle(self) -> None:
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

    async def recover(self, queues: Iterable[str], is_orphan: Callable[[str], bool]) -> int:
        """Requeue what a mover before this one had claimed, as its claims tell; how many."""
        recovered = 0
        for queue in queues:
            self.jobs_arrived(queue)
            for future in (False, True):
                recovered += await self._recover(queue, future, is_orphan)
        if recovered:
            _log.info("moving_jobs_recovered", shard=self._store.shard_id, jobs=recovered)
        return recovered

    async def _recover(self, queue: str, future: bool, is_orphan: Callable[[str], bool]) -> int:
        after: ScanPosition | None = None
        recovered = 0
        now_ms = self._clock.now_ms()
        while True:
            request = ScanRequest(STORED_STATES[JobState.IN_PROGRESS], PRIORITIES, future, _PAGE, after)
            page = await self._store.scan(queue, request, now_ms)
            if not page:
                return recovered
            keys = []
            for info in page:
                ref, claim = parse_descriptor(info.descriptor), info.claim_descriptor or ""
                if ref is not None:
                    after = ScanPosition(info.run_after_ms, ref.id)
                    if is_orphan(claim):
                        keys.append(ClaimKey(ref.priority, ref.id, claim))
            recovered += await self._store.requeue(queue, keys, now_ms) if keys else 0
