"""The limits of groups: the maximum in progress, the rate, the pause, and the bound of jobs that wait.

A claim of a group with a maximum is handed out with a permit alone, so the maximum holds over all shards. Only what is
certain counts: claims that are in progress for certain (held_claims.py) and that had a maximum to keep to from begin to
end of their call, and settings some time after their change was answered (group_settings.py). The last of these claims
was made under the maximum; so there are no more than the greatest that held since its call began: a smaller one takes
no claim away.

Where a store was set back or a shard was given up, permits are lost, and so may be changes of settings: claims of
before count no more, and settings count once they are shown again. Where a shard is given up while it is alive, claims
count again when every server knows that.

That a group is full is judged where it had few jobs for long: so many servers may have counted and put in meanwhile.

Not judged: claims by the name of an item; that a group got more jobs than wait at most; jobs of unknown groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import inf
from typing import Any

from pinlater.history.checker.call_parts import field_of, structs
from pinlater.history.checker.group_settings import GroupSettingsHistory
from pinlater.history.checker.hand_out_rate import HandOutRate, rate_of
from pinlater.history.checker.held_claims import UNCERTAIN_MS, HeldClaims, may_go_back
from pinlater.history.checker.history_judge import EndedJob, Handling, HistoryJudge, OpenCall, queue_in
from pinlater.history.checker.history_queue import SPREAD_MS, count_of, greatest
from pinlater.history.checker.job_history import JobHistory
from pinlater.history.checker.verdict import Violation
from pinlater.model import CONTINUATION_END, CONTINUATION_START, EnqueueOutcome

_COUNTED_MS = 60_000.0
"""So old may a count of the jobs of a group be: it comes later where shards are slow to answer."""

_NO_END = {None, "none", ""}


class _Queue:
    """The groups of one queue."""

    def __init__(self, settings: GroupSettingsHistory) -> None:
        self.settings = settings
        self.held: dict[str, HeldClaims] = {}
        self.rates: dict[str, HandOutRate] = {}
        self.uncertain_until_ms = -inf
        """Claims of calls that began before do not count."""

        self.stored: dict[str, dict[str, None]] = {}
        """By group the jobs that were stored, the last ones at the end, but for some that ended long ago."""

        self.unsure: Counter[str] = Counter()
        """Jobs by group that may have been put in beside these."""


class GroupLimitRules:
    """Listens to enqueues and dequeues, to whatever may end a claim, and to changes of groups."""

    def __init__(self, judge: HistoryJudge) -> None:
        self._judge = judge
        self._queues: dict[str, _Queue] = {}
        self._groups: dict[str, str] = {}
        """Of jobs that are held."""

        self._given_up_ms = -inf
        """When every server knows that a shard is given up, of the last one."""

        judge.handle(
            {
                "getGroups": Handling(self._groups_shown),
                "updateGroup": Handling(self._group_updated, self._group_maybe_updated, self._group_update_begins),
                "clearGroups": Handling(self._cleared, self._maybe_cleared, self._clear_begins),
            }
        )

    # -- settings ----------------------------------------------------------------------------------------------------

    def _queue(self, name: str) -> _Queue:
        found = self._queues.get(name)
        if found is None:
            found = self._queues[name] = _Queue(GroupSettingsHistory(self._judge.queue(name)))
        return found

    def _groups_shown(self, call: OpenCall, answer: Any) -> None:
        request, views = call.request, structs(field_of(answer, "groups"))
        name, names = request.get("queueName", ""), [view.get("name", "") for view in views]
        known, facts = self._queue(name), self._judge.queue(name)
        for view in views:
            settings = view.get("settings", {})
            known.settings.shown(view.get("name", ""), settings, call.begin_ms, call.end_ms)
            sources = {str(each.get("source", "")).partition(" ")[0] for each in settings.values()}
            if sources & {"group", "pattern"}:
                facts.has_group_changes = facts.has_group_limits = True
        is_first = request.get("continuation", CONTINUATION_START) == CONTINUATION_START
        is_last = field_of(answer, "continuation") in (None, CONTINUATION_END)
        if not request.get("groups") and is_first and is_last:
            known.settings.listed(names, call.begin_ms, call.end_ms)

    def _group_update_begins(self, call: OpenCall) -> None:
        """From now on servers may go by it, although nobody has been told."""
        facts = self._judge.queue(call.request.get("queueName", ""))
        facts.has_group_changes = facts.has_group_limits = True
        self._queue(call.request.get("queueName", "")).settings.changed(call.request, call.begin_ms, inf)

    def _group_updated(self, call: OpenCall, answer: Any) -> None:
        self._queue(call.request.get("queueName", "")).settings.changed(call.request, call.begin_ms, call.end_ms)

    def _group_maybe_updated(self, call: OpenCall) -> None:
        if call.end_ms != inf:
            self._queue(call.request.get("queueName", "")).settings.withdrawn(call.request, call.begin_ms)

    def _clear_begins(self, call: OpenCall) -> None:
        """Jobs lose their groups, and groups their settings."""
        self._judge.queue(call.request.get("queueName", "")).has_group_changes = True
        self.may_end_many(call.request.get("queueName", ""))

    def _cleared(self, call: OpenCall, answer: Any) -> None:
        self.may_end_many(call.request.get("queueName", ""))

    def _maybe_cleared(self, call: OpenCall) -> None:
        self.may_end_many(call.request.get("queueName", ""))

    # -- jobs that wait ----------------------------------------------------------------------------------------------

    def enqueued(self, call: OpenCall, descriptors: list[str], outcomes: list[Any]) -> None:
        """An enqueue was answered: with these jobs, and what became of each."""
        queue, jobs = call.request.get("queueName", ""), structs(call.request.get("jobs"))
        for place, job in enumerate(jobs):
            group = job.get("group")
            if not group:
                continue
            is_stored = place < len(descriptors) and place < len(outcomes) and outcomes[place] == EnqueueOutcome.STORED
            if is_stored and not call.is_resent:
                self._queue(queue).stored.setdefault(group, {})[descriptors[place]] = None
            else:
                self._queue(queue).unsure[group] += 1

    def not_enqueued(self, call: OpenCall) -> None:
        """An enqueue failed."""
        queue, error = call.request.get("queueName", ""), call.error
        groups = Counter(job["group"] for job in structs(call.request.get("jobs")) if job.get("group"))
        if error is not None and error.reason == "GROUP_FULL":
            self._judge.when_known(call.end_ms, lambda: self._judge_full(call, queue, groups))
        elif groups and (call.end_ms == inf or (error is not None and error.job_descriptors)):
            self._queue(queue).unsure.update(groups)

    def _judge_full(self, call: OpenCall, queue: str, groups: Counter[str]) -> None:
        """That it is so needs one group alone that had too many."""
        facts, since_ms = self._judge.queue(queue), call.begin_ms - _COUNTED_MS
        is_unsure = facts.has_other_sources or facts.was_operated or self._judge.has_losses or self._judge.has_emptied
        if is_unsure or not self._judge.was_well(since_ms, call.end_ms):
            return
        allowed = inf
        for value in facts.setting("group_max_pending").values(since_ms, call.end_ms):
            if value is None:
                return
            allowed = min(allowed, float(value) if value.isdecimal() else inf)
        for group, jobs in groups.items():
            if jobs + self._most_waiting(queue, group, since_ms, allowed - jobs) > allowed:
                return
        text = f"a group was full, although it had few jobs, and {allowed:g} may wait"
        line = self._judge.line(call.begin_ms, call.end_ms, call.mark, f"was refused jobs of {', '.join(groups)}")
        self._judge.violated(Violation("full", queue, text, call.end_ms, (line,), (call.number,)))

    def _most_waiting(self, queue: str, group: str, since_ms: float, enough: float) -> float:
        """The jobs of a group that may have waited at some time since then; no more are counted than are enough."""
        known = self._queue(queue)
        stored, found = known.stored.get(group, {}), float(known.unsure[group])
        for descriptor in reversed([*stored]):
            if found > enough:
                break
            history = self._judge.known(descriptor)
            if isinstance(history, EndedJob) and history.last.end_ms < since_ms:
                del stored[descriptor]
            else:
                found += 1
        return found

    # -- hand-outs ---------------------------------------------------------------------------------------------------

    def handed_out(self, call: OpenCall, queue: str, jobs: Mapping[str, Mapping[str, Any]]) -> None:
        """A dequeue was answered with these jobs of a queue, and what it says of each."""
        if not jobs or not self._judge.queue(queue).has_group_limits:
            return
        of_group: dict[str, dict[str, Mapping[str, Any]]] = {}
        for descriptor, metadata in jobs.items():
            history = self._judge.known(descriptor)
            if isinstance(history, JobHistory) and history.group:
                of_group.setdefault(history.group, {})[descriptor] = metadata
        for group, some in of_group.items():
            self._judge_pause(call, queue, group, len(some))
            self._judge_rate(call, queue, group, len(some))
            if not may_go_back(call):
                self._judge_maximum(call, queue, group, some)

    def may_end(self, descriptor: str) -> None:
        """A call begins that may end the claim of this job."""
        group = self._groups.pop(descriptor, None)
        if group is not None:
            self._queue(queue_in(descriptor)).held[group].may_end(descriptor)

    def may_end_many(self, queue: str) -> None:
        """A call begins that may end any claims of a queue; "": of all queues."""
        for name in (queue,) if queue else tuple(self._queues):
            self._uncertain(self._queue(name), self._judge.now_ms + UNCERTAIN_MS)

    def loses(self) -> None:
        """A store was set back, or is gone: claims of before may have no permits, and changes may not stand."""
        for known in self._queues.values():
            self._uncertain(known, self._judge.now_ms)
            known.settings.lost(self._judge.now_ms)

    def gives_up(self, until_ms: float) -> None:
        """A shard is given up, which every server knows by then: permits may be elsewhere from now on."""
        self._given_up_ms = until_ms
        for known in self._queues.values():
            self._uncertain(known, self._judge.now_ms)

    def _uncertain(self, known: _Queue, until_ms: float) -> None:
        for held in known.held.values():
            held.clear()
        known.uncertain_until_ms = max(known.uncertain_until_ms, until_ms)

    def _judge_maximum(self, call: OpenCall, queue: str, group: str, jobs: Mapping[str, Mapping[str, Any]]) -> None:
        known = self._queue(queue)
        had_one = self._most(known, group, call.begin_ms, call.end_ms) is not None
        if not had_one or call.begin_ms <= max(known.uncertain_until_ms, self._given_up_ms):
            return
        claims = known.held.setdefault(group, HeldClaims())
        claims.hold(call, jobs, self._judge.tolerance_ms)
        self._groups.update(dict.fromkeys(jobs, group))
        held = claims.at(call.end_ms)
        if not held:
            return
        most = self._most(known, group, max(claim.begin_ms for claim in held.values()), call.end_ms)
        if most is None or len(held) <= most:
            return
        text = f"{len(held)} jobs of the group {group} are in progress, and {most:g} may be"
        self._judge.violated(claims.violation("permit", queue, text, call.end_ms, self._judge))
        claims.clear()

    @staticmethod
    def _most(known: _Queue, group: str, from_ms: float, to_ms: float) -> float | None:
        return greatest(known.settings.values(group, "concurrency", from_ms, to_ms), count_of)

    def _judge_rate(self, call: OpenCall, queue: str, group: str, jobs: int) -> None:
        known = self._queue(queue)
        rate = known.rates.setdefault(group, HandOutRate())
        rate.add(call, jobs)
        most = greatest(known.settings.values(group, "rate", rate.since_ms(call), call.end_ms), rate_of)
        if most is not None:
            rate.judge(call, f"{queue} {group}", most, self._judge)

    def _judge_pause(self, call: OpenCall, queue: str, group: str, jobs: int) -> None:
        settings = self._queue(queue).settings
        if set(settings.values(group, "paused", call.begin_ms, call.end_ms)) != {"true"}:
            return
        if set(settings.values(group, "paused_until", call.begin_ms - SPREAD_MS, call.end_ms)) - _NO_END:
            return
        text = f"{jobs} jobs of the group {group} were handed out while it was paused"
        line = self._judge.line(call.begin_ms, call.end_ms, call.mark, f"was handed {jobs} jobs")
        self._judge.violated(Violation("paused", queue, text, call.end_ms, (line,), (call.number,)))
