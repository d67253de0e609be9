"""The rules for groups by name: what their weights are, and which are paused. Pure.

The configuration entry `@groups/QUEUE` has those of a queue, as JSON, and lies on every shard like the entries of
queues. It is the one entry whose text a store reads: its claims go by it.

    {"groups": {"acme": {"weight": "3"}}, "patterns": [["trial-*", {"weight": "2"}]], "home": "s1"}

Values are written as those of a queue's settings are (queues/settings.py). In a pattern `*` stands for any text. What
stands under a group's own name takes precedence; else the first pattern that fits counts. Only names can be paused: so
the change of one rule touches one group, however many there are. The home is the shard where the permits of the queue
are (permit_store.py), once it needs some. Stores read neither the home nor the limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pinlater.model import MAX_TIME_MS
from pinlater.model.group_patterns import fits
from pinlater.stored_json import read_stored

GROUP_RULES_PREFIX = "@groups/"

MAX_RULES, MAX_PATTERNS = 10_000, 100
"""The most names and patterns that have rules in one queue; and patterns alone, which a claim tries one by one."""

Texts = Mapping[str, str]
"""The settings of one group, or of those that fit a pattern, as people write them."""


class GroupRule(NamedTuple):
    """What counts for one group in a store. `paused_until_ms`: 0 where it is not paused, MAX_TIME_MS without an end."""

    weight: int = 1
    paused_until_ms: int = 0


PLAIN = GroupRule()


@dataclass(frozen=True, slots=True)
class GroupRules:
    """The rules of one queue; groups are bytes of UTF-8. `patterns`: the parts between their stars, the first counts.
    `any_paused`: whether a group is paused, or was until its pause ended by itself.
    """

    names: Mapping[bytes, GroupRule] = field(default_factory=dict)
    patterns: Sequence[tuple[Sequence[bytes], GroupRule]] = ()
    any_paused: bool = False

    def of(self, group: bytes) -> GroupRule:
        rule = self.names.get(group)
        if rule is None:
            rule = next((each for parts, each in self.patterns if fits(parts, group)), PLAIN)
        return rule


NO_GROUP_RULES = GroupRules()


def read_group_rules(text: str) -> GroupRules:
    """The rules in the text of an entry. What a newer version writes beside them, or in another form, counts for
    nothing: no claim fails for it.
    """
    try:
        words: dict[str, Any] = read_stored(text)
        names = {name.encode(): _rule(texts) for name, texts in words.get("groups", {}).items()}
        patterns = [(name.encode().split(b"*"), _rule(texts)) for name, texts in words.get("patterns", ())]
    except (ValueError, TypeError, AttributeError):
        return NO_GROUP_RULES
    return GroupRules(names, patterns, any(rule.paused_until_ms for rule in names.values()))


def _rule(texts: Texts) -> GroupRule:
    until = texts.get("paused_until", "none")
    until_ms = MAX_TIME_MS if until == "none" else int(until)
    return GroupRule(int(texts.get("weight", "1")), until_ms if texts.get("paused") == "true" else 0)
