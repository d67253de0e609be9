"""The events of jobs, from whatever changes jobs to those who wait: long polls, and lookups that wait for ends.

Those of a queue, which has other settings or was deleted, come from the `QueueDirectory`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pinlater.clock import Clock
from pinlater.shards.handle import ShardHandle


class JobEvents:
    """The events of one service's jobs. `LongPolls` listens to `on_ready` and `freed`, and answers `claims_at_once`;
    `EndWaits` listens to `ended`.
    """

    on_ready: Callable[[str, int, Sequence[int], str], None]
    claims_at_once: Callable[[str, int], bool]
    """Whether callers wait who claim so many jobs of this queue as soon as they are stored."""

    freed: Callable[[str], None]
    """Fewer jobs of this queue are in progress."""

    ended: Callable[[str, str, Iterable[int]], None]
    """These jobs may have ended: the shard, the queue, the ids."""

    def ready(self, queue: str, now: int, later_ms: Sequence[int] = (), shard_id: str = "") -> None:
        """So many jobs of this queue may be handed out now, and others at these times; `shard_id`: the shard of all of
        them, if that is known.
        """
        self.on_ready(queue, now, later_ms, shard_id)

    def ready_at(self, queue: str, times_ms: Sequence[int], now_ms: int, shard_id: str = "") -> None:
        """Jobs of this queue may be handed out at these times, some of which have come."""
        later_ms = [time_ms for time_ms in times_ms if time_ms > now_ms]
        self.on_ready(queue, len(times_ms) - len(later_ms), later_ms, shard_id)


@dataclass(frozen=True, slots=True)
class ShardNews:
    """The `ShardEvents` of one shard."""

    _member: ShardHandle
    _clock: Clock
    _events: JobEvents

    def jobs_freed(self, queue: str, run_after_ms: Sequence[int]) -> None:
        self._events.ready_at(queue, run_after_ms, self._clock.now_ms(), self._member.shard.shard_id)

    def store_moved(self) -> None:
        self._member.health.probe_now()

    def claims_at_once(self, queue: str, jobs: int) -> bool:
        return self._events.claims_at_once(queue, jobs)

    def jobs_ended(self, queue: str, ids: Sequence[int]) -> None:
        self._events.ended(self._member.shard.shard_id, queue, ids)
