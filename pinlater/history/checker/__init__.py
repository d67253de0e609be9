"""The checker of histories: whether one order that docs/semantics.md allows explains all answers.

verdict.py       what was judged, and what contradicts
history_judge.py  pairs the lines, and has what a call says judged when all calls before its end are known
job_calls.py     what the calls of producers and workers say about jobs
operator_calls.py  what the calls of operators say
observations.py  what one call says about one job; claim_, change_ and look_observations.py: each kind of call
job_machine.py   the states of one job, and the steps that it takes by itself
job_history.py   the search for an order, job by job
shortest.py      the shortest part that contradicts
keys.py          dedupe keys, serialize keys and send ids, over all jobs that have them
limits.py        the maximum in progress, the rate and the pause of a queue
history_queue.py   the settings of queues, and calls about many jobs

Each job is judged exactly: a set of states is carried through its calls, each of which took effect between its begin
and its end. What several jobs promise together is judged by bounds that never give a false alarm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pinlater.history.call_events import Event
from pinlater.history.checker.history_judge import HistoryJudge, judged
from pinlater.history.checker.job_calls import JobCalls
from pinlater.history.checker.keys import Keys
from pinlater.history.checker.limits import Limits
from pinlater.history.checker.operator_calls import OperatorCalls
from pinlater.history.checker.verdict import Verdict, Violation

__all__ = ["Verdict", "Violation", "check"]


def check(
    events: Iterable[Event],
    *,
    tolerance_ms: float = 0.0,
    has_one_clock: bool | None = None,
    defaults: Mapping[str, str] | None = None,
) -> Verdict:
    """The verdict on a history, whose events come in the order of their times.

    `tolerance_ms`: how far the clocks of callers and servers may differ, as the header of a file says. `has_one_clock`:
    all callers share a clock, so lines stand in the order in which things happened; None: where the tolerance is 0.
    `defaults`: settings that queues have unless the history shows others.
    """
    one_clock = tolerance_ms == 0 if has_one_clock is None else has_one_clock
    judge = HistoryJudge(tolerance_ms, has_one_clock=one_clock, defaults=defaults)
    keys, limits = Keys(judge), Limits(judge)
    judge.on_over = keys.ended
    judge.on_loss = lambda: limits.may_end_many("")
    JobCalls(judge, keys, limits)
    OperatorCalls(judge, limits)
    return judged(events, judge)
