"""The schedules of an app in a test: they fire by the virtual clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import asdict

from pinlater.model import ExtendedJob, Job, Schedule
from pinlater_workers.jobs.job_schedule import schedule_of, timetable
from pinlater_workers.jobs.job_type import JobType


class VirtualSchedules:
    """Times count from `begin_ms` on, each once. `send` takes the jobs."""

    def __init__(self, begin_ms: int, send: Callable[[str, list[Job]], object]) -> None:
        self._begin_ms = self._done_ms = begin_ms
        self._send = send

    def next_ms(self, types: Iterable[JobType], until_ms: float) -> int | None:
        """The next time at which one fires, up to then."""
        times = [at_ms for at_ms, _ in self._after(types, self._done_ms) if at_ms <= until_ms]
        return min(times, default=None)

    def fire(self, types: Iterable[JobType], until_ms: int) -> None:
        """All that is due by then, in order."""
        due = self._after(types, self._done_ms)
        heapq.heapify(due)
        schedules = {schedule.name: schedule for schedule in self._schedules(types)}
        while due and due[0][0] <= until_ms:
            at_ms, name = heapq.heappop(due)
            fired = schedules[name]
            job = Job(fired.body, fired.priority, at_ms, fired.attempts_allowed)
            if fired.serialize_key or fired.tags or fired.group:
                job = ExtendedJob(**asdict(job), serialize_key=fired.serialize_key, tags=fired.tags, group=fired.group)
            self._send(fired.queue, [job])
            following = timetable(fired, self._begin_ms).after(at_ms)
            if following is not None:
                heapq.heappush(due, (following, name))
        self._done_ms = max(self._done_ms, until_ms)

    def _after(self, types: Iterable[JobType], ms: int) -> list[tuple[int, str]]:
        found = ((timetable(each, self._begin_ms).after(ms), each.name) for each in self._schedules(types))
        return [(at_ms, name) for at_ms, name in found if at_ms is not None]

    @staticmethod
    def _schedules(types: Iterable[JobType]) -> list[Schedule]:
        return [schedule for schedule in map(schedule_of, types) if schedule is not None]
