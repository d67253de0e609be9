"""What callers of a simulated cluster do, in parts: each has queues, producers, workers and operators of its own."""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.parts.bodies import Bodies
from tests.simulation.parts.breakers import Breakers
from tests.simulation.parts.cancels import Cancels
from tests.simulation.parts.chains import Chains
from tests.simulation.parts.commands import Commands
from tests.simulation.parts.contested import Contested
from tests.simulation.parts.counts import Counts
from tests.simulation.parts.dead_letters import DeadLetters
from tests.simulation.parts.flows import Flows
from tests.simulation.parts.group_limits import GroupLimits
from tests.simulation.parts.groups import Groups
from tests.simulation.parts.keyed import Keyed
from tests.simulation.parts.latest import Latest
from tests.simulation.parts.limits import Limits
from tests.simulation.parts.many_queues import ManyQueues
from tests.simulation.parts.overflow import Overflow
from tests.simulation.parts.part import Part
from tests.simulation.parts.plain import Plain
from tests.simulation.parts.results import Results
from tests.simulation.parts.schedules import Schedules
from tests.simulation.parts.strangers import Strangers

PARTS: Mapping[str, type[Part]] = {
    part.NAME: part
    for part in (
        Plain,
        Keyed,
        Results,
        Cancels,
        ManyQueues,
        Limits,
        DeadLetters,
        Counts,
        Schedules,
        Flows,
        Bodies,
        Overflow,
        Strangers,
        Contested,
        Chains,
        Breakers,
        Latest,
        Groups,
        GroupLimits,
        Commands,
    )
}
"""By the name that a plan lists."""

FOR_PLANTED_FAULTS = ("chains", "contested", "breakers", "latest", "groups")
"""No random plan has one of these: they were tried under few of the faults."""

BESIDE_OTHERS = ("group_limits", "commands")
"""A part of random plans has one of these beside those that are drawn, so that what a seed drew before stays."""
