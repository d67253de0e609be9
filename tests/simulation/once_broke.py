"""Plans that broke a rule once, each the shortest known, by what went wrong then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.simulation.parts.part import PartSettings
from tests.simulation.plan import Fault, Plan

BUSY = PartSettings(pause_s=0.5, lull=0.0, deaths_per_hour=0.0)
BUSIER = replace(BUSY, producers=2, workers=4, pause_s=0.2)
PLANNING = PartSettings(2, 1, 1.5, 3, 0.0, 248.1, 19.5, claim_timeout_s=10, deaths_per_hour=0.0)

ONCE_BROKE: Mapping[str, Plan] = {
    "quotas stood still, as the store that has their allocation had lost its last changes": Plan(
        1, 1, 3, 0.7, {"limits": BUSY}, [Fault("roll_back", 10.0, 25.0, shard=1, amount=0.3)]
    ),
    "an ack was IGNORED, as it came to a server that did not have the new shard yet": Plan(
        2, 3, 1, 0.3, {"plain": BUSIER}, [Fault("add_shard", 2.0, 1.0)], lease_ms=30_000
    ),
    "the clock of one store, set an hour ahead, outvoted those of four servers and another store": Plan(
        1, 4, 2, 0.7, {"plain": BUSY}, [Fault("store_clock", 12.0, 20.0, amount=1.0)], lease_ms=30_000
    ),
    "the clock of the only store, set an hour back, outvoted those of four servers": Plan(
        2, 4, 1, 0.7, {"plain": BUSY}, [Fault("store_clock", 12.0, 20.0, amount=0.0)], lease_ms=30_000
    ),
    "the last firing of a schedule was shown older, while the shard that has its mark hung": Plan(
        4101,
        1,
        10,
        1.9,
        {"schedules": PartSettings(1, 3, 2.05, 8, 0.03, 78.1, 10.4, claim_timeout_s=10, deaths_per_hour=18.1)},
        [Fault("hang", 81.64, 9.35, 48, 37, 0.499)],
        lease_ms=15_000,
    ),
    "the last firing of a schedule was shown older by a server that did not reach its home": Plan(
        22, 2, 2, 1.6, {"schedules": PLANNING}, [Fault("cut", 56.0, 8.0, server=4, shard=2)]
    ),
    "the last firing of a schedule was shown older at a home to which it came back, while the one before was cut": Plan(
        20,
        2,
        3,
        1.9,
        {"schedules": PLANNING},
        [Fault("cut", 65.0, 8.0, server=5, shard=2), Fault("cut", 74.0, 8.0, server=6, shard=3)],
    ),
    "a job of a serialize key overtook earlier ones, as its shards were drained and taken back in turn": Plan(
        5,
        2,
        3,
        1.5,
        {"keyed": PartSettings(2, 3, 0.5, lull=0.0, wait_ms=5_000, deaths_per_hour=0.0)},
        [Fault("drain_shard", 10.0 + 12 * number, 8.0, shard=number) for number in range(6)],
    ),
    "a failure of an item was recorded by its store alone, at a server that did not know the queue's mark yet": Plan(
        9617,
        2,
        1,
        0.1,
        {"flows": PartSettings(2, 1, 1.07, 8, 0.02, 99.5, 2.9, claim_timeout_s=3, deaths_per_hour=18.4)},
        [],
        lease_ms=15_000,
        maintenance_interval_ms=15_000,
    ),
    "an operator gave up a shard without which all servers had been restarted": Plan(
        9570,
        1,
        2,
        3.2,
        {"limits": PartSettings(2, 1, 1.74, 3, 0.025, 27.0, 28.4, claim_timeout_s=3, deaths_per_hour=21.8)},
        [
            Fault("give_up_shard", 111.54, 52.39, server=32, shard=19, amount=0.69),
            Fault("kill_all", 118.62, 0.1, server=43, shard=58, amount=0.192),
        ],
        lease_ms=5_000,
    ),
    "a claim forgot groups where another one had no more jobs": Plan(
        1, 1, 2, 1.0, {"groups": PartSettings(2, 3, 0.3, lull=0.0, delay_s=5.0, deaths_per_hour=0.0)}
    ),
    "a group stayed full for minutes, as its jobs were counted while a shard hung": Plan(
        1, 1, 3, 0.5, {"group_limits": replace(BUSY, burst=8)}, [Fault("hang", 12.0, 15.0, shard=1)]
    ),
    "jobs whose time was over took turns of their group": Plan(
        141,
        2,
        1,
        0.8,
        {"groups": PartSettings(2, 2, 0.37, 1, 0.012, 95.8, 7.3, claim_timeout_s=3, deaths_per_hour=0.0)},
        maintenance_interval_ms=15_000,
    ),
}
