"""What operators do to jobs: counted, and recorded with its author. A call that changed nothing leaves nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pinlater.clock import Clock
from pinlater.metrics import Metrics
from pinlater.model import CancelOutcome, JobAction, JobChange, JobFilter, JobsChanged
from pinlater.service.attempts import Attempts, BecamePending
from pinlater.service.auditing import OPEN, Audit
from pinlater.service.changing import Changing
from pinlater.service.operating import Operating

_RETRIED = "jobs_retried_by_operator"
_DELETED = "jobs_deleted_by_operator"


class Recorded:
    """Operators' changes of jobs, for one service; `who` is the caller's source."""

    def __init__(
        self,
        clock: Clock,
        operating: Operating,
        changing: Changing,
        attempts: Attempts,
        became_pending: BecamePending,
        metrics: Metrics,
        audit: Audit,
    ) -> None:
        self._clock = clock
        self._operating = operating
        self._changing = changing
        self._attempts = attempts
        self._became_pending = became_pending
        self._metrics = metrics
        self._audit = audit

    async def retry_failed(
        self, who: str, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int
    ) -> int:
        retried = await self._operating.retry_failed(queue, priority, attempts, run_after_ms, limit)
        if run_after_ms is not None and run_after_ms > self._clock.now_ms():
            self._became_pending(queue, 0, [run_after_ms])
        else:
            self._became_pending(queue, retried, [])
        if retried:
            self._metrics.add(retried, _RETRIED, queue)
            detail = f"{_jobs(retried)} of priority {priority}"
            await self._audit.write(who, "retry_failed_jobs", queue, detail, part=OPEN)
        return retried

    async def delete_jobs(self, who: str, filter: JobFilter, limit: int) -> int:
        deleted = await self._operating.delete_jobs(filter, limit)
        if deleted:
            self._metrics.add(deleted, _DELETED, filter.queue)
            detail = f"{_jobs(deleted)}, {filter.state.name}, priority {filter.priority or 1}"
            await self._audit.write(who, "delete_jobs", filter.queue, detail + _pattern(filter.body_regex), part=OPEN)
        return deleted

    async def cancel(self, who: str, queue: str, descriptors: Sequence[str]) -> Mapping[str, CancelOutcome]:
        outcomes = await self._attempts.cancel(queue, descriptors)
        cancelled = list(outcomes.values()).count(CancelOutcome.CANCELLED)
        if cancelled:
            self._metrics.add(cancelled, _DELETED, queue)
            detail = f"{_jobs(cancelled)}, of {len(outcomes)} that were named"
            await self._audit.write(who, "cancel_jobs", queue, detail, part=OPEN)
        return outcomes

    async def change_jobs(self, who: str, change: JobChange) -> JobsChanged:
        done = await self._changing.change(change)
        if done.changed and not change.dry_run:
            is_retry = change.action in (JobAction.RETRY, JobAction.REPLAY)
            self._metrics.add(done.changed, _RETRIED if is_retry else _DELETED, change.queue)
            action = f"{change.action.name.lower()}_jobs"
            await self._audit.write(who, action, change.queue, _jobs(done.changed) + _filter(change), part=OPEN)
        return done


def _jobs(amount: int) -> str:
    return f"{amount} job" if amount == 1 else f"{amount} jobs"


def _filter(change: JobChange) -> str:
    """What was asked for, for the record."""
    said = {
        "state": None if change.state is None else change.state.name,
        "priority": change.priority,
        "created before": change.created_before_ms,
        "created after": change.created_after_ms,
        "attempts": change.attempts,
        "run after": change.run_after_ms,
    }
    told = "".join(f", {key} {value}" for key, value in said.items() if value is not None)
    return told + _pattern(change.body_regex)


def _pattern(body_regex: str) -> str:
    return f", body matches {body_regex}" if body_regex else ""
