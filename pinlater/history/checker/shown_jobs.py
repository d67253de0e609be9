"""The jobs that scans and searches show, held to what was asked for: queue, state, priority, time and tags.
A scan shows the newest run_after first, and a search by tags the newest job.

A page goes on strictly behind the one before it. So a job that a page has shown does not come again on the next one, in
the same state and with the same run_after.

Not judged: which jobs are left out; conditions on texts, keys, attempts and other times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pinlater.history.checker.history_judge import HistoryJudge, OpenCall, queue_in
from pinlater.history.checker.verdict import Violation
from pinlater.model import JobState
from pinlater.model.job_selection import JobPhase

_STATE_OF = {
    JobPhase.READY: JobState.PENDING,
    JobPhase.SCHEDULED: JobState.PENDING,
    JobPhase.WAITING: JobState.PENDING,
    JobPhase.IN_PROGRESS: JobState.IN_PROGRESS,
    JobPhase.SUCCEEDED: JobState.SUCCEEDED,
    JobPhase.FAILED: JobState.FAILED,
    JobPhase.CANCELLED: JobState.FAILED,
    JobPhase.REPLAYED: JobState.FAILED,
}
_START, _END = "0", "-1"
"""The continuations of the first page, and behind the last."""

_Shown = frozenset[tuple[str, Any, Any]]
"""Descriptors, with the run_after and the state of each."""


class ShownJobs:
    """Hears of scans and searches."""

    def __init__(self, judge: HistoryJudge) -> None:
        self._judge = judge
        self._pages: dict[tuple[str, str], _Shown] = {}
        """The last page of a caller, by the continuation that it was answered with."""

    def scanned(self, call: OpenCall, answer: Any) -> None:
        request, infos = call.request, _infos(answer, "scannedJobs")
        state, priority, is_later = request.get("jobState"), request.get("priority"), request.get("scanFutureJobs")
        for info in infos:
            wrong = self._not_of(info, request.get("queueName", ""), None if priority is None else [priority])
            if not wrong and info.get("jobState") != state:
                wrong = f"it is in the state {info.get('jobState')}, and those in {state} were asked for"
            if not wrong and state == JobState.PENDING:
                wrong = self._at_another_time(call, info, is_later=bool(is_later))
            if wrong:
                self._broken(call, info, wrong)
        dues = [info.get("runAfterTimestampMillis") or 0 for info in infos]
        for info, due, earlier in zip(infos[1:], dues[1:], dues, strict=False):
            if due > earlier:
                self._broken(call, info, "it stands behind one with an earlier run_after")
        self._turn_page(call, infos, answer)

    def searched(self, call: OpenCall, answer: Any) -> None:
        selection, infos = call.request.get("selection") or {}, _infos(answer, "jobs")
        tags = selection.get("tags") or ()
        phases = selection.get("phases")
        known = {number for number in phases or () if number in _STATE_OF}
        states = None if not phases or len(known) < len(set(phases)) else {_STATE_OF[JobPhase(each)] for each in known}
        for info in infos:
            wrong = self._not_of(info, selection.get("queueName", ""), selection.get("priorities"))
            lacking = [tag for tag in tags if tag not in (info.get("tags") or ())]
            if not wrong and lacking:
                wrong = f"it has no tag {lacking[0]}"
            if not wrong and states is not None and info.get("jobState") not in states:
                wrong = f"it is in the state {info.get('jobState')}, which was not asked for"
            if not wrong and known in ({JobPhase.READY}, {JobPhase.SCHEDULED}):
                wrong = self._at_another_time(call, info, is_later=JobPhase.SCHEDULED in known)
            if wrong:
                self._broken(call, info, wrong)
        if tags:
            ids = [int(info.get("jobDescriptor", "").rpartition(":")[2] or 0) for info in infos]
            for info, job_id, newer in zip(infos[1:], ids[1:], ids, strict=False):
                if job_id > newer:
                    self._broken(call, info, "it stands behind an older one")
        self._turn_page(call, infos, answer)

    def _not_of(self, info: Mapping[str, Any], queue: str, priorities: Iterable[int] | None) -> str:
        descriptor = info.get("jobDescriptor", "")
        if queue_in(descriptor) != queue:
            return f"it is not of the queue {queue}"
        if priorities and not any(f":p{each}:" in descriptor for each in priorities):
            return f"its priority is none of {', '.join(map(str, priorities))}"
        return ""

    def _at_another_time(self, call: OpenCall, info: Mapping[str, Any], *, is_later: bool) -> str:
        due_ms, slack_ms = info.get("runAfterTimestampMillis"), self._judge.tolerance_ms + 1  # run_after is whole
        if due_ms is None:
            return ""
        if is_later and due_ms <= call.begin_ms - slack_ms:
            return f"its run_after {due_ms} was over, and those of later were asked for"
        if not is_later and due_ms > call.end_ms + slack_ms:
            return f"its run_after {due_ms} is to come, and those of now were asked for"
        return ""

    def _turn_page(self, call: OpenCall, infos: Iterable[Mapping[str, Any]], answer: Any) -> None:
        continuation = call.request.get("continuation") or _START
        before = self._pages.pop((call.by, continuation), frozenset())
        here: set[tuple[str, Any, Any]] = set()
        for info in infos:
            shown = info.get("jobDescriptor", ""), info.get("runAfterTimestampMillis"), info.get("jobState")
            if shown in before or shown in here:
                self._broken(call, info, "it was shown before")
            here.add(shown)
        following = answer.get("continuation") if isinstance(answer, dict) else None
        if following and following != _END and not call.is_resent:
            self._pages[call.by, following] = frozenset(here)

    def _broken(self, call: OpenCall, info: Mapping[str, Any], text: str) -> None:
        descriptor = info.get("jobDescriptor", "")
        line = self._judge.line(call.begin_ms, call.end_ms, call.mark, f"was shown {descriptor}")
        self._judge.violated(Violation("shown", descriptor, text, call.end_ms, (line,), (call.number,)))


def _infos(answer: Any, name: str) -> list[Mapping[str, Any]]:
    found = answer.get(name) if isinstance(answer, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
