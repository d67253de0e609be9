"""The settings of the groups of one queue in a history: what may have counted for a group at a time.

What is said under a group's own name counts, else what the first pattern says that fits it, else the queue's setting.
What is set for a name or a pattern is known from the changes that the history has, and from answers of getGroups. That
nothing else is set is known from the first answer on that lists all groups in one page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pinlater.history.checker.history_queue import HistoryQueue, SettingHistory
from pinlater.model.group_patterns import fits, in_order

NOTHING = ""
"""The value of a setting that is not said of a name."""

OF_THE_QUEUE = {"concurrency": "group_concurrency", "rate": "group_rate"}
"""The settings of a queue that count for groups of which nothing is said."""

_DEFAULTS = {"paused": "false", "paused_until": "none"}
_KEYS = (*OF_THE_QUEUE, *_DEFAULTS)


class GroupSettingsHistory:
    """The names and patterns of one queue."""

    def __init__(self, queue: HistoryQueue) -> None:
        self._queue = queue
        self._settings: dict[str, dict[str, SettingHistory]] = {}
        """By name or pattern, and by setting."""

        self._is_listed = False
        self._with_others: set[str] = set()
        """Names of which more may be said than these settings: then no pattern counts for them."""

    def changed(self, request: Mapping[str, Any], begin_ms: float, end_ms: float) -> None:
        """updateGroup changed these settings; `end_ms` is inf while, and where, that may not be so."""
        name = request.get("group", "")
        for key, value in self._changes(request):
            if key in _KEYS:
                self._history(name, key).changed(value, begin_ms, end_ms)
            if "*" not in name and value != NOTHING:
                self._with_others.add(name)

    def withdrawn(self, request: Mapping[str, Any], begin_ms: float) -> None:
        """The call that might have changed them did not."""
        for key, value in self._changes(request):
            if key in _KEYS:
                self._history(request.get("group", ""), key).withdrawn(value, begin_ms)

    def shown(self, name: str, settings: Mapping[str, Any], begin_ms: float, end_ms: float) -> None:
        """getGroups shows what counts for a group or a pattern, and where it comes from."""
        for key in _KEYS:
            value, source = (settings.get(key, {}).get(each, "") for each in ("value", "source"))
            if not source:
                continue
            is_own = source == "group" or source == f"pattern {name}"
            self._history(name, key).seen(value if is_own else NOTHING, begin_ms, end_ms)
            if source == "group":
                self._with_others.add(name)
            elif source.startswith("pattern "):
                self._history(source.removeprefix("pattern "), key).seen(value, begin_ms, end_ms)
            elif key in OF_THE_QUEUE:
                self._queue.seen({OF_THE_QUEUE[key]: value or "none"}, begin_ms, end_ms)

    def listed(self, names: Sequence[str], begin_ms: float, end_ms: float) -> None:
        """An answer lists all groups with settings of their own: nothing is said of others."""
        for name, of_name in self._settings.items():
            if name not in names:
                for history in of_name.values():
                    history.seen(NOTHING, begin_ms, end_ms)
        self._is_listed = True

    def lost(self, at_ms: float) -> None:
        """A store was set back, and changes with it, perhaps."""
        for of_name in self._settings.values():
            for history in of_name.values():
                history.lost(at_ms)
        for key in OF_THE_QUEUE.values():
            self._queue.setting(key).lost(at_ms)

    def values(self, group: str, key: str, from_ms: float, to_ms: float) -> list[str | None]:
        """All that may have counted for a group at some time from `from_ms` to `to_ms`; None among them: one that is
        not known.
        """
        found: list[str | None] = []
        of_queue = False
        for name in self._names(group) if key in OF_THE_QUEUE else [group]:
            history = self._settings.get(name, {}).get(key)
            values = [self._unmentioned] if history is None else history.values(from_ms, to_ms)
            found += [value for value in values if value != NOTHING]
            if NOTHING not in values:
                break
            of_queue = of_queue or name in self._with_others
        else:
            of_queue = True
        if of_queue and key in OF_THE_QUEUE:
            found += self._queue.setting(OF_THE_QUEUE[key]).values(from_ms, to_ms)
        elif of_queue:
            found.append(_DEFAULTS[key])
        return found

    def _names(self, group: str) -> Iterator[str]:
        """The group's own, and the patterns that fit it, in the order in which they count."""
        yield group
        patterns = in_order([name for name in self._settings if "*" in name])
        yield from (name for name in patterns if fits(name.encode().split(b"*"), group.encode()))

    @property
    def _unmentioned(self) -> str | None:
        """What is said of a name that nobody has mentioned."""
        return NOTHING if self._is_listed else None

    def _history(self, name: str, key: str) -> SettingHistory:
        of_name = self._settings.setdefault(name, {})
        if key not in of_name:
            of_name[key] = SettingHistory(self._unmentioned)
        return of_name[key]

    @staticmethod
    def _changes(request: Mapping[str, Any]) -> list[tuple[str, str]]:
        settings = request.get("settings") or {}
        changes = [*settings.items(), *((key, NOTHING) for key in request.get("unset") or ())]
        if any(key == "paused" for key, _ in changes) and "paused_until" not in settings:
            changes.append(("paused_until", NOTHING))  # a pause has no end unless one is named with it
        return changes
