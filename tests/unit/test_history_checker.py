"""The checker of histories, job by job: each rule by a history that is explained and one, other by one line, that is
not."""

from __future__ import annotations

import pytest

from pinlater.history.checker import check
from pinlater.history.checker.verdict import RULES
from pinlater.model import AckOutcome, CancelOutcome, HeartbeatOutcome, JobState, RescheduleOutcome
from tests.unit.checker_stand import (
    INVALID,
    QUEUE,
    UNKNOWN,
    NoteRow,
    Row,
    ack,
    cancel,
    checkpoint,
    claim,
    claimed_at,
    dequeue_lost,
    end,
    enqueue,
    enqueue_lost,
    events,
    heartbeat,
    job,
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
        "before its retry delay, which began before a lookup still saw the claim",
        [
            *CLAIMED,
            ack(2, "A", FIRST, RETRIED, failed=True, retryDelayMillis=8_000, took_s=3),
            look(4, "A", JobState.IN_PROGRESS, claimDescriptor=FIRST, attemptsRemaining=2),
        ],
        claim(10, "A", left=1, run_after_s=10),
        claim(9, "A", left=1, run_after_s=9),
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
    (
        "state",
        "a heartbeat renewed it, from before the request to stop that it heard of",
        [
            *CLAIMED,
            cancel(204, "A", CancelOutcome.REQUESTED, running=True),
            heartbeat(200, "A", FIRST, HeartbeatOutcome.CANCEL, took_s=5),
        ],
        look(502, "A", JobState.FAILED, cancelled=True),
        look(302, "A", JobState.FAILED, cancelled=True),
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
        "result",
        "kept for an hour",
        [queue_settings(-1, result_ttl="1h"), *CLAIMED, ack(2, "A", FIRST, result="sha256:1")],
        look(4_000, "A", JobState.SUCCEEDED),
        look(3_000, "A", JobState.SUCCEEDED),
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
    (
        "state",
        "a reschedule by a time of before",
        [*STORED, reschedule(3, "A", RescheduleOutcome.RESCHEDULED)],
        reschedule(4, "A", RescheduleOutcome.RESCHEDULED, onlyIfUpdatedAtMillis=ms(3.05)),
        reschedule(4, "A", RescheduleOutcome.RESCHEDULED, onlyIfUpdatedAtMillis=ms(2.9)),
    ),
    (
        "once",
        "a job that nobody enqueued",
        [enqueue(0, "A", body="sha256:1")],
        claim(1, "B", body="sha256:2"),
        claim(1, "B", body="sha256:1"),
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


UNKNOWN_OUTCOMES: dict[str, Rows] = {
    "an ack that was lost was carried out": [
        *CLAIMED,
        ack(2, "A", FIRST, error=UNKNOWN),
        look(3, "A", JobState.SUCCEEDED),
    ],
    "an ack that was lost was not carried out": [*CLAIMED, ack(2, "A", FIRST, error=UNKNOWN), claim(400, "A", left=1)],
    "an ack without an end is carried out late": [
        *CLAIMED,
        ack(2, "A", FIRST, took_s=None),
        look(100, "A", JobState.IN_PROGRESS, claimDescriptor=FIRST),
        look(101, "A", JobState.SUCCEEDED),
    ],
    "an ack that was sent twice": [
        *CLAIMED,
        ack(2, "A", FIRST, IGNORED, resent=True),
        look(3, "A", JobState.SUCCEEDED),
    ],
    "an invalid ack beside valid ones": [*CLAIMED, ack(2, "A", FIRST, error=INVALID), look(3, "A", JobState.SUCCEEDED)],
    "an enqueue that was lost": [enqueue_lost(0), claim(1, "A"), ack(2, "A", FIRST)],
    "a dequeue that was lost takes an attempt": [*STORED, dequeue_lost(1), claim(400, "A", left=1)],
    "a dequeue that was lost fails a job": [enqueue(0, "A"), dequeue_lost(1), look(400, "A", JobState.FAILED)],
    "a claim that nobody heard of comes and goes": [
        *STORED,
        look(1, "A", JobState.IN_PROGRESS, claimDescriptor="server:1:0:9:gone"),
        claim(2, "A"),
    ],
    "calls at one moment": [
        enqueue(0, "A", took_s=5),
        claim(1, "A", took_s=4),
        look(2, "A", JobState.PENDING, took_s=3),
        ack(1, "A", claimed_at(1), IGNORED, took_s=4),
    ],
    "a heartbeat that reached no shard renews nothing": [
        *CLAIMED,
        heartbeat(200, "A", FIRST, HeartbeatOutcome.UNREACHABLE),
        claim(302, "A", left=1),
    ],
    "a job of before the recording": [
        ack(0, "A", "server:1:0:0:other", FAILED, failed=True),
        look(1, "A", JobState.FAILED),
    ],
}


@pytest.mark.parametrize("rows", UNKNOWN_OUTCOMES.values(), ids=UNKNOWN_OUTCOMES)
def test_what_may_be_is_explained(rows: Rows) -> None:
    verdict = judged(*rows)
    assert verdict.is_explained, list(verdict.lines())


@pytest.mark.parametrize("note", [NoteRow(50, "rollback", "1", 1.5), NoteRow(50, "lost", "1")])
def test_what_a_store_lost_is_not_held_against_it(note: NoteRow) -> None:
    again = [*DONE, claim(60, "A")]
    assert judged(*again, note).is_explained
    assert not judged(*again, NoteRow(50, note.note, "2", note.to_s)).is_explained


def test_a_job_of_a_shard_that_is_drained_may_have_left_it() -> None:
    rows: Rows = [*DEFAULTS, enqueue(0, "A", runAfterTimestampMillis=ms(60)), look(50, "A", None)]
    assert [each.rule for each in judged(*rows).violations] == ["lost"]
    assert judged(*rows, NoteRow(10, "drain", "1")).is_explained


def test_a_rollback_leaves_what_was_answered_before() -> None:
    assert not judged(*DONE, NoteRow(50, "rollback", "1", 10), claim(60, "A")).is_explained


def test_an_ack_may_have_come_before_its_answer_where_a_store_was_set_back_under_an_earlier_call() -> None:
    """Long dequeues that began before the rollback hand the job out behind it; the answer of the ack comes late."""
    rows: Rows = [
        NoteRow(5, "rollback", "1", 4),
        enqueue(6, "A"),
        claim(1, "A", by="first", claim=FIRST, took_s=6),
        ack(8, "A", FIRST, RETRIED, failed=True, took_s=20),
        claim(2, "A", claim=SECOND, left=1, took_s=8),
        ack(11, "A", SECOND),
    ]
    assert judged(*rows).is_explained
    assert [each.rule for each in judged(*rows[:3], *rows[4:], ack(12, "A", FIRST, RETRIED, failed=True)).violations]


@pytest.mark.parametrize(
    ("note", "again_s"),
    [
        (NoteRow(5, "rollback", "1", 0.5), 6),
        (NoteRow(5, "lost", "1"), 6),
        (NoteRow(5, "rollback", "1", 1.5), 25),  # its claim stood then, and has to expire
    ],
)
def test_an_ack_whose_answer_came_late_may_have_been_lost_with_its_store(note: NoteRow, again_s: float) -> None:
    """A dequeue with an ack waits for a job, and says how the ack ended when it has one. The fall of a store in between
    took the ack along, and the job ran again.
    """

    def is_explained(*rows: Row | NoteRow, at_s: float) -> bool:
        again = claimed_at(at_s)
        first = claim(1, "A", until_s=20)
        return judged(*STORED, first, *rows, claim(at_s, "A", left=1), ack(at_s + 1, "A", again)).is_explained

    late = ack(2, "A", FIRST, by="first", took_s=30)
    assert is_explained(late, note, at_s=again_s)
    assert not is_explained(late, at_s=again_s)
    assert not is_explained(note, ack(5.5, "A", FIRST, by="first", took_s=30), at_s=again_s)
    assert again_s == 6 or not is_explained(late, note, at_s=6)


def test_an_enqueue_whose_answer_came_behind_the_fall_of_its_store_may_be_lost() -> None:
    fall: Rows = [*DEFAULTS, NoteRow(5, "rollback", "1", 3), look(20, "A", None)]
    assert judged(enqueue(4, "A", took_s=2), *fall).is_explained
    assert not judged(enqueue(5.5, "A", took_s=0.5), *fall).is_explained
    assert not judged(enqueue(2, "A", took_s=0.5), *fall).is_explained


def test_a_job_that_was_seen_first_when_it_had_ended_may_go_when_its_time_is_over() -> None:
    """Its time to live counts from its end, and not from the look."""
    lost = [*DEFAULTS, enqueue(0, "A"), NoteRow(50, "lost", "1")]
    seen = look(80_000, "A", JobState.SUCCEEDED, finishedAtMillis=ms(3_000))
    assert not judged(*lost, seen, look(89_000, "A", None)).is_explained
    assert judged(*lost, seen, look(90_000, "A", None)).is_explained
    assert judged(*lost, look(80_000, "A", JobState.SUCCEEDED), look(81_000, "A", None)).is_explained


def test_times_of_servers_may_differ_by_the_tolerance() -> None:
    early = [enqueue(0, "A", runAfterTimestampMillis=ms(60)), claim(59, "A", run_after_s=60)]
    assert judged(*early, tolerance_ms=1_000).is_explained
    assert not judged(*early, tolerance_ms=100).is_explained


def test_calls_of_one_caller_are_in_order_whatever_the_tolerance() -> None:
    ignored = [*CLAIMED, ack(1.105, "A", FIRST, IGNORED)]
    assert not judged(*ignored, tolerance_ms=50).is_explained


def body_again(*before: Row | NoteRow) -> Rows:
    """A job is handed out that nobody enqueued, with the body of one that somebody did."""
    return [enqueue(0, "A", body="sha256:1"), *before, claim(9, "B", body="sha256:1")]


REPLAY = Row(1, 2, "operator", "changeJobs", {"queueName": "dead", "action": 3}, {"changed": 1})
SCHEDULE = {"schedule": {"name": "ticks", "queueName": QUEUE}}


@pytest.mark.parametrize(
    "other",
    [
        enqueue(1, "C", body="sha256:1"),
        enqueue_lost(1, body="sha256:1"),
        checkpoint(1, "C", claimed_at(1), newBody="sha256:1"),
        reschedule(1, "C", RescheduleOutcome.NOT_FOUND, body="sha256:1"),
        NoteRow(1, "drain", "1"),
        NoteRow(1, "lost", "1"),
        REPLAY,
        Row(1, 2, "operator", "updateSchedule", SCHEDULE, {}),
        Row(1, 2, "operator", "createFlow", {"stages": [{"name": "first", "queueName": QUEUE}]}, {"id": "f"}),
    ],
)
def test_a_body_may_come_again_where_something_else_may_have_brought_it(other: Row | NoteRow) -> None:
    assert not judged(*body_again()).is_explained
    assert judged(*body_again(other)).is_explained


def test_the_shortest_part_is_shown() -> None:
    verdict = judged(
        enqueue(0, "A"),
        claim(1, "A"),
        heartbeat(2, "A", FIRST, HeartbeatOutcome.OK),
        look(3, "A", JobState.IN_PROGRESS, claimDescriptor=FIRST),
        enqueue(3, "B"),
        ack(4, "A", FIRST),
        claim(6, "A", by="other"),
    )
    assert list(verdict.lines()) == [
        f"ended: {job('A')}: it was handed out when it had succeeded",
        f"  against {RULES['ended']}",
        "    4.000 to 4.100 s  worker call 6 ackJobs: acked a success under server:1:0:1:worker: SUCCEEDED",
        "    6.000 to 6.100 s  other call 7 dequeueJobs: was handed it under server:1:0:6:other, 2 attempts left, "
        "until 1790000306050",
        "NOT EXPLAINED: 7 calls about 2 jobs by 4 callers in 6.100 s, 0 of unknown outcome",
    ]
    assert verdict.violations[0].calls == (6, 7)


def test_what_is_not_known_is_passed_over() -> None:
    verdict = judged(
        Row(0, 1, "worker", "newMethod", {"anything": []}, "anything"),
        Row(1, 2, "worker", "ackJobs", {"jobsSucceeded": "no list", "newField": 1}, {"outcomes": [99]}),
        Row(2, 3, "worker", "dequeueJobs", {}, None),
        Row(3, 4, "worker", "lookupJobs", {"jobDescriptors": ["no descriptor"]}, {"no descriptor": {"jobState": 77}}),
        NoteRow(5, "a note of a newer version"),
    )
    assert verdict.is_explained
    assert verdict.passed_over == {"newMethod": 1, "note a note of a newer version": 1}
    assert verdict.judged.total() == 3


def test_jobs_that_nobody_saw_end_are_counted() -> None:
    lost_ack = [*CLAIMED, ack(2, "A", FIRST, error=UNKNOWN), end(10)]
    verdict = judged(*lost_ack)
    assert verdict.is_explained
    assert verdict.unsettled_jobs == 1


def test_settings_of_all_queues_may_be_given() -> None:
    gone = [*DONE, look(80_000, "A", None)]
    assert judged(*gone).is_explained
    assert not check(events(gone), defaults={"succeeded_ttl": "24h"}).is_explained
