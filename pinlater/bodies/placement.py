"""The rules that say which bodies go to which tier. Pure.

A rule of the queue counts before those of the server; of these the first that applies counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from pinlater.config.body_rules import SHARD, BodyTierRule, parse_rule
from pinlater.model.body_reference import BodyRule

LEAST_BYTES = 256
"""A smaller body is hardly larger than what would stand in its place."""


class Placement(NamedTuple):
    """A tier, and why."""

    tier: str
    rule: BodyRule


class PlacementRules:
    """The rules of a server over `tiers`, their names."""

    def __init__(self, rules: Sequence[BodyTierRule], tiers: Sequence[str], least_bytes: int = LEAST_BYTES) -> None:
        self.rules = list(rules)
        self.least_bytes = least_bytes
        """No smaller body goes to a tier."""
        self.names_callers = any(rule.caller for rule in rules)
        """Whether the caller of an enqueue counts in the rules of the server; those of queues know none."""
        self._tiers = frozenset(tiers)

    @property
    def texts(self) -> list[str]:
        return [rule.text for rule in self.rules]

    def place(self, queue: str, size: int, delay_ms: int, caller: str, own: str = "") -> Placement | None:
        """Where such a body goes; None: it stays in its shard. `own`: what the queue's setting says.

        >>> rules = PlacementRules([parse_rule("s3: size > 1KiB")], ["s3"])
        >>> rules.place("mails", 5_000, 0, "")
        Placement(tier='s3', rule=<BodyRule.SIZE: 1>)
        >>> rules.place("mails", 5_000, 0, "", "shard") is None
        True
        """
        if size < self.least_bytes or own == SHARD:
            return None
        if own:
            rule = _rule_of(own)
            if rule.applies(queue, size, delay_ms, caller):
                return self._to(rule, BodyRule.SETTING)
        for rule in self.rules:
            if rule.applies(queue, size, delay_ms, caller):
                return self._to(rule, BodyRule.NONE)
        return None

    def _to(self, rule: BodyTierRule, beside: BodyRule) -> Placement | None:
        return Placement(rule.tier, rule.asks_for | beside) if rule.tier in self._tiers else None


@lru_cache(maxsize=1024)
def _rule_of(text: str) -> BodyTierRule:
    return parse_rule(text)
