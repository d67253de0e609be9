"""The turns of groups: on one shard, beside a due job of a group, each other group has few hand-outs.

Whoever waits in line has its turn at the virtual time, or one behind it (pinlater/backends/group_store.py). So while a
group has a job in line, each other group has at most as many hand-outs as this one, and AHEAD more; and one less where
the group comes for the first time. In a queue with jobs on several shards it is so many times as much: a turn of a
group on all of them costs so many times what one of a group on one shard does (pinlater/shards/group_spreads.py).

Only what is certain counts against the shard, and what is uncertain counts for it:

- A job waits for certain from when it is in line to the begin of the first call that may have changed it. In line is
  what has a group and was stored due. What was put off, or has no group, comes into line with the next claim behind its
  run_after, while few jobs live in the queue.
- A hand-out counts that began behind that, and was not given back: its claim is one that ends by acks or by time alone,
  or an ack has ended it. A turn that was given back may make up for what others had meanwhile.
- Of its own group each hand-out counts that may have been.

Not judged: shards that are emptied, overflow shards and stores that lost something; the minutes around a call that
failed; what is handed out while a job is whose group is not known; jobs with keys or an expiry, which may wait for
something else; a job that has come back; more than MOST_JUDGED groups of a priority at a time; queues in which
something else decides who is next (a circuit breaker, aging of priorities, limits of groups, changes of them).
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from pinlater.history.checker.claim_observations import ObservedAck, ObservedClaim
from pinlater.history.checker.hand_out_order import is_due
from pinlater.history.checker.history_judge import LATE_EFFECT_MS, HistoryJudge, OpenCall, queue_in
from pinlater.history.checker.job_history import JobHistory
from pinlater.history.checker.observations import CallMark
from pinlater.history.checker.verdict import Violation
from pinlater.model import AckOutcome

AHEAD = 2
"""So many more hand-outs than its own may each other group have: one at the turn that the group waits for, and one
where that is a turn ahead of the virtual time.
"""

MOST_JUDGED = 16
FEW = 250
"""While no more jobs live in a queue, all that are due come into line with the next claim: half of what that promises,
for those that are being enqueued meanwhile.
"""

_DECIDE_TOO = ("pause_on_failures", "priority_aging")
"""Settings of a queue by which claims go back that no line shows, or jobs pass others."""

_WAITS_FOR_MORE = frozenset(("serializeKey", "expiresAtMillis", "sendId", "dedupeKey"))
_MOST_WAITING = 100_000
_MOST_ENDS = 2_000
_MOST_SHOWN = 12
_BY_THE_CLAIM = frozenset((AckOutcome.SUCCEEDED, AckOutcome.RETRIED, AckOutcome.FAILED, AckOutcome.CANCELLED))


@dataclass(slots=True)
class _Waiting:
    """A job of a group that nobody has touched yet."""

    descriptor: str
    call: OpenCall
    """That stored it."""

    in_line_ms: float
    """From when on it is in line for certain."""


class _LaterJob(NamedTuple):
    """A job that comes into line with a claim behind its run_after."""

    due_ms: float
    descriptor: str
    group: str
    call: OpenCall


@dataclass(slots=True)
class _Run:
    """What another group had while this one waited, from `begin_ms` on."""

    begin_ms: float
    own: int
    """How many hand-outs of this group were over by then."""

    ahead: int
    count: int = 0
    until_ms: float = -inf
    calls: deque[tuple[OpenCall, int]] = field(default_factory=lambda: deque(maxlen=_MOST_SHOWN))


class _Group:
    """A group that has jobs which wait."""

    def __init__(self, *, was_served: bool) -> None:
        self.was_served = was_served
        """It may have had hand-outs before."""

        self.is_new: bool | None = None
        """It has no turn ahead of the virtual time for certain, until its first hand-out; None: not looked at yet."""

        self.waiting: deque[_Waiting] = deque()
        self.later = 0
        """Jobs that are not in line yet."""

        self.left_ms: dict[str, float] = {}
        """When those that were handed out may have left, at the earliest."""

        self.runs: dict[str, _Run] = {}
        self._begins_ms: list[float] = []
        self._ends_ms: list[float] = []
        """Of hand-outs that may have been."""

        self._forgotten = 0

    def served(self, call: OpenCall, descriptor: str, touched_ms: float) -> None:
        """One of its jobs may have been handed out."""
        if len(self.left_ms) < _MOST_WAITING:
            self.left_ms[descriptor] = touched_ms
        self._begins_ms.append(call.begin_ms)
        self._ends_ms.append(call.end_ms)
        if len(self._ends_ms) > _MOST_ENDS:
            self._forgotten += _MOST_ENDS // 2
            del self._begins_ms[: _MOST_ENDS // 2], self._ends_ms[: _MOST_ENDS // 2]

    def turns_by(self, at_ms: float) -> int:
        """Hand-outs that may have been by then, which is a short time ago."""
        first = bisect_left(self._ends_ms, at_ms)
        return self._forgotten + first + sum(begin_ms <= at_ms for begin_ms in self._begins_ms[first:])

    def turns_before(self, at_ms: float) -> int | None:
        """Those that were over by then; None: too long ago."""
        place = bisect_left(self._ends_ms, at_ms)
        return None if self._forgotten and not place else self._forgotten + place


class _Line:
    """One priority of a queue on a shard."""

    def __init__(self, made_ms: float, given_back: int, shards: set[str]) -> None:
        self.groups: dict[str, _Group] = {}
        self.later: list[_LaterJob] = []
        self.served: set[str] = set()
        """Groups of which a hand-out may have been."""

        self.is_past_others = False
        """The virtual time is past all turns that groups had before this was made."""

        self.blind_ms = made_ms
        """What began before is not judged: jobs were handed out whose group is not known, or turns were made up for."""

        self.returnable: dict[str, tuple[str, OpenCall, str | None]] = {}
        """By job: a claim that may be given back with the turn, its hand-out and its group."""

        self._shards = shards
        """Those of the queue that have had jobs."""

        self._given_back = given_back
        """Turns that may have been given back, and not made up for yet."""

        self._since_ms = made_ms
        self._since: Counter[str] = Counter()
        """Hand-outs by group that began since a turn may have gone back."""

        self._until_ms = made_ms

    @property
    def credit(self) -> int:
        """How many turns more any group may have, since turns may have gone back."""
        return self._given_back + len(self.returnable)

    @property
    def highest_cost(self) -> int:
        """Of a turn, beside that of a group on one shard."""
        return len(self._shards)

    def may_have_given_back(self, at_ms: float) -> None:
        self._given_back += 1
        self._since_ms = at_ms
        self._since.clear()

    def not_known(self, at_ms: float) -> None:
        """A job was handed out by then whose group is not known."""
        self.blind_ms = at_ms
        self.is_past_others = False
        self._since_ms = at_ms
        self._since.clear()

    def count(self, call: OpenCall, counts: Mapping[str, int]) -> None:
        """These were handed out for certain. When one group has had more than could go back, the virtual time is past
        all turns that there were before.
        """
        if (self.is_past_others and not self._given_back) or call.begin_ms < self._since_ms:
            return
        self._since.update(counts)
        self._until_ms = max(self._until_ms, call.end_ms)
        if any(self._since[group] >= self.credit + AHEAD * self.highest_cost for group in counts):
            self.is_past_others = True
            self._given_back = 0
            self._since.clear()
            self.blind_ms = max(self.blind_ms, self._until_ms)


class GroupTurns:
    """The turns of groups, judged by the enqueues, hand-outs and acks of a history."""

    def __init__(self, judge: HistoryJudge) -> None:
        self._judge = judge
        self._lines: dict[str, _Line] = {}
        """By the descriptor without its id, of queues with groups."""

        self._shards: defaultdict[str, set[str]] = defaultdict(set)
        """By queue, those that have had jobs of it."""

        self._crowded_ms: dict[str, float] = {}
        """When more jobs than a FEW lived in a queue last."""

    # -- what calls say ------------------------------------------------------------------------------------------------

    def stored(self, call: OpenCall, job: Mapping[str, Any], descriptor: str) -> None:
        """A job was stored."""
        queue, group = queue_in(descriptor), job.get("group", "")
        facts = self._judge.queue(queue)
        facts.has_groups = facts.has_groups or bool(group)
        if not facts.has_groups:
            return
        self._note_crowd(queue, call.end_ms)
        line = self._line(descriptor)
        if call.is_resent or not _WAITS_FOR_MORE.isdisjoint(job):
            return
        due_ms = job.get("runAfterTimestampMillis") or 0
        if group and is_due(call, due_ms, self._judge.tolerance_ms):
            self._wait(line, group, _Waiting(descriptor, call, call.end_ms))
        elif len(line.later) < _MOST_WAITING and (known := self._group(line, group)) is not None:
            known.later += 1
            heapq.heappush(line.later, _LaterJob(max(due_ms, call.end_ms), descriptor, group, call))

    def handed_out(self, call: OpenCall, jobs: Mapping[str, ObservedClaim]) -> None:
        """A dequeue was answered with these jobs."""
        certain: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for descriptor, observation in jobs.items():
            if not self._judge.queue(queue_in(descriptor)).has_groups:
                continue
            self._note_crowd(queue_in(descriptor), call.end_ms)
            line, history = self._line(descriptor), self._judge.known(descriptor)
            group = history.group if isinstance(history, JobHistory) else None
            may_have_gone_back = line.returnable.pop(descriptor, None) is not None
            if may_have_gone_back:
                line.may_have_given_back(call.end_ms)
            if not observation.is_held:
                line.returnable[descriptor] = observation.claim, call, group
            if group is None:
                line.not_known(call.end_ms)
                continue
            line.served.add(group)
            if group in line.groups and isinstance(history, JobHistory):
                line.groups[group].served(call, descriptor, history.touched_ms)
            if observation.is_held and not may_have_gone_back:
                certain[_line_of(descriptor)][group] += 1
        for name, counts in certain.items():
            self._judge_later(call, name, counts, call.end_ms)

    def acked(self, call: OpenCall, descriptor: str, observation: ObservedAck) -> None:
        """An ack was answered. One that had an effect shows that its claim was not given back."""
        line = self._lines.get(_line_of(descriptor))
        found = None if line is None else line.returnable.get(descriptor)
        if line is None or found is None or not (observation.must_act or observation.outcome in _BY_THE_CLAIM):
            return
        claim, hand_out, group = found
        del line.returnable[descriptor]
        if call.is_resent or not claim or observation.claim != claim:
            line.may_have_given_back(call.end_ms)
        elif group is not None:
            self._judge_later(hand_out, _line_of(descriptor), Counter([group]), call.end_ms)

    # -- judging -------------------------------------------------------------------------------------------------------

    def _line(self, descriptor: str) -> _Line:
        name = _line_of(descriptor)
        found = self._lines.get(name)
        if found is None:
            jobs = self._judge.live_jobs(queue_in(descriptor))
            touched = sum(each.touched_ms < inf and _line_of(each.descriptor) == name for each in jobs)
            queue, shard, _ = name.split(":")
            self._shards[queue].add(shard)
            found = self._lines[name] = _Line(self._judge.now_ms, touched, self._shards[queue])
        return found

    def _note_crowd(self, queue: str, at_ms: float) -> None:
        if len(self._judge.live_jobs(queue)) > FEW:
            self._crowded_ms[queue] = at_ms

    def _group(self, line: _Line, group: str) -> _Group | None:
        """None: too many others are judged."""
        known = line.groups.get(group)
        if known is None and len(line.groups) < MOST_JUDGED:
            known = line.groups[group] = _Group(was_served=group in line.served)
        return known

    def _wait(self, line: _Line, group: str, waiting: _Waiting) -> None:
        known = self._group(line, group)
        if known is not None and len(known.waiting) < _MOST_WAITING:
            known.waiting.append(waiting)

    def _judge_later(self, call: OpenCall, name: str, counts: Counter[str], known_ms: float) -> None:
        self._judge.when_known(known_ms, lambda: self._judge_hand_out(call, name, counts))

    def _judge_hand_out(self, call: OpenCall, name: str, counts: Counter[str]) -> None:
        """Of each group so many jobs were handed out for certain."""
        line = self._lines[name]
        line.count(call, counts)
        if self._judge.has_losses or self._judge.may_move(f"{name}:") or self._is_decided_otherwise(queue_in(name)):
            line.groups.clear()
            line.later.clear()
        for group, known in list(line.groups.items()):
            head = self._first(known, call)
            if head is None:
                if not known.later:
                    del line.groups[group]
            elif _is_behind(call, head) and call.begin_ms >= line.blind_ms:
                self._judge_group(line, group, known, head, call, counts)
        self._bring_into_line(line, name, call)

    def _is_decided_otherwise(self, queue: str) -> bool:
        facts = self._judge.queue(queue)
        known = {value for key in _DECIDE_TOO for value in facts.setting(key).values(-inf, inf)}
        return bool(known - {None, "", "none"}) or facts.has_group_limits or facts.has_group_changes

    def _first(self, known: _Group, call: OpenCall) -> _Waiting | None:
        """The first job that waited until the end of that call for certain."""
        waiting = known.waiting
        while waiting:
            head = waiting[0]
            history = self._judge.known(head.descriptor)
            is_there = isinstance(history, JobHistory) and history.touched_ms > call.end_ms
            if is_there and isinstance(history, JobHistory) and not self._is_unsure(history):
                return head
            waiting.popleft()
            left_ms = known.left_ms.pop(head.descriptor, -inf)
            if not waiting or waiting[0].in_line_ms > left_ms or is_there:
                known.runs.clear()
        return None

    def _is_unsure(self, history: JobHistory) -> bool:
        if not self._judge.queue(queue_in(history.descriptor)).was_operated:
            return False
        return bool(self._judge.around(history).many_changed)

    def _judge_group(
        self, line: _Line, group: str, known: _Group, head: _Waiting, call: OpenCall, counts: Mapping[str, int]
    ) -> None:
        if known.is_new is None:
            is_past_others = line.is_past_others and line.blind_ms <= head.call.begin_ms
            known.is_new = is_past_others and not known.was_served
        began_ms = min((run.begin_ms for run in known.runs.values()), default=head.in_line_ms)
        since_ms = min(began_ms, head.in_line_ms) - LATE_EFFECT_MS
        if not self._judge.was_well(-inf if known.is_new else since_ms, inf):
            known.runs.clear()
            known.is_new = False
            return
        for other, count in counts.items():
            run = self._run(line, known, other, call) if other != group else None
            if run is None or call.begin_ms < run.begin_ms:
                continue
            run.count += count
            run.calls.append((call, count))
            run.until_ms = max(run.until_ms, call.end_ms)
            own = known.turns_by(run.until_ms) - run.own
            if run.count > line.highest_cost * _most(own, run.ahead) + line.credit:
                self._broken(group, own, other, run, head)
                known.runs.clear()
                return

    def _run(self, line: _Line, known: _Group, other: str, call: OpenCall) -> _Run | None:
        """What the other group has had, since the moment from which that is the most beyond what this one had."""
        run = known.runs.get(other)
        if run is not None and run.begin_ms < line.blind_ms:
            run = None
        own = known.turns_before(call.begin_ms)
        if own is None:
            return run
        ahead = AHEAD - 1 if known.is_new and not known.turns_by(call.end_ms) else AHEAD
        if run is None or (
            call.begin_ms >= run.begin_ms and line.highest_cost * (own - ahead - run.own + run.ahead) >= run.count
        ):
            run = known.runs[other] = _Run(call.begin_ms, own, ahead)
        return run

    def _bring_into_line(self, line: _Line, name: str, call: OpenCall) -> None:
        """Jobs that were put off are in line behind a claim that came when they were due."""
        queue = queue_in(name)
        facts = self._judge.queue(queue)
        can_tell = not facts.has_other_sources and self._crowded_ms.get(queue, -inf) < call.begin_ms
        while line.later and line.later[0].due_ms + self._judge.tolerance_ms <= call.begin_ms:
            later = heapq.heappop(line.later)
            history = self._judge.known(later.descriptor)
            line.groups[later.group].later -= 1
            if can_tell and isinstance(history, JobHistory) and history.touched_ms > call.end_ms:
                self._wait(line, later.group, _Waiting(later.descriptor, later.call, call.end_ms))

    def _broken(self, group: str, own: int, other: str, run: _Run, head: _Waiting) -> None:
        stored, last = head.call, run.calls[-1][0]
        text = (
            f"{run.count} jobs of {_in_words(other)} were handed out beside {head.descriptor} of {_in_words(group)}, "
            f"which had {own} meanwhile"
        )
        lines = [self._shown(stored.begin_ms, stored.end_ms, stored.mark, f"stored {head.descriptor}")]
        lines += [
            self._shown(call.begin_ms, call.end_ms, call.mark, f"was handed {count} jobs of {_in_words(other)}")
            for call, count in run.calls
        ]
        numbers = (stored.number, *(call.number for call, _ in run.calls))
        self._judge.violated(
            Violation("turn", queue_in(head.descriptor), text, last.end_ms, tuple(lines), tuple(dict.fromkeys(numbers)))
        )

    def _shown(self, begin_ms: float, end_ms: float, mark: CallMark, text: str) -> str:
        return self._judge.line(begin_ms, end_ms, mark, text)


def _most(own: int, ahead: int) -> int:
    """Hand-outs of one other group beside so many of the own one. All groups weigh the same: with weights this is where
    the weight of the other one over that of the own one comes in.
    """
    return own + ahead


def _is_behind(call: OpenCall, waiting: _Waiting) -> bool:
    """Whether a hand-out came when the job was in line for certain."""
    stored = waiting.call.mark
    return stored.ended < call.mark.began and waiting.in_line_ms <= call.begin_ms


def _line_of(descriptor: str) -> str:
    return descriptor.rpartition(":")[0]


def _in_words(group: str) -> str:
    return f"the group {group}" if group else "no group"
