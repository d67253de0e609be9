"""The judge of what is handed out: what it must find, and what a busy machine may bring about."""

from __future__ import annotations

import pytest

from pinlater.model import AckOutcome, DequeuedJob
from tests.faults.ledger import Ledger

TIMEOUT_MS = 100
NAME = "mail:s1:1"


def handed(claim: str, made_at_ms: int, run_after_ms: int = 0) -> DequeuedJob:
    return DequeuedJob(NAME, b"", 1, 9, 9, run_after_ms, 0, claim, made_at_ms + TIMEOUT_MS)


FIRST, SECOND, DURING = handed("a", 0), handed("b", TIMEOUT_MS + 1), handed("b", TIMEOUT_MS)
CASES: dict[str, tuple[list[tuple[str, DequeuedJob]], list[str]]] = {
    "again after the expiry": ([("out", FIRST), ("out", SECOND), ("ended", SECOND)], []),
    "again after a failure": ([("out", FIRST), ("failed", FIRST), ("out", DURING), ("ended", DURING)], []),
    "the older answer is read last": ([("out", SECOND), ("out", FIRST)], []),
    "the older answer is read after the end": ([("out", SECOND), ("ended", SECOND), ("out", FIRST)], []),
    "again within the claim": ([("out", FIRST), ("out", DURING)], ["double"]),
    "again within the claim, the older answer is read last": ([("out", DURING), ("out", FIRST)], ["double"]),
    "again although only a later claim failed": (
        [("out", FIRST), ("out", SECOND), ("failed", SECOND), ("out", handed("c", TIMEOUT_MS))],
        ["double"],
    ),
    "again after its end": ([("out", FIRST), ("ended", FIRST), ("out", SECOND)], ["ended"]),
    "again after its end, within the claim": ([("out", FIRST), ("ended", FIRST), ("out", DURING)], ["ended", "double"]),
    "early": ([("out", handed("a", 0, run_after_ms=5))], ["early"]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_breach_is_found_and_nothing_else(name: str) -> None:
    events, expected = CASES[name]
    ledger = Ledger(TIMEOUT_MS)
    for what, job in events:
        match what:
            case "out":
                ledger.handed_out(job)
            case "failed":
                ledger.failure_sent(job)
            case "ended":
                ledger.ack_answered(job, AckOutcome.SUCCEEDED)
    assert [line.partition(":")[0] for line in ledger.broken] == expected
