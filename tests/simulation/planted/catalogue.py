"""The catalogue of planted faults: of every guard, the plan that finds that it is gone, by which rule and within which
bound, or the reason why no plan can.

The guards are those of the lists of mutations (tests/conformance/mutations_*.py), under their names there, and those
above the stores (guards.py). Where a guard of another store has the same named test as one of SQLite, it is the same
guard in other words: that one is planted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from tests.conformance.mutation import Change, Mutation
from tests.conformance.test_mutations import MUTATIONS
from tests.simulation.plan import Plan
from tests.simulation.planted.found import FOUND
from tests.simulation.planted.guards import GUARDS
from tests.simulation.planted.plans import PLANS
from tests.simulation.planted.reasons import REASONS, Reason


@dataclass(frozen=True)
class Entry:
    """`change`: takes the guard out. `plan`: the name of the one that finds it by this `rule` within `minutes` of
    virtual time, or `reason`. `elsewhere`: the guards of other stores that are the same in other words.
    """

    name: str
    change: Change
    plan: str = ""
    rule: str = ""
    minutes: int = 0
    reason: Reason | None = None
    elsewhere: Sequence[str] = ()

    @property
    def is_planted(self) -> bool:
        """Whether a plan finds it."""
        return self.plan != ""

    def by(self) -> Plan:
        return PLANS[self.plan]


@cache
def entries() -> Mapping[str, Entry]:
    """All guards, by their names. KeyError: of one neither a plan nor a reason is known."""
    pairs = pairing()
    elsewhere: dict[str, list[str]] = {}
    for name, here in pairs.items():
        for each in here:
            elsewhere.setdefault(each, []).append(name)
    found = {name: (plan, *how) for plan, faults in FOUND.items() for name, how in faults.items()}
    why = {name: reason for reason, names in REASONS.items() for name in names}
    all_of_them: dict[str, Entry] = {}
    for change in [*MUTATIONS, *GUARDS]:
        name = change.name
        if change.store != "sqlite":
            all_of_them[name] = Entry(name, change, reason=_of_other_store(change, pairs[name]))
        elif name in found:
            all_of_them[name] = Entry(name, change, *found[name], elsewhere=elsewhere.get(name, ()))
        else:
            all_of_them[name] = Entry(name, change, reason=why[name], elsewhere=elsewhere.get(name, ()))
    return all_of_them


@cache
def pairing() -> Mapping[str, Sequence[str]]:
    """Of each guard of another store, those of SQLite that are the same in other words: the same named test fails
    without them, under the same circumstances where there are such.
    """
    same: dict[object, dict[str, None]] = {}
    alike: dict[object, dict[str, None]] = {}
    for mutation in MUTATIONS:
        if mutation.store == "sqlite":
            same.setdefault(_circumstances(mutation), {})[mutation.name] = None
            alike.setdefault(mutation.test, {})[mutation.name] = None
    return {
        mutation.name: list(same.get(_circumstances(mutation), {}) or alike.get(mutation.test, {}))
        for mutation in MUTATIONS
        if mutation.store != "sqlite"
    }


def _circumstances(mutation: Mutation) -> object:
    return mutation.test, str(sorted(mutation.given.items()))


def _of_other_store(change: Change, pair: Sequence[str]) -> Reason:
    if pair:
        return Reason.OTHER_STORE
    if "FOR UPDATE" in change.old or change.store == "dynamodb":
        return Reason.AT_ONCE
    return Reason.OWN_WAY
