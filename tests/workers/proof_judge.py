"""Whether every job of a proof had its one right end, by what its attempts wrote and what the server says of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pinlater.model import JobInfo, JobState
from tests.workers.apps.proof_jobs import FATES, SNOOZES
from tests.workers.apps.proof_journal import BEGUN, BESIDE, ENDED, KEPT, Line


@dataclass(frozen=True, slots=True)
class Given:
    """A job as it was enqueued. `queue` is the name of its pool too."""

    number: int
    queue: str
    fate: str
    descriptor: str


def broken(jobs: Sequence[Given], found: Mapping[str, JobInfo], lines: Sequence[Line]) -> list[str]:
    """Each breach of the promise as a readable line."""
    of_job: defaultdict[int, list[Line]] = defaultdict(list)
    for line in sorted(lines, key=lambda line: line.moment):
        of_job[line.number].append(line)
    breaches = []
    for job in jobs:
        info = found.get(job.descriptor)
        said = ["lost"] if info is None else [*_state(job, info, of_job[job.number])]
        said += _attempts(of_job[job.number], 0 if info is None else info.attempts_allowed)
        if job.queue == "process":
            said += _apart(of_job[job.number])
        breaches += [f"{what}: {job} {info} {of_job[job.number]}" for what in said]
    return breaches


def _state(job: Given, info: JobInfo, lines: Sequence[Line]) -> Iterator[str]:
    fate = FATES[job.fate]
    begun = [line for line in lines if line.what == BEGUN]
    if info.state is not fate.state:
        yield "wrong state"
    if fate.says not in info.custom_status:
        yield "wrong status"
    if not begun:
        yield "never begun"
    elif info.state is JobState.SUCCEEDED:
        last = begun[-1]
        if last.attempt != info.attempts_allowed - info.attempts_remaining + 1:
            yield "succeeded in another attempt than its last"
        if not any(line.what == ENDED and _of(line) == _of(last) for line in lines):
            yield "succeeded without an end"
    elif info.attempts_remaining:
        yield "failed with attempts left"
    if (job.fate == "snoozes") != (info.state is JobState.SUCCEEDED and bool(begun) and begun[-1].snoozes == SNOOZES):
        yield "wrong count of snoozes"


def _attempts(lines: Sequence[Line], allowed: int) -> Iterator[str]:
    """A kill spends the attempt that it ends: so no attempt begins twice, and none beyond what is allowed."""
    begun = [(line.attempt, line.snoozes) for line in lines if line.what == BEGUN]
    if any(later <= earlier for earlier, later in pairwise(begun)):
        yield "attempts not in order, or one twice"
    if begun and begun[-1][0] > allowed:
        yield "more attempts than allowed"
    kept = next((at for at, line in enumerate(lines) if line.what == KEPT), len(lines))
    if any(line.what == BEGUN and line.step == 0 for line in lines[kept:]):
        yield "begun from before its checkpoint"


def _apart(lines: Sequence[Line]) -> Iterator[str]:
    """By the kernel, whose locks end with a process; and by the clock, where an attempt had an end."""
    if any(line.what == BESIDE for line in lines):
        yield "two attempts at once"
    begun = [line for line in lines if line.what == BEGUN]
    ends = {_of(line): line.moment for line in lines if line.what == ENDED}
    for earlier, later in pairwise(begun):
        if ends.get(_of(earlier), 0) > later.moment:
            yield "two attempts at once by the clock"


def _of(line: Line) -> tuple[int, int, int, int]:
    """Which attempt."""
    return line.number, line.attempt, line.snoozes, line.pid


def summary(found: Mapping[str, JobInfo], lines: Sequence[Line]) -> str:
    what = Counter(line.what for line in lines)
    states = Counter(info.state.name for info in found.values())
    crashed = sum(info.crashes for info in found.values())
    cut = what[BEGUN] - what[ENDED]
    return f"{dict(states)}; {what[BEGUN]} attempts, {cut} of them cut short; {crashed} claims expired or released"
