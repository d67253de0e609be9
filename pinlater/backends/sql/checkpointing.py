"""Where heartbeats of jobs in progress are taken."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.base import CheckpointRequest
from pinlater.backends.sql.acking import CLAIM, PRIORITY, jobs_in_progress
from pinlater.backends.sql.session import Row, Session
from pinlater.model import MAX_TIME_MS, claim_source


def checkpoint(session: Session, queue: str, checkpoints: Sequence[CheckpointRequest], now_ms: int) -> list[bool]:
    """In order; heartbeats that ask for nothing else and follow each other go in one statement."""
    rows = jobs_in_progress(session, queue, [each.id for each in checkpoints])
    matched: list[bool] = []
    beats = _Beats(session, now_ms)
    for each in checkpoints:
        row = rows.get(each.id)
        if row is None or not _matches(each, row):
            matched.append(False)
            continue
        matched.append(True)
        run_after_ms = now_ms if each.run_after_ms is None else each.run_after_ms
        beats.add(each.id, run_after_ms, each.latest_expiry_ms)
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
        session.run_of("give_back", (now_ms,), [each.id])


class _Beats:
    """Heartbeats that wait to go together: all with the same times."""

    def __init__(self, session: Session, now_ms: int) -> None:
        self._session = session
        self._now_ms = now_ms
        self._times = (now_ms, MAX_TIME_MS)
        self._ids: set[int] = set()

    def add(self, job_id: int, run_after_ms: int, latest_expiry_ms: int) -> None:
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
