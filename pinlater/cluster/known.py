"""What the parts of a cluster need to know of its queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pinlater.backends.base import DeadLetterTarget


class Settings(Protocol):
    """Those settings of a queue that an operator wants to see beside its numbers."""

    @property
    def paused(self) -> bool: ...

    @property
    def draining(self) -> bool: ...

    @property
    def max_jobs_per_second(self) -> float | None: ...

    @property
    def max_in_progress(self) -> int | None: ...


class Queues(Protocol):
    def names(self) -> set[str]:
        """All queues."""

    def settings(self, queue: str) -> Settings:
        """What counts for a queue now."""

    def dead_letter_targets(self) -> Mapping[str, DeadLetterTarget]:
        """Where dead letters go, by the queue that they leave."""
