"""The rule that an enqueue stores its jobs once: a job that nobody enqueued has not the body of one that somebody did.

Judged are bodies that one job of one enqueue brought and nothing else, in the queue of that enqueue. Not judged: bodies
of jobs that may have moved to another shard, queues of schedules and flows, and all of it where dead letters are sent
back or a store has lost something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pinlater.history.checker.history_judge import HistoryJudge, OpenCall, queue_in
from pinlater.history.checker.verdict import Violation

_MANY = ""
"""In place of a descriptor: several jobs may have this body."""


class _Received(NamedTuple):
    """A job that a dequeue handed out, and that no enqueue had answered by then."""

    call: OpenCall
    descriptor: str
    body: str


class StoredOnce:
    """Listens to enqueues and dequeues, and to whatever else gives jobs bodies."""

    def __init__(self, judge: HistoryJudge) -> None:
        self._judge = judge
        self._stored: dict[str, str] = {}
        """By body, the job that was enqueued with it."""

        self._received: dict[str, _Received] = {}
        judge.at_the_end(self._judge_all)

    def enqueued(self, call: OpenCall, jobs: Sequence[Mapping[str, Any]], descriptors: Sequence[str]) -> None:
        """An enqueue has ended; `descriptors`: none where nobody knows what became of it."""
        known = len(descriptors) == len(jobs) and not call.is_resent
        for place, job in enumerate(jobs):
            self.given(job.get("body", ""), descriptors[place] if known else _MANY)

    def given(self, body: Any, descriptor: str = _MANY) -> None:
        """A job may have this body."""
        if isinstance(body, str) and self._stored.setdefault(body, descriptor) != descriptor:
            self._stored[body] = _MANY

    def handed_out(self, call: OpenCall, descriptor: str, body: Any) -> None:
        history = self._judge.job(descriptor)
        if history is not None and history.is_foreign and isinstance(body, str):
            self._received.setdefault(descriptor, _Received(call, descriptor, body))

    def _judge_all(self) -> None:
        if self._judge.has_losses or self._judge.has_replays:
            return
        for call, descriptor, body in self._received.values():
            stored = self._stored.get(body, _MANY)
            known = self._judge.known(descriptor)
            if stored in (_MANY, descriptor) or queue_in(stored) != queue_in(descriptor):
                continue
            if known is None or not known.is_foreign or self._judge.may_move(stored):
                continue
            if self._judge.queue(queue_in(stored)).has_other_sources:
                continue
            text = f"it has the body of {stored}, which was enqueued once"
            line = self._judge.line(call.begin_ms, call.end_ms, call.mark, "was handed it")
            self._judge.violated(Violation("once", descriptor, text, call.end_ms, (line,), (call.number,)))
