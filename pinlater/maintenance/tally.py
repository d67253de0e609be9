"""What one run of a task did, in numbers, as its line in the log shows them."""

from __future__ import annotations

from collections import Counter

FEW = 10
"""Up to so many queues are shown one by one."""


class Tally:
    """Jobs by outcome, in all and per queue."""

    def __init__(self) -> None:
        self._in_all: Counter[str] = Counter()
        self._by_queue: dict[str, Counter[str]] = {}

    def add(self, queue: str, outcome: str, jobs: int) -> None:
        self._in_all[outcome] += jobs
        self._by_queue.setdefault(queue, Counter())[outcome] += jobs

    def add_leftovers(self, jobs: int) -> None:
        """Of deleted queues, whose names say nothing any more."""
        self._in_all["leftovers_removed"] += jobs

    def has_any(self) -> bool:
        return self._in_all.total() > 0

    def shown(self) -> dict[str, object]:
        """Fields for the log."""
        if len(self._by_queue) > FEW:
            return {**self._in_all, "queues": len(self._by_queue)}
        return {**self._in_all, "queues": {queue: dict(jobs) for queue, jobs in sorted(self._by_queue.items())}}
