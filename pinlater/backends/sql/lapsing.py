"""Where claims lapse: they expire, or are released because their connection broke."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from pinlater.backends.base import (
    EndRules,
    ExpiryCounts,
    PerQueue,
    SilentClaim,
    crash_budget_status,
    expired_status,
    released_status,
)
from pinlater.backends.sql.acking import CRASHES, REMAINING, Effects, carry_out, claims_quiet
from pinlater.backends.sql.session import Row, Session

StatusLine = Callable[[int, int], str]

LOOKS_PAST_LEFTOVERS = 10
"""One step looks so often for claims of queues that are still there; `prune` removes leftovers too."""


def expire_claims(session: Session, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, ExpiryCounts]:
    """The index of claims spans the shard, so a queue with nothing due is not even looked at.

    What deleted queues left is removed on the way: whoever calls takes an empty answer for the end of what is due.
    """
    for _ in range(LOOKS_PAST_LEFTOVERS):
        rows = session.rows("lapsed", (now_ms, limit))
        if not rows:
            break
        names = queue_names_of(session, {row[1] for row in rows})
        session.remove(sorted(row[0] for row in rows if row[1] not in names))
        rows = [row for row in rows if row[1] in names]
        if rows:
            per_row = [(row, rules.get(names[row[1]])) for row in rows]
            failed = _lapse(session, per_row, now_ms, expired_status)
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
    failed = _lapse(session, [(row, rules) for row in rows], now_ms, released_status)
    return ExpiryCounts(len(rows) - len(failed), len(failed))


def _lapse(session: Session, rows: Iterable[tuple[Row, EndRules]], now_ms: int, status_line: StatusLine) -> set[int]:
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
