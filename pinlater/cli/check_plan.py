"""What a check looks at: the cluster's table in clusters.toml, and what the command line says instead of it.

[clusters.mail.check]
warn = { ready = 10_000, oldest = "5m" }
crit = { ready = 100_000, oldest = "30m", servers = 2 }

[clusters.mail.check.queues.letters]
crit = { oldest = "2m" }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pinlater.cli.check_limits import DEFAULT, KEYS, OF_QUEUES, Limits, limits_of


@dataclass(frozen=True)
class CheckPlan:
    """`given` comes from the command line, and counts first. `queues`: only these; empty: all of them."""

    for_all: Limits = field(default_factory=Limits)
    of_queue: Mapping[str, Limits] = field(default_factory=dict)
    given: Limits = field(default_factory=Limits)
    queues: tuple[str, ...] = ()

    def cluster(self) -> Limits:
        """What counts for servers and shards."""
        return self.given.over(self.for_all).over(DEFAULT)

    def limits(self, queue: str) -> Limits:
        """What counts for a queue."""
        return self.given.over(self.of_queue.get(queue, Limits())).over(self.for_all)


def plan_of(table: object, given: Limits, queues: tuple[str, ...]) -> CheckPlan:
    """From the table `check` of a cluster, as TOML gives it. ValueError, with the place."""
    if not isinstance(table, Mapping):
        raise ValueError(f"check is {table!r}; allowed: a table")
    of_queue = table.get("queues", {})
    if not isinstance(of_queue, Mapping):
        raise ValueError(f"check.queues is {of_queue!r}; allowed: a table for each queue")
    return CheckPlan(
        _limits({key: each for key, each in table.items() if key != "queues"}, "check", KEYS),
        {str(name): _limits(each, f"check.queues.{name}", OF_QUEUES) for name, each in of_queue.items()},
        given,
        queues,
    )


def _limits(table: object, place: str, allowed: Sequence[str]) -> Limits:
    if not isinstance(table, Mapping):
        raise ValueError(f"{place} is {table!r}; allowed: a table with warn and crit")
    for key in table:
        if key not in ("warn", "crit"):
            raise ValueError(
                f"{place} has the key {key!r}; allowed: warn, crit" + (", queues" if place == "check" else "")
            )
    try:
        return Limits(limits_of(table.get("warn", {}), allowed), limits_of(table.get("crit", {}), allowed))
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error
