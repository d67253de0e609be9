"""The checker of histories: whether one order that docs/semantics.md allows explains all answers.

verdict.py               what was judged, and what contradicts
history_judge.py         pairs the lines, and has what a call says judged when all calls before its end are known
job_call_reader.py       what each call of producers and workers says about jobs
operator_call_reader.py  what each call of operators says
observations.py          what one call says about one job; claim_, change_ and look_observations.py have each kind
job_machine.py           the states of one job, and the steps that it takes by itself
job_history.py           the search for an order, job by job
shortest.py              the shortest part that contradicts
key_rules.py             dedupe keys, serialize keys and send ids, over all jobs that have them
queue_limit_rules.py     the maximum in progress, the rate and the pause of a queue
group_limit_rules.py     those of its groups; group_settings.py has what counts for which
held_claims.py           the claims that count against a maximum; hand_out_rate.py the jobs that count against a rate
hand_out_order.py        the order in which a shard hands out jobs
group_turns.py           the turns of groups
job_names.py             the names to which jobs answer
stored_once.py           the one job of each body that was enqueued once
shown_jobs.py            what scans and searches show
job_counts.py            counts of jobs
schedule_firings.py      the times at which schedules fire
flow_ends.py             flows and their items
history_queue.py         the settings of a queue, and calls about many of its jobs

Each job is judged exactly: a set of states is carried through its calls, each of which took effect between its begin
and its end. What several jobs promise together is judged by bounds that never give a false alarm; each module says what
it does not judge. All callers of the jobs are in the history; what servers do by themselves needs no line.

Of jobs whose enqueue is not in the history (items of flows, dead letters, firings, copies on another shard) attempts,
delays and bodies are not judged, and so are claims that are bound to connections or await a receipt until they expire:
they may end at any time. Status texts, trails, tags, progress, tiers, workers and access are not judged at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pinlater.history.call_events import Event
from pinlater.history.checker.flow_ends import FlowEnds
from pinlater.history.checker.group_limit_rules import GroupLimitRules
from pinlater.history.checker.group_turns import GroupTurns
from pinlater.history.checker.hand_out_order import HandOutOrder
from pinlater.history.checker.history_judge import HistoryJudge, judged
from pinlater.history.checker.job_call_reader import JobCallReader
from pinlater.history.checker.job_counts import JobCounts
from pinlater.history.checker.key_rules import KeyRules
from pinlater.history.checker.operator_call_reader import OperatorCallReader
from pinlater.history.checker.queue_limit_rules import QueueLimitRules
from pinlater.history.checker.schedule_firings import ScheduleFirings
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
    keys, groups = KeyRules(judge), GroupLimitRules(judge)
    limits = QueueLimitRules(judge, groups)
    judge.on_over = keys.ended
    judge.on_loss = limits.loses
    order, turns = HandOutOrder(judge), GroupTurns(judge)
    JobCallReader(judge, keys, limits, order, turns, ScheduleFirings(judge), FlowEnds(judge))
    JobCounts(judge)
    OperatorCallReader(judge, limits)
    return judged(events, judge)
