"""The promises that kills are held to: what the checker must find in their histories, and what a busy machine may bring
about.

A claim lasts ten seconds. Callers may be stopped until their claims are over and others were made and ended, so the
order in which answers are read says nothing.
"""

from __future__ import annotations

import pytest

from pinlater.model import JobState
from tests.unit.checker_stand import NoteRow, Row, ack, claim, claimed_at, end, enqueue, enqueue_lost, judged, look

TIMEOUT_S = 10
STORED = enqueue(0, "A")
FIRST = claim(1, "A", until_s=1 + TIMEOUT_S)
FIRST_READ_LATE = claim(1, "A", until_s=1 + TIMEOUT_S, took_s=20)
DURING = claim(5, "A", by="other", until_s=5 + TIMEOUT_S)
SECOND = claim(12, "A", by="other", left=1, until_s=12 + TIMEOUT_S)
ENDED_FIRST = ack(2, "A", claimed_at(1))
ENDED_SECOND = ack(13, "A", claimed_at(12, "other"))

CASES: dict[str, tuple[list[Row | NoteRow], set[str]]] = {
    "again after the expiry": ([STORED, FIRST, SECOND, ENDED_SECOND, end(30)], set()),
    "again after a failure": (
        [
            STORED,
            FIRST,
            ack(2, "A", claimed_at(1), None, failed=True),
            claim(5, "A", by="other", left=1, until_s=5 + TIMEOUT_S),
            ack(6, "A", claimed_at(5, "other")),
            end(30),
        ],
        set(),
    ),
    "the older answer is read last": ([STORED, FIRST_READ_LATE, SECOND], set()),
    "the older answer is read after the end": ([STORED, FIRST_READ_LATE, SECOND, ENDED_SECOND, end(30)], set()),
    "an enqueue of unknown outcome that is not stored": ([enqueue_lost(0), end(30)], set()),
    "again within the claim": ([STORED, FIRST, DURING], {"twice"}),
    "again within the claim, the older answer is read last": ([STORED, FIRST_READ_LATE, DURING], {"attempts"}),
    "again although only a later claim failed": (
        [
            STORED,
            FIRST_READ_LATE,
            SECOND,
            ack(13, "A", claimed_at(12, "other"), None, failed=True),
            claim(5, "A", by="third", until_s=5 + TIMEOUT_S),
        ],
        {"twice"},
    ),
    "again after its end": ([STORED, FIRST, ENDED_FIRST, SECOND], {"ended"}),
    "again after its end, within the claim": ([STORED, FIRST, ENDED_FIRST, DURING], {"ended"}),
    "early": (
        [enqueue(0, "A", runAfterTimestampMillis=1_790_000_009_000), claim(1, "A", run_after_s=9, until_s=11)],
        {"early"},
    ),
    "its id is given twice": ([STORED, enqueue(3, "A")], {"id"}),
    "lost": ([STORED, look(20, "A", None), end(30)], {"lost"}),
    "stuck": ([STORED, look(20, "A", JobState.PENDING), end(30)], {"stuck"}),
    "it succeeded by itself": ([STORED, look(20, "A", JobState.SUCCEEDED), end(30)], {"state"}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_breach_is_found_and_nothing_else(name: str) -> None:
    rows, expected = CASES[name]
    verdict = judged(*rows)
    assert {violation.rule for violation in verdict.violations} == expected, "\n".join(verdict.lines())
