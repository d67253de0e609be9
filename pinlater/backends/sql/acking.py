"""Where attempts end by an ack."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pinlater.backends.base import AckOutcome, AckRequest, ClaimKey, EndRules, FreshClaim, SilentClaim
from pinlater.backends.sql.session import Row, Session
from pinlater.model import MAX_TIME_MS

Effects = dict[tuple[str, int, str], list[int]]
"""What to do, with which run_after and which status line, and the jobs it is done to."""

MARKED_MS = 1 << 60
"""The claim expiry of a failed job that waits to be buried: later than any time there is. Whatever takes the job out of
FAILED clears it, so a mark never outlives what it is for, and a job that is not marked pays nothing.
"""

ID, PRIORITY, REMAINING, CRASHES, CLAIM, HEARD_AT = range(6)
"""The columns of `in_progress`; the last one is in `last_heard_of` alone."""

EXPIRES_AT = 5
"""In its place in `when_claimed`."""


def jobs_in_progress(session: Session, queue: str, ids: Sequence[int]) -> dict[int, Row]:
    """Those of the jobs that are IN_PROGRESS, by id, locked."""
    return {row[ID]: row for row in session.rows_of("in_progress", (queue,), sorted(set(ids)))}


def claims_standing(session: Session, queue: str, claims: Sequence[ClaimKey]) -> dict[int, Row]:
    """Those of the jobs that are under exactly the claims given, locked."""
    rows = jobs_in_progress(session, queue, [claim.id for claim in claims])
    return {claim.id: row for claim in claims if (row := rows.get(claim.id)) is not None and _stands(claim, row)}


def claims_quiet(session: Session, queue: str, claims: Sequence[SilentClaim]) -> dict[int, Row]:
    """Those of the jobs that are under exactly the claims given, of which nothing was heard since, locked."""
    ids = sorted({claim.id for claim in claims})
    rows = {row[ID]: row for row in session.rows_of("last_heard_of", (queue,), ids)}
    return {
        claim.id: row
        for claim in claims
        if (row := rows.get(claim.id)) is not None and _stands(claim, row) and row[HEARD_AT] == claim.last_seen_ms
    }


def claims_fresh(session: Session, queue: str, claims: Sequence[FreshClaim]) -> dict[int, Row]:
    """Those of the jobs that are under exactly the claims given, which still expire as they did at first, locked."""
    ids = sorted({claim.id for claim in claims})
    rows = {row[ID]: row for row in session.rows_of("when_claimed", (queue,), ids)}
    return {
        claim.id: row
        for claim in claims
        if (row := rows.get(claim.id)) is not None and _stands(claim, row) and row[EXPIRES_AT] == claim.expires_at_ms
    }


def _stands(claim: ClaimKey | SilentClaim | FreshClaim, row: Row) -> bool:
    return bool(row[PRIORITY] == claim.priority and row[CLAIM] == claim.claim_descriptor)


def ack(session: Session, queue: str, acks: Sequence[AckRequest], now_ms: int, rules: EndRules) -> list[AckOutcome]:
    rows = jobs_in_progress(session, queue, [each.id for each in acks])
    outcomes: list[AckOutcome] = []
    effects: Effects = defaultdict(list)
    for each in acks:
        row = rows.get(each.id)
        if row is None or row[PRIORITY] != each.priority or each.claim_descriptor not in ("", row[CLAIM]):
            outcomes.append(AckOutcome.IGNORED)
            continue
        del rows[each.id]  # named twice, the job is acked by the first
        outcome = _outcome(each, row[REMAINING])
        effects[_effect(each, outcome, now_ms, rules)].append(each.id)
        outcomes.append(outcome)
    carry_out(session, effects, now_ms)
    return outcomes


def _outcome(each: AckRequest, attempts_remaining: int) -> AckOutcome:
    if each.succeeded:
        return AckOutcome.SUCCEEDED
    return AckOutcome.FAILED if each.permanent or attempts_remaining <= 1 else AckOutcome.RETRIED


def _effect(each: AckRequest, outcome: AckOutcome, now_ms: int, rules: EndRules) -> tuple[str, int, str]:
    if outcome is AckOutcome.RETRIED:
        return "retry", min(now_ms + each.retry_delay_ms, MAX_TIME_MS), each.append_status
    if outcome is AckOutcome.SUCCEEDED:
        if not rules.keep_succeeded:
            return "remove", 0, ""
        return ("succeed_with_status" if each.append_status else "succeed"), 0, each.append_status
    if rules.dead_letters:
        return "fail_and_mark", 0, each.append_status
    return ("fail", 0, each.append_status) if rules.keep_failed else ("remove", 0, "")


def carry_out(session: Session, effects: Effects, now_ms: int, crashes: int = 0) -> None:
    """One statement per kind of effect. The jobs are locked, so their state and claim still are what was looked at."""
    for (name, run_after_ms, status), ids in effects.items():
        if name == "remove":
            session.remove(sorted(ids))
        else:
            statement = "fail" if name == "fail_and_mark" else name
            session.run_of(statement, _values(name, run_after_ms, status, now_ms, crashes), sorted(ids))


def _values(name: str, run_after_ms: int, status: str, now_ms: int, crashes: int) -> tuple[object, ...]:
    if name == "succeed":
        return now_ms, now_ms
    if name == "succeed_with_status":
        return now_ms, now_ms, status
    if name == "retry":
        return run_after_ms, now_ms, crashes, status
    return now_ms, now_ms, MARKED_MS if name == "fail_and_mark" else None, crashes, status
