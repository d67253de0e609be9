"""A plan of a run: the cluster, the parts of its callers, and when which fault begins and ends; drawn from a seed.

A plan is plain values: as JSON it can be kept, changed by hand, and run again on any interpreter.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import msgspec

from pinlater.config import Config
from tests.simulation.parts import BESIDE_OTHERS, FOR_PLANTED_FAULTS, PARTS
from tests.simulation.parts.part import PartSettings

SIZES = ((1, 30), (2, 32), (3, 18), (4, 10), (6, 6), (8, 4))
"""Of clusters, in servers, and how often each is drawn; shards are up to twice as many and two."""

EVERY_S = (20.0, 300.0)
"""Between two faults, on average over a plan: that average is between these."""

LASTS_S = (0.05, 60.0)
MOST_POLLED = 6
"""Ways between servers and stores that do not notify, at most: each takes 25 polls a second while workers wait."""

CALM_MINUTES, CALM_SERVERS, CALM_SHARDS, CALM_STATS_MS = 60.0, (1, 1, 1, 2), (1, 1, 1, 2), 60_000
"""A plan that is longer has one of these numbers of servers and shards, and renews, tidies and counts as seldom as any:
its hours are for what takes hours, and cost a tenth of those of a large cluster.
"""

BESIDE = 0.2
"""How often a plan has a part beside those that are drawn."""

INTERVALS_MS = (1_000, 1_000, 5_000, 15_000)
LEASES_MS = (5_000, 5_000, 15_000, 30_000)
USUAL = Config()
TICK_MS = 10
"""Times in a plan are rounded to that, so that they can be read."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong (faults.py says what each kind is), from when on, for how long. `server` and `shard` choose among
    those that there are then; `amount` is between 0 and 1: how large it is.
    """

    kind: str
    at_s: float
    lasts_s: float
    server: int = 0
    shard: int = 0
    amount: float = 0.5


@dataclass(frozen=True)
class Plan:
    """`minutes`: how long callers produce and faults begin; what follows is healing and finishing."""

    seed: int
    servers: int
    shards: int
    minutes: float
    parts: Mapping[str, PartSettings]
    faults: Sequence[Fault] = ()
    notifies: bool = True
    lease_ms: int = 5_000
    maintenance_interval_ms: int = 1_000
    stats_interval_ms: int = USUAL.stats_interval_ms
    overflow: bool = False

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str, kinds: Collection[str]) -> Self:
        """ValueError: it is no plan, or names a part that is not there, or a fault that is none of `kinds`."""
        plan = msgspec.json.decode(text, type=cls)
        for name in plan.parts:
            if name not in PARTS:
                raise ValueError(f"there is no part {name!r}; there are {', '.join(PARTS)}")
        for fault in plan.faults:
            if fault.kind not in kinds:
                raise ValueError(f"there is no fault {fault.kind!r}; there are {', '.join(kinds)}")
        return plan

    def without(self, **changed: Any) -> Plan:
        return replace(self, **changed)


def draw(seed: int, kinds: Mapping[str, float], *, most_minutes: float = 60.0, parts: Sequence[str] = ()) -> Plan:
    """The plan of a seed. `kinds`: those of faults, and how often each is drawn; `parts`: these, in place of some."""
    rng = random.Random(f"plan {seed}")
    (servers,) = rng.choices([size for size, _ in SIZES], [weight for _, weight in SIZES])
    shards = rng.randint(1, 2 * servers + 2)
    minutes = round(math.exp(rng.uniform(math.log(1.0), math.log(most_minutes))), 1)
    drawn = sorted(set(PARTS).difference(FOR_PLANTED_FAULTS, BESIDE_OTHERS))
    chosen = list(parts) or sorted(rng.sample(drawn, min(len(drawn), rng.randint(1, 4))))
    quiet, is_calm = max(1.0, minutes / 3), minutes > CALM_MINUTES
    if is_calm:
        calm = random.Random(f"calm {seed}")
        servers, shards = calm.choice(CALM_SERVERS), calm.choice(CALM_SHARDS)
    loads = {name: _load(rng, quiet) for name in chosen}
    if not parts:
        beside = random.Random(f"beside {seed}")
        loads |= {name: _load(beside, quiet) for name in BESIDE_OTHERS if beside.random() < BESIDE}
    return Plan(
        seed,
        servers,
        shards,
        minutes,
        loads,
        _faults(rng, minutes * 60, kinds, max(1.0, minutes / 10)),
        servers * shards > MOST_POLLED or rng.random() < 0.8 or is_calm,
        max(LEASES_MS) if is_calm else rng.choice(LEASES_MS),
        max(INTERVALS_MS) if is_calm else rng.choice(INTERVALS_MS),
        CALM_STATS_MS if is_calm else USUAL.stats_interval_ms,
        "overflow" in chosen or rng.random() < 0.2,
    )


def _load(rng: random.Random, quiet: float) -> PartSettings:
    """The longer a run is, the quieter."""
    return PartSettings(
        producers=rng.randint(1, 2),
        workers=rng.randint(1, 3),
        pause_s=round(rng.uniform(0.3, 4.0) * quiet, 2),
        burst=rng.choice((1, 3, 8)),
        lull=round(rng.uniform(0.0, 0.05), 3),
        lull_s=round(rng.uniform(10.0, 120.0) * min(quiet, 5.0), 1),
        delay_s=round(rng.uniform(1.0, 30.0), 1),
        claim_timeout_s=rng.choice((3, 10, 30)),
        deaths_per_hour=round(rng.uniform(0.0, 60.0) / quiet, 1),
    )


def _faults(rng: random.Random, until_s: float, kinds: Mapping[str, float], rare: float) -> list[Fault]:
    """The longer a run is, the rarer."""
    every_s = math.exp(rng.uniform(*map(math.log, EVERY_S))) * rare
    some = {kind: weight for kind, weight in kinds.items() if rng.random() < 0.6} or kinds
    faults = []
    at_s = rng.expovariate(1 / every_s)
    while at_s < until_s:
        (kind,) = rng.choices(list(some), list(some.values()))
        lasts_s = math.exp(rng.uniform(*map(math.log, LASTS_S)))
        amount = round(rng.random(), 3)
        faults.append(Fault(kind, _rounded(at_s), _rounded(lasts_s), rng.randrange(100), rng.randrange(100), amount))
        at_s += rng.expovariate(1 / every_s)
    return faults


def _rounded(seconds: float) -> float:
    return round(max(1, round(seconds * 1000 / TICK_MS)) * TICK_MS / 1000, 3)
