"""Tokens for queues with a rate limit: one bucket per queue for the whole cluster, on the shard most drawn to it.

All processes ask the same shard without agreeing on it. While that one is out, or does not answer, the next one is
asked. What lay in a bucket since an earlier time is not worth anything there: the first call after a change of shard
leaves no more than one token in it, so a take-over adds one job to the rate. Processes see the change at different
moments, and then take from two buckets at once: a process that has changed fills its new one slower for a while, so
that both together stay below twice the rate.
"""

from __future__ import annotations

from pinlater.backends.base import Tokens
from pinlater.clock import Clock
from pinlater.errors import Overloaded, PinLaterError, ShardConnectionFailed
from pinlater.ratelimit import capacity_of
from pinlater.rendezvous import weight
from pinlater.shards.handle import ShardHandle
from pinlater.shards.shard_set import ShardSet

_MAX_QUEUES = 10_000
_SETTLING_MS = 2_000
"""In so long all processes see a shard that went or came."""

_SETTLING = 0.75
"""Of the rate, meanwhile."""


class Rate:
    """The buckets of all queues, as one process asks for them."""

    def __init__(self, members: ShardSet, clock: Clock) -> None:
        self._members = members
        self._clock = clock
        self._last: dict[str, str] = {}
        """The shard that gave this process a queue's tokens last."""
        self._changed_ms: dict[str, int] = {}
        """When that was another one than before; not for long."""

    async def take(self, queue: str, wanted: int, per_second: float) -> Tokens:
        """Up to `wanted` tokens: so many jobs may be handed out.

        NoHealthyShards; Overloaded; ShardConnectionFailed where no shard gives tokens now.
        """
        failures: list[str] = []
        for member in self._by_weight(queue):
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

    async def give_back(self, queue: str, tokens: int, per_second: float) -> None:
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
        """By the store's clock, as the last ping found it: what fills a bucket is the same for all servers."""
        return self._clock.now_ms() + member.skew_ms

    def _by_weight(self, queue: str) -> list[ShardHandle]:
        """The shards that are in, the queue's own first."""
        members = self._members.healthy()
        members.sort(key=lambda each: (weight(queue, each.shard.shard_id), each.shard.shard_id), reverse=True)
        return members

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
