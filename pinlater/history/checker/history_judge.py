"""The judge of a history: pairs the lines, and has each job carried through the calls about it.

What a call changed is known at its end, and it may have changed that at its begin already. So an answer is judged when
every call that began before its end has ended too. A call that has no end for `LONGEST_CALL_MS` is one of unknown
outcome, and is not waited for any longer.

The parts (job_call_reader.py and others) say what a method means; each has a `Handling` for the methods that it knows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from pinlater.history.call_events import CallBegin, CallEnd, CallError, Event, Note
from pinlater.history.checker.history_queue import HistoryQueue
from pinlater.history.checker.job_history import JobHistory, TooManyOrders
from pinlater.history.checker.job_machine import OPEN, OVER, Key, Phase, State, Surroundings, reach
from pinlater.history.checker.observations import CallMark, Contradiction, Observation
from pinlater.history.checker.shortest import shortest_part
from pinlater.history.checker.verdict import Verdict, Violation
from pinlater.model import is_descriptor

LONGEST_CALL_MS = 300_000.0
"""A call that has no answer by then counts as one that never got one."""

LATE_EFFECT_MS = 600_000.0
"""So long after a caller gave up may a server still carry out its call."""

MOST_VIOLATIONS = 20
_ORDER_SLACK_MS = 100.0
"""How far lines may stand out of the order of their times."""

_HARMLESS = frozenset(
    (
        "BodyTooLarge",
        "ContinuationInvalid",
        "DequeueRateLimited",
        "EnqueueRejected",
        "FlowNotFound",
        "Forbidden",
        "ItemNotFound",
        "PasswordInvalid",
        "PriorityNotSupported",
        "QueueNameInvalid",
        "QueueNameTooLong",
        "QueueNotFound",
        "RecordChanged",
        "RequestInvalid",
        "StageSealed",
    )
)
"""Errors that say nothing of the state of the cluster."""


_READING = frozenset(
    (
        "getGroups",
        "getJobCount",
        "getQueues",
        "getSchedules",
        "lookupJobs",
        "scanJobs",
        "searchJobs",
    )
)
"""Calls that change no job."""

_UNSEEN = frozenset((Phase.UNKNOWN, Phase.MOVED, Phase.ABSENT))


class OpenCall:
    """A call under way; behind its end, what it was answered."""

    __slots__ = ("args", "begin_ms", "by", "end_ms", "error", "is_over", "is_resent", "mark", "method", "number")

    def __init__(self, begin: CallBegin, slack_ms: float, place: int) -> None:
        self.number = begin.call
        self.by = begin.by
        self.method = begin.method
        self.args: dict[str, Any] = begin.args
        self.begin_ms = begin.at_ms - slack_ms
        self.end_ms = inf
        """inf: it may still take effect."""

        self.error: CallError | None = None
        self.is_resent = False
        self.is_over = False
        self.mark = CallMark(begin.call, begin.by, begin.method, place)

    @property
    def request(self) -> dict[str, Any]:
        """The struct that most methods have."""
        request = self.args.get("request")
        return request if isinstance(request, dict) else {}


class Handling(NamedTuple):
    """What a method means. `failed` is called for an error, and for a call that has no end."""

    answered: Callable[[OpenCall, Any], None]
    failed: Callable[[OpenCall], None] | None = None
    begun: Callable[[OpenCall], None] | None = None


class EndedJob(NamedTuple):
    """What is kept of a job that has ended in every case."""

    state: State
    last: Observation
    notes_seen: int
    is_foreign: bool
    key: Key | None


class HistoryJudge:
    """Judges events as they come; `finish` gives the verdict."""

    def __init__(
        self, tolerance_ms: float = 0.0, *, has_one_clock: bool = True, defaults: Mapping[str, str] | None = None
    ) -> None:
        """See `check`."""
        self.tolerance_ms = tolerance_ms
        self.has_one_clock = has_one_clock
        self._defaults = defaults or {}
        self.verdict = Verdict()
        self.now_ms = -inf
        """The latest time of a line."""

        self.settled_ms = -inf
        """All calls that began by then are known."""

        self._slack_ms = 0.0 if has_one_clock else tolerance_ms / 2
        self._handlings: dict[str, Handling] = {}
        self._lines = 0
        self._open: dict[int, OpenCall] = {}
        self._in_order: deque[OpenCall] = deque()
        self._due: deque[tuple[float, JobHistory]] = deque()
        self._later: deque[tuple[float, Callable[[], None]]] = deque()
        self._jobs: dict[str, JobHistory | EndedJob] = {}
        self._live: dict[str, dict[str, JobHistory]] = {}
        self._open_changes = 0
        self._last_change = -inf
        """The place of the line at which a call ended last that may change jobs."""

        self._queues: dict[str, HistoryQueue] = {}
        self._notes: dict[str, list[Note]] = {}
        self._emptied_shards: set[str] = set()
        self._failures_ms: list[float] = []
        self._callers: set[str] = set()
        self._on_end: list[Callable[[], None]] = []
        self.has_replays = False
        """Dead letters were sent back: their jobs are there anew, under other names."""

        self.on_over: Callable[[JobHistory], None] = lambda history: None
        """Called for each job that has ended in every case."""

        self.on_loss: Callable[[], None] = lambda: None
        """Called where a store has lost something."""

    # -- parts -------------------------------------------------------------------------------------------------------

    def handle(self, handlings: Mapping[str, Handling]) -> None:
        """A part knows these methods."""
        self._handlings.update(handlings)

    def at_the_end(self, judge: Callable[[], None]) -> None:
        """Called once, when all calls are known."""
        self._on_end.append(judge)

    def queue(self, name: str) -> HistoryQueue:
        found = self._queues.get(name)
        if found is None:
            around = Surroundings(self.tolerance_ms, self.has_one_clock)
            found = self._queues[name] = HistoryQueue(around, self._defaults)
        return found

    def queues(self) -> Sequence[str]:
        """Those of which anything is known."""
        return list(self._queues)

    def job(self, descriptor: str, *, is_enqueued: bool = False) -> JobHistory | None:
        """The history of a job; None: the text names none."""
        found = self._jobs.get(descriptor)
        if isinstance(found, JobHistory):
            if is_enqueued and found.is_foreign:
                found.was_enqueued()
            return found
        if found is not None:
            return self._taken_up(descriptor, found)
        if not is_descriptor(descriptor):
            return None
        before = bisect_left(self._failures_ms, self.now_ms - LATE_EFFECT_MS)
        history = JobHistory(descriptor, is_foreign=not is_enqueued, hidden_before=before)
        self._jobs[descriptor] = history
        self._live.setdefault(queue_in(descriptor), {})[descriptor] = history
        self.verdict.jobs += 1
        return history

    def live_jobs(self, queue: str) -> Collection[JobHistory]:
        """Those that have not ended in every case."""
        return self._live.get(queue, {}).values()

    def is_at_rest(self, call: OpenCall) -> bool:
        """No call that changes jobs was under way beside this one, which has just ended."""
        return self._open_changes == 0 and self._last_change < call.mark.began

    def known(self, descriptor: str) -> JobHistory | EndedJob | None:
        """A job that the history has named before."""
        return self._jobs.get(descriptor)

    def observe(self, descriptor: str, observation: Observation, *, is_enqueued: bool = False) -> JobHistory | None:
        """What a call says about a job, to be judged when all calls that may have come before are known."""
        history = self.job(descriptor, is_enqueued=is_enqueued)
        if history is not None:
            history.observe(observation)
            if observation.end_ms < inf:
                self._due.append((observation.end_ms, history))
        return history

    def when_known(self, at_ms: float, judge: Callable[[], None]) -> None:
        """Called when all calls that began by then are known, and all before was judged."""
        self._later.append((at_ms, judge))

    def empties(self, shard: str) -> None:
        """Jobs of this shard move to others by themselves."""
        self._emptied_shards.add(shard)

    def may_move(self, descriptor: str) -> bool:
        """Whether the job lies on an overflow shard, or on one that is being emptied."""
        shard = shard_in(descriptor)
        return shard.startswith("o") or shard in self._emptied_shards

    @property
    def has_emptied(self) -> bool:
        """Jobs of some shard move, or did."""
        return bool(self._emptied_shards)

    @property
    def has_losses(self) -> bool:
        """A store has lost something, or was set back."""
        return bool(self._notes)

    def has_lost(self, shard: str) -> bool:
        """This one has."""
        return shard in self._notes

    def was_well(self, from_ms: float, to_ms: float) -> bool:
        """No call that began in this time failed, but for reasons of its own."""
        place = bisect_left(self._failures_ms, from_ms)
        return place == len(self._failures_ms) or self._failures_ms[place] > to_ms

    def violated(self, violation: Violation) -> None:
        if len(self.verdict.violations) < MOST_VIOLATIONS:
            self.verdict.violations.append(violation)
        else:
            self.verdict.left_out += 1

    def line(self, begin_ms: float, end_ms: float, mark: CallMark, text: str) -> str:
        """One line of a part: when, who, and what, by the time since the history began."""
        first_ms = self.verdict.first_ms or 0.0
        begin_s = (begin_ms + self._slack_ms - first_ms) / 1000
        end = "...      " if end_ms == inf else f"{(end_ms - self._slack_ms - first_ms) / 1000:.3f}"
        return f"{begin_s:.3f} to {end} s  {mark.by} call {mark.number} {mark.method}: {text}"

    # -- events ------------------------------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """The next line."""
        verdict = self.verdict
        at_ms = event.at_ms
        self._lines += 1
        if verdict.first_ms is None:
            verdict.first_ms = at_ms
        if at_ms > self.now_ms:
            self.now_ms = verdict.last_ms = at_ms
        if isinstance(event, CallBegin):
            self._begin(event)
        elif isinstance(event, CallEnd):
            self._end(event)
        else:
            self._note(event)

    def finish(self) -> Verdict:
        """All lines were taken."""
        for call in self._in_order:
            if not call.is_over:
                self._fail(call)
        self._in_order.clear()
        self._settle(inf)
        for judge in self._on_end:
            judge()
        self.verdict.callers = len(self._callers)
        for found in self._jobs.values():
            if isinstance(found, JobHistory):
                self._at_last(found)
        return self.verdict

    def _begin(self, event: CallBegin) -> None:
        call = OpenCall(event, self._slack_ms, self._lines)
        self._callers.add(event.by)
        handling = self._handlings.get(event.method)
        if handling is None:
            self.verdict.passed_over[event.method] += 1
            return
        self._open[event.call] = call
        self._in_order.append(call)
        self._open_changes += event.method not in _READING
        if handling.begun is not None:
            handling.begun(call)

    def _end(self, event: CallEnd) -> None:
        call = self._open.pop(event.call, None)
        if call is None:
            return
        call.is_over = True
        if call.method not in _READING:
            self._open_changes -= 1
            self._last_change = self._lines
        call.mark.ended = self._lines
        call.is_resent = event.resent
        if event.error is None:
            call.end_ms = max(event.at_ms, self.now_ms) + self._slack_ms
            self.verdict.judged[call.method] += 1
            if event.resent:
                self._failed_at(call.begin_ms)
            self._handlings[call.method].answered(call, event.answer)
        else:
            call.error = event.error
            if event.error.changed != "nothing":
                call.mark.ended = inf
            else:
                call.end_ms = max(event.at_ms, self.now_ms) + self._slack_ms
            self._fail(call)
        self._advance()

    def _fail(self, call: OpenCall) -> None:
        """It ended with an error, or not at all."""
        call.is_over = True
        self._open.pop(call.number, None)
        self.verdict.judged[call.method] += 1
        if call.end_ms == inf:
            self.verdict.unknown += 1
        if call.error is None or call.end_ms == inf or call.error.name not in _HARMLESS:
            self._failed_at(call.begin_ms)
        handling = self._handlings[call.method]
        if handling.failed is not None:
            handling.failed(call)

    def _failed_at(self, at_ms: float) -> None:
        """Something went wrong: claims may have been made that nobody heard of."""
        failures_ms = self._failures_ms
        failures_ms.append(max(at_ms, failures_ms[-1]) if failures_ms else at_ms)

    def _note(self, note: Note) -> None:
        if note.note == "end":
            self.verdict.is_over = True
        elif note.note in ("rollback", "lost"):
            self._notes.setdefault(note.shard, []).append(note)
            self._failed_at(note.at_ms)
            self.on_loss()
        elif note.note in ("drain", "drained", "dequeue_only"):
            self.empties(note.shard)
        else:
            self.verdict.passed_over[f"note {note.note}"] += 1

    def _advance(self) -> None:
        in_order, given_up_ms = self._in_order, self.now_ms - LONGEST_CALL_MS
        while in_order:
            call = in_order[0]
            if not call.is_over:
                if call.begin_ms >= given_up_ms:
                    break
                self._fail(call)
            in_order.popleft()
        open_ms = in_order[0].begin_ms if in_order else inf
        self._settle(min(open_ms, self.now_ms - _ORDER_SLACK_MS))

    # -- judging -----------------------------------------------------------------------------------------------------

    def _settle(self, known_ms: float) -> None:
        """Judges what ended before `known_ms`."""
        due, later = self._due, self._later
        self.settled_ms = known_ms
        while due and due[0][0] < known_ms:
            end_ms, history = due.popleft()
            while later and later[0][0] < end_ms:
                later.popleft()[1]()
            while (next_ms := history.next_ms()) is not None and next_ms <= end_ms:
                self._settle_one(history)
        while later and later[0][0] < known_ms and (not due or later[0][0] <= due[0][0]):
            later.popleft()[1]()

    def _settle_one(self, history: JobHistory) -> None:
        notes = self._notes.get(shard_in(history.descriptor)) if self._notes else None
        try:
            if notes is not None:
                self._heed(history, notes)
            contradiction = history.settle(self.around(history))
        except TooManyOrders:
            self.verdict.unjudged_jobs += 1
            history.contradicted()
            return
        if contradiction is not None:
            self._contradicted(history, *contradiction)
            return
        if history.is_at_rest and history.last is not None:
            states = history.states
            if len(states) == 1 and states[0].phase in OVER:
                mark = EndedJob(states[0], history.last, history.notes_seen, history.is_foreign, history.key)
                self._jobs[history.descriptor] = mark
                self._live[queue_in(history.descriptor)].pop(history.descriptor, None)
                self.on_over(history)

    def _taken_up(self, descriptor: str, mark: EndedJob) -> JobHistory:
        history = JobHistory(descriptor, is_foreign=mark.is_foreign, state=mark.state)
        history.resume(mark.last)
        history.notes_seen = mark.notes_seen
        history.key = mark.key
        self._jobs[descriptor] = history
        self._live.setdefault(queue_in(descriptor), {})[descriptor] = history
        return history

    def around(self, history: JobHistory) -> Surroundings:
        """What lies around a job now."""
        queue = queue_in(history.descriptor)
        since_ms = min(state.since_ms for state in history.states)
        around = self.queue(queue).around(history.descriptor, history.key, since_ms, is_foreign=history.is_foreign)
        around.hidden = len(self._failures_ms) - history.hidden_before
        around.may_move = self.may_move(history.descriptor)
        return around

    def _heed(self, history: JobHistory, notes: Sequence[Note]) -> None:
        """What a store has lost by the end of the next call about this job. TooManyOrders."""
        next_ms = history.next_ms()
        assert next_ms is not None
        while history.notes_seen < len(notes):
            note = notes[history.notes_seen]
            if note.at_ms - self._slack_ms > next_ms:
                return
            history.notes_seen += 1
            is_known = history.is_fresh or not _concerns(note, history.last_ms, self.tolerance_ms)
            under_way = history.under_way(note.at_ms + self.tolerance_ms)
            if under_way or not is_known:
                history.fell_back(under_way, note.at_ms, self.around(history), is_known=is_known)

    def _contradicted(self, history: JobHistory, observation: Observation, reasons: Sequence[Contradiction]) -> None:
        around = self.around(history)
        part = shortest_part(history.base, history.log, observation, around)
        if history.ended_by is not None:
            part.insert(0, history.ended_by)
        best = max(reasons, key=lambda reason: reason.rank, default=Contradiction(0, "state", "no order explains it"))
        self.violated(
            Violation(
                best.rule,
                history.descriptor,
                best.text,
                observation.end_ms,
                tuple(self.line(each.begin_ms, each.end_ms, each.call, each.text()) for each in part),
                tuple(dict.fromkeys(each.call.number for each in part)),
            )
        )
        history.contradicted()

    def _at_last(self, history: JobHistory) -> None:
        """Whether a job was seen to end, where all were to."""
        states = history.states
        if not self.verdict.is_over or all(state.phase in OVER for state in states):
            return
        notes = self._notes.get(shard_in(history.descriptor), ())
        if any(_concerns(note, history.last_ms, self.tolerance_ms) for note in notes[history.notes_seen :]):
            return
        if history.is_foreign or all(state.phase in _UNSEEN for state in states):
            # whoever made it may have ended it in a way of its own
            self.verdict.unsettled_jobs += not history.is_foreign or any(state.phase in OPEN for state in states)
            return
        around = self.around(history)
        closed = OVER | {Phase.MOVED}
        may_be_over = any(
            state.phase not in OPEN
            or reach(state, closed, self.now_ms, around)
            or any(each.may_act(state) for each in history.open_ended)
            for state in states
        )
        if may_be_over:
            self.verdict.unsettled_jobs += 1
            return
        last = [history.last] if history.last is not None else []
        self.violated(
            Violation(
                "stuck",
                history.descriptor,
                f"it was {states[0].phase.value} when all was drained",
                self.now_ms,
                tuple(self.line(each.begin_ms, each.end_ms, each.call, each.text()) for each in last),
                tuple(each.call.number for each in last),
            )
        )


def judged(events: Iterable[Event], judge: HistoryJudge) -> Verdict:
    """The verdict on all these events."""
    take = judge.take
    for event in events:
        take(event)
    return judge.finish()


def queue_in(descriptor: str) -> str:
    return descriptor.partition(":")[0]


def shard_in(descriptor: str) -> str:
    return descriptor.split(":", 2)[1][1:]


def _concerns(note: Note, last_ms: float, tolerance_ms: float) -> bool:
    """Whether a store may have lost what was answered then."""
    if note.note == "lost" or note.to_ms is None:
        return True
    return last_ms >= note.to_ms - tolerance_ms
