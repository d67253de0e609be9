"""Shards that do not come back: what is counted or tried on them is over."""

from __future__ import annotations

from pinlater.clock import Clock
from pinlater.queues.directory import QueueDirectory
from pinlater.shards.shard_set import ShardSet

GONE_MS = 60_000
"""A shard that is no longer configured is missing for so long before it is gone: servers do not read their
configuration all at once.
"""


class GoneShards:
    """The shards that are missing, as one process sees them when it is asked."""

    def __init__(self, members: ShardSet, queues: QueueDirectory, clock: Clock) -> None:
        self._members = members
        self._queues = queues
        self._clock = clock
        self._missing_since: dict[str, int] = {}

    def is_gone(self, shard_id: str) -> bool:
        """Whether a shard was given up, or is configured no more and has been missing for a while."""
        if self._queues.is_given_up(shard_id):
            return True
        if self._members.by_id(shard_id) is not None:
            self._missing_since.pop(shard_id, None)
            return False
        if self._members.has_unknown_ids():  # it may be one of these
            return False
        now_ms = self._clock.now_ms()
        return now_ms - self._missing_since.setdefault(shard_id, now_ms) >= GONE_MS
