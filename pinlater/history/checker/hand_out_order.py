"""The order in which a shard hands out jobs, judged where it can be decided.

A shard hands out jobs of one priority and group by run_after and then by age. So a job that is handed out was not
behind another one of its queue, shard, priority and group that was there, due and untouched from the begin of the
dequeue to its end.

Not judged: dequeues that ran beside others of the queue, since a claim of these may have held the other job for a
moment; jobs with a serialize key or an expiry; any order between priorities and shards; where jobs have groups, those
without one or put off, which come into line by and by (group_turns.py); queues whose groups have limits, where a job
that got no permit may come back behind a later one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pinlater.history.checker.history_judge import HistoryJudge, OpenCall
from pinlater.history.checker.job_history import JobHistory
from pinlater.history.checker.observations import CallMark
from pinlater.history.checker.verdict import Violation

_NOT_JUDGED = frozenset(("serializeKey", "expiresAtMillis", "sendId", "dedupeKey"))
_MOST_WAITING = 100_000
_NO_GROUP = "\0"
"""What no group is called."""


class _Waiting(NamedTuple):
    """A job that waits to be handed out, by the latest that its run_after may be."""

    due_ms: float
    descriptor: str
    end_ms: float
    mark: CallMark
    begin_ms: float


@dataclass(slots=True)
class _Dequeues:
    """Those of one queue: how many are under way, and how many have begun so far."""

    under_way: int = 0
    begun: int = 0


class HandOutOrder:
    """Listens to enqueues and dequeues."""

    def __init__(self, judge: HistoryJudge) -> None:
        self._judge = judge
        self._waiting: dict[tuple[str, str], list[_Waiting]] = {}
        """By the descriptor without its id, and the group."""

        self._dequeues: dict[str, _Dequeues] = {}
        self._alone: dict[int, int] = {}
        """Calls that began when no other one of their queue was under way, and how many had begun by then."""

    def stored(self, call: OpenCall, job: Mapping[str, Any], descriptor: str) -> None:
        """A job was stored."""
        if not _NOT_JUDGED.isdisjoint(job) or call.is_resent:
            return
        due_ms, group = job.get("runAfterTimestampMillis") or 0, job.get("group", "")
        if group and not is_due(call, due_ms, self._judge.tolerance_ms):
            return
        waiting = self._waiting.setdefault((descriptor.rpartition(":")[0], group), [])
        if len(waiting) < _MOST_WAITING:
            latest_ms = due_ms if due_ms > 0 else call.end_ms
            heapq.heappush(waiting, _Waiting(latest_ms, descriptor, call.end_ms, call.mark, call.begin_ms))

    def begins(self, call: OpenCall, queues: Iterable[str]) -> None:
        """A dequeue of these queues begins."""
        for queue in queues:
            dequeues = self._dequeues.setdefault(queue, _Dequeues())
            dequeues.begun += 1
            if not dequeues.under_way:
                self._alone[call.number] = dequeues.begun
            dequeues.under_way += 1

    def ends(self, call: OpenCall, queues: Iterable[str]) -> bool:
        """It has ended. Whether no other one ran beside it."""
        begun = self._alone.pop(call.number, 0)
        is_alone = begun > 0
        for queue in queues:
            dequeues = self._dequeues.setdefault(queue, _Dequeues())
            dequeues.under_way -= 1
            is_alone = is_alone and dequeues.begun == begun
        return is_alone

    def handed_out(self, call: OpenCall, queue: str, jobs: Mapping[str, Mapping[str, Any]]) -> None:
        """A dequeue that ran alone was answered with these jobs, and what it says of each."""
        if jobs and not self._judge.queue(queue).has_group_limits:
            self._judge.when_known(call.end_ms, lambda: self._judge_order(call, queue, jobs))

    def _judge_order(self, call: OpenCall, queue: str, jobs: Mapping[str, Mapping[str, Any]]) -> None:
        for descriptor, metadata in jobs.items():
            due_ms = metadata.get("runAfterMillis")
            waiting = self._waiting.get((descriptor.rpartition(":")[0], self._group(queue, descriptor)))
            if due_ms is None or not waiting:
                continue
            first = self._first(waiting, call.end_ms)
            if first is None or first.descriptor in jobs:
                continue
            slack_ms = self._judge.tolerance_ms
            is_there = first.mark.ended < call.mark.began and first.end_ms <= call.begin_ms
            is_older = not slack_ms and first.due_ms == due_ms and _id_of(first.descriptor) < _id_of(descriptor)
            is_before = first.due_ms + slack_ms < due_ms or is_older
            if is_there and first.due_ms <= call.begin_ms - slack_ms and is_before:
                self._broken(call, queue, descriptor, first)
                return

    def _group(self, queue: str, descriptor: str) -> str:
        """Of a job whose order is judged; of others one that none of these has."""
        if not self._judge.queue(queue).has_groups:
            return ""
        history = self._judge.known(descriptor)
        return (history.group if isinstance(history, JobHistory) else "") or _NO_GROUP

    def _first(self, waiting: list[_Waiting], at_ms: float) -> _Waiting | None:
        """The one that was due first of those that nobody had touched by then."""
        while waiting:
            history = self._judge.known(waiting[0].descriptor)
            if isinstance(history, JobHistory) and history.touched_ms > at_ms and not self._is_unsure(history):
                return waiting[0]
            heapq.heappop(waiting)
        return None

    def _is_unsure(self, history: JobHistory) -> bool:
        around = self._judge.around(history)
        return bool(around.hidden or around.may_move or around.many_changed or self._judge.has_losses)

    def _broken(self, call: OpenCall, queue: str, descriptor: str, first: _Waiting) -> None:
        text = f"{descriptor} was handed out before {first.descriptor}, which came before it"
        part = (
            self._judge.line(first.begin_ms, first.end_ms, first.mark, f"stored {first.descriptor}"),
            self._judge.line(call.begin_ms, call.end_ms, call.mark, f"was handed {descriptor}"),
        )
        self._judge.violated(Violation("order", queue, text, call.end_ms, part, (first.mark.number, call.number)))


def is_due(call: OpenCall, due_ms: float, tolerance_ms: float) -> bool:
    """Whether a job of this run_after was due for certain when the enqueue stored it."""
    return due_ms <= 0 or due_ms + tolerance_ms <= call.begin_ms


def _id_of(descriptor: str) -> int:
    return int(descriptor.rpartition(":")[2])
