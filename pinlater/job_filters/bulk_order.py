"""The order of a change to all jobs that a filter finds, or to those that are named: what it is for, and its slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pinlater.job_filters.job_filter import FilterLine
from pinlater.model import JobAction
from pinlater.model.job_selection import PENDING_PHASES, FoundJobsChange, JobPhase, JobSelection

SLICE_JOBS = 500
SLICE_MS = 1_000
MAX_NOTE_CHARS = 500
"""Of the servers."""

MAX_FILTER_CHARS = 300


class BulkAction(NamedTuple):
    """What can be done to many jobs. `takes`: the phases that it is for; `means`: those where the filter names none."""

    word: str
    action: JobAction
    takes: tuple[JobPhase, ...]
    means: tuple[JobPhase, ...]
    label: str
    doing: str
    done: str
    says: str
    is_removal: bool = False

    def phases(self, line: FilterLine) -> list[JobPhase]:
        """Those that are meant by all that a filter finds: what it names, as far as the action is for it."""
        names_states = any(term.field == "state" for term in line.terms)
        return [phase for phase in (line.phases if names_states else self.means) if phase in self.takes]

    def is_for(self, line: FilterLine) -> bool:
        """It can be done to all that a filter finds."""
        return bool(self.phases(line))


ACTIONS: dict[str, BulkAction] = {
    each.word: each
    for each in (
        BulkAction(
            "retry",
            JobAction.RETRY,
            (JobPhase.FAILED, JobPhase.CANCELLED),
            (JobPhase.FAILED,),
            "Retry",
            "retrying",
            "retried",
            "They go back to their queues and run again; their dead letters go. A job whose letter runs is left alone.",
        ),
        BulkAction(
            "cancel",
            JobAction.CANCEL,
            (*PENDING_PHASES, JobPhase.IN_PROGRESS),
            PENDING_PHASES,
            "Cancel",
            "cancelling",
            "cancelled",
            "Jobs that have not begun are removed.",
            True,
        ),
        BulkAction(
            "delete",
            JobAction.DELETE,
            tuple(JobPhase),
            (),
            "Delete",
            "deleting",
            "deleted",
            "They are removed, with their results and statuses. Nothing brings them back.",
            True,
        ),
        BulkAction(
            "replay",
            JobAction.REPLAY,
            (*PENDING_PHASES, JobPhase.FAILED, JobPhase.CANCELLED),
            (*PENDING_PHASES, JobPhase.FAILED, JobPhase.CANCELLED),
            "Replay",
            "replaying",
            "replayed",
            "Dead letters go back to the queues that they came from; other jobs are left alone.",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class RunOrder:
    """What a run is to do. `descriptors`: to these jobs only, which the filter then does not choose."""

    action: BulkAction
    line: FilterLine
    descriptors: tuple[str, ...] = ()
    attempts: int | None = None
    run_after_ms: int | None = None
    stops_running: bool = False
    note: str = ""

    def phases(self) -> list[JobPhase]:
        """Those that are meant: what the filter names, as far as the action is for it."""
        meant = self.action.takes if self.descriptors else self.action.phases(self.line)
        leaves_running = self.action.action is JobAction.CANCEL and not self.stops_running
        return [phase for phase in meant if phase is not JobPhase.IN_PROGRESS or not leaves_running]

    def why_not(self) -> str:
        """Why it cannot be done; "": it can."""
        if self.phases():
            return ""
        takes = ", ".join(phase.word for phase in self.action.takes)
        if not self.action.means:
            return f"{self.action.label} needs a state: put state: into the filter. It is for {takes}."
        return f"{self.action.label} is for jobs that are {takes}; the filter names others."

    def change(self, queue: str, now_ms: int, priorities: Sequence[int]) -> FoundJobsChange | None:
        """One slice in one queue; None: it means no job there."""
        if self.descriptors:
            named = tuple(each for each in self.descriptors if each.partition(":")[0] == queue)
            selection: JobSelection | None = JobSelection(queue, self.phases(), descriptors=named)
        else:
            selection = self.line.selection(queue, now_ms, priorities)
            if selection is not None:
                selection.phases = self.phases()
        if selection is None:
            return None
        return FoundJobsChange(
            selection,
            self.action.action,
            limit=SLICE_JOBS,
            attempts=self.attempts,
            run_after_ms=self.run_after_ms,
            stops_running=self.stops_running,
            max_ms=SLICE_MS,
            note=self._note(),
        )

    def _note(self) -> str:
        """For the audit, which has patterns in the place of what they were made of."""
        text = "" if self.descriptors or self.line.is_counted else self.line.text()[:MAX_FILTER_CHARS]
        return ": ".join(each for each in (text, self.note) if each)[:MAX_NOTE_CHARS]
