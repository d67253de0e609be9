"""Keys, judged over all the jobs that have them: dedupe keys, serialize keys and send ids.

What a key promises is a condition on the other jobs that have it: at some moment during the call they had ended, or
did not run. It is judged with the calls about those jobs. Of two enqueues that ran at once both may not have stored a
job that lives on.

A job that was stored as the successor of a running one is handed out when that has ended; and that one is not handed
out again while its successor lives.

Not judged: a key whose job was stored by a call of unknown outcome, the order of jobs whose enqueues ran at once, and
when a window ends; of a key that has had successors, which of its jobs it names.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from math import inf
from typing import Any

from pinlater.history.checker.call_parts import follows, key_of
from pinlater.history.checker.history_judge import EndedJob, HistoryJudge, OpenCall, queue_in, shard_in
from pinlater.history.checker.job_history import JobHistory
from pinlater.history.checker.job_machine import OPEN, OVER, Key, Phase, reach
from pinlater.history.checker.look_observations import KeyFree, KeyTaken, NotRunning
from pinlater.history.checker.observations import CallMark
from pinlater.history.checker.verdict import Violation
from pinlater.model import EnqueueOutcome

SEND_ID_KEPT_MS = 600_000.0
"""So long after the end of its job a send id counts."""

_FORGET_MS = 300_000.0
_CLOSED = OVER | {Phase.MOVED}
_MOST_EARLIER = 50
"""Jobs of a chain that are looked at for one that is handed out."""


@dataclass(slots=True)
class _Holder:
    """A job that was stored with a key, or named as the one that has it."""

    descriptor: str
    mark: CallMark
    begin_ms: float
    end_ms: float
    window_ms: float
    """After its end; inf: not known."""


@dataclass(slots=True)
class _Sent:
    """What the first sending of a send id was answered."""

    holder: _Holder
    outcome: int


@dataclass(slots=True)
class _Chain:
    """The jobs of a serialize key that may live, in the order in which their enqueues were answered."""

    members: dict[str, _Holder] = field(default_factory=dict)
    handed_out: dict[str, None] = field(default_factory=dict)


class KeyRules:
    """Listens to enqueues, dequeues and lookups."""

    def __init__(self, judge: HistoryJudge) -> None:
        self._judge = judge
        self._holders: dict[Key, list[_Holder]] = {}
        self._chains: dict[str, _Chain] = {}
        self._chain_of: dict[str, str] = {}
        self._sent: dict[tuple[str, str], dict[int, _Sent]] = {}
        self._first_sent_ms: dict[tuple[str, str], float] = {}
        self._followed: set[Key] = set()
        """Keys that have had successors."""

        self._before: dict[str, list[_Holder]] = {}
        self._behind: dict[str, _Holder] = {}
        """By a successor the jobs that it may have waited for, and by such a job its last successor."""

        self._forget: list[tuple[float, tuple[str, str]]] = []

    # -- enqueues ----------------------------------------------------------------------------------------------------

    def sending(self, call: OpenCall) -> None:
        """An enqueue begins: an earlier one with its send id may be the one that stores its jobs."""
        queue = call.request.get("queueName", "")
        for job in call.request.get("jobs") or ():
            send_id = job.get("sendId")
            if send_id and (queue, send_id) not in self._first_sent_ms:
                self._first_sent_ms[queue, send_id] = call.begin_ms
                heapq.heappush(self._forget, (call.begin_ms, (queue, send_id)))

    def first_sent_ms(self, call: OpenCall, queue: str, job: Mapping[str, Any]) -> float:
        """When a call began that may have stored this job."""
        return min(call.begin_ms, self._first_sent_ms.get((queue, job.get("sendId", "")), call.begin_ms))

    def answered(
        self, call: OpenCall, queue: str, job: Mapping[str, Any], place: int, descriptor: str, outcome: int
    ) -> None:
        """An enqueue was answered for one of its jobs; `place`: among those with its send id."""
        begin_ms, mark = self.first_sent_ms(call, queue, job), call.mark
        if begin_ms < call.begin_ms:
            mark = copy(mark)
            mark.began = -inf
        window_ms = float(job.get("dedupeForMillis", 0))
        holder = _Holder(descriptor, mark, begin_ms, call.end_ms, window_ms)
        priority = int(job.get("priority", 1))
        if outcome == EnqueueOutcome.REPLACED and f":p{priority}:" not in descriptor:
            self._other_priority(call, descriptor, priority)
        send_id = job.get("sendId")
        if send_id and self._answered_again((queue, send_id), place, holder, outcome):
            return
        if key := key_of(queue, job):
            if outcome == EnqueueOutcome.STORED and follows(job):
                self._follow(key, holder)
            elif outcome == EnqueueOutcome.STORED:
                self._key_given(key, holder)
            elif not send_id:
                self._key_taken(key, holder)
        serialize_key = job.get("serializeKey")
        if serialize_key and outcome == EnqueueOutcome.STORED:
            self._chains.setdefault(serialize_key, _Chain()).members.setdefault(descriptor, holder)
            self._chain_of[descriptor] = serialize_key
        self._forget_old()

    def _other_priority(self, call: OpenCall, descriptor: str, priority: int) -> None:
        """A job was replaced by one of this priority: it has another one."""
        text = f"it was replaced by a job of priority {priority}"
        line = self._judge.line(call.begin_ms, call.end_ms, call.mark, "was answered that it is REPLACED")
        self._judge.violated(Violation("key", descriptor, text, call.end_ms, (line,), (call.number,)))

    def _key_given(self, key: Key, holder: _Holder) -> None:
        if _is_overflow(holder.descriptor):
            return  # it does not know which keys are taken elsewhere
        others = self._holders.setdefault(key, [])
        if any(other.descriptor == holder.descriptor for other in others):
            return
        for other in others:
            self._free(other, holder, "key", other.window_ms)
        self._holders[key] = [other for other in others if not self._is_before(other, holder)]
        self._holders[key].append(holder)

    def _follow(self, key: Key, holder: _Holder) -> None:
        """A job was stored that may wait for the one that runs: then no window of that one counts."""
        others = self._holders.setdefault(key, [])
        if any(other.descriptor == holder.descriptor for other in others):
            return
        before = [other for other in others if self._is_before(other, holder)]
        for other in before:
            other.window_ms = 0.0
            self._behind[other.descriptor] = holder
        if before:
            self._before[holder.descriptor] = before
            self._followed.add(key)
        others.append(holder)

    def _is_before(self, one: _Holder, two: _Holder) -> bool:
        """Whether the call of one was over when that of the other began."""
        if one.end_ms < two.begin_ms:
            return True
        return self._judge.has_one_clock and one.mark.ended < two.mark.began

    def _free(self, other: _Holder, holder: _Holder, rule: str, window_ms: float) -> None:
        """The other one had ended, so long ago, when `holder` was stored; or this one before the other."""
        if window_ms < inf:
            self._judge.observe(
                other.descriptor,
                KeyFree(
                    holder.mark,
                    holder.begin_ms,
                    holder.end_ms,
                    other=holder.descriptor,
                    rule=rule,
                    window_ms=window_ms,
                ),
            )
        if not self._is_before(other, holder) and not self._is_before(holder, other):
            at_ms = max(other.end_ms, holder.end_ms)
            self._judge.when_known(at_ms, lambda: self._both_live(other, holder, rule, at_ms))

    def _both_live(self, one: _Holder, two: _Holder, rule: str, at_ms: float) -> None:
        """Two enqueues ran at once, and both stored a job: one of these had ended when the other was stored."""
        if self._lives(one.descriptor, at_ms) and self._lives(two.descriptor, at_ms):
            lines = ((each, f"was answered that it had stored {each.descriptor}") for each in (one, two))
            part = tuple(self._judge.line(each.begin_ms, each.end_ms, each.mark, text) for each, text in lines)
            text = f"{two.descriptor} was stored at the same time"
            self._judge.violated(Violation(rule, one.descriptor, text, at_ms, part, (one.mark.number, two.mark.number)))

    def _lives(self, descriptor: str, at_ms: float) -> bool:
        """Whether a job certainly lived then, all calls that ended by then being judged."""
        history = self._judge.known(descriptor)
        if not isinstance(history, JobHistory) or history.is_foreign or history.has_begun(at_ms):
            return False
        around = self._judge.around(history)
        states = history.states
        return all(state.phase in OPEN and not reach(state, _CLOSED, at_ms, around) for state in states)

    def _key_taken(self, key: Key, holder: _Holder) -> None:
        """A job was named as the one that has the key."""
        others = self._holders.setdefault(key, [])
        named = next((other for other in others if other.descriptor == holder.descriptor), None)
        window_ms = inf if named is None else named.window_ms
        taken = KeyTaken(holder.mark, holder.begin_ms, holder.end_ms, window_ms=window_ms)
        history = self._judge.observe(holder.descriptor, taken)
        if history is None:
            return
        if history.key is not None and history.key != key:
            text = f"it was named as the job of the key {key[1]!r}, and has the key {history.key[1]!r}"
            line = self._judge.line(holder.begin_ms, holder.end_ms, holder.mark, "was answered that it is KEPT")
            self._judge.violated(
                Violation("key", holder.descriptor, text, holder.end_ms, (line,), (holder.mark.number,))
            )
            return
        for other in others if key not in self._followed else ():
            if other is not named and self._is_before(other, holder):
                self._free(other, holder, "key", 0.0 if other.window_ms < inf else inf)
        if named is None and not _is_overflow(holder.descriptor):
            others.append(_Holder(holder.descriptor, holder.mark, holder.begin_ms, holder.end_ms, inf))

    def _answered_again(self, key: tuple[str, str], place: int, holder: _Holder, outcome: int) -> bool:
        """Whether a send id got the answer that it had got before, which says nothing new of its keys."""
        sent = self._sent.get(key)
        if sent is None:
            sent = self._sent[key] = {}
            heapq.heappush(self._forget, (holder.end_ms, key))
        first = sent.get(place)
        if first is not None and first.holder.descriptor == holder.descriptor:
            return True
        sent[place] = _Sent(holder, outcome)
        if first is None or _is_overflow(first.holder.descriptor) or _is_overflow(holder.descriptor):
            return False  # an overflow shard forgets send ids
        if holder.end_ms - first.holder.begin_ms < SEND_ID_KEPT_MS - self._judge.tolerance_ms:
            self._two_answers(first.holder, holder)
        elif first.outcome == EnqueueOutcome.STORED:
            self._free(first.holder, holder, "send", SEND_ID_KEPT_MS)
        return False

    def _two_answers(self, one: _Holder, two: _Holder) -> None:
        """A send id got another answer, so soon that it cannot have been forgotten."""
        if not (self._stays(one.descriptor) and self._stays(two.descriptor)):
            return
        part = tuple(
            self._judge.line(each.begin_ms, each.end_ms, each.mark, f"was answered with {each.descriptor}")
            for each in (one, two)
        )
        text = f"its send id was answered with {one.descriptor} before"
        numbers = (one.mark.number, two.mark.number)
        self._judge.violated(Violation("send", two.descriptor, text, two.end_ms, part, numbers))

    def _stays(self, descriptor: str) -> bool:
        """The shard of the job lost nothing, and its jobs do not go to other shards."""
        return not (self._judge.has_lost(shard_in(descriptor)) or self._judge.may_move(descriptor))

    # -- dequeues and lookups ----------------------------------------------------------------------------------------

    def handed_out(self, call: OpenCall, descriptor: str) -> None:
        """A job was handed out: those before it in its chain have ended, and none of them runs."""
        rivals = self._before.get(descriptor, [])
        if descriptor in self._behind:
            rivals = [*rivals, self._behind[descriptor]]
        for other in rivals:
            is_before = other.end_ms <= call.begin_ms and other.mark.ended < call.mark.began
            if is_before and not self._is_over(other.descriptor):
                free = KeyFree(call.mark, call.begin_ms, call.end_ms, other=descriptor, rule="chain")
                self._judge.observe(other.descriptor, free)
        serialize_key = self._chain_of.get(descriptor)
        if serialize_key is None:
            return
        chain = self._chains[serialize_key]
        mine = chain.members.get(descriptor)
        others = [other for other in chain.handed_out if other != descriptor]
        chain.handed_out[descriptor] = None
        examined: set[str] = set()
        if mine is not None:
            over = []
            for name, other in chain.members.items():
                if name == descriptor or len(examined) >= _MOST_EARLIER:
                    break
                if self._is_over(name):
                    over.append(name)
                elif self._is_before(other, mine) and not self._judge.queue(queue_in(name)).was_retried:
                    examined.add(name)
                    self._judge.observe(
                        name, KeyFree(call.mark, call.begin_ms, call.end_ms, other=descriptor, rule="chain")
                    )
            for name in over:
                self._leave(chain, name)
        for name in others:
            if self._is_over(name):
                self._leave(chain, name)
            elif name not in examined:
                self._judge.observe(name, NotRunning(call.mark, call.begin_ms, call.end_ms, other=descriptor))

    def _is_over(self, descriptor: str) -> bool:
        return isinstance(self._judge.known(descriptor), EndedJob)

    def _leave(self, chain: _Chain, descriptor: str) -> None:
        chain.members.pop(descriptor, None)
        chain.handed_out.pop(descriptor, None)
        self._chain_of.pop(descriptor, None)

    def found(self, call: OpenCall, key: Key, descriptor: str) -> None:
        """A lookup by the key gave this job: no other one of the key lives."""
        holder = _Holder(descriptor, call.mark, call.begin_ms, call.end_ms, 0.0)
        for other in self._holders.get(key, ()) if key not in self._followed else ():
            if other.descriptor != descriptor and self._is_before(other, holder) and other.window_ms < inf:
                self._free(other, holder, "key", 0.0)

    # -- forgetting --------------------------------------------------------------------------------------------------

    def ended(self, history: JobHistory) -> None:
        """A job is over in every case: a key without a window is free, and the next of its chain goes on."""
        self._before.pop(history.descriptor, None)
        self._behind.pop(history.descriptor, None)
        key = history.key
        if key is not None and key in self._holders:
            left = [other for other in self._holders[key] if other.descriptor != history.descriptor or other.window_ms]
            if left:
                self._holders[key] = left
            else:
                del self._holders[key]
                self._followed.discard(key)
        serialize_key = self._chain_of.get(history.descriptor)
        if serialize_key is not None:
            chain = self._chains[serialize_key]
            self._leave(chain, history.descriptor)
            if not chain.members:
                del self._chains[serialize_key]

    def _forget_old(self) -> None:
        """Send ids whose answers nothing can contradict any more: their jobs ended long ago."""
        old_ms = self._judge.settled_ms - SEND_ID_KEPT_MS - _FORGET_MS
        while self._forget and self._forget[0][0] < old_ms:
            _, key = heapq.heappop(self._forget)
            self._first_sent_ms.pop(key, None)
            sent = self._sent.get(key, {})
            if all(self._is_over(each.holder.descriptor) for each in sent.values()):
                self._sent.pop(key, None)
            else:
                heapq.heappush(self._forget, (self._judge.settled_ms, key))


def _is_overflow(descriptor: str) -> bool:
    return shard_in(descriptor).startswith("o")
