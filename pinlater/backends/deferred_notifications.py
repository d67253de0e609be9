"""Notifications that wait a moment, since callers of this process are about to claim the jobs that they are about.

Where a caller waits at the server of the enqueue, its claim is already on the way when others would hear of the job:
each of them would ask the store for it, and find nothing. So others are notified only of what is left a moment later.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from pinlater.model import DequeuedJob, Job

DEFERRED_S = 0.01
"""The time that a claim has to take them. If the process ends within it, others find what is left by their polls."""

MOST_JOBS = 16
"""Of a call, or of calls that are joined. More than these are published at once: they need several callers, most of
whom wait at other servers.
"""


def can_wait(jobs: Sequence[Job], now_ms: int) -> bool:
    """Whether the notification of these jobs may be deferred where callers claim them at once: few, and all ready."""
    return 0 < len(jobs) <= MOST_JOBS and all(job.run_after_ms is None or job.run_after_ms <= now_ms for job in jobs)


class DeferredNotifications:
    """Those of one shard. `publish` is called with a queue and how many of its jobs are still there."""

    def __init__(self, publish: Callable[[str, int], object]) -> None:
        self._publish = publish
        self._queue_of: dict[str, str] = {}
        """By descriptor: the jobs that nobody has claimed yet."""
        self._timer: asyncio.TimerHandle | None = None

    def defer(self, queue: str, descriptors: Iterable[str]) -> None:
        """Notify of those of these jobs that are not claimed by then."""
        self._queue_of.update(dict.fromkeys(descriptors, queue))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DEFERRED_S, self.publish_left)

    def claimed(self, jobs: Sequence[DequeuedJob]) -> None:
        """A claim of this process brought these."""
        left = self._queue_of
        if not left:
            return
        for job in jobs:
            left.pop(job.descriptor, None)
        if not left and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def publish_left(self) -> None:
        """Notify now of the jobs that are left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        left, self._queue_of = self._queue_of, {}
        for queue, jobs in Counter(left.values()).items():
            self._publish(queue, jobs)
