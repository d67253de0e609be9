"""The course and the end of attempts: acks, checkpoints, and claims that expire or whose connection broke."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from pinlater.backends.base import (
    AckOutcome,
    AckRequest,
    CheckpointRequest,
    ClaimKey,
    EndRules,
    ExpiryCounts,
    PerQueue,
    SilentClaim,
    UnrenewedClaim,
)
from pinlater.backends.sql.records import DEAD_LETTER_PENDING_MS, IN_PROGRESS
from pinlater.backends.sql.session import Row, Session
from pinlater.backends.status_lines import crash_budget_status, expired_status, released_status
from pinlater.model import MAX_TIME_MS, claim_source
from pinlater.model.status_text import append_at

Effects = dict[tuple[str, int, str], list[int]]
"""What to do, with which run_after and which status line, and the jobs it is done to."""

ID, PRIORITY, REMAINING, CRASHES, CLAIM = range(len(IN_PROGRESS))
"""Where a row has these columns."""

LAST_SEEN_AT = EXPIRES_AT = len(IN_PROGRESS)
RUN_AFTER = EXPIRES_AT + 1
"""What comes behind them in `last_seen`, and in `when_claimed`."""


def jobs_in_progress(session: Session, queue: str, ids: Sequence[int]) -> dict[int, Row]:
    """Those of the jobs that are IN_PROGRESS, by id, locked."""
    return {row[ID]: row for row in session.rows_of("in_progress", (queue,), sorted(set(ids)))}


def claims_standing(session: Session, queue: str, claims: Sequence[ClaimKey]) -> dict[int, Row]:
    """Those of the jobs that are under exactly the claims given, locked."""
    rows = jobs_in_progress(session, queue, [claim.id for claim in claims])
    return {claim.id: row for claim in claims if (row := rows.get(claim.id)) is not None and _stands(claim, row)}


def claims_quiet(session: Session, queue: str, claims: Sequence[SilentClaim]) -> dict[int, Row]:
    """Those of the jobs that are under exactly the claims given, which were not renewed since, locked."""
    ids = sorted({claim.id for claim in claims})
    rows = {row[ID]: row for row in session.rows_of("last_seen", (queue,), ids)}
    return {
        claim.id: row
        for claim in claims
        if (row := rows.get(claim.id)) is not None and _stands(claim, row) and row[LAST_SEEN_AT] == claim.last_seen_ms
    }


def claims_fresh(session: Session, queue: str, claims: Sequence[UnrenewedClaim]) -> dict[int, Row]:
    """Those of the jobs that are under exactly the claims given, which still expire as they did at first, locked."""
    ids = sorted({claim.id for claim in claims})
    rows = {row[ID]: row for row in session.rows_of("when_claimed", (queue,), ids)}
    return {
        claim.id: row
        for claim in claims
        if (row := rows.get(claim.id)) is not None and _stands(claim, row) and row[EXPIRES_AT] == claim.expires_at_ms
    }


def _stands(claim: ClaimKey | SilentClaim | UnrenewedClaim, row: Row) -> bool:
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
        return now_ms, now_ms, *append_at(status)
    if name == "retry":
        return run_after_ms, now_ms, crashes, *append_at(status)
    mark = DEAD_LETTER_PENDING_MS if name == "fail_and_mark" else None
    return now_ms, now_ms, mark, crashes, *append_at(status)


def checkpoint(session: Session, queue: str, checkpoints: Sequence[CheckpointRequest], now_ms: int) -> list[bool]:
    """In order; heartbeats that ask for nothing else and follow each other go in one statement, also where each names
    the run_after that its job has.
    """
    ids = sorted({each.id for each in checkpoints})
    rows = {row[ID]: row for row in session.rows_of("when_claimed", (queue,), ids)}
    changed: set[int] = set()
    matched: list[bool] = []
    beats = _Beats(session, now_ms)
    for each in checkpoints:
        row = rows.get(each.id)
        if row is None or not _matches(each, row):
            matched.append(False)
            continue
        matched.append(True)
        if each.run_after_ms == row[RUN_AFTER] and each.id not in changed:
            beats.add(each.id, None, each.latest_expiry_ms)
        else:
            changed.add(each.id)
            beats.add(each.id, now_ms if each.run_after_ms is None else each.run_after_ms, each.latest_expiry_ms)
        if not _is_plain(each):
            beats.send()
            _change(session, each, now_ms)
        if each.move_to_pending:
            del rows[each.id]
    beats.send()
    return matched


def _matches(each: CheckpointRequest, row: Row) -> bool:
    if row[PRIORITY] != each.priority:
        return False
    if each.claim_descriptor:
        return bool(row[CLAIM] == each.claim_descriptor)
    return claim_source(row[CLAIM]) == each.source


def _is_plain(each: CheckpointRequest) -> bool:
    return (
        each.new_body is None and each.attempts_allowed is None and not each.prepend_status and not each.move_to_pending
    )


def _change(session: Session, each: CheckpointRequest, now_ms: int) -> None:
    """What is asked beyond the heartbeat itself."""
    attempts = each.attempts_allowed
    if attempts is not None or each.prepend_status:
        session.run("checkpoint", (attempts, attempts, each.prepend_status, each.id))
    if each.new_body is not None:
        session.replace_body(each.id, each.new_body)
    if each.move_to_pending:
        session.run_of("requeue", (now_ms,), [each.id])


class _Beats:
    """Heartbeats that wait to go together: all with the same times. `run_after_ms` None leaves it as it is."""

    def __init__(self, session: Session, now_ms: int) -> None:
        self._session = session
        self._now_ms = now_ms
        self._times: tuple[int | None, int] = (None, MAX_TIME_MS)
        self._ids: set[int] = set()

    def add(self, job_id: int, run_after_ms: int | None, latest_expiry_ms: int) -> None:
        times = (run_after_ms, latest_expiry_ms)
        if times != self._times:
            self.send()
            self._times = times
        self._ids.add(job_id)

    def send(self) -> None:
        now_ms, (run_after_ms, latest_expiry_ms) = self._now_ms, self._times
        values = (now_ms, run_after_ms, latest_expiry_ms, now_ms, run_after_ms)
        self._session.run_of("heartbeat", values, sorted(self._ids))
        self._ids.clear()


StatusLine = Callable[[int, int], str]

LOOKS_PAST_LEFTOVERS = 10
"""One transaction looks so often for claims of queues that are still there; `prune` removes leftovers too."""


def expire_claims(session: Session, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, ExpiryCounts]:
    """The index of claims spans the shard, so a queue with nothing due is not even looked at.

    What deleted queues left is removed on the way: whoever calls takes an empty answer for the end of what is due.
    """
    for _ in range(LOOKS_PAST_LEFTOVERS):
        rows = session.rows("expired_claims", (now_ms, limit))
        if not rows:
            break
        names = queue_names_of(session, {row[1] for row in rows})
        session.remove(sorted(row[0] for row in rows if row[1] not in names))
        rows = [row for row in rows if row[1] in names]
        if rows:
            per_row = [(row, rules.get(names[row[1]])) for row in rows]
            failed = _expire(session, per_row, now_ms, expired_status)
            return _counts_per_queue(rows, names, failed)
    return {}


def _counts_per_queue(rows: Iterable[Row], names: Mapping[int, str], failed: set[int]) -> dict[str, ExpiryCounts]:
    per_queue: dict[str, Counter[bool]] = defaultdict(Counter)
    for row in rows:
        per_queue[names[row[1]]][row[0] in failed] += 1
    return {name: ExpiryCounts(counts[False], counts[True]) for name, counts in per_queue.items()}


def expire_disconnected(
    session: Session, queue: str, claims: Sequence[SilentClaim], now_ms: int, rules: EndRules
) -> ExpiryCounts:
    rows = claims_quiet(session, queue, claims).values()
    failed = _expire(session, [(row, rules) for row in rows], now_ms, released_status)
    return ExpiryCounts(len(rows) - len(failed), len(failed))


def _expire(session: Session, rows: Iterable[tuple[Row, EndRules]], now_ms: int, status_line: StatusLine) -> set[int]:
    """As a failed ack without delay, with one crash more; which of them went to FAILED."""
    effects: Effects = defaultdict(list)
    failed: set[int] = set()
    for row, rules in rows:
        crashes = row[CRASHES] + 1
        used_up = 0 < rules.crash_budget <= crashes
        remaining = 0 if used_up else max(row[REMAINING] - 1, 0)
        line = status_line(now_ms, remaining) + (crash_budget_status(crashes) if used_up else "")
        last = "fail_and_mark" if rules.dead_letters else "fail"
        effects["retry" if remaining else last, now_ms, line].append(row[0])
        if not remaining:
            failed.add(row[0])
    carry_out(session, effects, now_ms, crashes=1)
    return failed


def queue_names_of(session: Session, queue_ids: Iterable[int]) -> dict[int, str]:
    """The names of those queues that are not deleted."""
    rows = session.rows_of("names_of_queues", (), sorted(queue_ids))
    return {queue_id: name for queue_id, name in rows if name is not None}
