"""The limits of a queue that one process keeps for the whole cluster: its rate, and its number of pending jobs.

Rate: one token bucket per queue, on the shard that rendezvous hashing picks. All processes ask the same shard without
agreeing on it. While that one is out, or does not answer, the next one is asked. After a change of shard the new bucket
is cut to one token, so old tokens do not count, and a take-over adds one job to the rate. Processes see the change at
different moments, and then take from two buckets at once: a process that has changed fills its new one slower for a
while, so that both together stay below twice the rate.

Pending jobs: those of a queue with a maximum are counted twice a second, and what this process enqueues and hands out
meanwhile is added and taken off. So the maximum is passed at most by what all servers enqueue in half a second; a count
that takes long is made less often, and it is then by what they enqueue in that time.

The maximum in progress has a module of its own (quota_balancer.py), since stores keep to it.
"""

from __future__ import annotations

import asyncio

from pinlater.backends.base import Tokens
from pinlater.backends.token_bucket import capacity_of
from pinlater.clock import Clock
from pinlater.errors import EnqueueRejected, Overloaded, PinLaterError, ShardConnectionFailed
from pinlater.model import JobState
from pinlater.queues.directory import QueueDirectory
from pinlater.queues.group_pending_counts import BUSY_SHARE, RETRY_AFTER_MS, GroupPendingCounts
from pinlater.shards.handle import ShardHandle, ask_all
from pinlater.shards.rendezvous import score
from pinlater.shards.shard_set import ShardSet

_MAX_QUEUES = 10_000
_SETTLING_MS = 2_000
"""The time in which all processes see that a shard went or came."""

_SETTLING = 0.75
"""The part of the rate that is given out meanwhile."""


class RateLimiter:
    """The buckets of all queues, as one process asks for them."""

    def __init__(self, members: ShardSet, clock: Clock) -> None:
        self._members = members
        self._clock = clock
        self._ranked: dict[str, list[ShardHandle]] = {}
        """The shards that are in, ranked for each queue, until others are."""
        self._ranked_of: list[ShardHandle] = []
        self._last: dict[str, str] = {}
        """The shard that gave this process a queue's tokens last."""
        self._changed_ms: dict[str, int] = {}
        """When that became another shard, by queue; forgotten soon."""

    async def take(self, queue: str, wanted: int, per_second: float) -> Tokens:
        """Up to `wanted` tokens: so many jobs may be handed out.

        NoHealthyShards; Overloaded; ShardConnectionFailed where no shard gives tokens now.
        """
        failures: list[str] = []
        for member in self._by_score(queue):
            shard_id = member.shard.shard_id
            is_same = self._last.get(queue, shard_id) == shard_id
            capacity = capacity_of(per_second) if is_same else 1.0
            now_ms = self._now_ms(member)
            try:
                tokens = await member.shard.take_tokens(queue, wanted, per_second * self._pace(queue), capacity, now_ms)
            except Overloaded:
                raise  # this process has too much to do: a second bucket would let it go over the rate
            except PinLaterError as error:
                failures.append(error.message)
                continue
            self._remember(queue, shard_id, is_same)
            return tokens
        self._members.require_any()
        raise ShardConnectionFailed(f"the rate limit of queue {queue!r} cannot be kept: {'; '.join(failures)}")

    async def refund(self, queue: str, tokens: int, per_second: float) -> None:
        """Tokens for jobs that nobody got. Raises nothing: where it fails, fewer jobs than allowed are handed out."""
        member = self._members.by_id(self._last.get(queue, ""))
        if member is None or not member.is_healthy:
            return
        shard, now_ms = member.shard, self._now_ms(member)
        try:
            await shard.take_tokens(queue, -tokens, per_second, capacity_of(per_second), now_ms)
        except PinLaterError:
            return

    def _now_ms(self, member: ShardHandle) -> int:
        """The time by the store's clock, as the last ping found it: so a bucket fills at one pace for all servers."""
        return self._clock.now_ms() + member.skew_ms

    def _by_score(self, queue: str) -> list[ShardHandle]:
        """The shards that are in, the queue's own first."""
        members = self._members.healthy()
        if members is not self._ranked_of or len(self._ranked) >= _MAX_QUEUES:
            self._ranked_of, self._ranked = members, {}
        ranked = self._ranked.get(queue)
        if ranked is None:
            ranked = sorted(members, key=lambda each: (score(queue, each.shard.shard_id), each.shard.shard_id))[::-1]
            self._ranked[queue] = ranked
        return ranked

    def _pace(self, queue: str) -> float:
        """The part of the rate at which this process fills the bucket now."""
        changed_ms = self._changed_ms.get(queue)
        if changed_ms is None:
            return 1.0
        if 0 <= self._clock.now_ms() - changed_ms < _SETTLING_MS:
            return _SETTLING
        del self._changed_ms[queue]
        return 1.0

    def _remember(self, queue: str, shard_id: str, is_same: bool) -> None:
        if is_same and queue in self._last:
            return
        if len(self._last) >= _MAX_QUEUES:
            self._last.clear()
            self._changed_ms.clear()
        self._last[queue] = shard_id
        if not is_same:
            self._changed_ms[queue] = self._clock.now_ms()


