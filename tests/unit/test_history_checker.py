"""The checker of histories, job by job: each rule by a history that is explained and one, other by one line, that is
not."""

from __future__ import annotations

import pytest

from pinlater.history.checker.verdict import RULES
from pinlater.model import AckOutcome, CancelOutcome, HeartbeatOutcome, JobState, RescheduleOutcome
from tests.unit.checker_stand import (
    NoteRow,
    Row,
    ack,
    cancel,
    checkpoint,
    claim,
    claimed_at,
    enqueue,
    heartbeat,
    judged,
    look,
    ms,
    queue_settings,
    reschedule,
)

Rows = list[Row | NoteRow]

FIRST, SECOND = claimed_at(1), claimed_at(10)
IGNORED, RETRIED, FAILED, CANCELLED = AckOutcome.IGNORED, AckOutcome.RETRIED, AckOutcome.FAILED, AckOutcome.CANCELLED

STORED: Rows = [enqueue(0, "A")]
CLAIMED: Rows = [*STORED, claim(1, "A")]
DONE: Rows = [*CLAIMED, ack(2, "A", FIRST)]
DEFAULTS: Rows = [queue_settings(-1, crash_budget="3", failed_ttl="7d", succeeded_ttl="24h")]

PAIRS: list[tuple[str, str, Rows, Row | NoteRow, Row | NoteRow]] = [
    ("lost", "never stored", STORED, look(5, "A", JobState.PENDING), look(5, "A", None)),
    ("lost", "in progress", CLAIMED, look(5, "A", JobState.IN_PROGRESS, claimDescriptor=FIRST), look(5, "A", None)),
    (
        "lost",
        "kept for a day",
        [*DEFAULTS, *DONE],
        look(90_000, "A", None),
        look(80_000, "A", None),
    ),
    (
        "early",
        "before its run_after",
        [enqueue(0, "A", runAfterTimestampMillis=ms(60))],
        claim(60, "A", run_after_s=60),
        claim(59, "A", run_after_s=60),
    ),
    (
        "early",
        "before its retry delay",
        [*CLAIMED, ack(2, "A", FIRST, RETRIED, failed=True, retryDelayMillis=8_000)],
        claim(10, "A", left=1),
        claim(9, "A", left=1),
    ),
    (
        "early",
        "rescheduled",
        [*STORED, reschedule(1, "A", RescheduleOutcome.RESCHEDULED, runAfterTimestampMillis=ms(60))],
        claim(60, "A"),
        claim(30, "A"),
    ),
    ("twice", "its claim stands", CLAIMED, claim(302, "A", left=1), claim(300.9, "A", left=1)),
    (
        "twice",
        "a heartbeat renewed it",
        [*CLAIMED, heartbeat(200, "A", FIRST, HeartbeatOutcome.OK)],
        claim(501, "A", left=1),
        claim(302, "A", left=1),
    ),
    ("claim", "a descriptor twice", CLAIMED, claim(400, "A", left=1), claim(300, "A", claim=FIRST)),
    ("ended", "an ack was answered", DONE, look(3, "A", JobState.SUCCEEDED), claim(400, "A", left=1)),
    (
        "ended",
        "failed for good",
        [*CLAIMED, ack(2, "A", FIRST, FAILED, failed=True, permanent=True)],
        look(3, "A", JobState.FAILED),
        claim(400, "A", left=1),
    ),
    (
        "gone",
        "cancelled",
        [*STORED, cancel(1, "A", CancelOutcome.CANCELLED)],
        look(2, "A", None),
        claim(2, "A"),
    ),
    (
        "attempts",
        "a failure takes one",
        [*CLAIMED, ack(2, "A", FIRST, RETRIED, failed=True)],
        claim(3, "A", left=1),
        claim(3, "A", left=2),
    ),
    (
        "attempts",
        "an expiry takes one",
        [*CLAIMED],
        look(400, "A", JobState.PENDING, attemptsRemaining=1),
        look(400, "A", JobState.PENDING, attemptsRemaining=2),
    ),
    (
        "attempts",
        "attempts remain",
        CLAIMED,
        ack(2, "A", FIRST, RETRIED, failed=True),
        ack(2, "A", FIRST, FAILED, failed=True),
    ),
    (
        "attempts",
        "none remains",
        [*STORED, claim(1, "A"), ack(2, "A", FIRST, RETRIED, failed=True), claim(10, "A", left=1)],
        ack(11, "A", SECOND, FAILED, failed=True),
        ack(11, "A", SECOND, RETRIED, failed=True),
    ),
    ("ack", "its claim stands", CLAIMED, ack(2, "A", FIRST), ack(2, "A", FIRST, IGNORED)),
    (
        "ack",
        "another claim stands",
        [*CLAIMED, claim(310, "A", left=1)],
        ack(320, "A", FIRST, IGNORED),
        ack(320, "A", FIRST),
    ),
    ("ack", "never claimed", STORED, ack(2, "A", "", IGNORED), ack(2, "A", "")),
    (
        "ack",
        "a heartbeat of a claim that is gone",
        [*CLAIMED, claim(310, "A", left=1)],
        heartbeat(320, "A", FIRST, HeartbeatOutcome.LOST),
        heartbeat(320, "A", FIRST, HeartbeatOutcome.OK),
    ),
    (
        "ack",
        "a heartbeat of a claim that stands",
        CLAIMED,
        heartbeat(2, "A", FIRST, HeartbeatOutcome.OK),
        heartbeat(2, "A", FIRST, HeartbeatOutcome.LOST),
    ),
    (
        "body",
        "handed out",
        [enqueue(0, "A", body="sha256:1")],
        claim(1, "A", body="sha256:1"),
        claim(1, "A", body="sha256:2"),
    ),
    (
        "body",
        "rescheduled",
        [enqueue(0, "A", body="sha256:1"), reschedule(1, "A", RescheduleOutcome.RESCHEDULED, body="sha256:2")],
        claim(2, "A", body="sha256:2"),
        claim(2, "A", body="sha256:1"),
    ),
    (
        "body",
        "checkpointed",
        [
            enqueue(0, "A", body="sha256:1"),
            claim(1, "A", body="sha256:1"),
            checkpoint(2, "A", FIRST, newBodyBytes="sha256:2", moveToPending=True),
        ],
        claim(3, "A", body="sha256:2"),
        claim(3, "A", body="sha256:1"),
    ),
    (
        "result",
        "of the success",
        [*CLAIMED, ack(2, "A", FIRST, result="sha256:1")],
        look(3, "A", JobState.SUCCEEDED, result="sha256:1"),
        look(3, "A", JobState.SUCCEEDED, result="sha256:2"),
    ),
    (
        "expired",
        "it has a last moment",
        [enqueue(0, "A", expiresAtMillis=ms(60))],
        claim(50, "A"),
        claim(61, "A"),
    ),
    (
        "stop",
        "the heartbeat says so",
        [*CLAIMED, cancel(2, "A", CancelOutcome.REQUESTED, running=True)],
        heartbeat(3, "A", FIRST, HeartbeatOutcome.CANCEL),
        heartbeat(3, "A", FIRST, HeartbeatOutcome.OK),
    ),
    (
        "stop",
        "a failure ends it",
        [*CLAIMED, cancel(2, "A", CancelOutcome.REQUESTED, running=True)],
        ack(3, "A", FIRST, CANCELLED, failed=True),
        ack(3, "A", FIRST, RETRIED, failed=True),
    ),
    (
        "stop",
        "nobody asked",
        CLAIMED,
        ack(3, "A", FIRST, RETRIED, failed=True),
        ack(3, "A", FIRST, CANCELLED, failed=True),
    ),
    ("state", "not claimed yet", STORED, look(1, "A", JobState.PENDING), look(1, "A", JobState.SUCCEEDED)),
    (
        "state",
        "nobody gave it back",
        CLAIMED,
        look(2, "A", JobState.IN_PROGRESS, claimDescriptor=FIRST),
        look(2, "A", JobState.PENDING),
    ),
    (
        "state",
        "a cancel of what runs",
        CLAIMED,
        cancel(2, "A", CancelOutcome.IN_PROGRESS),
        cancel(2, "A", CancelOutcome.CANCELLED),
    ),
    (
        "lost",
        "a cancel of what is there",
        STORED,
        cancel(2, "A", CancelOutcome.CANCELLED),
        cancel(2, "A", CancelOutcome.NOT_FOUND),
    ),
    (
        "state",
        "a reschedule of what ended",
        DONE,
        reschedule(3, "A", RescheduleOutcome.ENDED),
        reschedule(3, "A", RescheduleOutcome.RESCHEDULED),
    ),
    ("id", "given twice", STORED, enqueue(1, "B"), enqueue(1, "A")),
    (
        "limit",
        "more than asked for",
        [*STORED, enqueue(0, "B")],
        claim(1, "A", "B", limit=2),
        claim(1, "A", "B", limit=1),
    ),
]


@pytest.mark.parametrize(
    ("rule", "why", "before", "right", "wrong"), PAIRS, ids=[f"{each[0]}-{each[1]}" for each in PAIRS]
)
def test_a_call_that_breaks_a_rule_is_found(rule: str, why: str, before: Rows, right: Row, wrong: Row) -> None:
    explained, contradicted = judged(*before, right), judged(*before, wrong)
    assert explained.is_explained, list(explained.lines())
    assert [each.rule for each in contradicted.violations] == [rule], list(contradicted.lines())
    assert contradicted.violations[0].basis == RULES[rule]
