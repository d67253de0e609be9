"""What the calls of stores are for, by their names in the tally of the network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from pinlater.backends.base import OPERATIONS

BACKGROUND: Mapping[str, Collection[str]] = {
    "leases": {"kv_put lease", "kv_list lease"},
    "config": {"list_config"},
    "pings": {"ping"},
    "maintenance": {"expire_claims", "expire_jobs", "prune", "stats", "blocked_chains", "kv_put census"},
    "alarms": {"kv_list census", "kv_list alarm", "kv_put alarm", "kv_list alarm-mute", "kv_list worker"},
}
"""Those that servers make whether or not there are jobs."""

POLLS = frozenset({"next_due", "subscribe"})
"""Those of servers at which somebody waits: when a job is due, and that the store is to notify of others."""

COUNTS = frozenset({"count_ready"})
CLAIMS = frozenset(name for name, each in OPERATIONS.items() if each.claims)
ACKS = frozenset({"ack", "ack_and_claim"})

IDLE: Mapping[str, Collection[str]] = {
    name: BACKGROUND.get(name, POLLS) for name in ("leases", "config", "pings", "polls", "maintenance", "alarms")
}
"""All calls of a cluster that has no jobs."""

_IN_BACKGROUND = frozenset[str]().union(*BACKGROUND.values())


def for_jobs(calls: Mapping[str, float]) -> dict[str, float]:
    """Those that are made because there are jobs, or callers who wait for some."""
    return {name: made for name, made in calls.items() if name not in _IN_BACKGROUND}


def number(calls: Mapping[str, float], names: Collection[str]) -> float:
    """How many calls there are of these names."""
    return sum(calls.get(name, 0.0) for name in sorted(names))


def per(calls: Counter[str], amount: float) -> dict[str, float]:
    """So many for each."""
    return {name: made / amount for name, made in calls.items()}
