"""Alarms as they follow from findings: causes absorb effects; each has a beginning, a peak and an end; mutes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from pinlater.alarms.condition import Condition, Finding
from pinlater.alarms.condition_table import CONDITIONS
from pinlater.alarms.evidence import MINUTE_MS, WINDOW_MINUTES, ClusterHistory, Evidence, Snapshot
from pinlater.model.alarm_views import AbsorbedAlarm, Alarm, Severity

MOST = 200
"""Alarms that are kept; the others are counted."""

MOST_ABSORBED = 20


class Mute(NamedTuple):
    """An operator's word that an alarm is known: of a condition, or with `subject` of one subject alone. Of two the one
    that was set last counts.
    """

    name: str
    subject: str
    until_ms: int
    by: str
    why: str
    set_ms: int = 0


class Judged(NamedTuple):
    """The alarms that stand, the worst first; those that ended just now; how many more there are."""

    standing: list[Alarm]
    ended: list[Alarm]
    more: int


class _Found(NamedTuple):
    condition: Condition
    finding: Finding


class Judgement:
    """The alarms as they develop from one snapshot to the next."""

    def __init__(self, conditions: Sequence[Condition] = CONDITIONS) -> None:
        self._conditions = conditions
        self._quiet_ms = {each.name: each.quiet_ms for each in conditions}
        self._of_queue = {each.name for each in conditions if each.of_queue}
        self._past = ClusterHistory()
        self._standing: dict[tuple[str, str], Alarm] = {}
        self._found_ms: dict[tuple[str, str], int] = {}

    @property
    def standing(self) -> list[Alarm]:
        """The worst first."""
        return sorted(self._standing.values(), key=lambda each: each.order)

    def failing_queues(self) -> list[str]:
        """Where jobs failed for good in the last minutes, those with the most first."""
        failed = {queue: ends.failed for queue, ends in self._past.ends().items() if ends.failed}
        return sorted(failed, key=lambda queue: (-failed[queue], queue))

    def handed_out(self, queues: Iterable[str], now_ms: int) -> list[str]:
        """Those of these queues of which jobs were handed out in the last minutes."""
        since_ms = now_ms - WINDOW_MINUTES * MINUTE_MS
        return [queue for queue in queues if self._past.dequeued_ms(queue) > since_ms]

    def resume(self, standing: Sequence[Alarm], now_ms: int, *, is_new: bool = True) -> None:
        """Go on with what another judge has found; beside what this one has where it is not new."""
        before = {} if is_new else self._standing
        for each in standing:
            mine = before.get(each.key)
            before[each.key] = each if mine is None else _joined(mine, each)
            self._found_ms[each.key] = now_ms
        self._standing = before

    def observe(self, now: Snapshot) -> None:
        """A further snapshot, before it is judged."""
        self._past.take(now)

    def judge(self, now: Snapshot, mutes: Sequence[Mute] = ()) -> Judged:
        """The alarms by the snapshot that was observed last."""
        evidence = Evidence(now, self._past, self._standing)
        found = [
            _Found(condition, finding)
            for condition in self._conditions
            for finding in condition.find(evidence)
            if not (condition.of_queue and now.lacks(finding.queue))
        ]
        raised: dict[tuple[str, str], Alarm] = {}
        for each, absorbed in _without_effects(found):
            alarm = self._alarm(each, absorbed, now.now_ms)
            raised[alarm.key] = alarm
            self._found_ms[alarm.key] = now.now_ms
        covered = {(each.condition.name, each.finding.subject) for each in found} - raised.keys()
        for key, alarm in self._standing.items():  # quiet for too short a time
            quiet_ms = now.now_ms - self._found_ms.get(key, now.now_ms)
            is_gone = key[0] in self._of_queue and now.lacks(alarm.queue)
            if key not in raised and key not in covered and not is_gone and quiet_ms < self._quiet_ms.get(key[0], 0):
                raised[key] = alarm
        ended = [
            replace(alarm, ended_ms=now.now_ms)
            for key, alarm in self._standing.items()
            if key not in raised and key not in covered
        ]
        kept = sorted(raised.values(), key=lambda each: each.order)[:MOST]
        self._standing = {each.key: _muted(each, mutes, now.now_ms) for each in kept}
        self._found_ms = {key: at_ms for key, at_ms in self._found_ms.items() if key in self._standing}
        return Judged(self.standing, ended, len(raised) - len(kept))

    def _alarm(self, found: _Found, absorbed: Sequence[_Found], now_ms: int) -> Alarm:
        condition, finding = found
        before = self._standing.get((condition.name, finding.subject))
        severities = [_severity(each) for each in (found, *absorbed)]
        since_ms = min(now_ms, now_ms if finding.since_ms is None else finding.since_ms)
        return Alarm(
            condition.name,
            finding.subject,
            min(severities),
            finding.title,
            since_ms if before is None else min(before.since_ms, since_ms),
            finding.queue,
            finding.size,
            max(finding.size, 0 if before is None else before.peak),
            finding.why,
            finding.impact,
            finding.error,
            finding.action,
            finding.command,
            finding.path,
            tuple(
                AbsorbedAlarm(each.condition.name, each.finding.title, each.finding.queue)
                for each in absorbed[:MOST_ABSORBED]
            ),
        )


def _joined(mine: Alarm, other: Alarm) -> Alarm:
    return replace(mine, since_ms=min(mine.since_ms, other.since_ms), peak=max(mine.peak, other.peak))


def _severity(found: _Found) -> Severity:
    condition, finding = found
    return condition.severity if finding.severity is None else finding.severity


def _without_effects(found: Sequence[_Found]) -> list[tuple[_Found, list[_Found]]]:
    """Those that no cause before them explains, each with what it explains; causes come first in the table."""
    taken: set[int] = set()
    roots: list[tuple[_Found, list[_Found]]] = []
    by_name: dict[str, list[int]] = {}
    for place, each in enumerate(found):
        by_name.setdefault(each.condition.name, []).append(place)
    for place, cause in enumerate(found):
        if place in taken:
            continue
        explained: list[_Found] = []
        for name in cause.condition.absorbs:
            for at in by_name.get(name, ()):
                if at not in taken and at != place and _explains(cause.finding, found[at].finding):
                    taken.add(at)
                    explained.append(found[at])
        roots.append((cause, explained))
    return roots


def _explains(cause: Finding, effect: Finding) -> bool:
    return effect.queue == cause.queue if cause.queue else not effect.has_own_cause


def _muted(alarm: Alarm, mutes: Sequence[Mute], now_ms: int) -> Alarm:
    for mute in mutes:
        if mute.name == alarm.name and mute.subject in ("", alarm.subject) and mute.until_ms > now_ms:
            return replace(alarm, muted_until_ms=mute.until_ms, muted_by=mute.by, muted_why=mute.why)
    return replace(alarm, muted_until_ms=None, muted_by="", muted_why="") if alarm.is_muted else alarm
