"""The reports of a worker for the list of workers: their content, and when one is due."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pinlater.model import UnknownType, WorkerJob, WorkerReport
from pinlater_workers.heartbeat.messages import HeartbeatEntry, RunningEntry, WorkerState

REPORT_S = 10.0
RETRY_S = 2.0
SOON_S = 2.0
"""A beat takes along a report that is due within so long."""

SILENT_S = 5.0
"""A worker that has said nothing for so long is silent."""

MAX_RUNNING = 100
"""So many running jobs are named, those that run longest."""

MAX_QUEUES = MAX_JOB_TYPES = 100


class ReportSchedule:
    """When the next report is due, and what it says. Times are seconds of one monotonic clock. Pure."""

    def __init__(self) -> None:
        self._state: WorkerState | None = None
        self._state_at_s = 0.0
        """When the worker said that."""
        self.due_s = math.inf

    @property
    def has_stopped(self) -> bool:
        """What the worker said last is that it ends."""
        return self._state is not None and self._state.has_stopped

    @property
    def slots(self) -> int:
        """How many jobs the worker can run at once."""
        return 0 if self._state is None else self._state.slots

    def running(self, watched: Iterable[HeartbeatEntry]) -> list[RunningEntry]:
        """What a silent worker runs: what it said last, and what it has claimed since, as far as there is room."""
        state = self._state
        if state is None:
            return []
        running = list(state.running)
        if len(running) < MAX_RUNNING:
            room = min(MAX_RUNNING, max(0, state.slots - state.stuck_slots)) - len(running)
            named = {each.descriptor for each in running}
            later = [each for each in watched if each.good_s > self._state_at_s and each.descriptor not in named]
            later.sort(key=lambda each: each.good_s)
            running += [
                RunningEntry(each.descriptor, each.type, each.good_s, each.over_s) for each in later[: max(0, room)]
            ]
        return running

    @property
    def queue(self) -> str:
        """One of the worker's queues, for a checkpoint that carries nothing but a report."""
        return next(iter(self._state.queues), "") if self._state is not None else ""

    def tell(self, state: WorkerState, now_s: float) -> None:
        """The worker says what it runs now. A report is due at once where it starts or stops."""
        before, self._state, self._state_at_s = self._state, state, now_s
        is_known = before is not None and (before.is_stopping, before.is_quiet) == (state.is_stopping, state.is_quiet)
        if not is_known or state.has_stopped:
            self.due_s = now_s

    def take(self, now_s: float, spoke_s: float, watched: Iterable[HeartbeatEntry]) -> WorkerReport | None:
        """The report of now, which is due again after REPORT_S. None: the worker has said nothing yet.

        `spoke_s`: when it last said anything. Of one that is silent since, the claims that it took after its last word
        tell what it runs.
        """
        state = self._state
        if state is None:
            return None
        self.due_s = math.inf if state.has_stopped else now_s + REPORT_S
        silent_s = now_s - spoke_s
        if silent_s < SILENT_S:
            silent_s = 0.0
        running = self.running(watched) if silent_s else state.running
        return WorkerReport(
            state.id,
            state.name,
            _ms(now_s - state.began_s),
            state.host,
            state.pid,
            state.queues,
            state.slots,
            max(state.busy_slots, len(running)) if silent_s else state.busy_slots,
            state.stuck_slots,
            [WorkerJob(each.descriptor, each.type, _ms(now_s - each.began_s)) for each in running],
            state.versions,
            state.is_stopping,
            state.has_stopped,
            _ms(silent_s),
            state.is_quiet,
            tuple(state.job_types),
            None,
            [UnknownType(each.queue, each.type, each.jobs, _ms(now_s - each.met_s)) for each in state.unknown_types],
        )

    def failed(self, now_s: float) -> None:
        """No server has the last report."""
        self.due_s = min(self.due_s, now_s + RETRY_S)


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
