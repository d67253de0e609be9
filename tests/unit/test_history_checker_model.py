"""The checker of histories against a server in miniature: what is right is explained, and one false answer is found."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinlater.history.call_events import CallBegin, CallEnd, Event
from pinlater.history.checker import check
from pinlater.model import AckOutcome, EnqueueOutcome, JobState
from tests.unit.checker_model import CLAIM_MS, model_history

RUNS = settings(max_examples=20, deadline=None, derandomize=True)
"""The same in each run. Of seeds 0 to 1,200 with unknown outcomes, three are not explained (docs/history.md)."""
SEEDS = st.integers(0, 2**32)

Call = tuple[CallBegin, CallEnd]


@RUNS
@given(SEEDS)
def test_callers_at_once_are_explained(seed: int) -> None:
    verdict = check(model_history(seed))
    assert verdict.is_explained, list(verdict.lines())
    assert verdict.unjudged_jobs == 0


@RUNS
@given(SEEDS)
def test_calls_of_unknown_outcome_are_explained(seed: int) -> None:
    verdict = check(model_history(seed, unknown=0.2))
    assert verdict.is_explained, list(verdict.lines())


@RUNS
@given(SEEDS)
def test_clocks_that_differ_are_explained(seed: int) -> None:
    verdict = check(model_history(seed, unknown=0.05), tolerance_ms=300)
    assert verdict.is_explained, list(verdict.lines())


# -- one false answer --------------------------------------------------------------------------------------------------


def calls_of(events: list[Event]) -> list[Call]:
    """Those that were answered."""
    begins = {event.call: event for event in events if isinstance(event, CallBegin)}
    ends = [event for event in events if isinstance(event, CallEnd) and event.error is None]
    return [(begins[end.call], end) for end in ends]


def chosen(events: list[Event], rng: random.Random, method: str, fits: Callable[[Call], Any]) -> Call | None:
    """One of the calls of a method that fit."""
    found = [call for call in calls_of(events) if call[0].method == method and fits(call)]
    return rng.choice(found) if found else None


def acked(call: Call) -> bool:
    return call[1].answer["outcomes"] == [AckOutcome.SUCCEEDED]


def handed_out(call: Call) -> bool:
    return bool(call[1].answer["jobs"])


def again(events: list[Event], end: CallEnd, descriptor: str) -> None:
    """Behind that end another worker is handed the job."""
    metadata = {"claimDescriptor": "model:1:0:0:thief", "claimExpiresAtMillis": int(end.at_ms) + CLAIM_MS}
    answer = {"jobs": {descriptor: ""}, "jobMetadata": {descriptor: metadata}}
    place = events.index(end) + 1
    request = {"queueName": "mail", "limit": 1}
    events[place:place] = [
        CallBegin(10**9, "thief", end.at_ms, "dequeueJobs", {"request": request}),
        CallEnd(10**9, end.at_ms, answer),
    ]


def an_ack_is_ignored(events: list[Event], rng: random.Random) -> str:
    call = chosen(events, rng, "ackJobs", lambda call: acked(call) and call[1].at_ms - call[0].at_ms < CLAIM_MS / 2)
    if call is None:
        return ""
    call[1].answer["outcomes"] = [int(AckOutcome.IGNORED)]
    return "ack"


def a_job_is_handed_out_twice(events: list[Event], rng: random.Random) -> str:
    call = chosen(events, rng, "dequeueJobs", handed_out)
    if call is None:
        return ""
    again(events, call[1], next(iter(call[1].answer["jobs"])))
    return "twice"


def an_ended_job_is_handed_out(events: list[Event], rng: random.Random) -> str:
    call = chosen(events, rng, "ackJobs", acked)
    if call is None:
        return ""
    again(events, call[1], call[0].args["request"]["jobsSucceeded"][0]["jobDescriptor"])
    return "ended"


def a_job_is_not_there(events: list[Event], rng: random.Random) -> str:
    call = chosen(events, rng, "lookupJobs", lambda call: set(call[1].answer) & named(call))
    if call is None:
        return ""
    del call[1].answer[next(iter(named(call) & set(call[1].answer)))]
    return "lost"


def named(call: Call) -> set[str]:
    return set(call[0].args["request"]["jobDescriptors"])


def a_body_is_another(events: list[Event], rng: random.Random) -> str:
    call = chosen(events, rng, "dequeueJobs", handed_out)
    if call is None:
        return ""
    call[1].answer["jobs"][next(iter(call[1].answer["jobs"]))] = "sha256:another"
    return "body"


def an_attempt_comes_back(events: list[Event], rng: random.Random) -> str:
    call = chosen(events, rng, "dequeueJobs", handed_out)
    if call is None:
        return ""
    next(iter(call[1].answer["jobMetadata"].values()))["attemptsRemaining"] += 1
    return "attempts"


def a_job_is_early(events: list[Event], rng: random.Random) -> str:
    call = chosen(events, rng, "dequeueJobs", handed_out)
    if call is None:
        return ""
    next(iter(call[1].answer["jobMetadata"].values()))["runAfterMillis"] = int(call[1].at_ms) + 1_000
    return "early"


def a_result_is_another(events: list[Event], rng: random.Random) -> str:
    def has_result(call: Call) -> bool:
        return any("result" in info for info in call[1].answer.values())

    call = chosen(events, rng, "lookupJobs", has_result)
    if call is None:
        return ""
    next(info for info in call[1].answer.values() if "result" in info)["result"] = "sha256:another"
    return "result"


def a_job_ends_by_itself(events: list[Event], rng: random.Random) -> str:
    def is_pending(call: Call) -> bool:
        return any(info["jobState"] == JobState.PENDING for info in call[1].answer.values())

    call = chosen(events, rng, "lookupJobs", is_pending)
    if call is None:
        return ""
    pending = [info for info in call[1].answer.values() if info["jobState"] == JobState.PENDING]
    pending[0]["jobState"] = int(JobState.SUCCEEDED)
    return "state"


def a_key_is_given_twice(events: list[Event], rng: random.Random) -> str:
    call = chosen(events, rng, "enqueueJobs", lambda call: call[1].answer["outcomes"] == [EnqueueOutcome.KEPT])
    if call is None:
        return ""
    call[1].answer["outcomes"] = [int(EnqueueOutcome.STORED)]
    call[1].answer["jobDescriptors"] = ["mail:s1:p1:1790000000999999"]
    return "key"


FALSE_ANSWERS = (
    an_ack_is_ignored,
    a_job_is_handed_out_twice,
    an_ended_job_is_handed_out,
    a_job_is_not_there,
    a_body_is_another,
    an_attempt_comes_back,
    a_job_is_early,
    a_result_is_another,
    a_job_ends_by_itself,
    a_key_is_given_twice,
)

Falsify = Callable[[list[Event], random.Random], str]


def falsified(falsify: Falsify, seed: int, **chances: Any) -> tuple[list[Event], str]:
    """A history with one false answer, and the rule that it breaks; "" where there is nothing to falsify."""
    events = copy.deepcopy(model_history(seed, operators=False, **chances))
    return events, falsify(events, random.Random(seed))


@pytest.mark.parametrize("falsify", FALSE_ANSWERS)
def test_a_false_answer_to_one_caller_is_always_found(falsify: Falsify) -> None:
    """One call is under way at a time, so that its answer follows from those before it."""
    found = 0
    for seed in range(15):
        events, rule = falsified(falsify, seed, callers=1, calls=60)
        if rule:
            verdict = check(events)
            assert rule in [each.rule for each in verdict.violations], (seed, list(verdict.lines()))
            found += 1
    assert found >= 1


@pytest.mark.parametrize("falsify", FALSE_ANSWERS)
def test_a_false_answer_among_calls_at_once_is_mostly_found(falsify: Falsify) -> None:
    found = tried = 0
    for seed in range(8):
        events, rule = falsified(falsify, seed)
        if rule:
            tried += 1
            found += not check(events).is_explained
    assert found >= 0.6 * tried > 0
