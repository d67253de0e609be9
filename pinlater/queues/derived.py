"""What follows from the settings of all queues together: asked for many times a second, worked out once per change."""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import cached_property

from pinlater.backends.base import DeadLetterTarget, EndRules, PerQueue, Retention
from pinlater.queues import rules
from pinlater.queues.settings import QueueSettings


class Derived:
    """Of the queues `names`, as their settings are now: `for_all`, but for those in `special`."""

    def __init__(self, names: Set[str], for_all: QueueSettings, special: Mapping[str, QueueSettings]) -> None:
        self._names = names
        self._for_all = for_all
        self._special = special

    def _settings(self, queue: str) -> QueueSettings:
        return self._special.get(queue, self._for_all)

    @cached_property
    def end_rules(self) -> PerQueue[EndRules]:
        return rules.end_rules(self._for_all, self._special)

    @cached_property
    def retention(self) -> PerQueue[Retention]:
        return rules.retention(self._for_all, self._special)

    @cached_property
    def graves(self) -> Mapping[str, DeadLetterTarget]:
        return rules.graves(self._names, self._settings)

    @cached_property
    def limited(self) -> Set[str]:
        """With a maximum in progress."""
        return frozenset(name for name in self._names if self._settings(name).max_in_progress is not None)

    @cached_property
    def bounded(self) -> Set[str]:
        """With a maximum of pending jobs."""
        return frozenset(name for name in self._names if self._settings(name).max_pending is not None)
