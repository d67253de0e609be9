"""Callers of a simulated cluster: each part by itself, all of them while all kinds of faults lie between callers and
servers, and that a seed decides all of it.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest
import structlog

from tests.simulation.caller_network import FaultKind
from tests.simulation.parts import PARTS
from tests.simulation.parts.part import PartSettings
from tests.simulation.plan import Fault, Plan
from tests.simulation.run import Outcome, run_plan

MINUTES = 0.4
BUSY = PartSettings(producers=2, workers=3, pause_s=0.5, lull=0.0, wait_ms=5_000, deaths_per_hour=60.0)
LIGHT = PartSettings(workers=1, pause_s=3.0, lull=0.0, wait_ms=5_000, deaths_per_hour=60.0)

CALLS: Mapping[str, set[str]] = {
    "plain": {"enqueueJobs", "dequeueJobs", "ackJobs", "checkpointJobs", "heartbeatJobs"},
    "keyed": {"enqueueJobs", "dequeueFromQueues", "lookupJobs"},
    "results": {"enqueueJobs", "lookupJobs"},
    "cancels": {"cancelJobs", "rescheduleJobs"},
    "many_queues": {"dequeueFromQueues"},
    "limits": {"updateQueue", "getQueues"},
    "dead_letters": {"changeJobs", "changeFoundJobs", "retryFailedJobs", "deleteJobs"},
    "counts": {"getJobCount", "scanJobs", "searchJobs", "getClusterStatus", "explainJobs"},
    "schedules": {"updateSchedule", "deleteSchedule", "getSchedules", "dequeueJobs"},
    "flows": {"createFlow", "addFlowItems", "sealStage", "getFlow", "retryFlowItems", "getFlowItems"},
    "bodies": {"enqueueJobs", "dequeueFromQueues", "lookupJobs"},
    "overflow": {"enqueueJobs", "lookupJobs"},
    "strangers": {"ackJobs", "getJobCount", "enqueueJobs"},
    "contested": {"enqueueJobs", "lookupJobs", "cancelJobs"},
    "chains": {"enqueueJobs", "cancelJobs"},
    "breakers": {"dequeueJobs", "ackJobs", "getQueues"},
    "latest": {"enqueueJobs", "cancelJobs", "lookupJobs"},
    "groups": {"enqueueJobs", "dequeueJobs", "cancelJobs", "rescheduleJobs"},
    "group_limits": {"enqueueJobs", "dequeueJobs", "updateQueue", "updateGroup", "getGroups", "getQueues"},
    "commands": {"enqueueJobs", "dequeueJobs", "heartbeatJobs", "commandWorkers"},
}
"""Those that a part is there for."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


def between_callers_and_servers(amount: float) -> list[Fault]:
    """All kinds of them from the beginning to the end, but for a cut of a few seconds; and the death of a server."""
    lasting = [Fault(f"callers_{kind.value}", 0.01, MINUTES * 60, amount=amount) for kind in FaultKind]
    brief = Fault("callers_cut", 5.0, 3.0, amount=1.0)
    return [*(each for each in lasting if each.kind != brief.kind), brief, Fault("kill", MINUTES * 30, 3.0)]


def calls_of(outcome: Outcome) -> Counter[str]:
    events = map(json.loads, outcome.history)
    return Counter(event["method"] for event in events if "method" in event)


@pytest.mark.parametrize("name", PARTS)
def test_a_part_by_itself_makes_its_calls_and_comes_to_its_end(name: str) -> None:
    outcome = run_plan(Plan(1, 2, 3, MINUTES, {name: BUSY}))
    assert outcome.violations == []
    assert CALLS[name] - set(calls_of(outcome)) == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTS)
def test_a_part_comes_to_its_end_whatever_befalls_its_calls(name: str) -> None:
    outcome = run_plan(Plan(2, 2, 3, MINUTES, {name: BUSY}, between_callers_and_servers(0.2)))
    assert outcome.violations == []


def test_all_parts_come_to_their_ends_whatever_befalls_their_calls() -> None:
    outcome = run_plan(Plan(3, 2, 3, MINUTES, dict.fromkeys(PARTS, LIGHT), between_callers_and_servers(0.2)))
    assert outcome.violations == []
    assert {kind for kind in FaultKind if f"befell callers: {kind}" not in outcome.met} == set()


def test_one_seed_is_one_history_and_another_seed_another() -> None:
    parts, faults = {"plain": BUSY, "keyed": BUSY}, between_callers_and_servers(0.2)
    first, again, other = (run_plan(Plan(seed, 2, 3, MINUTES, parts, faults)) for seed in (1, 1, 2))
    assert (first.history, first.trace) == (again.history, again.trace)
    assert other.history != first.history


def test_programs_die_and_are_started_again_under_other_names() -> None:
    outcome = run_plan(Plan(1, 1, 1, MINUTES, {"plain": PartSettings(deaths_per_hour=600.0)}))
    lives = {event["by"] for event in map(json.loads, outcome.history) if "by" in event}
    assert {"plain-worker-0.1", "plain-worker-0.2"} <= lives
    assert outcome.violations == []
