"""Low-water marks: where claims in PostgreSQL begin to read a queue while dead rows lie in front of it.

A claim reads the index of ready jobs from the front, and comes past the entries of all jobs that were claimed before
it, until vacuum has removed them. While another transaction is open for long (a backup, a report) vacuum removes none,
and each claim, count and look for what is due takes longer than the one before. So where a claim's look from the front
takes long, and the table has many dead rows, the next looks begin where nothing was left, less MARGIN_MS.

What is ready before that place is found by the next look from the front. One comes at once when this process makes such
a job pending, and else so that these looks take a twentieth of the time, but each second at the latest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock

SLOW_S = 0.005
"""A look from the front that takes longer; a usual one takes a tenth of that."""

MANY_DEAD_ROWS = 10_000
"""Below that it is something else that takes so long."""

MARGIN_MS = 2_000
"""Servers' clocks differ by less, and so do the commits of jobs that were enqueued at about the same time."""

SHARE = 20
LONGEST_S = 1.0


@dataclass(slots=True)
class _Queue:
    """A queue whose front takes long to pass. `begins_ms`: the run_after to read from, by priority."""

    look_s: float
    begins_ms: dict[int, int] = field(default_factory=dict)


class LowWaterMarks:
    """Those of one process, by queue id; used by all threads. Empty while no queue needs one."""

    def __init__(
        self,
        *,
        slow_s: float = SLOW_S,
        many_dead_rows: int = MANY_DEAD_ROWS,
        margin_ms: int = MARGIN_MS,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slow_s = slow_s
        self._many_dead_rows = many_dead_rows
        self._margin_ms = margin_ms
        self._now_s = now_s
        self._queues: dict[int, _Queue] = {}
        self._ids: dict[str, int] = {}
        self._lock = Lock()

    def __bool__(self) -> bool:
        return bool(self._queues)

    def begins_ms(self, queue_id: int, priority: int) -> int:
        """The run_after to read from; 0: the front."""
        queue = self._queues.get(queue_id)
        return queue.begins_ms.get(priority, 0) if queue is not None else 0

    def begins_of_name_ms(self, queue: str, priority: int) -> int:
        """The same for a queue that a claim has named."""
        return self.begins_ms(self._ids.get(queue, 0), priority) if self._queues else 0

    def for_claim_ms(self, queue_id: int, priorities: Iterable[int], now_ms: int) -> list[int]:
        """Of each priority; all 0 where it is time to look from the front, which is then left to this claim. Marks that
        a clock made which was ahead, and was set back, are forgotten.
        """
        if not self._queues:
            return [0 for _ in priorities]
        with self._lock:
            queue = self._queues.get(queue_id)
            if queue is not None and any(ms > now_ms for ms in queue.begins_ms.values()):
                queue.begins_ms.clear()
            if queue is not None and self._now_s() < queue.look_s:
                return [queue.begins_ms.get(priority, 0) for priority in priorities]
            if queue is not None:
                queue.look_s = self._now_s() + LONGEST_S
            return [0 for _ in priorities]

    def note_look(self, queue_id: int, took_s: float, dead_rows: Callable[[], int]) -> None:
        """A claim has looked from the front. `dead_rows`: how many the table has; asked only where it took long."""
        if took_s <= self._slow_s:
            if self._queues:
                with self._lock:
                    self._queues.pop(queue_id, None)
            return
        if queue_id not in self._queues and dead_rows() < self._many_dead_rows:
            return
        with self._lock:
            queue = self._queues.setdefault(queue_id, _Queue(0.0))
            queue.look_s = self._now_s() + min(SHARE * took_s, LONGEST_S)

    def named(self, queue: str, queue_id: int) -> None:
        """It has this id."""
        self._ids[queue] = queue_id

    def passed(self, queue_id: int, run_after_ms: Mapping[int, int]) -> None:
        """Of each priority nothing is ready before this run_after."""
        with self._lock:
            queue = self._queues.get(queue_id)
            if queue is not None:
                for priority, ms in run_after_ms.items():
                    queue.begins_ms[priority] = max(ms - self._margin_ms, queue.begins_ms.get(priority, 0))

    def pending_again(self, queue_id: int, run_after_ms: int = 0) -> None:
        """A job with that run_after, or an unknown one, may be ready now."""
        with self._lock:
            queue = self._queues.get(queue_id)
            if queue is not None and any(run_after_ms < ms for ms in queue.begins_ms.values()):
                queue.begins_ms.clear()