_MAX_REST_S, _SHARE_OF_ROOM = 2.0, 0.25
"""A queue that has filled no more than this share of its bound is counted that seldom: what others add until then fills
it only if they add all of the rest meanwhile.
"""


class _Level:
    """The pending jobs of one queue: the last count, and what changed since it began."""

    __slots__ = ("changed", "counted", "next_at_s")

    def __init__(self) -> None:
        self.counted = 0
        self.changed = 0
        self.next_at_s = 0.0


class PendingCounts:
    """The levels of the queues with `max_pending`, as one process knows them."""

    def __init__(
        self, members: ShardSet, queues: QueueDirectory, clock: Clock, priorities: tuple[int, ...] = (1, 2, 3)
    ) -> None:
        self._members = members
        self._queues = queues
        self._clock = clock
        self._priorities = priorities
        self._levels: dict[str, _Level] = {}
        self.groups = GroupPendingCounts(members, queues, clock, priorities)

    def check(self, queue: str, jobs: int) -> None:
        """EnqueueRejected, reason QUEUE_FULL, where so many more would be too many. A queue that was not counted yet
        counts as empty.
        """
        allowed = self._queues.settings(queue).max_pending
        if allowed is None:
            return
        level = self._levels.get(queue)
        pending = 0 if level is None else max(0, level.counted + level.changed)
        if pending + jobs > allowed:
            raise EnqueueRejected(
                f"queue {queue!r} has about {pending} pending jobs; {jobs} more would pass its bound of {allowed}",
                reason="QUEUE_FULL",
                retry_after_ms=RETRY_AFTER_MS,
            )

    def added(self, queue: str, jobs: int) -> None:
        """This process enqueued so many."""
        level = self._levels.get(queue)
        if level is None:
            if self._queues.settings(queue).max_pending is None:
                return
            level = self._levels[queue] = _Level()
        level.changed += jobs

    def left(self, queue: str, jobs: int) -> None:
        """This process handed out so many."""
        level = self._levels.get(queue)
        if level is not None:
            level.changed -= jobs

    async def poll(self) -> None:
        """Count the queues that are due, and the groups. Raises nothing: what could not be counted keeps its last
        count.
        """
        await self.groups.poll()
        bounded = self._queues.bounded()
        for name in self._levels.keys() - bounded:
            del self._levels[name]
        loop = asyncio.get_running_loop()
        for name in sorted(bounded):
            level = self._levels.setdefault(name, _Level())
            if level.next_at_s <= loop.time():
                await self._count(name, level)

    async def _count(self, queue: str, level: _Level) -> None:
        """Count the queue's pending jobs on the shards that are in: others cannot be worked on, and are counted when
        their shard is back.
        """
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        before, now_ms = level.changed, self._clock.now_ms()
        healthy = self._members.healthy()
        counts = [await self._ask(healthy, queue, future, now_ms) for future in (False, True)]
        ended_s = loop.time()
        rest_s = (ended_s - began_s) * (1 / BUSY_SHARE - 1)
        ready, scheduled = counts
        if ready is not None and scheduled is not None:
            level.counted = ready + scheduled
            level.changed -= before
            allowed = self._queues.settings(queue).max_pending
            if allowed is not None and level.counted <= allowed * _SHARE_OF_ROOM:
                rest_s = max(rest_s, _MAX_REST_S)
        level.next_at_s = ended_s + rest_s

    async def _ask(self, healthy: list[ShardHandle], queue: str, future: bool, now_ms: int) -> int | None:
        outcomes = await ask_all(
            healthy, lambda shard: shard.count(queue, JobState.PENDING, self._priorities, future, now_ms)
        )
        counts = [outcome for outcome in outcomes if not isinstance(outcome, PinLaterError)]
        return sum(counts) if counts else None
