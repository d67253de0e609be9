"""The jobs that were handed out in a window of time, held against a rate."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from pinlater.history.checker.history_judge import HistoryJudge, OpenCall
from pinlater.history.checker.observations import CallMark
from pinlater.history.checker.verdict import Violation

_WINDOWS_MS = (2_000.0, 20_000.0)
_BUCKETS = 3
"""A bucket begins anew where it moves to another shard, and one of a clock that was set may be full again."""

_MOST_SHOWN = 12
_UNIT_MS = {"s": 1_000.0, "m": 60_000.0, "h": 3_600_000.0}


class _Batch(NamedTuple):
    """Jobs that one answer handed out."""

    begin_ms: float
    end_ms: float
    jobs: int
    mark: CallMark


class HandOutRate:
    """The hand-outs of one queue, or of one group of one."""

    def __init__(self) -> None:
        self._batches: deque[_Batch] = deque()

    def since_ms(self, call: OpenCall) -> float:
        """From when on hand-outs are counted, at the end of this call."""
        return call.end_ms - max(_WINDOWS_MS)

    def add(self, call: OpenCall, jobs: int) -> None:
        """A dequeue that has just ended was answered with so many jobs."""
        batches = self._batches
        batches.append(_Batch(call.begin_ms, call.end_ms, jobs, call.mark))
        while batches[0].end_ms < self.since_ms(call):
            batches.popleft()

    def judge(self, call: OpenCall, subject: str, per_second: float, judge: HistoryJudge) -> None:
        """Whether so many a second allow what was handed out by the end of this call, the last that was added."""
        batches = self._batches
        for window_ms in _WINDOWS_MS:
            within = [batch for batch in batches if batch.begin_ms >= call.end_ms - window_ms]
            number = sum(batch.jobs for batch in within)
            seconds = (window_ms + 2 * judge.tolerance_ms) / 1000
            allowed = per_second * seconds + _BUCKETS * max(1.0, per_second / 2) + 1
            if number > allowed:
                text = f"{number} jobs were handed out in {window_ms / 1000:g} s, with {per_second:g} a second"
                shown = within[-_MOST_SHOWN:]
                part = tuple(
                    judge.line(each.begin_ms, each.end_ms, each.mark, f"was handed {each.jobs} jobs") for each in shown
                )
                numbers = tuple(each.mark.number for each in shown)
                judge.violated(Violation("rate", subject, text, call.end_ms, part, numbers))
                batches.clear()
                return


def rate_of(text: str) -> float | None:
    """Jobs a second, as in `100/s`, `30/m`; None: no bound."""
    amount, _, unit = text.partition("/")
    try:
        return float(amount) * 1000 / _UNIT_MS[unit or "s"]
    except (KeyError, ValueError):
        return None
