"""The names of jobs: a shard gives an id once, so a job answers to one name of queue, shard and priority, and to no
other one with its id.
"""

from __future__ import annotations

from pinlater.history.checker.history_judge import HistoryJudge, OpenCall, shard_in
from pinlater.history.checker.verdict import Violation


class JobNames:
    """Hears of each job that an answer says is there."""

    def __init__(self, judge: HistoryJudge) -> None:
        self._judge = judge
        self._names: dict[str, dict[str, str]] = {}
        """By shard and id: the descriptor without the id."""

        self._same: dict[str, str] = {}
        """One text for all jobs that have it in common."""

    def is_there(self, call: OpenCall, descriptor: str) -> None:
        name, _, job_id = descriptor.rpartition(":")
        if name.count(":") != 2:
            return
        shard = shard_in(descriptor)
        if self._judge.has_lost(shard):
            return  # it may give an id again
        first = self._names.setdefault(shard, {}).setdefault(job_id, self._same.setdefault(name, name))
        if first != name:
            text = f"it answers to this name, and answered to {first}:{job_id} before"
            line = self._judge.line(call.begin_ms, call.end_ms, call.mark, f"was answered of {descriptor}")
            self._judge.violated(Violation("id", descriptor, text, call.end_ms, (line,), (call.number,)))
