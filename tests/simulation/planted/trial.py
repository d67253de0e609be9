"""Runs with one guard taken out: whether what goes wrong then is found, by which rule, and after how long."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from tests.conformance.mutation import Change
from tests.simulation.plan import Plan
from tests.simulation.run import Outcome, run_plan
from tests.simulation.shrink import rule_of, shrink
from tests.simulation.sweep import run_apart

AT_MOST_S = 60
"""Of a processor, for one run: some guards end loops."""

FINISH_S = 200.0
"""Small plans have no jobs whose claims and delays take longer."""

LEAST_S = 60.0
"""What a run counts for that broke off, and cannot say how far it came."""

SHRINK_TRIES = 40


@dataclass(frozen=True)
class Trial:
    """`outcome`: of the last run; `virtual_s`: of all of them. `rule`: by which it was found; "": it was not.
    `others`: the rules that were broken in runs in which it was not.
    """

    outcome: Outcome
    virtual_s: float
    rule: str
    others: Sequence[str] = ()

    @property
    def is_found(self) -> bool:
        return self.rule != ""

    @property
    def minutes(self) -> int:
        return math.ceil(self.virtual_s / 60)


def run_without(change: Change, plan: Plan) -> Outcome:
    """A run of the plan in which the guard is not there."""
    return run_apart(plan, run=partial(_changed, change), at_most_s=AT_MOST_S)


def _changed(change: Change, plan: Plan) -> Outcome:
    with change.applied():
        return run_plan(plan, FINISH_S)


def attempt(change: Change, plan: Plan, minutes: float, rule: str = "") -> Trial:
    """The plan with one seed after the other, until it finds the fault by this rule ("": by any), or this bound of
    virtual minutes is reached.
    """
    return attempt_all(change, (plan.without(seed=seed) for seed in count(1)), minutes, rule)


def attempt_all(change: Change, plans: Iterator[Plan], minutes: float, rule: str = "") -> Trial:
    """One plan after the other, likewise."""
    virtual_s = 0.0
    others: dict[str, None] = {}
    while True:
        outcome = run_without(change, next(plans))
        virtual_s += outcome.virtual_s or LEAST_S
        rules = list(map(rule_of, outcome.violations))
        found = rule if rule in rules else rules[0] if rules and not rule else ""
        if not found:
            others |= dict.fromkeys(rules)
        if found or virtual_s >= minutes * 60:
            return Trial(outcome, virtual_s, found, list(others))


def shrunk(change: Change, trial: Trial) -> Outcome:
    """Of the shortest plan that still breaks the same rule."""
    found = [trial.outcome]

    def breaks_it(shorter: Plan) -> bool:
        outcome = run_without(change, shorter)
        breaks = trial.rule in map(rule_of, outcome.violations)
        if breaks:
            found.append(outcome)
        return breaks

    shrink(trial.outcome.plan, breaks_it, SHRINK_TRIES)
    return found[-1]
