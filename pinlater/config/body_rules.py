"""The tiers and rules of bodies as people write them: `s3=s3://bucket/prefix`, `s3: size > 256KiB and delay > 10m`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from pinlater.durations import DAY_MS, stored_duration_text
from pinlater.model.body_reference import BodyRule
from pinlater.setting_kinds import Duration, Size, Text, Words
from pinlater.sizes import size_text

SHARD = "shard"
"""In place of a tier: the body stays in its shard."""

TIER_NAME = r"[a-z][a-z0-9_-]{0,31}"
SCHEMES = ("s3", "gs", "az", "file")
_KIB, _GIB = 2**10, 2**30
_SIZES, _DELAYS = Size(0, 512 * 2**20), Duration(0, 36_500 * DAY_MS)
_RULE = re.compile(rf"\s*({TIER_NAME})\s*:(.*)", re.ASCII | re.DOTALL)
_CONDITION = re.compile(r"(size|delay)\s*>\s*(\S+)|(queue|caller)\s+(\S+)", re.ASCII)
RULE_ALLOWED = (
    "TIER: CONDITION and CONDITION ..., where TIER is the name of a tier or shard, and each condition one of "
    "size > 256KiB, delay > 10m, queue PATTERN, caller PATTERN (in patterns * stands for any characters)"
)


class TierUrl(NamedTuple):
    """A tier of the configuration."""

    name: str
    url: str


class BodyTierRule(NamedTuple):
    """One rule: what every condition that it has says must be so. `above_bytes` and `above_ms` None: any."""

    tier: str
    above_bytes: int | None = None
    above_ms: int | None = None
    queue: str = ""
    caller: str = ""

    @property
    def asks_for(self) -> BodyRule:
        rules = BodyRule.NONE
        rules |= BodyRule.SIZE if self.above_bytes is not None else BodyRule.NONE
        rules |= BodyRule.DELAY if self.above_ms is not None else BodyRule.NONE
        rules |= BodyRule.QUEUE if self.queue else BodyRule.NONE
        return rules | (BodyRule.CALLER if self.caller else BodyRule.NONE)

    def applies(self, queue: str, size: int, delay_ms: int, caller: str) -> bool:
        return (
            (self.above_bytes is None or size > self.above_bytes)
            and (self.above_ms is None or delay_ms > self.above_ms)
            and (not self.queue or fnmatchcase(queue, self.queue))
            and (not self.caller or fnmatchcase(caller, self.caller))
        )

    @property
    def text(self) -> str:
        """As people write it; `parse_rule` reads it back."""
        conditions = [
            *([f"size > {size_text(self.above_bytes)}"] if self.above_bytes is not None else []),
            *([f"delay > {stored_duration_text(self.above_ms)}"] if self.above_ms is not None else []),
            *([f"queue {self.queue}"] if self.queue else []),
            *([f"caller {self.caller}"] if self.caller else []),
        ]
        return f"{self.tier}: {' and '.join(conditions)}"


def parse_rule(text: str) -> BodyTierRule:
    """ValueError: it is none.

    >>> parse_rule("s3: delay > 10m and size > 4KiB").text
    's3: size > 4KiB and delay > 10m'
    """
    found = _RULE.fullmatch(text)
    if found is None:
        raise ValueError
    rule = BodyTierRule(found[1])
    for condition in re.split(r"\s+and\s+", found[2].strip()):
        parts = _CONDITION.fullmatch(condition)
        if parts is None:
            raise ValueError
        amount, word, pattern = parts[2], parts[1] or parts[3], parts[4]
        if word == "size":
            rule = rule._replace(above_bytes=_SIZES.parse(amount))
        elif word == "delay":
            rule = rule._replace(above_ms=_DELAYS.parse(amount))
        elif word == "queue":
            rule = rule._replace(queue=pattern)
        else:
            rule = rule._replace(caller=pattern)
    return rule


def default_rules(tier: str) -> list[BodyTierRule]:
    """What is large, and what waits long enough to be worth two calls of a tier."""
    return [
        BodyTierRule(tier, above_bytes=256 * _KIB),
        BodyTierRule(tier, above_bytes=4 * _KIB, above_ms=600_000),
    ]


def tier_urls(texts: Sequence[str]) -> list[TierUrl]:
    """The name of a tier is that of its scheme where none is given.

    >>> tier_urls(["s3://bucket/jobs", "cold=gs://archive"])
    [TierUrl(name='s3', url='s3://bucket/jobs'), TierUrl(name='cold', url='gs://archive')]
    """
    tiers = []
    for text in texts:
        name, equals, url = text.partition("=")
        if not equals or "://" in name:
            name, url = text.partition("://")[0], text
        tiers.append(TierUrl(name, url))
    return tiers


def shown_url(url: str) -> str:
    """The URL of a tier without what may be a secret."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class TierUrls(Words):
    """The tiers of bodies."""

    metavar = "URL"

    def __init__(self) -> None:
        schemes = "|".join(SCHEMES)
        super().__init__(
            rf"({TIER_NAME}=)?({schemes})://\S+",
            "URL or NAME=URL, each URL of s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or "
            "file:///FOLDER",
        )


class BodyRules(Words):
    """Rules that say which bodies go to which tier."""

    metavar = "RULE"

    def __init__(self) -> None:
        super().__init__(r"(?s:.*)", RULE_ALLOWED)

    def parse(self, value: object) -> tuple[str, ...]:
        return tuple(parse_rule(each).text for each in super().parse(value))


class QueueBodies(Text):
    """Where bodies of one queue go: nothing (the rules of the server), `shard`, or a rule."""

    metavar = "RULE"

    def __init__(self) -> None:
        super().__init__(r"(?s:.*)", f"nothing, shard, or a rule: {RULE_ALLOWED}")

    def parse(self, value: object) -> str:
        text = super().parse(value).strip()
        return text if text in ("", SHARD) else parse_rule(text).text
