"""The checker of histories, over several jobs and whole queues: each rule by a history that is explained and one, other
by one line, that is not.
"""

from __future__ import annotations

import pytest

from pinlater.history.checker.verdict import RULES
from pinlater.model import CancelOutcome, EnqueueOutcome, JobState
from tests.unit.checker_stand import (
    QUEUE,
    NoteRow,
    Row,
    ack,
    cancel,
    claim,
    claimed_at,
    end,
    enqueue,
    enqueue_lost,
    job,
    judged,
    look,
    look_by_key,
    ms,
    queue_settings,
    set_queue,
)

Rows = list[Row | NoteRow]
KEPT, REPLACED = EnqueueOutcome.KEPT, EnqueueOutcome.REPLACED
KEY = {"dedupeKey": "k"}
CHAIN = {"serializeKey": "c"}
SENT = {"sendId": "s"}

FIRST_DONE: Rows = [claim(1, "A"), ack(2, "A", claimed_at(1))]
TWO_IN_CHAIN: Rows = [enqueue(0, "A", **CHAIN), enqueue(0.5, "B", **CHAIN)]
LIMITED: Rows = [
    queue_settings(-100, max_in_progress="1", max_jobs_per_second="none", paused="false", paused_until="none"),
    enqueue(0, "A"),
    enqueue(0, "B"),
    claim(1, "A"),
]

PAIRS: list[tuple[str, str, Rows, Row | NoteRow, Row | NoteRow]] = [
    (
        "key",
        "a live job has it",
        [enqueue(0, "A", **KEY)],
        enqueue(1, "A", outcome=KEPT, **KEY),
        enqueue(1, "B", **KEY),
    ),
    (
        "key",
        "it ended",
        [enqueue(0, "A", **KEY), *FIRST_DONE],
        enqueue(3, "B", **KEY),
        enqueue(3, "A", outcome=KEPT, **KEY),
    ),
    (
        "key",
        "its window",
        [enqueue(0, "A", dedupeForMillis=60_000, **KEY), *FIRST_DONE],
        enqueue(62.1, "B", **KEY),
        enqueue(61, "B", **KEY),
    ),
    (
        "key",
        "two at once",
        [enqueue(0, "A", **KEY), look(9, "A", JobState.PENDING), look(9, "B", JobState.PENDING)],
        enqueue(0.05, "B", dedupeKey="other"),
        enqueue(0.05, "B", **KEY),
    ),
    (
        "key",
        "found by it",
        [enqueue(0, "A", **KEY), look(2, "B", None)],
        look_by_key(1, "A", "k"),
        look_by_key(1, "B", "k"),
    ),
    (
        "key",
        "another key",
        [enqueue(0, "A", **KEY)],
        enqueue(1, "B", dedupeKey="o"),
        enqueue(1, "A", outcome=KEPT, dedupeKey="o"),
    ),
    (
        "body",
        "replaced",
        [
            enqueue(0, "A", body="sha256:1", **KEY),
            enqueue(1, "A", outcome=REPLACED, body="sha256:2", onDuplicate=1, **KEY),
        ],
        claim(2, "A", body="sha256:2"),
        claim(2, "A", body="sha256:1"),
    ),
    (
        "state",
        "replaced while it runs",
        [enqueue(0, "A", **KEY), claim(1, "A")],
        enqueue(2, "A", outcome=KEPT, onDuplicate=1, **KEY),
        enqueue(2, "A", outcome=REPLACED, onDuplicate=1, **KEY),
    ),
    ("chain", "the first ended", [*TWO_IN_CHAIN, claim(1, "A")], ack(2, "A", claimed_at(1)), claim(2, "B")),
    ("chain", "in order", TWO_IN_CHAIN, claim(2, "A"), claim(2, "B")),
    (
        "chain",
        "one at a time",
        [enqueue(0, "A", **CHAIN), enqueue(0, "B", **CHAIN), claim(1, "A")],
        look(2, "B", JobState.PENDING),
        claim(2, "B"),
    ),
    ("send", "answered again", [enqueue(0, "A", **SENT)], enqueue(1, "A", **SENT), enqueue(1, "B", **SENT)),
    (
        "send",
        "ten minutes after its end",
        [enqueue(0, "A", **SENT), *FIRST_DONE],
        enqueue(602.1, "B", **SENT),
        enqueue(600, "B", **SENT),
    ),
    ("quota", "one in progress", LIMITED, ack(2, "A", claimed_at(1)), claim(2, "B")),
    (
        "quota",
        "raised",
        [*LIMITED, claim(40, "B")],
        set_queue(3, max_in_progress="2"),
        set_queue(3, max_in_progress="1"),
    ),
    (
        "paused",
        "nothing is handed out",
        [queue_settings(-100, paused="false", paused_until="none"), enqueue(0, "A"), set_queue(1, paused="true")],
        claim(20, "A"),
        claim(40, "A"),
    ),
    (
        "stuck",
        "never handed out",
        [enqueue(0, "A"), end(1000)],
        cancel(1, "A", CancelOutcome.CANCELLED),
        look(1, "A", JobState.PENDING),
    ),
]
IDS = [f"{rule}-{why}" for rule, why, *_ in PAIRS]


