"""The queue of a history: the values that its settings may have had, and the calls about many of its jobs.

A setting is known from the first getQueues that shows it, and from each change that the history has. A change holds in
the whole cluster some time after it was answered; until then the value before it may count too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf

from pinlater.durations import parse_duration_ms
from pinlater.history.checker.job_machine import Key, ManyChanged, Surroundings

SPREAD_MS = 30_000.0
"""In which time a change holds everywhere: two seconds, unless servers stand still or are cut off."""

_NO_BOUND = 10**9
_LIMITS = frozenset(("max_in_progress", "max_jobs_per_second", "paused"))
_GROUP_LIMITS = frozenset(("group_concurrency", "group_rate"))


@dataclass(frozen=True, slots=True)
class _Change:
    begin_ms: float
    end_ms: float
    value: str | None
    """As people write it; None: one that is not known."""


class SettingHistory:
    """The values of one setting of one queue."""

    def __init__(self, value: str | None = None) -> None:
        """`value`: what it is until more is known."""
        self._changes = [_Change(-inf, -inf, value)]

    def seen(self, value: str, begin_ms: float, end_ms: float) -> None:
        """An answer shows it."""
        changes = self._changes
        if len(changes) == 1 and changes[0].value is None:
            changes[0] = _Change(-inf, -inf, value)
        elif changes[-1].value is None or value not in self.values(begin_ms, end_ms):
            changes.append(_Change(changes[-1].begin_ms, end_ms, value))

    def changed(self, value: str | None, begin_ms: float, end_ms: float) -> None:
        """A call changed it; `end_ms` is inf while, and where, that may not be so."""
        self.withdrawn(value, begin_ms)
        self._changes.append(_Change(begin_ms, end_ms, value))

    def withdrawn(self, value: str | None, begin_ms: float) -> None:
        """The call that might have changed it did not."""
        change = _Change(begin_ms, inf, value)
        if change in self._changes:
            self._changes.remove(change)

    def lost(self, at_ms: float) -> None:
        """A store was set back: which value holds is not known until an answer shows it, or another change."""
        self._changes.append(_Change(at_ms, at_ms, None))

    def values(self, from_ms: float, to_ms: float) -> list[str | None]:
        """All that may have held at some time from `from_ms` to `to_ms`; None among them: one that is not known."""
        found: list[str | None] = []
        for change in reversed(self._changes):
            if change.begin_ms <= to_ms:
                found.append(change.value)
                if change.end_ms + SPREAD_MS <= from_ms:
                    break
        return found


def greatest(values: Iterable[str | None], read: Callable[[str], float | None]) -> float | None:
    """The greatest bound that a setting may have been; None: it is not known, or there was no bound."""
    found: float | None = None
    for value in values:
        number = None if value is None else read(value)
        if number is None:
            return None
        found = number if found is None else max(found, number)
    return found


def count_of(text: str) -> float | None:
    """A bound that is a number; None: there is none."""
    return float(text) if text.isdecimal() else None


class HistoryQueue:
    """One queue."""

    def __init__(self, around: Surroundings, defaults: Mapping[str, str]) -> None:
        """`around`: what lies around its jobs, as far as that is known. `defaults`: settings of all queues."""
        self._settings = {key: SettingHistory(value) for key, value in defaults.items()}
        self._many: list[ManyChanged] = []
        self._many_ends: list[float] = []
        self._many_open: list[ManyChanged] = []
        self._around = around
        self._is_stale = True
        self.was_retried = False
        """Jobs of it were, or are, retried by an operator: they have other places in their chains then."""

        self.has_other_sources = False
        """Schedules or flows bring jobs to it."""

        self.has_items = False
        """It is that of a stage of a flow."""

        self.has_groups = False
        """A job of it has a group."""

        self.has_limits = False
        """A limit may have held at some time."""

        self.has_group_limits = False
        """One of its groups may have had one."""

        self.has_group_changes = False
        """Settings of groups may have changed, or groups were taken off."""

    def setting(self, key: str) -> SettingHistory:
        found = self._settings.get(key)
        if found is None:
            found = self._settings[key] = SettingHistory()
        return found

    def seen(self, settings: Mapping[str, str], begin_ms: float, end_ms: float) -> None:
        """An answer shows all its settings."""
        for key, value in settings.items():
            self.setting(key).seen(value, begin_ms, end_ms)
            self._take_limit(key, value)
        self._is_stale = True

    def changed(self, key: str, value: str | None, begin_ms: float, end_ms: float) -> None:
        self.setting(key).changed(value, begin_ms, end_ms)
        self._take_limit(key, value)
        self._is_stale = True

    def withdrawn(self, key: str, value: str | None, begin_ms: float) -> None:
        self.setting(key).withdrawn(value, begin_ms)
        self._is_stale = True

    def _take_limit(self, key: str, value: str | None) -> None:
        if value not in (None, "none", "false"):
            self.has_limits = self.has_limits or key in _LIMITS
            self.has_group_limits = self.has_group_limits or key in _GROUP_LIMITS

    def many_changed(self, many: ManyChanged) -> None:
        """They come in the order of their ends, but for those without one."""
        if many.end_ms == inf:
            self._many_open.append(many)
        else:
            place = len(self._many)
            while place and self._many_ends[place - 1] > many.end_ms:
                place -= 1
            self._many.insert(place, many)
            self._many_ends.insert(place, many.end_ms)

    @property
    def was_operated(self) -> bool:
        """Calls about many of its jobs may have changed some."""
        return bool(self._many or self._many_open)

    def around(self, descriptor: str, key: Key | None, since_ms: float, *, is_foreign: bool) -> Surroundings:
        """What lies around a job that has not been touched since then; it counts until the next one is asked for."""
        around = self._around
        if self._is_stale:
            self._is_stale = False
            self._take_settings()
        around.descriptor = descriptor
        around.is_foreign = is_foreign
        if self._many or self._many_open:
            place = bisect_left(self._many_ends, since_ms)
            meant = [*self._many[place:], *self._many_open]
            around.many_changed = [many for many in meant if many.means(descriptor, key, is_foreign=is_foreign)]
        return around

    def _take_settings(self) -> None:
        around = self._around
        around.crash_budget = self._least("crash_budget", lambda text: int(text) or _NO_BOUND)
        around.succeeded_ttl_ms = self._least("succeeded_ttl", _duration_ms) or 0.0
        around.failed_ttl_ms = self._least("failed_ttl", _duration_ms) or 0.0
        around.result_ttl_ms = self._least("result_ttl", _duration_ms) or 0.0
        if "true" in self.setting("flow_items").values(-inf, inf):
            around.crash_budget = None
            around.has_items = True

    def _least(self, key: str, read: Callable[[str], int]) -> int | None:
        """Of all values that it ever had; None: not all of them are known."""
        found: int | None = None
        for value in self.setting(key).values(-inf, inf):
            if value is None:
                return None
            try:
                number = read(value)
            except ValueError:
                return None
            found = number if found is None else min(found, number)
        return found


def _duration_ms(text: str) -> int:
    return parse_duration_ms(text, 0, 2**53)
