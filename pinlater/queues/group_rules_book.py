"""The rules for groups of all queues as one process knows them, and how they are changed.

Those of one queue are one configuration entry (backends/group_rules.py), which every store reads that has groups. So a
change counts on each shard as soon as it is there: at once on those that answer, within two seconds on the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from pinlater.backends.base import ConfigEntry
from pinlater.backends.group_rules import GROUP_RULES_PREFIX, MAX_PATTERNS, MAX_RULES
from pinlater.backends.token_bucket import capacity_of
from pinlater.clock import Clock
from pinlater.errors import QueueNotFound, RequestInvalid
from pinlater.model import SettingView
from pinlater.model.group_patterns import fits, in_order
from pinlater.queues import changes
from pinlater.queues.changes import Author, Update
from pinlater.queues.settings import GROUP_SETTINGS, OF_A_PAUSE, GroupSettings
from pinlater.stored_json import read_stored

MAX_RULES_BYTES = 350_000
"""The most bytes of all rules of one queue: DynamoDB takes no larger item, and each shard keeps the entry."""

Texts = Mapping[str, str]
Rules = dict[str, dict[str, str]]
"""The settings of groups and patterns, by their names, as people write them."""

_PLAIN = GroupSettings()
LIMITS = ("concurrency", "rate")
_NO_LIMIT = 2**31 - 1

_MOST_KEPT = 10_000
"""The groups of a queue whose limits are kept, once they were worked out."""

MOST_LABELLED = 100
"""The groups of a queue that metrics name: the first of those with settings of their own."""

OTHER = "other"
"""The label of all others."""


class GroupLimit(NamedTuple):
    """The limits of a group; None: no limit of that kind."""

    concurrency: int | None = None
    per_second: float | None = None

    @property
    def is_any(self) -> bool:
        return self.concurrency is not None or self.per_second is not None

    @property
    def at_once(self) -> int:
        """The most jobs that can be handed out at one moment."""
        most = _NO_LIMIT if self.concurrency is None else self.concurrency
        return most if self.per_second is None else min(most, int(capacity_of(self.per_second)))


class _Limits:
    """The limits that the rules of one queue name."""

    def __init__(self, rules: Rules) -> None:
        self.named = [_limit(texts, GroupLimit()) for texts in rules.values() if any(each in texts for each in LIMITS)]
        self.of: dict[str, tuple[GroupLimit, GroupLimit]] = {}
        """Of groups that came up: what counts for all of the queue as it was then, and what counts for the group."""


class GroupRulesBook:
    """The rules of one process, of the entries that it knows as the latest."""

    def __init__(self, latest: Mapping[str, ConfigEntry], clock: Clock) -> None:
        self._latest = latest
        self._clock = clock
        self._rules: dict[str, Rules] = {}
        self._homes: dict[str, str] = {}
        self._limits: dict[str, _Limits] = {}
        self._labelled: dict[str, Set[str]] = {}

    def take(self, entry: ConfigEntry) -> str:
        """Take in what an entry has. Gives the queue whose rules have changed by it."""
        queue = entry.name.removeprefix(GROUP_RULES_PREFIX)
        self._rules[queue], self._homes[queue] = _read(entry.text)
        self._limits[queue] = _Limits(self._rules[queue])
        named = sorted(name for name in self._rules[queue] if "*" not in name and name != OTHER)
        self._labelled[queue] = frozenset(named[:MOST_LABELLED])
        return queue

    def rules(self, queue: str) -> Rules:
        """Those that count: none of what an earlier queue of this name had."""
        entry, own = (self._latest.get(name) for name in (GROUP_RULES_PREFIX + queue, queue))
        return self._rules.get(queue, {}) if _counts(entry, own) else {}

    def with_limits(self) -> set[str]:
        """The queues whose rules name limits."""
        return {
            queue
            for queue, limits in self._limits.items()
            if any(each.is_any for each in limits.named) and self.rules(queue)
        }

    def labelled(self, queue: str) -> Set[str]:
        """The groups of a queue that metrics name; others are OTHER there."""
        return self._labelled[queue] if self.rules(queue) else frozenset()

    def with_labels(self) -> list[str]:
        """The queues of which metrics name groups."""
        return [queue for queue in self._labelled if self.labelled(queue)]

    def home(self, queue: str) -> str:
        """The shard where its permits are; "": none is named yet."""
        own, entry = self._latest.get(queue), self._latest.get(GROUP_RULES_PREFIX + queue)
        return self._homes.get(queue, "") if _counts(entry, own) else ""

    def limit(self, queue: str, group: str, of_all: GroupLimit) -> GroupLimit:
        """What limits a group, where `of_all` counts for the groups of which nothing else is said."""
        limits = self._limits.get(queue)
        if limits is None or not limits.named:
            return of_all
        before, limit = limits.of.get(group, (None, of_all))
        if before != of_all:
            limit = _limit(self._texts(queue, group, paused=False)[1], of_all)
            if len(limits.of) >= _MOST_KEPT:
                limits.of.clear()
            limits.of[group] = of_all, limit
        return limit

    def most_at_once(self, queue: str, of_all: GroupLimit) -> int:
        """The highest of all limits: so many jobs of any group at one moment."""
        limits = self._limits.get(queue)
        return max([of_all.at_once, *(each.at_once for each in (limits.named if limits else ()))])

    def any_paused(self, queue: str) -> bool:
        """Whether a group of the queue is paused now."""
        rules = self._rules.get(queue)  # hardly a queue has any, and every dequeue may ask
        return bool(rules) and any(
            texts.get("paused") == "true" and self.of(queue, name).paused for name, texts in self.rules(queue).items()
        )

    def of(self, queue: str, group: str) -> GroupSettings:
        """What counts for a group; a pause that is over is none."""
        _, texts = self._texts(queue, group)
        known: dict[str, Any] = {}
        for name, row in GROUP_SETTINGS.items():
            if name in texts:
                with suppress(ValueError):  # a newer version allows more
                    known[row.field] = row.kind.parse(texts[name])
        return replace(_PLAIN, **known)

    def settings(self, queue: str, group: str, of_all: GroupLimit) -> dict[str, SettingView]:
        """All settings of a group, and where each comes from; its limits may come from its queue (`of_all`)."""
        source, texts = self._texts(queue, group)
        views = {
            name: SettingView(texts.get(name, row.text(getattr(_PLAIN, row.field))), source)
            for name, row in GROUP_SETTINGS.items()
        }
        for name, value in zip(LIMITS, of_all, strict=True):
            if name not in texts:
                views[name] = SettingView(GROUP_SETTINGS[name].text(value), "default" if value is None else "queue")
        return views

    def _texts(self, queue: str, group: str, *, paused: bool = True) -> tuple[str, Texts]:
        """What is said of a group, and where; a pause that is over says nothing, so that the pattern counts again
        which fits the group. `paused`: whether a pause says something at all.
        """
        rules = self.rules(queue)
        source, texts = "group", rules.get(group, {})
        until = texts.get("paused_until", "none")
        if not paused or (until.isdecimal() and int(until) <= self._clock.now_ms()):
            texts = {key: text for key, text in texts.items() if not key.startswith("paused")}
        if not texts:
            patterns = in_order([name for name in rules if "*" in name])
            pattern = next((each for each in patterns if fits(each.encode().split(b"*"), group.encode())), "")
            source, texts = f"pattern {pattern}", rules.get(pattern, {})
        return (source, texts) if texts else ("default", {})

    def update(self, queue: str, group: str, set: Texts, unset: Sequence[str], who: str) -> Update:
        """The change of an entry, by which a group or a pattern has other settings: all of it or nothing.
        RequestInvalid, QueueNotFound.
        """

        def update(before: ConfigEntry | None) -> str | None:
            had, home = self._had(queue, before)
            after = changes.changed(had.get(group, {}), set, unset, Author(who, self._clock.now_ms()), GROUP_SETTINGS)
            has = {name: texts for name, texts in had.items() if name != group} | ({group: after} if after else {})
            _check(group, after, has)
            return None if had == has else _text(has, home)

        return update

    def move_home(self, queue: str, before_id: str, shard_id: str) -> Update:
        """The change of an entry, by which the permits are on this shard, unless another change has moved them since
        they were there. QueueNotFound.
        """

        def update(before: ConfigEntry | None) -> str | None:
            rules, home = self._had(queue, before)
            return _text(rules, shard_id) if home == before_id else None

        return update

    def clear(self, queue: str) -> Update:
        """The change of an entry, by which no group has settings any more. QueueNotFound."""

        def update(before: ConfigEntry | None) -> str | None:
            rules, home = self._had(queue, before)
            return _text({}, home) if rules else None

        return update

    def _had(self, queue: str, before: ConfigEntry | None) -> tuple[Rules, str]:
        own = self._latest.get(queue)
        if own is None or own.is_deleted:
            raise QueueNotFound.of(queue)
        return _read(before.text) if before is not None and _counts(before, own) else ({}, "")


def _counts(entry: ConfigEntry | None, queue: ConfigEntry | None) -> bool:
    return entry is not None and (queue is None or entry.version > queue.deleted_version)


def _check(group: str, after: Texts, has: Rules) -> None:
    if "*" in group and not group.strip("*"):
        raise RequestInvalid.of("group", group, "a pattern with a text beside its stars: this one fits every group")
    if "*" in group and after.keys() & {"paused", *OF_A_PAUSE}:
        raise RequestInvalid.of("group", group, "a group by its name: a pattern pauses nothing")
    patterns = sum("*" in name for name in has)
    if patterns > MAX_PATTERNS:
        raise RequestInvalid.of("patterns of the queue", patterns, f"at most {MAX_PATTERNS}")
    if len(has) > MAX_RULES:
        raise RequestInvalid.of("groups with settings of their own", len(has), f"at most {MAX_RULES} in a queue")
    size = len(_text(has, "").encode())
    if size > MAX_RULES_BYTES:
        raise RequestInvalid.of(
            "the size of all rules for groups of the queue", size, f"at most {MAX_RULES_BYTES} bytes"
        )


def _limit(texts: Texts, of_all: GroupLimit) -> GroupLimit:
    values: list[Any] = list(of_all)
    for place, name in enumerate(LIMITS):
        if name in texts:
            with suppress(ValueError):  # a newer version allows more
                values[place] = GROUP_SETTINGS[name].kind.parse(texts[name])
    return GroupLimit(*values)


def _text(rules: Rules, home: str) -> str:
    """That of the entry (backends/group_rules.py)."""
    names = {name: rules[name] for name in sorted(rules) if "*" not in name}
    patterns = [[name, rules[name]] for name in in_order([name for name in rules if "*" in name])]
    words = {"groups": names, "patterns": patterns} | ({"home": home} if home else {})
    return json.dumps(words, separators=(",", ":"), ensure_ascii=False)


def _read(text: str) -> tuple[Rules, str]:
    """The rules in the text of an entry, and the home; what a newer version writes in another form counts for
    nothing.
    """
    try:
        words: dict[str, Any] = read_stored(text)
        rules = {**words.get("groups", {}), **dict(words.get("patterns", ()))}
        named = {str(name): {str(key): str(value) for key, value in texts.items()} for name, texts in rules.items()}
        return named, str(words.get("home", ""))
    except (ValueError, TypeError, AttributeError):
        return {}, ""
