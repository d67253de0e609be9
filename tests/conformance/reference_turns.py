"""The turns of groups, as the reference sees them: which jobs a claim of one priority may hand out.

Where the turns of two groups are equal, the store may choose; the reference follows it. From the first pause on it
knows no turns: whether a store has come to a paused group changes what groups that come later begin with. Then it holds
what is promised whatever the turns are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil


@dataclass(slots=True)
class Waiting:
    """A job of a priority: its place in the line of its group."""

    run_after_ms: int
    id: int
    group: str

    @property
    def place(self) -> tuple[int, int]:
        return self.run_after_ms, self.id


@dataclass
class RefTurns:
    """One priority of one queue. `outside` are PENDING jobs that are in no line yet."""

    weights: dict[str, int] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    knows_turns: bool = True
    time: float = 0.0
    outside: dict[int, Waiting] = field(default_factory=dict)
    lines: dict[str, list[Waiting]] = field(default_factory=dict)
    turns: dict[str, float] = field(default_factory=dict)
    ahead: dict[str, float] = field(default_factory=dict)
    passed: int = 0
    """How many jobs were handed out so far, less those that were requeued."""

    given_back: int = 0
    """How many were requeued."""

    came_at: dict[int, int] = field(default_factory=dict)
    """Of a job in line: how many had passed when it came."""

    before: dict[int, int] = field(default_factory=dict)
    """And how many jobs of its group come or came before it since."""

    def weight(self, group: str) -> int:
        return self.weights.get(group, 1)

    def pause(self, groups: set[str]) -> None:
        """These are paused from now on, and no others."""
        resumed, self.paused = self.paused - groups, set(groups)
        self.knows_turns = False
        for group in resumed:
            for place, job in enumerate(self.lines.get(group, ())):
                self.came_at[job.id], self.before[job.id] = self.passed, place

    def enqueued(self, job: Waiting, now_ms: int) -> None:
        """A due job with a group comes into line at once."""
        self.outside[job.id] = job
        if job.group and job.run_after_ms <= now_ms:
            self._enter(job)

    def _enter(self, job: Waiting) -> None:
        del self.outside[job.id]
        line = self.lines.setdefault(job.group, [])
        if not line:
            self.turns[job.group] = max(self.time, self.ahead.pop(job.group, 0.0))
        line.append(job)
        line.sort(key=lambda each: each.place)
        place = line.index(job)
        self.came_at[job.id], self.before[job.id] = self.passed, place
        for each in line[place + 1 :]:
            self.before[each.id] += 1

    def left(self, job_id: int) -> Waiting:
        """A job is PENDING no more, otherwise than by a claim, or its time has changed."""
        if job_id in self.outside:
            return self.outside.pop(job_id)
        group, job = next((group, each) for group, line in self.lines.items() for each in line if each.id == job_id)
        self.lines[group].remove(job)
        self._end_line(group)
        return job

    def _end_line(self, group: str) -> None:
        if not self.lines[group]:
            del self.lines[group]
            self.ahead[group] = self.turns.pop(group)

    def requeued(self, job: Waiting) -> None:
        """It was handed out, and comes back with its group's turn."""
        for turns in (self.turns, self.ahead):
            if job.group and job.group in turns:
                turns[job.group] -= 1 / self.weight(job.group)
        self.passed -= 1
        self.given_back += 1
        self.outside[job.id] = job

    def claim(self, ids: Iterable[int], now_ms: int) -> list[Waiting]:
        """Follow a claim: AssertionError where it may not have handed these out, in this order."""
        for job in sorted(self.outside.values(), key=lambda each: each.place):
            if job.run_after_ms <= now_ms:
                self._enter(job)
        taken = []
        for job_id in ids:
            lowest = min(self.turns.values())
            firsts = {
                line[0].id: group
                for group, line in self.lines.items()
                if group not in self.paused and (not self.knows_turns or self.turns[group] == lowest)
            }
            assert job_id in firsts, f"job {job_id} was handed out, where one of {sorted(firsts)} had its turn"
            group = firsts[job_id]
            job = self.lines[group].pop(0)
            self._assert_fair(job)
            self.time = max(self.time, lowest)
            self.turns[group] += 1 / self.weight(group)
            self.passed += 1
            self._end_line(group)
            taken.append(job)
        if taken and not self.turns:
            self.time = max([self.time, *self.ahead.values()])
        return taken

    def _assert_fair(self, job: Waiting) -> None:
        """Each group had at most as many turns meanwhile as its own group, by their weights, and one more, or two where
        its own had one ahead: see docs/fairness.md. Those that were given back before come beside these.
        """
        own, turns = self.weight(job.group), self.before[job.id] + 2
        most = sum(ceil(turns * self.weight(group) / own) for group in {*self.turns, *self.ahead})
        assert self.passed - self.came_at[job.id] <= most + self.given_back

    @property
    def all_jobs(self) -> int:
        return len(self.outside) + sum(map(len, self.lines.values()))
