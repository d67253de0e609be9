"""The limits of groups, as one process keeps to them; permit_store.py says how they are counted.

Each queue whose groups have limits has a home, the shard where its permits are, named in the configuration entry of its
groups' rules. It stays where it is while other shards come and go. Where it is given up, another one takes its place;
so it is, after a while, where it is configured no more. The claims that are alive by then are counted no more.

A claim is admitted behind the store's answer: jobs that get permits go on to the caller, the others back to their
queue, whose shard has no room for their group then. What ends a claim tells the home (`acked`, `may_have_ended`), and
the shards that wait for permits are told to have room. Where a process stops in between, or a claim ends by its time,
the owner of the home finds it (`tick`): it asks the shards of the claims whose permits are to be checked.

While the home does not answer, groups with limits wait, and others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import structlog

from pinlater.backends.acks import Acks
from pinlater.backends.base import AckOutcome, JobKey
from pinlater.backends.permit_store import (
    FreedPermits,
    GroupRoom,
    Permit,
    PermitAnswer,
    PermitKey,
    PermitRequest,
    permit_holder,
)
from pinlater.background_tasks import BackgroundTasks
from pinlater.clock import Clock
from pinlater.errors import PinLaterError, QueueNotFound
from pinlater.model import DequeuedJob, JobState
from pinlater.queues.directory import QueueDirectory
from pinlater.queues.gone_shards import GoneShards
from pinlater.queues.group_rules_book import GroupLimit
from pinlater.shards.handle import ShardHandle
from pinlater.shards.rendezvous import rendezvous_pick
from pinlater.shards.router import Router

_log = structlog.get_logger("pinlater.queues")

HELD_MS = 5_000
"""A group that is at its maximum has no room on a shard for so long, unless that is told of a permit before. One that
is at its rate has none for no longer, since the rate may change.
"""

AWAITED_MS = 60_000
"""A shard waits for permits so long at least. Where claims go on it asks again each time that a group has no room.
"""

UNCOUNTED_MS = 1_000
"""A group has no room on a shard for so long where its limits could not be counted."""

_LEAST_HELD_MS = 20
"""A group that is at its rate waits at least so long: it gets several jobs then, instead of one at a time."""

CHECK_MS, CHECK_AGAIN_MS = 5_000, 10_000
"""When a permit is checked first, and again."""

CHECKED_AT_ONCE = 500

TICK_MS = 1_000
"""So often permits are checked."""


class OnReady(Protocol):
    """Jobs of a queue can be handed out now, or at these times; see JobEvents.ready."""

    def __call__(self, queue: str, now: int, later_ms: Sequence[int] = (), shard_id: str = "") -> None: ...


class GroupLimits:
    """The permits of all queues, as one process takes and gives them back. `LongPolls` listens to `on_ready`."""

    on_ready: OnReady

    def __init__(self, router: Router, queues: QueueDirectory, clock: Clock) -> None:
        self._router = router
        self._members = router.members
        self._queues = queues
        self._clock = clock
        self._gone = GoneShards(router.members, queues, clock)
        self._tasks = BackgroundTasks()
        self._ending: dict[str, list[PermitKey]] = {}
        """Permits that are to be taken back by the next call, by queue, while one is under way."""
        self._uncounted_ms: dict[str, int] = {}
        """When the home of a queue did not answer, by queue."""
        self._at_rate_until_ms: dict[str, int] = {}
        """Until when a group is held back that was at its rate, by queue; the last of them."""

    async def drain(self) -> None:
        """Wait until all that is under way is done."""
        await self._tasks.drain()

    def most_at_once(self, queue: str) -> int:
        """ClaimRequest.most_of_group of a queue whose groups have limits."""
        return self._queues.group_rules.most_at_once(queue, self._queues.limit_of_groups(queue))

    def is_uncounted(self, queue: str) -> bool:
        """Whether this process could not ask the home of the queue a moment ago."""
        since_ms = self._uncounted_ms.get(queue)
        return since_ms is not None and self._clock.now_ms() - since_ms < 2 * UNCOUNTED_MS

    def home_text(self, queue: str) -> str:
        """Where the permits of the queue are, in words."""
        shard_id = self._queues.group_rules.home(queue)
        return f"shard {shard_id}, where that is done, does not answer" if shard_id else "no shard can do that yet"

    def wait_ms(self, queue: str) -> int:
        """How long until no group of the queue is held back any more that was at its rate."""
        return max(0, self._at_rate_until_ms.get(queue, 0) - self._clock.now_ms())

    async def running(self, queue: str, groups: Sequence[str]) -> Mapping[str, int]:
        """How many jobs of these groups are in progress. Groups without a maximum are left out, and all where the home
        does not answer.
        """
        limited = [group for group in groups if group and self.limit(queue, group).concurrency is not None]
        home = await self._home(queue) if limited else None
        if home is None:
            return {}
        try:
            counts = await home.shard.count_permits(queue, limited)
        except PinLaterError:
            return {}
        return {group: counts.get(group, 0) for group in limited}

    def holds(self, queue: str, group: str, running: int | None) -> bool:
        """Whether a group is paused, or has as many jobs in progress as it may have; `running` None: no maximum."""
        if self._queues.group_rules.of(queue, group).paused:
            return True
        concurrency = self.limit(queue, group).concurrency
        return running is not None and concurrency is not None and running >= concurrency

    def limit(self, queue: str, group: str) -> GroupLimit:
        """What limits a group."""
        return self._queues.group_rules.limit(queue, group, self._queues.limit_of_groups(queue))

    # -- claims that begin -------------------------------------------------------------------------------------------

    async def admit(self, queue: str, claims: list[list[DequeuedJob]]) -> int:
        """Take out of these claims the jobs that may not be handed out, which go back to their queue; how many."""
        of_group: dict[str, list[DequeuedJob]] = {}
        for jobs in claims:
            for job in jobs:
                if job.group:
                    of_group.setdefault(job.group, []).append(job)
        limited = {group: jobs for group, jobs in of_group.items() if self.limit(queue, group).is_any}
        if not limited:
            return 0
        admitting = self._tasks.start(self._admit(queue, limited))
        try:
            refused = await asyncio.shield(admitting)
        except BaseException:  # nobody gets these jobs: those that are refused go back by themselves
            self._tasks.start(self._undo(queue, admitting, [job for jobs in claims for job in jobs]))
            raise
        if refused:
            claims[:] = [[job for job in jobs if job.descriptor not in refused] for jobs in claims]
        return len(refused)

    async def _admit(self, queue: str, of_group: Mapping[str, Sequence[DequeuedJob]]) -> set[str]:
        """The descriptors of jobs that are refused."""
        requests = [
            PermitRequest(group, [_key(job) for job in jobs], *self.limit(queue, group))
            for group, jobs in of_group.items()
        ]
        home, now_ms = await self._home(queue), self._clock.now_ms()
        answers = await self._take(queue, home, requests, now_ms)
        holds: dict[str, _Hold] = {}
        for place, (request, jobs) in enumerate(zip(requests, of_group.values(), strict=True)):
            granted, retry_after_ms = answers[place] if answers else PermitAnswer(0, UNCOUNTED_MS)
            until_ms = now_ms + min(max(retry_after_ms or HELD_MS, _LEAST_HELD_MS), HELD_MS)
            if retry_after_ms:
                self._at_rate_until_ms[queue] = max(until_ms, self._at_rate_until_ms.get(queue, 0))
            for key, job in zip(request.keys[granted:], jobs[granted:], strict=True):
                hold = holds.setdefault(key.shard_id, _Hold())
                hold.jobs.append(job)
                hold.rooms[request.group] = GroupRoom(0, until_ms)
                if request.concurrency is not None and not retry_after_ms:
                    hold.awaited[request.group] = request.concurrency
        await asyncio.gather(*[self._put_rooms(queue, shard_id, hold.rooms) for shard_id, hold in holds.items()])
        for shard_id, hold in holds.items():
            self._tasks.start(self._hold(queue, shard_id, hold, home))
        return {job.descriptor for hold in holds.values() for job in hold.jobs}

    async def _take(
        self, queue: str, home: ShardHandle | None, requests: Sequence[PermitRequest], now_ms: int
    ) -> list[PermitAnswer] | None:
        """None: the home does not answer; what it may have granted is found when it is checked."""
        if home is not None and home.is_healthy:
            try:
                return await home.shard.take_permits(queue, requests, now_ms + CHECK_MS, now_ms)
            except PinLaterError as error:
                _log.warning("permits_not_taken", queue=queue, shard=home.shard.shard_id, error=error.message)
        self._uncounted_ms[queue] = now_ms
        return None

    async def _hold(self, queue: str, shard_id: str, hold: _Hold, home: ShardHandle | None) -> None:
        """Jobs without permits go back, and their shard waits for permits. It has no room for their groups by now."""
        await self._router.requeue(queue, shard_id, hold.jobs, self._clock.now_ms())
        self.on_ready(queue, 0, sorted({room.until_ms for room in hold.rooms.values()}), shard_id)
        if home is None or not hold.awaited:
            return
        try:
            free = await home.shard.await_permits(queue, shard_id, hold.awaited, self._clock.now_ms() + AWAITED_MS)
        except PinLaterError:
            return
        # taken back before the shard waited for them
        await self._tell(queue, home, {group: FreedPermits(n, [shard_id]) for group, n in free.items() if n})

    async def _undo(self, queue: str, admitting: asyncio.Task[set[str]], jobs: Sequence[DequeuedJob]) -> None:
        refused = await admitting
        await self.give_back(queue, [job for job in jobs if job.descriptor not in refused])

    async def give_back(self, queue: str, jobs: Sequence[DequeuedJob]) -> None:
        """Jobs that nobody gets go back to their queue, and their permits to the home."""
        by_shard: dict[str, list[DequeuedJob]] = {}
        for job in jobs:
            by_shard.setdefault(_key(job).shard_id, []).append(job)
        for shard_id, some in by_shard.items():
            back = await self._router.requeue(queue, shard_id, some, self._clock.now_ms())
            self.may_have_ended(queue, shard_id, [_key(job).id for job in some])
            self.on_ready(queue, back, (), shard_id)

    # -- claims that end -----------------------------------------------------------------------------------------------

    def acked(self, queue: str, shard_id: str, acks: Acks, outcomes: Sequence[AckOutcome]) -> None:
        """These acks were carried out. Where one does not name its claim, and the job has not succeeded, it is looked
        for: it may be under another claim by now.
        """
        ended: list[PermitKey] = []
        others: list[int] = []
        start = 0
        for kind, ids in acks.runs:
            for place, job_id in enumerate(ids, start):
                outcome = outcomes[place]
                if outcome is AckOutcome.IGNORED:
                    continue
                if kind.claim_descriptor or outcome is AckOutcome.SUCCEEDED:
                    ended.append(PermitKey(shard_id, kind.priority, job_id, kind.claim_descriptor))
                else:
                    others.append(job_id)
            start += len(ids)
        self._end_later(queue, ended)
        self.may_have_ended(queue, shard_id, others)

    def may_have_ended(self, queue: str, shard_id: str, ids: Iterable[int]) -> None:
        """The claims of these jobs of a shard ended, or some did."""
        if queue in self._queues.group_limited:
            holders = [permit_holder(shard_id, job_id) for job_id in ids]
            if holders:
                self._tasks.start(self._check_jobs(queue, holders))

    def _end_later(self, queue: str, keys: Sequence[PermitKey]) -> None:
        waiting = self._ending.get(queue)
        if waiting is not None:
            waiting += keys
        elif keys:
            self._ending[queue] = [*keys]
            self._tasks.start(self._end_all(queue))

    async def _end_all(self, queue: str) -> None:
        """One call at a time; what comes meanwhile goes together."""
        try:
            while keys := self._ending[queue]:
                self._ending[queue] = []
                await self._end(queue, keys)
        finally:
            del self._ending[queue]

    async def _end(self, queue: str, keys: Sequence[PermitKey]) -> None:
        home = await self._home(queue)
        if home is None:
            return
        try:
            freed = await home.shard.end_permits(queue, keys)
        except PinLaterError as error:  # they are found when they are checked
            _log.debug("permits_not_ended", queue=queue, shard=home.shard.shard_id, error=error.message)
            return
        if freed:
            self._tasks.start(self._tell(queue, home, freed))  # the next permits to be taken back do not wait for it

    async def _tell(self, queue: str, home: ShardHandle, freed: Mapping[str, FreedPermits]) -> None:
        """Permits are free: shards that wait are told to have room, until one is found for each that has jobs."""
        left = {group: each.permits for group, each in freed.items()}
        waiting = {group: [*each.waiting] for group, each in freed.items()}
        while True:
            rooms: dict[str, dict[str, GroupRoom]] = {}
            until_ms = self._clock.now_ms() + HELD_MS
            for group, permits in left.items():
                shards, waiting[group] = waiting[group][:permits], waiting[group][permits:]
                for place, shard_id in enumerate(shards):
                    share = permits // len(shards) + (place < permits % len(shards))
                    rooms.setdefault(shard_id, {})[group] = GroupRoom(share, until_ms)
                left[group] = 0 if shards else permits
            if not rooms:
                return
            await asyncio.gather(*[self._tell_shard(queue, home, each, rooms[each], left) for each in rooms])
            left = {group: permits for group, permits in left.items() if permits and waiting[group]}

    async def _tell_shard(
        self, queue: str, home: ShardHandle, shard_id: str, rooms: Mapping[str, GroupRoom], left: dict[str, int]
    ) -> None:
        """Adds to `left` what a shard had no jobs for; it waits no more for such groups."""
        with_jobs = await self._put_rooms(queue, shard_id, rooms)
        without = rooms.keys() - with_jobs
        for group in without:
            left[group] += rooms[group].jobs
        if without:
            try:
                await home.shard.await_permits(queue, shard_id, dict.fromkeys(without, 0), 0)
            except PinLaterError:
                return

    async def _put_rooms(self, queue: str, shard_id: str, rooms: Mapping[str, GroupRoom]) -> Sequence[str]:
        """The groups that have jobs there; none where the shard does not answer."""
        member = self._members.by_id(shard_id)
        if member is None or not member.is_healthy:
            return ()
        try:
            return await member.shard.put_rooms(queue, rooms, self._clock.now_ms())
        except PinLaterError as error:
            _log.debug("rooms_not_put", queue=queue, shard=shard_id, error=error.message)
            return ()

    # -- permits whose claims may have ended ---------------------------------------------------------------------------

    async def tick(self, owns: Callable[[str], bool]) -> None:
        """Check the permits that are due, on the shards that this process owns. Raises nothing."""
        for queue in sorted(self._queues.group_limited):
            home = await self._home(queue)
            if home is None or not home.is_healthy or not owns(home.shard.shard_id):
                continue
            now_ms = self._clock.now_ms()
            try:
                due = await home.shard.due_permits(queue, CHECKED_AT_ONCE, now_ms, now_ms + CHECK_AGAIN_MS)
            except PinLaterError as error:
                _log.debug("permits_not_checked", queue=queue, shard=home.shard.shard_id, error=error.message)
                continue
            await self._check(queue, due)

    async def _check_jobs(self, queue: str, holders: Sequence[str]) -> None:
        home = await self._home(queue)
        if home is None:
            return
        try:
            permits = await home.shard.read_permits(queue, holders)
        except PinLaterError:
            return
        await self._check(queue, permits)

    async def _check(self, queue: str, permits: Sequence[Permit]) -> None:
        """End the permits of jobs that are in progress no more. A permit counts for its job, whichever claim it
        names: a process that stood still may have put its own claim, which is over, in the place of a later one.
        """
        by_shard: dict[str, list[PermitKey]] = {}
        for permit in permits:
            by_shard.setdefault(permit.key.shard_id, []).append(permit.key)
        ended = await asyncio.gather(*[self._ended_on(queue, *each) for each in by_shard.items()])
        keys = [key for some in ended for key in some]
        if keys:
            await self._end(queue, keys)

    async def _ended_on(self, queue: str, shard_id: str, keys: Sequence[PermitKey]) -> Sequence[PermitKey]:
        if self._gone.is_gone(shard_id):
            return keys
        member = self._members.by_id(shard_id)
        if member is None:
            return ()
        jobs = [JobKey(key.priority, key.id) for key in keys]
        try:
            found = await member.shard.lookup(queue, jobs, with_body=False, max_bytes=0)
        except QueueNotFound:
            return keys
        except PinLaterError:
            return ()
        return [
            key for key, info in zip(keys, found, strict=True) if info is None or info.state is not JobState.IN_PROGRESS
        ]

    # -- the home ------------------------------------------------------------------------------------------------------

    async def _home(self, queue: str) -> ShardHandle | None:
        """The shard where the permits of a queue are; None: it is not known, or none can be made it."""
        shard_id = self._queues.group_rules.home(queue)
        if shard_id and not self._gone.is_gone(shard_id):
            return self._members.by_id(shard_id)
        with_groups = [each.shard.shard_id for each in self._members.all if each.shard.has_groups]
        able = [each for each in with_groups if not self._queues.is_given_up(each)]
        picked = None if self._members.has_unknown_ids() else rendezvous_pick(queue, able)
        if picked is None:
            return None
        try:
            await self._queues.move_permits(queue, shard_id, picked)
        except PinLaterError as error:
            _log.debug("permits_not_moved", queue=queue, shard=picked, error=error.message)
            return None
        return self._members.by_id(self._queues.group_rules.home(queue))


class _Hold:
    """What a shard has to hold back: jobs, the groups that have no room, and the maximum of those that wait."""

    def __init__(self) -> None:
        self.jobs: list[DequeuedJob] = []
        self.rooms: dict[str, GroupRoom] = {}
        self.awaited: dict[str, int] = {}


def _key(job: DequeuedJob) -> PermitKey:
    _, shard, priority, job_id = job.descriptor.split(":")  # as a store made it: parsed in half the time
    return PermitKey(shard[1:], int(priority[1:]), int(job_id), job.claim_descriptor)