@pytest.mark.parametrize(("rule", "why", "others", "right", "wrong"), PAIRS, ids=IDS)
def test_a_call_that_breaks_a_rule_is_found(rule: str, why: str, others: Rows, right: Row, wrong: Row) -> None:
    explained, contradicted = judged(*others, right), judged(*others, wrong)
    assert explained.is_explained, list(explained.lines())
    assert [each.rule for each in contradicted.violations] == [rule], list(contradicted.lines())
    assert contradicted.violations[0].basis == RULES[rule]


def handed_out_each(pause_s: float) -> list[Row]:
    """Sixty jobs, one at a time."""
    letters = [chr(ord("!") + number) for number in range(60)]
    return [
        *[enqueue(0, letter) for letter in letters],
        *[claim(1 + number * pause_s, letter, took_s=0.01) for number, letter in enumerate(letters)],
    ]


def test_a_rate_is_kept() -> None:
    setting = queue_settings(-100, max_jobs_per_second="10/s")
    assert judged(setting, *handed_out_each(0.1)).is_explained
    contradicted = judged(setting, *handed_out_each(0.02))
    assert [each.rule for each in contradicted.violations] == ["rate"]


def test_claims_of_unknown_limits_are_not_judged() -> None:
    assert judged(*handed_out_each(0.001)).is_explained


def test_a_key_is_free_for_certain_only_where_nothing_may_have_ended_its_job() -> None:
    """The job that a lost enqueue stored has a name that nobody knows."""
    assert judged(enqueue_lost(0, **KEY), enqueue(1, "A", outcome=KEPT, **KEY), claim(2, "A")).is_explained


def test_a_send_id_that_was_sent_before_may_have_stored_its_job_then() -> None:
    assert judged(enqueue_lost(0, **SENT), claim(1, "A"), enqueue(2, "A", **SENT)).is_explained


def test_an_operators_retry_takes_a_place_at_the_end_of_a_chain() -> None:
    retry = Row(4, 4.1, "operator", "retryFailedJobs", {"queueName": QUEUE, "priority": 1}, 1)
    rows = [
        *TWO_IN_CHAIN,
        claim(1, "A"),
        ack(2, "A", claimed_at(1), None, failed=True, permanent=True),
        retry,
        claim(5, "B"),
        ack(6, "B", claimed_at(5)),
        claim(7, "A", left=1),
    ]
    assert judged(*rows).is_explained


def test_a_key_whose_job_moved_away_is_not_judged_by_it() -> None:
    moved = look(2, "A", JobState.SUCCEEDED, movedTo=job("C", shard="2"))
    assert judged(enqueue(0, "A", **KEY), moved, enqueue(3, "B", **KEY)).is_explained


def test_a_limit_counts_only_claims_that_stand_for_certain() -> None:
    rows = [*LIMITED[:3], claim(1, "A", releaseOnDisconnect=True), claim(2, "B")]
    assert judged(*rows).is_explained
    assert judged(*LIMITED[:3], claim(1, "A", until_s=10), claim(10.5, "B")).is_explained


def test_a_pause_that_ends_by_itself_is_not_judged() -> None:
    pause = set_queue(1, paused="true", paused_until=str(ms(10)))
    assert judged(queue_settings(-100, paused="false"), enqueue(0, "A"), pause, claim(40, "A")).is_explained
