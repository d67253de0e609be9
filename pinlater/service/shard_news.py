"""The events of a shard, passed on to those who wait: freed jobs to long polls, ends to lookups that wait."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.clock import Clock
from pinlater.service.end_waits import EndWaits
from pinlater.service.longpoll import LongPolls
from pinlater.shards.handle import ShardHandle


class ShardNews:
    """The `ShardEvents` of one shard."""

    def __init__(self, member: ShardHandle, clock: Clock, long_polls: LongPolls, end_waits: EndWaits) -> None:
        self._member = member
        self._clock = clock
        self._long_polls = long_polls
        self._end_waits = end_waits

    def jobs_freed(self, queue: str, run_after_ms: Sequence[int]) -> None:
        now_ms = self._clock.now_ms()
        later_ms = [time_ms for time_ms in run_after_ms if time_ms > now_ms]
        self._long_polls.jobs_ready(queue, len(run_after_ms) - len(later_ms), later_ms)

    def store_moved(self) -> None:
        self._member.health.probe_now()

    def jobs_ended(self, queue: str, ids: Sequence[int]) -> None:
        self._end_waits.ended(self._member.shard.shard_id, queue, ids)
