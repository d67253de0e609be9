"""Random plans: what is drawn from seeds holds, a seed is one run, and a plan that fails is shrunk to what it takes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import structlog

from tests.simulation.faults import KINDS, WEIGHTS
from tests.simulation.once_broke import ONCE_BROKE
from tests.simulation.parts import FOR_PLANTED_FAULTS, PARTS
from tests.simulation.plan import Fault, Plan, draw
from tests.simulation.run import Outcome, run_plan
from tests.simulation.shrink import rule_of, shrink
from tests.simulation.sweep import BROKE_OFF, run_apart, sweep

ROOT = Path(__file__).parents[2]
MINUTES = 1.2
"""Of a plan at most: it then takes some seconds of a processor."""

CI, RELEASE = range(1, 21), range(1, 1001)
SMALL = Plan(1, 1, 1, 0.2, {"plain": draw(1, WEIGHTS, parts=["plain"]).parts["plain"]})


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Servers and clients have much to say of what happens to them here."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.getLogger("pinlater.client").setLevel(logging.CRITICAL)
    yield
    structlog.reset_defaults()
    logging.getLogger("pinlater.client").setLevel(logging.NOTSET)


def _said(outcome: Outcome) -> str:
    return "\n".join([*outcome.violations, f"again: scripts/bench simulation --plan '{outcome.plan.to_json()}'"])


@pytest.mark.parametrize("seed", CI)
def test_a_random_plan_holds(seed: int) -> None:
    _holds(draw(seed, WEIGHTS, most_minutes=MINUTES).to_json())


@pytest.mark.parametrize("what", ONCE_BROKE)
def test_a_plan_that_broke_a_rule_once_holds(what: str) -> None:
    _holds(ONCE_BROKE[what].to_json())


def _holds(plan: str) -> None:
    """With fixed hashes of texts, so that a plan is the same run each time."""
    command = [sys.executable, "-m", "tests.simulation", "--plan", plan]
    variables = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "workers")])}
    ended = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}\nagain: scripts/bench simulation --plan '{plan}'"


@pytest.mark.timeout(4 * 3600)
def test_a_thousand_random_plans_hold() -> None:
    """Of which each fifth lasts for up to half an hour."""
    plans = (draw(seed, WEIGHTS, most_minutes=30.0 if seed % 5 == 0 else MINUTES) for seed in RELEASE)
    summary = sweep(plans, until=lambda _: False, processes=2, on_end=lambda outcome, so_far: print(so_far.line()))
    assert not summary.failed, "\n\n".join(map(_said, summary.failed))


def test_a_plan_has_what_its_seed_says_in_order_and_reads_back() -> None:
    drawn = [draw(seed, WEIGHTS) for seed in range(200)]
    assert [draw(seed, WEIGHTS) for seed in range(200)] == drawn
    assert [Plan.from_json(plan.to_json(), KINDS).to_json() for plan in drawn] == [plan.to_json() for plan in drawn]
    assert {name for plan in drawn for name in plan.parts} == set(PARTS).difference(FOR_PLANTED_FAULTS)
    assert {fault.kind for plan in drawn for fault in plan.faults} == set(KINDS)
    for plan in drawn:
        assert all(earlier.at_s <= later.at_s for earlier, later in pairwise(plan.faults))
        assert all(fault.at_s <= plan.minutes * 60 and fault.lasts_s > 0 for fault in plan.faults)


def test_a_plan_with_a_part_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no part 'nothing'; there are plain"):
        Plan.from_json(SMALL.to_json().replace("plain", "nothing"), KINDS)
    with pytest.raises(ValueError, match="there is no fault 'rain'; there are kill"):
        Plan.from_json(replace(SMALL, faults=[Fault("rain", 1.0, 1.0)]).to_json(), KINDS)


def test_one_plan_is_one_run_in_whichever_process() -> None:
    plan = draw(3, WEIGHTS, most_minutes=1.01)
    here, there = run_plan(plan), run_apart(plan, keeps_history=True)
    assert (here.trace, here.history) == (there.trace, there.history)
    assert here.calls > 0


def test_a_run_that_breaks_off_is_a_violation() -> None:
    outcome = run_apart(replace(SMALL, shards=0))
    assert [rule_of(each) for each in outcome.violations] == [BROKE_OFF]


def test_a_plan_is_shrunk_to_what_the_violation_takes() -> None:
    """It takes a kill after a freeze, two servers, and the part `keyed`."""
    plan = draw(9, WEIGHTS, most_minutes=60.0, parts=["keyed", "plain", "flows"])
    kill, freeze = Fault("kill", 20.0, 1.0), Fault("freeze", 10.0, 2.0)
    plan = replace(plan, servers=6, shards=9, faults=[*plan.faults[:3], freeze, *plan.faults[3:9], kill])
    asked = []

    def fails(shorter: Plan) -> bool:
        asked.append(shorter)
        faults = list(shorter.faults)
        in_order = freeze in faults and kill in faults and faults.index(freeze) < faults.index(kill)
        return in_order and "keyed" in shorter.parts and shorter.servers > 1

    shrunk = shrink(plan, fails)
    assert (shrunk.faults, list(shrunk.parts), shrunk.servers, shrunk.shards) == ([freeze, kill], ["keyed"], 2, 1)
    assert shrunk.minutes < 1.0
    assert len(asked) < 100
