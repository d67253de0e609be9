"""The small plans by which planted faults are found: of half a minute to two, with callers that do much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.simulation.parts.part import PartSettings
from tests.simulation.plan import Fault, Plan

BUSY = PartSettings(producers=2, workers=3, pause_s=0.4, lull=0.0, delay_s=5.0, claim_timeout_s=3, deaths_per_hour=60.0)

ONE_WORKER = PartSettings(workers=1, pause_s=0.4, burst=8, lull=0.0, delay_s=5.0, deaths_per_hour=0.0)
"""Dequeues of whom run alone, so that the order is judged in which jobs come."""


def _plan(
    *parts: str,
    servers: int = 1,
    shards: int = 2,
    minutes: float = 0.5,
    faults: Sequence[Fault] = (),
    overflow: bool = False,
) -> Plan:
    return Plan(1, servers, shards, minutes, dict.fromkeys(parts, BUSY), faults, overflow=overflow)


def _again(kind: str, every_s: float, lasts_s: float, amount: float = 0.5, until_s: float = 30.0) -> list[Fault]:
    """A fault that comes again and again, on one server and shard after the other."""
    return [
        Fault(kind, every_s * number, lasts_s, number, number, amount) for number in range(1, round(until_s / every_s))
    ]


TENANTS = PartSettings(
    producers=2, workers=3, pause_s=0.3, lull=0.0, delay_s=5.0, claim_timeout_s=10, deaths_per_hour=0.0
)
"""Nobody of them dies: what others had meanwhile is judged exactly."""

LIMITED = replace(TENANTS, burst=8)
LONG_JOBS = replace(LIMITED, workers=12, work_s=3.0, claim_timeout_s=30)
"""Claims of groups that are longer than it takes until their permits are checked."""

QUICK_JOBS = replace(TENANTS, producers=4, workers=4, pause_s=0.1, work_s=0.03)
FEW_JOBS = replace(LIMITED, producers=1, pause_s=2.5, burst=1)

ANSWERS = [*_again("callers_half", 4.0, 3.0, 0.8), *_again("callers_twice", 5.0, 4.0, 1.0)]
PLANS: Mapping[str, Plan] = {
    **{name: _plan(name) for name in ("plain", "keyed", "results", "cancels", "counts", "dead_letters", "bodies")},
    "contested": _plan("contested"),
    "latest": _plan("latest"),
    "a flood beside tenants": Plan(1, 1, 1, 1.0, {"groups": TENANTS}),
    "tenants on two shards": Plan(1, 1, 2, 1.0, {"groups": TENANTS}, maintenance_interval_ms=15_000),
    "orders to workers": Plan(1, 1, 1, 1.0, {"commands": TENANTS}),
    "one shard": _plan("plain", shards=1),
    "one worker": Plan(1, 1, 1, 1.0, {"plain": ONE_WORKER}),
    "a long pause": _plan("limits", minutes=2.0),
    "keyed on two servers": _plan("keyed", servers=2),
    "operators": _plan("dead_letters", servers=2, shards=1, minutes=1.0, faults=_again("slow", 6.0, 4.0, 0.1, 60.0)),
    "operators in a crowd": Plan(
        1,
        2,
        1,
        1.0,
        {"dead_letters": replace(BUSY, producers=24, workers=6, burst=1)},
        _again("slow", 6.0, 5.5, 0.1, 60.0),
    ),
    "a further shard": _plan("keyed", servers=2, minutes=1.0, faults=[Fault("add_shard", 15.0, 1.0)]),
    "homes that move": _plan(
        "keyed",
        servers=2,
        shards=3,
        minutes=1.0,
        faults=[Fault("drain_shard", 8.0, 12.0, shard=1), Fault("drain_shard", 30.0, 12.0, shard=2)],
    ),
    "homes behind a freeze": Plan(
        1,
        2,
        2,
        1.0,
        {"keyed": replace(BUSY, producers=12, pause_s=0.4, burst=2)},
        [
            Fault("drain_shard", 8.0, 12.0, shard=1),
            Fault("drain_shard", 32.0, 12.0, shard=1),
            *[Fault("freeze", at_s, 6.0, server=1) for at_s in (7.9, 19.9, 31.9, 43.9)],
        ],
    ),
    "chains that move": _plan("chains", servers=2, faults=[Fault("drain_shard", 8.0, 8.0, shard=1)]),
    "latest that moves": _plan(
        "latest",
        servers=2,
        shards=3,
        minutes=1.0,
        faults=[Fault("drain_shard", 8.0, 12.0, shard=1), Fault("drain_shard", 30.0, 12.0, shard=2)],
    ),
    "limits": _plan("limits", servers=2),
    "many queues": _plan("many_queues"),
    "a steady pace": _plan("many_queues", minutes=1.5),
    "schedules": _plan("schedules", servers=2),
    "schedules amid freezes and noise": _plan(
        "schedules",
        servers=3,
        shards=1,
        minutes=1.0,
        faults=[*_again("noise", 7.0, 6.5, 0.5, 60.0), *_again("freeze", 2.0, 1.5, until_s=60.0)],
    ),
    "flows": _plan("flows"),
    "strangers": _plan("strangers"),
    "lost answers": _plan("plain", "keyed", faults=ANSWERS),
    "slow flows": _plan("flows", faults=_again("flows_slow", 4.0, 3.0, 0.3)),
    "flows away": _plan("flows", faults=_again("flows_down", 7.0, 5.0, 0.3)),
    "acks twice": Plan(
        1, 1, 2, 0.5, {"flows": replace(BUSY, deaths_per_hour=0.0)}, _again("callers_twice", 5.0, 4.5, 1.0)
    ),
    "lost answers of flows": _plan("flows", faults=ANSWERS),
    "noise": _plan("plain", "keyed", faults=_again("noise", 7.0, 5.0, 1.0)),
    "noise at one shard": _plan("plain", shards=1, faults=_again("noise", 7.0, 6.5, 1.0)),
    "noise at bodies": _plan("bodies", faults=_again("noise", 7.0, 5.0, 1.0)),
    "kills": _plan("plain", "keyed", servers=2, faults=_again("kill", 11.0, 3.0)),
    "clocks within the tolerance": _plan(
        "keyed", servers=2, shards=1, faults=[Fault("server_clock", 5.0, 25.0, 1, 0, 0.50012)]
    ),
    "a wrong clock": _plan("plain", servers=3, shards=3, faults=[Fault("server_clock", 10.0, 30.0, 1, 0, 0.9)]),
    "a provider that comes and goes": _plan("breakers", servers=2, minutes=2.0),
    "groups at their limits": Plan(1, 2, 3, 1.0, {"group_limits": LIMITED}),
    "groups at their limits amid kills": _plan(
        "group_limits", servers=2, shards=3, minutes=1.0, faults=_again("kill", 11.0, 3.0, until_s=60.0)
    ),
    "long jobs of groups": Plan(1, 2, 3, 1.0, {"group_limits": LONG_JOBS}),
    "long jobs of groups, shards away": Plan(
        1, 2, 3, 1.5, {"group_limits": LONG_JOBS}, _again("dead", 20.0, 16.0, until_s=90.0)
    ),
    "quick jobs of groups": Plan(1, 2, 2, 1.0, {"group_limits": QUICK_JOBS}),
    "few jobs of groups": Plan(1, 1, 2, 4.0, {"group_limits": FEW_JOBS}),
    "the home of permits is away": Plan(
        1, 2, 3, 1.0, {"group_limits": LIMITED}, _again("dead", 7.0, 6.0, until_s=60.0)
    ),
    "a shard of groups is given up": Plan(
        1, 2, 3, 1.0, {"group_limits": LONG_JOBS}, [Fault("give_up_shard", 25.0, 5.0, shard=0)]
    ),
    "the home of permits is given up": Plan(
        1, 2, 3, 1.0, {"group_limits": LIMITED}, [Fault("give_up_shard", 25.0, 5.0, shard=2)]
    ),
    "all shards away": _plan(
        "overflow", servers=2, minutes=1.5, faults=_again("all_dead", 25.0, 12.0, until_s=80.0), overflow=True
    ),
}
