"""The ends of attempts in queues that have a circuit breaker: counted by each process, judged over all of them. Pure.

A process reads its own metrics, so that no call counts anything a second time. What it found is kept in steps of time
(BreakerRule.step_ms), which are the same for all processes, and published in entries of a store. An entry has the
counts of whole windows, not what is new: one that is read twice, or late, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from zlib import crc32

import msgspec

from pinlater.backends.base import KvEntry
from pinlater.job_body import UNREADABLE
from pinlater.metrics import OUTCOME_AT, Metrics
from pinlater.queues.breaker_rule import BreakerRule, Tally

LATE_MS = 5_000
"""So late counts may come, and still make the window full in which they were taken."""

_FAILED = ("retried", "failed")
_ENDED = ("succeeded", *_FAILED)

_FEW_QUEUES = 200
_PARTS = 64
"""The counts of more queues are published in so many entries, each for the queues that hash to it."""


class StepCounts(msgspec.Struct, array_like=True):
    """The counts of one queue at one process, by the number of the step in which they were taken."""

    step_ms: int
    steps: dict[int, Tally]


class AttemptCounts:
    """The counts of one process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._rules: Mapping[str, BreakerRule] = {}
        self._totals: dict[str, Tally] = {}
        """What the metrics said last, of the queues with a breaker."""
        self._counts: dict[str, StepCounts] = {}
        self._changed: set[int] = set()
        self._published: set[int] = set()

    def count(self, rules: Mapping[str, BreakerRule], now_ms: int) -> None:
        """Take what was counted since the last time. `rules`: of the queues with a breaker; what one that is new among
        them had counted before is left out.
        """
        totals = _totals(self._metrics, rules)
        if rules is not self._rules:
            self._take_rules(rules, totals)
        for queue, total in totals.items():
            before = self._totals.get(queue, Tally(0, 0))
            if total != before:
                self._totals[queue] = total
                self._add(queue, total.attempts - before.attempts, total.failed - before.failed, now_ms)

    def _take_rules(self, rules: Mapping[str, BreakerRule], totals: Mapping[str, Tally]) -> None:
        before, self._rules = self._rules, rules
        if rules == before:
            return
        for queue in before.keys() - rules.keys():
            self._totals.pop(queue, None)
            self._counts.pop(queue, None)
        for queue in rules.keys() - before.keys():
            self._totals[queue] = totals.get(queue, Tally(0, 0))
        self.publish_all()

    def _add(self, queue: str, attempts: int, failed: int, now_ms: int) -> None:
        rule = self._rules[queue]
        counts = self._counts.get(queue)
        if counts is None or counts.step_ms != rule.step_ms:
            counts = self._counts[queue] = StepCounts(rule.step_ms, {})
        now = now_ms // rule.step_ms
        oldest = (now_ms - LATE_MS) // rule.step_ms - rule.steps
        counts.steps = {step: tally for step, tally in counts.steps.items() if step > oldest}
        had = counts.steps.get(now, Tally(0, 0))
        counts.steps[now] = Tally(had.attempts + attempts, had.failed + failed)
        self._changed.add(self._part(queue))

    def _part(self, queue: str) -> int:
        return crc32(queue.encode()) % _parts(self._rules)

    # -- as it is published --------------------------------------------------------------------------------------------

    def publish_all(self) -> None:
        """Each entry is to be published anew: they go to another store, or have the counts of other queues."""
        self._changed = self._published | {self._part(queue) for queue in self._counts}

    def take_changed(self) -> set[int]:
        """The entries to publish: those with new counts since the last time."""
        changed, self._changed = self._changed, set()
        self._published |= changed
        return changed

    def give_back(self, part: int) -> None:
        """One that could not be published."""
        self._changed.add(part)

    def entry(self, part: int, now_ms: int) -> tuple[bytes, int]:
        """The body of an entry, and when it expires: then its counts are in no window any more."""
        counts = {queue: each for queue, each in self._counts.items() if self._part(queue) == part}
        windows = [rule.window_ms + rule.step_ms for queue in counts if (rule := self._rules.get(queue))]
        return msgspec.json.encode(counts), now_ms + max(windows, default=0) + 2 * LATE_MS


def _totals(metrics: Metrics, queues: Mapping[str, object]) -> dict[str, Tally]:
    """The attempts of these queues that ended since the process began."""
    found: dict[str, Tally] = {}
    for key, value in metrics.counters.items():
        at = OUTCOME_AT.get(key[0])
        if at is None or key[1] not in queues or key[at] not in _ENDED:
            continue
        attempts, failed = found.get(key[1], (0, 0))
        found[key[1]] = Tally(attempts + int(value), failed + (int(value) if key[at] in _FAILED else 0))
    return found


def _parts(rules: Mapping[str, BreakerRule]) -> int:
    return 1 if len(rules) <= _FEW_QUEUES else _PARTS


def counts_of_all(entries: Mapping[str, KvEntry]) -> dict[str, list[StepCounts]]:
    """By queue, what each process published, by the names PROCESS/PART of their entries. What is of another version is
    left out.
    """
    found: dict[str, dict[str, StepCounts]] = {}
    for name, entry in sorted(entries.items()):
        try:
            counts = msgspec.json.decode(entry.body, type=dict[str, StepCounts])
        except UNREADABLE:
            continue
        process = name.rpartition("/")[0]
        for queue, each in counts.items():  # while a process divides them otherwise, two entries may have the same
            found.setdefault(queue, {})[process] = each
    return {queue: list(by_process.values()) for queue, by_process in found.items()}


def reached(counts: Iterable[StepCounts], rule: BreakerRule, since_ms: int, now_ms: int) -> Tally | None:
    """The tally of a window that reaches the rule, of those that ended lately; None: none does. What was counted before
    `since_ms` does not count.
    """
    first = -(-since_ms // rule.step_ms)
    sums: dict[int, Tally] = {}
    for each in counts:
        if each.step_ms == rule.step_ms:
            for step, tally in each.steps.items():
                if step >= first:
                    had = sums.get(step, Tally(0, 0))
                    sums[step] = Tally(had.attempts + tally.attempts, had.failed + tally.failed)
    if sum(tally.failed for tally in sums.values()) < rule.least_failed:
        return None
    for last in range((now_ms - LATE_MS) // rule.step_ms, now_ms // rule.step_ms + 2):  # clocks differ by a little
        window = [sums[step] for step in range(last - rule.steps + 1, last + 1) if step in sums]
        tally = Tally(sum(each.attempts for each in window), sum(each.failed for each in window))
        if rule.is_reached(tally):
            return tally
    return None
