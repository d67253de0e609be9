"""The firings of schedules, judged by what lookups show of their jobs and by what answers say of the schedules.

A firing names its schedule and its time by its dedupe key. Each time fires at most once, not before it has come, and is
one of the times of a version of the schedule. The mark of the last firing never falls, and is not ahead. Where no call
of the history failed for some minutes, and no server says what is wrong, no time was missed.

Not judged: cron expressions of zones other than UTC, and which of the times that nobody could fire are made up for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from pinlater.history.checker.history_judge import Handling, HistoryJudge, OpenCall, shard_in
from pinlater.history.checker.observations import CallMark
from pinlater.history.checker.verdict import Violation
from pinlater.model import Schedule
from pinlater.timetable import Firings, TimetableInvalid

_KEY = "@schedule/"
_MISSED_MS = 60_000.0
"""A time that is not fired so long after it has come, while nothing was wrong, was missed."""

_WELL_MS = 600_000.0
"""So long no call failed, where nothing was wrong."""

_COUNTS_MS = 5_000.0
"""Only times from some seconds after a change on count."""


@dataclass(frozen=True, slots=True)
class _Firing:
    """A job that a lookup shows."""

    descriptor: str
    begin_ms: float
    end_ms: float
    mark: CallMark


@dataclass(slots=True)
class _Known:
    """A schedule, as far as answers say."""

    versions: dict[str, Firings | None] = field(default_factory=dict)
    """None: its times are not judged."""

    fired: dict[int, _Firing] = field(default_factory=dict)
    last_fired: tuple[int, int, _Firing] | None = None
    """When it was made, its mark, and the answer that shows it."""

    has_late_copies: bool = False
    """An earlier copy of an answered change may be carried out behind later ones: no answer need show its version."""

    is_unclear: bool = False
    """A call changed it, and nobody knows how."""


class ScheduleFirings:
    """Listens to lookups, and to the calls about schedules."""

    def __init__(self, judge: HistoryJudge) -> None:
        self._judge = judge
        self._schedules: dict[str, _Known] = {}
        judge.handle(
            {
                "updateSchedule": Handling(self._updated, self._maybe_changed, self._update_begins),
                "getSchedules": Handling(self._shown),
                "deleteSchedule": Handling(self._deleted, self._maybe_changed),
            }
        )
        judge.at_the_end(self._judge_times)

    def seen(self, call: OpenCall, descriptor: str, info: Mapping[str, Any]) -> None:
        """A job as a lookup shows it."""
        key = info.get("dedupeKey") or ""
        name, _, time = key.removeprefix(_KEY).rpartition("/")
        if not key.startswith(_KEY) or not time.isdecimal() or info.get("origin") or info.get("movedTo"):
            return
        time_ms, known = int(time), self._schedules.setdefault(name, _Known())
        firing = _Firing(descriptor, call.begin_ms, call.end_ms, call.mark)
        first = known.fired.setdefault(time_ms, firing)
        if first.descriptor != descriptor and not self._may_be_lost(first.descriptor, descriptor):
            known.fired[time_ms] = firing
            self._broken(name, f"its time {time_ms} fired as {first.descriptor} and as {descriptor}", first, firing)
        created_ms = info.get("createdAtTimestampMillis", inf)
        if min(created_ms, call.end_ms) + self._judge.tolerance_ms < time_ms:
            self._broken(name, f"it fired for {time_ms} before that had come", firing)

    def _update_begins(self, call: OpenCall) -> None:
        schedule = call.request.get("schedule") or {}
        self._judge.queue(schedule.get("queueName") or "").has_other_sources = True

    def _updated(self, call: OpenCall, answer: Any) -> None:
        if isinstance(answer, dict) and not call.request.get("dryRun"):
            view = answer.get("view") or {}
            self._view(call, view)
            if call.is_resent:
                self._schedules[(view.get("schedule") or {}).get("name", "")].has_late_copies = True

    def _shown(self, call: OpenCall, answer: Any) -> None:
        for view in answer.get("schedules", ()) if isinstance(answer, dict) else ():
            self._view(call, view)

    def _deleted(self, call: OpenCall, answer: Any) -> None:
        known = self._schedules.get(call.request.get("name", ""))
        if known is not None:
            known.last_fired = None

    def _maybe_changed(self, call: OpenCall) -> None:
        if call.end_ms == inf:
            name = call.request.get("name") or (call.request.get("schedule") or {}).get("name", "")
            self._schedules.setdefault(name, _Known()).is_unclear = True

    def _view(self, call: OpenCall, view: Mapping[str, Any]) -> None:
        schedule = view.get("schedule") or {}
        name, created_ms = schedule.get("name", ""), view.get("createdAtMillis", 0)
        known = self._schedules.setdefault(name, _Known())
        version = view.get("version", "")
        if version not in known.versions:
            known.versions[version] = _times(schedule, created_ms)
        seen = _Firing(name, call.begin_ms, call.end_ms, call.mark)
        fired_ms = view.get("lastFiredMillis")
        if fired_ms is not None:
            self._judge_mark(known, name, created_ms, fired_ms, seen)
        self._judge_missed(known.versions[version], name, view, seen)

    def _judge_mark(self, known: _Known, name: str, created_ms: int, fired_ms: int, seen: _Firing) -> None:
        if fired_ms > seen.end_ms + self._judge.tolerance_ms:
            self._broken(name, f"it fired last at {fired_ms}, which is still to come", seen)
        last = known.last_fired
        is_behind = last is not None and last[0] == created_ms and seen.begin_ms > last[2].end_ms
        if last is not None and is_behind and fired_ms < last[1] and not (self._judge.has_losses or known.is_unclear):
            self._broken(name, f"its mark fell from {last[1]} to {fired_ms}", last[2], seen)
        if last is None or last[0] != created_ms or fired_ms >= last[1]:
            known.last_fired = created_ms, fired_ms, seen

    def _judge_missed(self, times: Firings | None, name: str, view: Mapping[str, Any], seen: _Firing) -> None:
        schedule = view.get("schedule") or {}
        if times is None or schedule.get("paused") or view.get("trouble") or self._judge.has_losses:
            return
        if not self._judge.was_well(seen.begin_ms - _WELL_MS, seen.end_ms):
            return
        counts_ms = view.get("updatedAtMillis", 0) + _COUNTS_MS
        missed_ms = times.after(int(max(counts_ms, view.get("lastFiredMillis") or 0)))
        if missed_ms is not None and missed_ms < seen.begin_ms - _MISSED_MS - self._judge.tolerance_ms:
            self._broken(name, f"its time {missed_ms} was missed", seen)

    def _judge_times(self) -> None:
        """Whether each firing was at a time of one of the versions."""
        for name, known in self._schedules.items():
            versions = list(known.versions.values())
            if not versions or None in versions or known.is_unclear or known.has_late_copies:
                continue
            for time_ms, firing in known.fired.items():
                if not any(times is not None and times.after(time_ms - 1) == time_ms for times in versions):
                    self._broken(name, f"it fired for {time_ms}, which is none of its times", firing)

    def _may_be_lost(self, *descriptors: str) -> bool:
        return any(self._judge.has_lost(shard_in(descriptor)) for descriptor in descriptors)

    def _broken(self, name: str, text: str, *shown: _Firing) -> None:
        part = tuple(
            self._judge.line(each.begin_ms, each.end_ms, each.mark, f"was shown {each.descriptor}") for each in shown
        )
        numbers = tuple(each.mark.number for each in shown)
        self._judge.violated(Violation("schedule", f"schedule {name}", text, shown[-1].end_ms, part, numbers))


def _times(schedule: Mapping[str, Any], created_ms: int) -> Firings | None:
    """The times of a schedule as an answer shows it; None: they are not judged."""
    if schedule.get("cron") and schedule.get("timezone", "UTC") != "UTC":
        return None
    try:
        return Firings(
            Schedule(
                name=schedule.get("name", ""),
                cron=schedule.get("cron") or "",
                every_ms=schedule.get("everyMillis"),
                start_ms=schedule.get("startMillis") or None,
                end_ms=schedule.get("endMillis") or None,
            ),
            created_ms,
        )
    except TimetableInvalid:
        return None
