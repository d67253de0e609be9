"""Counts of jobs, judged by those jobs that were certainly there: no fewer may be counted.

A job counts for certain if no call touched it while the count was under way, and nothing can have happened to it by
itself. A dequeue that nobody heard of may have a job for a moment. So jobs that are due are counted only where no call
about their queue was under way.

Not judged: counts that are too high, since jobs come from elsewhere too; counts with a pattern, of a part of the
shards, or of jobs that have ended, which may be pruned.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any

from pinlater.history.checker.history_judge import LONGEST_CALL_MS, Handling, HistoryJudge, OpenCall
from pinlater.history.checker.job_history import JobHistory
from pinlater.history.checker.job_machine import Phase, State, steps
from pinlater.history.checker.verdict import Violation

_STATES = (Phase.PENDING, Phase.RUNNING)
MOST_COUNTED = 5_000
"""Live jobs of a queue; beyond these its counts are not judged."""


class JobCounts:
    """Listens to counts, and to all that changes jobs of a queue."""

    def __init__(self, judge: HistoryJudge) -> None:
        self._judge = judge
        judge.handle({"getJobCount": Handling(self._counted)})

    def _counted(self, call: OpenCall, answer: Any) -> None:
        request = call.request
        state = request.get("jobState")
        if not isinstance(answer, int) or state not in range(len(_STATES)):
            return
        if request.get("bodyRegexToMatch") or request.get("allowPartial"):
            return
        queue, is_at_rest = request.get("queueName", ""), self._judge.is_at_rest(call)
        self._judge.when_known(call.end_ms, lambda: self._judge_count(call, queue, answer, is_at_rest=is_at_rest))

    def _judge_count(self, call: OpenCall, queue: str, answer: int, *, is_at_rest: bool) -> None:
        request = call.request
        phase, is_future = _STATES[request["jobState"]], request.get("countFutureJobs", False)
        priority, live = request.get("priority"), self._judge.live_jobs(queue)
        if len(live) > MOST_COUNTED or self._judge.has_losses:
            return
        certain = [
            history.descriptor
            for history in live
            if (priority is None or f":p{priority}:" in history.descriptor)
            and self._is_certain(call, history, phase, is_future=is_future, is_at_rest=is_at_rest)
        ]
        if answer >= len(certain):
            return
        text = f"{answer} jobs were counted {phase.value}, and {len(certain)} were"
        shown = [f"{descriptor} was {phase.value}" for descriptor in certain[:10]]
        line = self._judge.line(call.begin_ms, call.end_ms, call.mark, f"was answered {answer}")
        self._judge.violated(Violation("count", queue, text, call.end_ms, (line, *shown), (call.number,)))

    def _is_certain(
        self, call: OpenCall, history: JobHistory, phase: Phase, *, is_future: bool, is_at_rest: bool
    ) -> bool:
        """Whether the job was in this phase from the begin of the count to its end."""
        last = history.last
        if last is None or history.last_ms > call.begin_ms or last.call.ended >= call.mark.began:
            return False
        if history.is_foreign or history.has_begun(call.end_ms):
            return False
        around = self._judge.around(history)
        if around.may_move or (around.hidden and phase is Phase.PENDING):
            return False
        return all(
            state.phase is phase
            and _is_due(state, call, is_future=is_future, is_at_rest=is_at_rest, tolerance_ms=around.tolerance_ms)
            and _stays(steps(state, call.end_ms, around))
            for state in history.states
        )


def _is_due(state: State, call: OpenCall, *, is_future: bool, is_at_rest: bool, tolerance_ms: float) -> bool:
    """Whether it is counted among those of this time: due, or due only later."""
    if is_future:
        return state.due_ms > call.end_ms + tolerance_ms
    # where no call named a time, it was due when the call was answered; a delay begins when its call is carried out
    is_due = state.due_ms == -inf or state.due_ms + LONGEST_CALL_MS <= call.begin_ms - tolerance_ms
    return is_at_rest and is_due


def _stays(later: Iterable[State]) -> bool:
    return not list(later)
