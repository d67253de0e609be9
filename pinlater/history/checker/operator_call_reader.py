"""The reader of calls of operators: settings of queues, jobs that a filter finds, shards that are emptied.

An answer says how many jobs were changed, not which. So each job that the filter may mean may be one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any

from pinlater.history.checker.history_judge import Handling, HistoryJudge, OpenCall
from pinlater.history.checker.history_queue import SPREAD_MS, HistoryQueue
from pinlater.history.checker.job_machine import Change, ManyChanged, Phase
from pinlater.history.checker.queue_limit_rules import QueueLimitRules
from pinlater.history.checker.verdict import Violation

_DEFAULTS = "@defaults"
_LIMIT = 1000
"""Of a call that names none."""

_RETRY, _DELETE, _CANCEL, _REPLAY = range(4)
"""The numbers of JobAction."""

_STATES = (Phase.PENDING, Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED)
_PHASES = (
    Phase.PENDING,
    Phase.PENDING,
    Phase.PENDING,
    Phase.RUNNING,
    Phase.SUCCEEDED,
    Phase.FAILED,
    Phase.FAILED,
    Phase.FAILED,
)
"""By the numbers of JobPhase."""


class OperatorCallReader:
    """Tells the judge what each of these calls says."""

    def __init__(self, judge: HistoryJudge, limits: QueueLimitRules) -> None:
        self._judge = judge
        self._limits = limits
        judge.handle(
            {
                "createQueue": Handling(self._nothing),
                "deleteQueue": Handling(self._queue_deleted, self._queue_maybe_deleted, self._many_begin),
                "getQueues": Handling(self._queues_shown),
                "updateQueue": Handling(self._queue_updated, self._queue_maybe_updated, self._queue_update_begins),
                "updateShard": Handling(self._shard_updated, self._shard_maybe_updated, self._shard_update_begins),
                "retryFailedJobs": Handling(self._retried, self._maybe_retried, self._many_begin),
                "deleteJobs": Handling(self._deleted, self._maybe_deleted, self._many_begin),
                "changeJobs": Handling(self._changed, self._maybe_changed, self._many_begin),
                "changeFoundJobs": Handling(self._found_changed, self._found_maybe_changed, self._many_begin),
            }
        )

    def _nothing(self, call: OpenCall, answer: Any) -> None:
        """It changes no job."""

    # -- queues and shards -------------------------------------------------------------------------------------------

    def _queue_deleted(self, call: OpenCall, answer: Any) -> None:
        self._queue_maybe_deleted(call)

    def _queue_maybe_deleted(self, call: OpenCall) -> None:
        """A shard that was away learns of it later, and then drops its jobs."""
        if call.error is None or call.end_ms == inf:
            self._judge.queue(call.args.get("name", "")).many_changed(ManyChanged(Change.DELETE, call.begin_ms, inf))

    def _queues_shown(self, call: OpenCall, answer: Any) -> None:
        for view in (answer or {}).get("queues", ()):
            settings = {key: value.get("value", "") for key, value in view.get("settings", {}).items()}
            self._judge.queue(view.get("name", "")).seen(settings, call.begin_ms, call.end_ms)
            self._limits.shown(view.get("name", ""), settings, call.begin_ms, call.end_ms)

    def _queue_update_begins(self, call: OpenCall) -> None:
        """From now on servers may go by it, although nobody has been told."""
        for facts, key, value in self._updates(call):
            facts.changed(key, value, call.begin_ms, inf)

    def _queue_updated(self, call: OpenCall, answer: Any) -> None:
        for facts, key, value in self._updates(call):
            facts.changed(key, value, call.begin_ms, call.end_ms)

    def _queue_maybe_updated(self, call: OpenCall) -> None:
        if call.end_ms != inf:
            for facts, key, value in self._updates(call):
                facts.withdrawn(key, value, call.begin_ms)

    def _updates(self, call: OpenCall) -> Iterator[tuple[HistoryQueue, str, str | None]]:
        """Settings of queues, and what each is to become; None: that is not known."""
        request = call.request
        name, settings = request.get("queueName", ""), request.get("settings") or {}
        is_of_all = name == _DEFAULTS
        for queue in self._judge.queues() if is_of_all else [name]:
            facts = self._judge.queue(queue)
            for key, value in settings.items():
                yield facts, key, None if is_of_all else value
                if key == "paused":  # by whoever calls: no circuit breaker ends or begins that pause
                    yield facts, "paused_by", None if is_of_all else "an operator"
            for key in request.get("unset") or ():
                yield facts, key, None

    def _shard_update_begins(self, call: OpenCall) -> None:
        if call.request.get("giveUp"):
            self._limits.groups.gives_up(inf)

    def _shard_updated(self, call: OpenCall, answer: Any) -> None:
        if call.request.get("giveUp"):
            self._limits.groups.gives_up(call.end_ms + SPREAD_MS)
        if call.request.get("dequeueOnly") or call.request.get("giveUp"):
            self._judge.empties(call.request.get("shardId", ""))

    def _shard_maybe_updated(self, call: OpenCall) -> None:
        if call.end_ms == inf:
            self._shard_updated(call, None)
        elif call.request.get("giveUp"):
            self._limits.groups.gives_up(call.end_ms)

    def _many_begin(self, call: OpenCall) -> None:
        request = call.request
        selection = request.get("selection") or {}
        queue = request.get("queueName") or selection.get("queueName") or call.args.get("name", "")
        if call.method == "retryFailedJobs" or request.get("action") == _RETRY:
            self._judge.queue(queue).was_retried = True
        else:
            self._limits.may_end_many(queue)
        if request.get("action") == _REPLAY:
            self._judge.has_replays = True

    # -- many jobs ---------------------------------------------------------------------------------------------------

    def _judge_limit(self, call: OpenCall, changed: Any) -> None:
        limit = call.request.get("limit", _LIMIT)
        if not isinstance(changed, int) or changed <= limit:
            return
        text = f"{changed} jobs were changed where {limit} were asked for at most"
        queue = call.request.get("queueName") or (call.request.get("selection") or {}).get("queueName", "")
        line = self._judge.line(call.begin_ms, call.end_ms, call.mark, text)
        self._judge.violated(Violation("limit", queue, text, call.end_ms, (line,), (call.number,)))

    def _retried(self, call: OpenCall, answer: Any) -> None:
        self._judge_limit(call, answer)
        if answer != 0 or call.is_resent:
            self._maybe_retried(call)

    def _maybe_retried(self, call: OpenCall) -> None:
        request = call.request
        self._many(
            call,
            [Change.RETRY],
            priority=request.get("priority", 1),
            attempts=request.get("attemptsToAllow", 1),
            due_ms=request.get("runAfterTimestampMillis"),
        )

    def _deleted(self, call: OpenCall, answer: Any) -> None:
        self._judge_limit(call, answer)
        if answer != 0 or call.is_resent:
            self._maybe_deleted(call)

    def _maybe_deleted(self, call: OpenCall) -> None:
        request = call.request
        phases = _phases(_STATES, [request.get("jobState")])
        self._many(call, [Change.DELETE], priority=request.get("priority", 1), phases=phases)

    def _changed(self, call: OpenCall, answer: Any) -> None:
        self._judge_limit(call, (answer or {}).get("changed"))
        if _has_changed(call, answer):
            self._maybe_changed(call)

    def _maybe_changed(self, call: OpenCall) -> None:
        request = call.request
        state = request.get("jobState")
        phases = None if state is None else _phases(_STATES, [state])
        self._act(call, request.get("queueName", ""), priority=request.get("priority"), phases=phases)

    def _found_changed(self, call: OpenCall, answer: Any) -> None:
        if (call.request.get("selection") or {}).get("jobDescriptors") is None:  # those that are named all change
            self._judge_limit(call, (answer or {}).get("changed"))
        if _has_changed(call, answer):
            self._found_maybe_changed(call)

    def _found_maybe_changed(self, call: OpenCall) -> None:
        selection = call.request.get("selection") or {}
        phases, priorities = selection.get("phases"), selection.get("priorities")
        named = selection.get("jobDescriptors")
        self._act(
            call,
            selection.get("queueName", ""),
            priority=priorities[0] if priorities and len(priorities) == 1 else None,
            phases=None if phases is None else _phases(_PHASES, phases),
            descriptors=None if named is None else frozenset(named),
        )

    def _act(
        self,
        call: OpenCall,
        queue: str,
        *,
        priority: int | None,
        phases: frozenset[Phase] | None,
        descriptors: frozenset[str] | None = None,
    ) -> None:
        request = call.request
        action = request.get("action")
        if request.get("dryRun"):
            return
        changes = {
            _RETRY: [Change.RETRY],
            _DELETE: [Change.DELETE],
            _CANCEL: [Change.CANCEL, Change.STOP] if request.get("mode") else [Change.CANCEL],
            _REPLAY: [Change.REPLAY],
        }.get(action if isinstance(action, int) else -1, list(Change))
        if action == _CANCEL:
            phases = None
        self._many(
            call,
            changes,
            queue=queue,
            priority=priority,
            phases=phases,
            descriptors=descriptors,
            attempts=request.get("attempts") if action == _RETRY else None,
            due_ms=request.get("runAfterMillis") if action == _RETRY else None,
        )

    def _many(self, call: OpenCall, changes: Iterable[Change], *, queue: str = "", **fields: Any) -> None:
        """An error that is known to have changed nothing may come behind a part that was changed."""
        if call.error is not None and call.end_ms < inf and not _may_be_partial(call):
            return
        facts = self._judge.queue(queue or call.request.get("queueName", ""))
        for change in changes:
            facts.many_changed(ManyChanged(change, call.begin_ms, call.end_ms, **fields))


def _has_changed(call: OpenCall, answer: Any) -> bool:
    """Whether any job may have been changed."""
    if call.is_resent or not isinstance(answer, Mapping) or answer.get("missingShards"):
        return True
    return bool(answer.get("changed") or answer.get("askedToStop"))


def _may_be_partial(call: OpenCall) -> bool:
    assert call.error is not None
    return call.error.name in ("NoHealthyShards", "NothingStored", "ShardConnectionFailed", "Overloaded", "Draining")


def _phases(known: tuple[Phase, ...], numbers: Iterable[Any]) -> frozenset[Phase] | None:
    """None: one of them is not known, and may be any."""
    numbers = list(numbers)
    if not all(isinstance(number, int) and 0 <= number < len(known) for number in numbers):
        return None
    return frozenset(known[number] for number in numbers)
