"""The queues that a filter means, and how many jobs each has: one reckoning for the list, its counts and every run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pinlater.job_filters.job_filter import FilterLine
from pinlater.model import LevelView, QueueStatus
from pinlater.model.job_selection import JobPhase


def phase_counts(levels: Iterable[LevelView], priorities: Collection[int] | None = None) -> dict[JobPhase, int]:
    """Jobs of a queue by phase; of some priorities only, where these are named."""
    counts = dict.fromkeys(JobPhase, 0)
    for level in levels:
        if priorities is None or level.priority in priorities:
            counts[JobPhase.READY] += level.ready
            counts[JobPhase.SCHEDULED] += level.scheduled
            counts[JobPhase.WAITING] += level.waiting
            counts[JobPhase.IN_PROGRESS] += level.in_progress
            counts[JobPhase.SUCCEEDED] += level.succeeded
            counts[JobPhase.FAILED] += level.failed
            counts[JobPhase.CANCELLED] += level.cancelled
            counts[JobPhase.REPLAYED] += level.replayed
    return counts


class MeantQueues:
    """`by_queue`: how many jobs each queue has that the filter could mean, of `phases` where these are given. A queue
    whose jobs nobody has counted is there only where the filter names it. `counts`: by phase, of all these queues,
    whatever states the filter means.
    """

    def __init__(
        self, line: FilterLine, statuses: Sequence[QueueStatus], phases: Collection[JobPhase] | None = None
    ) -> None:
        """`statuses`: all queues that the caller may read, as they were last counted."""
        levels: Mapping[str, Sequence[LevelView]] = {status.name: status.levels for status in statuses}
        self.priorities: dict[str, Sequence[int]] = {
            name: [level.priority for level in of_queue] for name, of_queue in levels.items() if of_queue
        }
        self.counts = dict.fromkeys(JobPhase, 0)
        self.by_queue: dict[str, int] = {}
        meant, named = line.phases if phases is None else phases, set(line.named_queues)
        for name in line.queues(levels):
            counts = phase_counts(levels.get(name, ()), line.priorities(self.priorities_of(name)))
            for phase, amount in counts.items():
                self.counts[phase] += amount
            total = sum(counts[phase] for phase in meant)
            if total or name in named:
                self.by_queue[name] = total

    def priorities_of(self, queue: str) -> Sequence[int]:
        """Those that its jobs have, as far as they were counted."""
        return self.priorities.get(queue, (1, 2, 3))
