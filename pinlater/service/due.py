"""When the next delayed job of a queue becomes eligible, as far as this process knows: so that it looks no later."""

from __future__ import annotations

from collections.abc import Sequence

_MAX_QUEUES = 10_000


class DueTimes:
    """The earliest time of each queue. What comes behind it is learned by looking, when it has come."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        self._sure: set[str] = set()

    def add(self, queue: str, times_ms: Sequence[int]) -> bool:
        """Whether the first of these is earlier than what was known."""
        earliest_ms = min(times_ms)
        known_ms = self._times.get(queue)
        if known_ms is None and len(self._times) >= _MAX_QUEUES:
            return False
        if known_ms is not None and known_ms <= earliest_ms:
            return False
        self._times[queue] = earliest_ms
        return True

    def take(self, queue: str, now_ms: int) -> bool:
        """Whether that time has come; then it is forgotten."""
        if self._times.get(queue, now_ms + 1) > now_ms:
            return False
        del self._times[queue]
        self._sure.discard(queue)
        return True

    def is_sure(self, queue: str) -> bool:
        """Whether `next` is true, also where it says that there is none: then a look would bring nothing new."""
        return queue in self._sure

    def make_sure(self, queue: str) -> None:
        """The stores were looked at, and will tell of what comes."""
        if len(self._sure) < _MAX_QUEUES:
            self._sure.add(queue)

    def doubt(self, queue: str) -> None:
        """There may be jobs that nobody told of, or some are behind those that are eligible."""
        self._sure.discard(queue)

    def next(self, queue: str) -> int | None:
        return self._times.get(queue)
