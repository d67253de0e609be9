"""The limits of queues: the maximum in progress, the rate, the pause and the circuit breaker.

Only what is certain counts. A claim is in progress for certain from the answer that shows it to the begin of the first
call that may end it, or to its expiry; claims that are bound to connections or await a receipt may end at any time, and
do not count. A setting holds for certain some time after its change was answered (history_queue.py). That a breaker is
open is known from answers that show it: it was so between two of them that show the same opening.

Not judged: a queue in which an operator removes or stops many jobs, for some minutes; rates and breakers where a store
is set back.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pinlater.history.checker.history_judge import HistoryJudge, OpenCall, queue_in
from pinlater.history.checker.history_queue import SPREAD_MS
from pinlater.history.checker.observations import CallMark
from pinlater.history.checker.verdict import Violation

_UNDELIVERED_MS = 500.0
_UNCERTAIN_MS = 600_000.0
"""So long after a call about many jobs claims of its queue are not counted."""

_WINDOWS_MS = (2_000.0, 20_000.0)
_BUCKETS = 3
"""A bucket begins anew where it moves to another shard, and one of a clock that was set may be full again."""

_BREAKER = "@breaker"
"""By whom a queue is paused whose circuit breaker is open."""

_MOST_SHOWN, _MOST_TOGETHER = 12, 1_000
_UNIT_MS = {"s": 1_000.0, "m": 60_000.0, "h": 3_600_000.0}


class _Held(NamedTuple):
    """A claim that certainly stands."""

    begin_ms: float
    until_ms: float
    mark: CallMark
    end_ms: float


class _Batch(NamedTuple):
    """Jobs that one answer handed out."""

    begin_ms: float
    end_ms: float
    jobs: int
    mark: CallMark


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
        self.held: dict[str, _Held] = {}
        self.until: list[tuple[float, str]] = []
        self.uncertain_until_ms = float("-inf")
        self.batches: deque[_Batch] = deque()


class QueueLimitRules:
    """Listens to dequeues, and to whatever may end a claim."""

    def __init__(self, judge: HistoryJudge) -> None:
        self._judge = judge
        self._queues: dict[str, _Queue] = {}

    def handed_out(self, call: OpenCall, queue: str, jobs: Mapping[str, Mapping[str, Any]]) -> None:
        """A dequeue was answered with these jobs of a queue, and what it says of each."""
        facts = self._judge.queue(queue)
        if not jobs or not facts.has_limits:
            return
        known = self._queues.setdefault(queue, _Queue())
        self._judge_pause(call, queue, len(jobs))
        self._judge_rate(call, queue, known, len(jobs))
        if not call.request.get("releaseOnDisconnect") and not call.request.get("confirmsReceipt"):
            self._hold(call, known, jobs)
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
        held = [(claim, name) for name, claim in known.held.items() if claim.until_ms > call.end_ms]
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
        if not self._queues:
            return
        for descriptor in descriptors:
            known = self._queues.get(queue_in(descriptor))
            if known is not None:
                known.held.pop(descriptor, None)

    def may_end_many(self, queue: str) -> None:
        """A call begins that may end any claims of a queue; "": of all queues."""
        for name in (queue,) if queue else tuple(self._queues):
            known = self._queues.setdefault(name, _Queue())
            known.held.clear()
            known.uncertain_until_ms = self._judge.now_ms + _UNCERTAIN_MS

    def _hold(self, call: OpenCall, known: _Queue, jobs: Mapping[str, Mapping[str, Any]]) -> None:
        if call.end_ms < known.uncertain_until_ms:
            return
        for descriptor, metadata in jobs.items():
            expires_ms = metadata.get("claimExpiresAtMillis")
            if expires_ms is None:
                continue
            until_ms = expires_ms - _UNDELIVERED_MS - self._judge.tolerance_ms
            if until_ms > call.end_ms:
                known.held[descriptor] = _Held(call.begin_ms, until_ms, call.mark, call.end_ms)
                heapq.heappush(known.until, (until_ms, descriptor))

    def _judge_quota(self, call: OpenCall, queue: str, known: _Queue) -> None:
        held, until = known.held, known.until
        while until and until[0][0] <= call.end_ms:
            until_ms, descriptor = heapq.heappop(until)
            claim = held.get(descriptor)
            if claim is not None and claim.until_ms <= until_ms:
                del held[descriptor]
        if not held:
            return
        oldest_ms = min(claim.begin_ms for claim in held.values()) if len(held) <= 1_000 else float("-inf")
        most = self._most("max_in_progress", queue, oldest_ms, call.end_ms, _count)
        if most is None or len(held) <= most:
            return
        text = f"{len(held)} jobs are in progress, and {most:g} may be"
        shown = sorted(held.items(), key=lambda each: -each[1].end_ms)[:_MOST_SHOWN]
        part = [
            self._judge.line(claim.begin_ms, claim.end_ms, claim.mark, f"was handed {descriptor}")
            for descriptor, claim in reversed(shown)
        ]
        numbers = tuple(claim.mark.number for _, claim in reversed(shown))
        self._judge.violated(Violation("quota", queue, text, call.end_ms, tuple(part), numbers))
        held.clear()

    def _judge_rate(self, call: OpenCall, queue: str, known: _Queue, jobs: int) -> None:
        batches = known.batches
        batches.append(_Batch(call.begin_ms, call.end_ms, jobs, call.mark))
        while batches[0].end_ms < call.end_ms - max(_WINDOWS_MS):
            batches.popleft()
        most = self._most("max_jobs_per_second", queue, call.end_ms - max(_WINDOWS_MS), call.end_ms, _rate)
        if most is None:
            return
        for window_ms in _WINDOWS_MS:
            within = [batch for batch in batches if batch.begin_ms >= call.end_ms - window_ms]
            number = sum(batch.jobs for batch in within)
            seconds = (window_ms + 2 * self._judge.tolerance_ms) / 1000
            allowed = most * seconds + _BUCKETS * max(1.0, most / 2) + 1
            if number > allowed:
                text = f"{number} jobs were handed out in {window_ms / 1000:g} s, with {most:g} a second"
                shown = within[-_MOST_SHOWN:]
                part = tuple(
                    self._judge.line(each.begin_ms, each.end_ms, each.mark, f"was handed {each.jobs} jobs")
                    for each in shown
                )
                numbers = tuple(each.mark.number for each in shown)
                self._judge.violated(Violation("rate", queue, text, call.end_ms, part, numbers))
                batches.clear()
                return

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

    def _most(self, key: str, queue: str, from_ms: float, to_ms: float, read: Any) -> float | None:
        """The greatest that a setting may have been; None: it is not known, or there was no bound."""
        greatest: float | None = None
        for value in self._judge.queue(queue).setting(key).values(from_ms, to_ms):
            number = None if value is None else read(value)
            if number is None:
                return None
            greatest = number if greatest is None else max(greatest, number)
        return greatest


def _count(text: str) -> float | None:
    return float(text) if text.isdecimal() else None


def _rate(text: str) -> float | None:
    """Jobs a second, as in `100/s`, `30/m`."""
    amount, _, unit = text.partition("/")
    try:
        return float(amount) * 1000 / _UNIT_MS[unit or "s"]
    except (KeyError, ValueError):
        return None
