"""The thresholds of `pinlater check`: what can be watched, and how it is written, on the command line and in TOML.

warn = { ready = 10_000, oldest = "5m" }
--warn ready=10000,oldest=5m
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pinlater.cli.times import parse_duration_ms

OF_QUEUES = ("ready", "scheduled", "in_progress", "failed", "oldest")
OF_CLUSTER = ("shards_out", "shards_full", "unready", "servers")
KEYS = OF_QUEUES + OF_CLUSTER
AT_LEAST = "servers"
"""The one of which there must not be fewer; of all others there must not be more."""

Values = Mapping[str, int | None]
"""Thresholds by key; `oldest` in ms; None: whatever it is, all is well."""


@dataclass(frozen=True)
class Limits:
    """What begins to be worth a warning, and what is critical."""

    warn: Values = field(default_factory=dict)
    crit: Values = field(default_factory=dict)

    def over(self, below: Limits) -> Limits:
        """These, and where they say nothing, those."""
        return Limits({**below.warn, **self.warn}, {**below.crit, **self.crit})


DEFAULT = Limits({"shards_out": 0, "shards_full": 0, "unready": 0}, {"servers": 1})
"""A shard is out or full, or a process not ready: a warning. No server is ready: critical."""


def parse_limits(texts: Iterable[str], allowed: Iterable[str] = KEYS) -> dict[str, int | None]:
    """The thresholds of `ready=1000,oldest=5m`, or of several such texts. ValueError.

    >>> parse_limits(["ready=1000,oldest=5m", "shards-out=none"])
    {'ready': 1000, 'oldest': 300000, 'shards_out': None}
    """
    pairs = [part.partition("=") for text in texts for part in text.split(",") if part.strip()]
    for key, equals, _ in pairs:
        if not equals:
            raise ValueError(f"{key!r} is not KEY=THRESHOLD")
    return limits_of({key.strip(): text.strip() for key, _, text in pairs}, allowed)


def limits_of(written: object, allowed: Iterable[str] = KEYS) -> dict[str, int | None]:
    """The thresholds of a table, where numbers may stand as such. ValueError."""
    if not isinstance(written, Mapping):
        raise ValueError(f"{written!r} is no table of thresholds")
    found: dict[str, int | None] = {}
    for name, value in written.items():
        key = str(name).replace("-", "_")
        if key not in allowed:
            raise ValueError(f"{name!r} cannot be checked here; allowed: {', '.join(allowed)}")
        found[key] = _threshold(key, value)
    return found


def _threshold(key: str, value: object) -> int | None:
    if value == "none":
        return None
    if key == "oldest":
        return parse_duration_ms(str(value))
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{key} is {value!r}; allowed: a whole number, or none")
    return int(text)
