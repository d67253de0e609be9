"""Plans that broke a rule once, each the shortest known, by what went wrong then."""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.parts.part import PartSettings
from tests.simulation.plan import Fault, Plan

BUSY = PartSettings(pause_s=0.5, lull=0.0, deaths_per_hour=0.0)

ONCE_BROKE: Mapping[str, Plan] = {
    "quotas stood still, as the store that has their allocation had lost its last changes": Plan(
        1, 1, 3, 0.7, {"limits": BUSY}, [Fault("roll_back", 10.0, 25.0, shard=1, amount=0.3)]
    ),
}
