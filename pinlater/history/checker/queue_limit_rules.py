"""The limits of queues: the maximum in progress, the rate, the pause and the circuit breaker.

Only what is certain counts: claims that are in progress for certain (held_claims.py), and settings some time after
their change was answered (history_queue.py). That a breaker is open is known from answers that show it: it was so
between two of them that show the same opening.

Not judged: a queue in which an operator removes or stops many jobs, for some minutes; rates and breakers where a store
is set back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pinlater.history.checker.group_limit_rules import GroupLimitRules
from pinlater.history.checker.hand_out_rate import HandOutRate, rate_of
from pinlater.history.checker.held_claims import UNCERTAIN_MS, HeldClaims, may_go_back
from pinlater.history.checker.history_judge import HistoryJudge, OpenCall, queue_in
from pinlater.history.checker.history_queue import SPREAD_MS, count_of, greatest
from pinlater.history.checker.verdict import Violation

_BREAKER = "@breaker"
"""By whom a queue is paused whose circuit breaker is open."""

_MOST_TOGETHER = 1_000


class _Together(NamedTuple):
    """Two jobs in the hands of workers at a time, from the begin of the first of their calls to the end of the last."""

    begin_ms: float
    end_ms: float
    part: tuple[str, ...]
    calls: tuple[int, ...]


class _Queue:
    """The hand-outs of one queue."""

    def __init__(self) -> None:
        self.opening = ""
        """The time of the breaker's opening that the last answer shows; "" where it is closed."""
        self.opening_seen_ms = float("inf")
        """When an answer first showed it."""
        self.together: deque[_Together] = deque(maxlen=_MOST_TOGETHER)
        """Since the last answer."""
        self.held = HeldClaims()
        self.uncertain_until_ms = float("-inf")
        self.rate = HandOutRate()


class QueueLimitRules:
    """Listens to dequeues, and to whatever may end a claim."""

    def __init__(self, judge: HistoryJudge, groups: GroupLimitRules) -> None:
        """`groups`: told of the same calls."""
        self._judge = judge
        self.groups = groups
        self._queues: dict[str, _Queue] = {}

    def handed_out(self, call: OpenCall, queue: str, jobs: Mapping[str, Mapping[str, Any]]) -> None:
        """A dequeue was answered with these jobs of a queue, and what it says of each."""
        self.groups.handed_out(call, queue, jobs)
        facts = self._judge.queue(queue)
        if not jobs or not facts.has_limits:
            return
        known = self._queues.setdefault(queue, _Queue())
        self._judge_pause(call, queue, len(jobs))
        self._judge_rate(call, queue, known, len(jobs))
        if not may_go_back(call):
            if call.end_ms >= known.uncertain_until_ms:
                known.held.hold(call, jobs, self._judge.tolerance_ms)
            self._note_together(call, known, jobs)
            self._judge_quota(call, queue, known)

    def shown(self, queue: str, settings: Mapping[str, str], begin_ms: float, end_ms: float) -> None:
        """An answer shows all settings of a queue: a breaker that is open, and was so in an answer before, has been so
        all the time between them.
        """
        is_open = settings.get("paused") == "true" and settings.get("paused_by") == _BREAKER
        opening = settings.get("paused_at", "") if is_open else ""
        known = self._queues.get(queue)
        if known is None:
            if not opening:
                return
            known = self._queues[queue] = _Queue()
        if not opening or opening != known.opening:
            known.opening, known.opening_seen_ms = opening, end_ms
            known.together.clear()
            return
        for each in known.together:
            if each.begin_ms >= known.opening_seen_ms + SPREAD_MS and each.end_ms <= begin_ms:
                text = "two jobs were handed out at a time while its circuit breaker was open"
                self._judge.violated(Violation("probe", queue, text, each.end_ms, each.part, each.calls))
                break
        known.together.clear()

    def _note_together(self, call: OpenCall, known: _Queue, jobs: Mapping[str, Mapping[str, Any]]) -> None:
        if not known.opening or self._judge.has_losses:
            return
        held = [(claim, name) for name, claim in known.held.at(call.end_ms).items()]
        if len(held) < 2 or not any(name in jobs for _, name in held):
            return
        last_two = sorted(held, key=lambda each: each[0].begin_ms)[-2:]
        part = [
            self._judge.line(each.begin_ms, each.end_ms, each.mark, f"was handed {name}") for each, name in last_two
        ]
        numbers = tuple(each.mark.number for each, _ in last_two)
        known.together.append(_Together(last_two[0][0].begin_ms, call.end_ms, tuple(part), numbers))

    def may_end(self, descriptors: Iterable[str]) -> None:
        """A call begins that may end the claims of these jobs."""
        for descriptor in descriptors:
            self.groups.may_end(descriptor)
            known = self._queues.get(queue_in(descriptor))
            if known is not None:
                known.held.may_end(descriptor)

    def loses(self) -> None:
        """A store has lost something, or was set back."""
        self._count_no_more("")
        self.groups.loses()

    def may_end_many(self, queue: str) -> None:
        """A call begins that may end any claims of a queue; "": of all queues."""
        self.groups.may_end_many(queue)
        self._count_no_more(queue)

    def _count_no_more(self, queue: str) -> None:
        """Claims of now and of some minutes to come are not certain."""
        for name in (queue,) if queue else tuple(self._queues):
            known = self._queues.setdefault(name, _Queue())
            known.held.clear()
            known.uncertain_until_ms = self._judge.now_ms + UNCERTAIN_MS

    def _judge_quota(self, call: OpenCall, queue: str, known: _Queue) -> None:
        held = known.held.at(call.end_ms)
        if not held:
            return
        oldest_ms = min(claim.begin_ms for claim in held.values()) if len(held) <= 1_000 else float("-inf")
        most = greatest(self._judge.queue(queue).setting("max_in_progress").values(oldest_ms, call.end_ms), count_of)
        if most is None or len(held) <= most:
            return
        text = f"{len(held)} jobs are in progress, and {most:g} may be"
        self._judge.violated(known.held.violation("quota", queue, text, call.end_ms, self._judge))
        known.held.clear()

    def _judge_rate(self, call: OpenCall, queue: str, known: _Queue, jobs: int) -> None:
        known.rate.add(call, jobs)
        values = self._judge.queue(queue).setting("max_jobs_per_second").values(known.rate.since_ms(call), call.end_ms)
        most = greatest(values, rate_of)
        if most is not None:
            known.rate.judge(call, queue, most, self._judge)

    def _judge_pause(self, call: OpenCall, queue: str, jobs: int) -> None:
        facts = self._judge.queue(queue)
        if set(facts.setting("paused").values(call.begin_ms, call.end_ms)) != {"true"}:
            return
        if set(facts.setting("paused_until").values(call.begin_ms - SPREAD_MS, call.end_ms)) - {None, "none", ""}:
            return
        if _BREAKER in facts.setting("paused_by").values(call.begin_ms, call.end_ms):
            return  # it closes by itself, and one job is tried now and then before that
        text = f"{jobs} jobs were handed out while it was paused"
        line = self._judge.line(call.begin_ms, call.end_ms, call.mark, f"was handed {jobs} jobs")
        self._judge.violated(Violation("paused", queue, text, call.end_ms, (line,), (call.number,)))
