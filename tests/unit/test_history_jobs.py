"""What calls are to single jobs: their outcomes in each form of an answer, the open jobs, and the story of one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from pinlater.history.call_events import CallBegin, CallEnd, CallError, Event, Note
from pinlater.history.job_parts import NOT_THERE, job_parts
from pinlater.history.job_story import calls_of, job_story
from pinlater.history.open_jobs import open_jobs

A, B, C = (f"mail:s1:p1:{number}" for number in (1, 2, 3))
ACKS = {
    "queueName": "mail",
    "jobsSucceeded": [{"jobDescriptor": A, "claimDescriptor": "c"}],
    "jobsFailed": [{"jobDescriptor": B}],
}
METADATA = {"claimDescriptor": "c", "attemptsRemaining": 2}
CLAIMED = {"jobs": {C: "sha256:0"}, "jobMetadata": {C: METADATA}}
LOST = CallError("OutcomeUnknown", "OUTCOME_UNKNOWN", "unknown")

Part = tuple[str, str, str]

CASES: dict[str, tuple[str, dict[str, Any], Any, list[Part]]] = {
    "enqueue": (
        "enqueueJobs",
        {"jobs": [{"body": "1"}, {"body": "2"}]},
        {"jobDescriptors": [A, B]},
        [(A, "enqueue", "STORED"), (B, "enqueue", "STORED")],
    ),
    "enqueue with keys": (
        "enqueueJobs",
        {"jobs": [{"dedupeKey": "1"}, {"dedupeKey": "2"}]},
        {"jobDescriptors": [A, B], "outcomes": [1, 2]},
        [(A, "enqueue", "KEPT"), (B, "enqueue", "REPLACED")],
    ),
    "enqueue that failed in part": (
        "enqueueJobs",
        {"jobs": [{"body": "1"}, {"body": "2"}]},
        CallError("ShardConnectionFailed", job_descriptors=["", B]),
        [(B, "enqueue", "STORED")],
    ),
    "acks": ("ackJobs", ACKS, {"outcomes": [1, 2]}, [(A, "success", "SUCCEEDED"), (B, "failure", "RETRIED")]),
    "acks at an older server": ("ackJobs", ACKS, None, [(A, "success", ""), (B, "failure", "")]),
    "acks of unknown outcome": ("ackJobs", ACKS, LOST, [(A, "success", ""), (B, "failure", "")]),
    "a dequeue whose riding acks all had an effect": (
        "dequeueJobs",
        {"jobAckRequest": ACKS},
        CLAIMED,
        [(A, "success", "SUCCEEDED"), (B, "failure", ""), (C, "claim", "")],
    ),
    "a dequeue of which a riding ack had none": (
        "dequeueJobs",
        {"jobAckRequest": ACKS},
        {**CLAIMED, "ackOutcomes": [0, 3]},
        [(A, "success", "IGNORED"), (B, "failure", "FAILED"), (C, "claim", "")],
    ),
    "a dequeue of unknown outcome": (
        "dequeueJobs",
        {"jobAckRequest": ACKS},
        LOST,
        [(A, "success", ""), (B, "failure", "")],
    ),
    "a dequeue from many queues": (
        "dequeueFromQueues",
        {"acks": [ACKS, {"jobsSucceeded": [{"jobDescriptor": C}]}]},
        {"jobs": {}, "ackOutcomes": [[1, 3], [0]]},
        [(A, "success", "SUCCEEDED"), (B, "failure", "FAILED"), (C, "success", "IGNORED")],
    ),
    "an assignment": (
        "assignItem",
        {"number": 7},
        {"outcome": 0, "jobDescriptor": A, "claimDescriptor": "c"},
        [(A, "claim", "")],
    ),
    "an assignment of what is not due": ("assignItem", {"number": 7}, {"outcome": 1}, []),
    "heartbeats": (
        "heartbeatJobs",
        {"heartbeats": [{"jobDescriptor": A}, {"jobDescriptor": B}]},
        {"outcomes": [0, 1]},
        [(A, "heartbeat", "OK"), (B, "heartbeat", "LOST")],
    ),
    "checkpoints": ("checkpointJobs", {"requests": [{"jobDescriptor": A}]}, None, [(A, "checkpoint", "")]),
    "cancels": (
        "cancelJobs",
        {"jobDescriptors": [A, B]},
        {"outcomes": {A: 0, B: 3}},
        [(A, "cancel", "CANCELLED"), (B, "cancel", "NOT_FOUND")],
    ),
    "reschedules": (
        "rescheduleJobs",
        {"jobs": [{"key": {"dedupeKey": "k"}}, {"jobDescriptor": B}]},
        {"outcomes": [0, 2]},
        [(B, "reschedule", "ENDED")],
    ),
    "lookups": (
        "lookupJobs",
        {"jobDescriptors": [A, B]},
        {A: {"jobDescriptor": A, "jobState": 3, "cancelled": True}},
        [(A, "found", "CANCELLED"), (B, "lookup", NOT_THERE)],
    ),
    "a lookup without an answer": ("lookupJobs", {"jobDescriptors": [A]}, LOST, [(A, "lookup", "")]),
    "scans": ("scanJobs", {}, {"scannedJobs": [{"jobDescriptor": A, "jobState": 1}]}, [(A, "found", "IN_PROGRESS")]),
    "a call of no job": ("createQueue", {}, None, []),
}


def call(number: int, method: str, request: dict[str, Any], answer: Any, *, resent: bool = False) -> list[Event]:
    """A call of a second, and what it was answered."""
    begin = CallBegin(number, "me", number * 1000, method, {"request": request})
    if isinstance(answer, CallError):
        return [begin, CallEnd(number, number * 1000 + 1000, None, answer, resent)]
    return [begin, CallEnd(number, number * 1000 + 1000, answer, None, resent)]


def parts(events: Iterable[Event]) -> list[Part]:
    begin, end = events
    assert isinstance(begin, CallBegin)
    assert isinstance(end, CallEnd)
    return [(part.job, part.action, part.outcome) for part in job_parts(begin, end)]


@pytest.mark.parametrize("name", CASES)
def test_a_call_has_a_part_for_each_job_that_it_is_about(name: str) -> None:
    method, request, answer, expected = CASES[name]
    assert parts(call(1, method, request, answer)) == expected


def test_a_dequeue_that_was_sent_twice_says_nothing_of_its_acks() -> None:
    events = call(1, "dequeueJobs", {"jobAckRequest": ACKS}, CLAIMED, resent=True)
    assert parts(events) == [(A, "success", ""), (B, "failure", ""), (C, "claim", "")]


def test_a_claim_brings_what_is_known_of_it() -> None:
    begin, end = call(1, "dequeueJobs", {}, CLAIMED)
    assert isinstance(begin, CallBegin)
    assert isinstance(end, CallEnd)
    assert [part.details for part in job_parts(begin, end)] == [{"body": "sha256:0", **METADATA}]


STORED = call(1, "enqueueJobs", {"jobs": [{}, {}, {}]}, {"jobDescriptors": [A, B, C]})
HISTORY = [
    *STORED,
    *call(2, "dequeueJobs", {}, {"jobs": {A: "", B: ""}}),
    *call(3, "ackJobs", ACKS, {"outcomes": [1, 2]}),
    *call(4, "lookupJobs", {"jobDescriptors": [C]}, {C: {"jobDescriptor": C, "jobState": 0}}),
]


def test_jobs_are_open_until_a_call_has_seen_their_end() -> None:
    assert open_jobs(STORED) == [A, B, C]
    assert open_jobs(HISTORY) == [B, C]
    failed = call(5, "ackJobs", {"jobsFailed": [{"jobDescriptor": B}]}, {"outcomes": [3]})
    cancelled = call(6, "cancelJobs", {"jobDescriptors": [C]}, {"outcomes": {C: 0}})
    assert open_jobs([*HISTORY, *failed, *cancelled]) == []


def test_a_job_that_has_ended_before_its_enqueue_was_answered_is_not_open() -> None:
    begun, stored = STORED[:1], STORED[1:]
    claimed = call(5, "dequeueJobs", {"queueName": "mail"}, {"jobs": {A: "sha256:0"}, "jobMetadata": {A: METADATA}})
    acked = call(6, "ackJobs", {"jobsSucceeded": [{"jobDescriptor": A}]}, {"outcomes": [1]})
    assert open_jobs([*begun, *claimed, *acked, *stored]) == [B, C]
    assert open_jobs([*begun, *claimed, *stored, *acked]) == [B, C]
    assert open_jobs([*begun, *claimed, *stored]) == [A, B, C]


def test_a_call_without_an_end_brings_no_job_and_ends_none() -> None:
    assert open_jobs([*HISTORY, *call(5, "ackJobs", {"jobsSucceeded": [{"jobDescriptor": B}]}, None)[:1]]) == [B, C]
    assert open_jobs(STORED[:1]) == []


def test_the_story_of_a_job_has_its_calls_as_they_were_answered_and_notes_of_its_shard() -> None:
    notes = [Note("rollback", 9_000, "1", 5_000), Note("lost", 9_500, "2"), Note("end", 10_000)]
    broken = [
        *call(5, "ackJobs", {"jobsFailed": [{"jobDescriptor": B}]}, LOST),
        *call(6, "cancelJobs", {"jobDescriptors": [B]}, {"outcomes": {B: 0}}, resent=True),
        *call(7, "cancelJobs", {"jobDescriptors": [B]}, None)[:1],
    ]
    story = [(each.at_ms, each.call, each.did, each.outcome) for each in job_story([*HISTORY, *broken, *notes], B)]
    assert story == [
        (2_000, 1, "enqueue", "STORED"),
        (3_000, 2, "claim", ""),
        (4_000, 3, "failure", "RETRIED"),
        (6_000, 5, "failure", "OutcomeUnknown: it may have been carried out"),
        (7_000, 6, "cancel", "CANCELLED, sent more than once"),
        (7_000, 7, "cancel", "no answer"),
        (9_000, 0, "rollback", ""),
        (10_000, 0, "end", ""),
    ]


def test_a_call_is_found_by_its_number() -> None:
    assert calls_of([*HISTORY, Note("end", 10_000)], 3) == HISTORY[4:6]
    assert calls_of(HISTORY, 9) == []
