"""The schedule of dequeues: from which queues, for how many jobs, and how long the server may wait. Pure.

A queue is busy while its last answer was as many jobs as were asked for. While some queue is busy nobody waits: free
slots are allocated by weight, and one that is not busy is asked again after QUIET_S at the earliest. When no queue
is busy, the server waits with its answers: each queue gets one slot, and its share of the others by weight.

A busy queue is asked for half of all slots at most: the server works on that while the other half runs here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

QUIET_S = 0.05
SHARED_WAIT_S = 2.0
"""With several queues no wait holds slots for longer than this."""

ROTATION_WAIT_S = 1.0
"""The same where not every queue has a slot to wait with."""

MAX_LIMIT = 10_000
"""The server cuts a dequeue to so many jobs."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """One dequeue: its slots are reserved until it is answered, or has failed. `wait_s` 0: answered at once."""

    queue: str
    limit: int
    wait_s: float


class QueueFetches:
    """The dequeues of one queue. `reserved`: the slots of the dequeue under way. Times are of time.monotonic."""

    __slots__ = ("answered_s", "busy", "not_before_s", "reserved")

    def __init__(self) -> None:
        self.busy = True
        self.reserved = 0
        self.answered_s = float("-inf")
        self.not_before_s = float("-inf")


class FetchScheduler:
    """One dequeue under way per queue. `weights`: of every queue, 1 or more. `slots`: all that the worker has."""

    def __init__(self, weights: Mapping[str, int], slots: int, poll_wait_s: float) -> None:
        self._fair = WeightedFair(weights)
        self._weights = weights
        self._queues = {queue: QueueFetches() for queue in sorted(weights, key=weights.__getitem__, reverse=True)}
        self._wait_s = poll_wait_s if len(weights) == 1 else min(poll_wait_s, SHARED_WAIT_S)
        self._half = min((slots + 1) // 2, MAX_LIMIT)
        self.reserved = 0

    def next(self, free: int, now_s: float) -> list[Fetch]:
        """The dequeues to send now, with no more slots than are `free`; each is answered or failed later."""
        if free <= 0:
            return []
        idle = [name for name, each in self._queues.items() if not each.reserved and each.not_before_s <= now_s]
        if not idle:
            return []
        if len(self._queues) == 1:
            fetches = [Fetch(idle[0], min(free, self._half), self._wait_s)]
        elif any(each.busy for each in self._queues.values()):
            fetches = self._shared(idle, free, now_s)
        else:
            fetches = self._long_polls(idle, free)
        for fetch in fetches:
            self._queues[fetch.queue].reserved = fetch.limit
            self.reserved += fetch.limit
        return fetches

    def answered(self, fetch: Fetch, jobs: int, now_s: float) -> None:
        queue = self._end(fetch, fetch.limit - jobs)
        queue.busy = jobs >= fetch.limit
        queue.answered_s = now_s

    def failed(self, fetch: Fetch, not_before_s: float) -> None:
        """It is not asked again before that moment."""
        queue = self._end(fetch, fetch.limit)
        queue.busy = False
        queue.not_before_s = not_before_s

    def _end(self, fetch: Fetch, unused: int) -> QueueFetches:
        queue = self._queues[fetch.queue]
        queue.reserved = 0
        self.reserved -= fetch.limit
        if unused and fetch.wait_s == 0:
            self._fair.unused(fetch.queue, unused)
        return queue

    def _shared(self, idle: list[str], free: int, now_s: float) -> list[Fetch]:
        """A busy queue whose dequeue is under way keeps its share of what is free: it can take it in a moment."""
        due = {name for name in idle if self._queues[name].busy or self._is_due(name, now_s)}
        under_way = [name for name, each in self._queues.items() if each.busy and each.reserved]
        allocated = self._fair.allocate([*due, *under_way], free, due) if due else {}
        fetches = [Fetch(name, min(limit, self._half), 0.0) for name, limit in allocated.items()]
        for fetch in fetches:
            self._fair.undo(fetch.queue, allocated[fetch.queue] - fetch.limit)
        return fetches

    def _is_due(self, name: str, now_s: float) -> bool:
        return now_s - self._queues[name].answered_s >= QUIET_S

    def _long_polls(self, idle: list[str], free: int) -> list[Fetch]:
        """The first is the heaviest, and gets what cannot be divided. Of more queues than slots, those asked longest
        ago come first.
        """
        if free >= len(idle):
            rest = free - len(idle)
            weight = sum(self._weights[name] for name in idle)
            more = {name: rest * self._weights[name] // weight for name in idle}
            more[idle[0]] += rest - sum(more.values())
            return [Fetch(name, min(1 + more[name], MAX_LIMIT), self._wait_s) for name in idle]
        first = sorted(idle, key=lambda name: self._queues[name].answered_s)[:free]
        return [Fetch(name, 1, min(self._wait_s, ROTATION_WAIT_S)) for name in first]


class WeightedFair:
    """Slots allocated by weight, one after the other (stride scheduling). `weights`: of every queue, 1 or more.

    A queue's pass grows with every slot that it gets, the slower the heavier it is; the lowest pass is next. A queue
    that did not use all of its slots, or was not asked, has no turns to catch up on: it goes on where the others are by
    then.
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._stride = {queue: 1.0 / weight for queue, weight in weights.items()}
        self._pass = dict.fromkeys(weights, 0.0)
        self._satisfied: set[str] = set()
        self._now = 0.0

    def allocate(
        self, contenders: Collection[str], slots: int, waiters: Collection[str] | None = None
    ) -> dict[str, int]:
        """The slots of each of the `waiters`: all contenders, unless some cannot take theirs yet.

        What falls to a contender that does not wait stays free. Queues without a slot are left out.
        """
        if waiters is None:
            waiters = contenders
        if not contenders:
            return {}
        unsatisfied = [self._pass[queue] for queue in contenders if queue not in self._satisfied]
        self._now = max(self._now, min(unsatisfied, default=self._now))
        for queue in self._satisfied.intersection(contenders):
            self._pass[queue] = max(self._pass[queue], self._now)
        self._satisfied = self._satisfied.difference(contenders).union(self._pass.keys() - contenders)
        ahead = {queue: self._pass[queue] for queue in contenders}
        allocated = dict.fromkeys(contenders, 0)
        for _ in range(slots):
            queue = min(ahead, key=ahead.__getitem__)
            allocated[queue] += 1
            ahead[queue] += self._stride[queue]
        taken = {queue: count for queue, count in allocated.items() if count and queue in waiters}
        for queue in taken:
            self._pass[queue] = ahead[queue]
        return taken

    def undo(self, queue: str, slots: int) -> None:
        """It was not asked for so many of those that it was allocated."""
        self._pass[queue] -= self._stride[queue] * slots

    def unused(self, queue: str, slots: int) -> None:
        """The slots of one allocation brought no job."""
        self.undo(queue, slots)
        self._satisfied.add(queue)
