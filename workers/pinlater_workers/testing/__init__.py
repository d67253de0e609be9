"""Tests of jobs: what is enqueued stays in memory, and runs by the real rules and policies with the waits dropped.

    run = testing.run(thumbnail, "a.jpg", size=200)         # one job, to its end
    assert run.state is JobState.FAILED and run.delays_s == [10, 20]

    with testing.in_memory(app) as jobs:                    # whatever the code under test enqueues
        sign_up("ada@example.com")
        jobs.run_all()
    assert [run.job for run in jobs.runs] == ["welcome", "remind"]

What a server would refuse is refused here too, by the same code and with the same errors: a body, a priority or a time
beyond its bounds, and a queue that is none of the app's (`in_memory(app, queues=["vip"])` has more).

Time is virtual and starts now: it goes on by the delays of jobs and by `context.wait`, without anybody waiting.
Schedules fire as it passes: in `run_for` one by one, in `run_all` those whose times have passed (`jobs.clock.advance`).
Jobs run one after the other: by priority, then by when they are due, then by age. A batch is what is due within the
time that its first job waits. Delays have no jitter, and time limits are not enforced. Nothing here needs pytest, and
nothing stands in its way.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from pinlater.errors import QueueNotFound
from pinlater.job_limits import JobLimits
from pinlater.model import DequeuedJob, Job, JobState
from pinlater_workers.app.app import App
from pinlater_workers.envelope import read_envelope
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.execution.attempt import close_loop, run_attempt, run_attempt_async
from pinlater_workers.execution.batch_attempt import run_batch, run_batch_async
from pinlater_workers.jobs.batch import MemberOutcomes
from pinlater_workers.jobs.context import StopReason
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.outcome import Outcome
from pinlater_workers.middleware import Middleware
from pinlater_workers.testing.memory import (
    QUEUE_LIMITS,
    SERVER_LIMITS,
    Recorder,
    Run,
    RunHost,
    RunSchedule,
    VirtualBatchContext,
    VirtualClock,
    VirtualContext,
)
from pinlater_workers.testing.virtual_schedules import VirtualSchedules

MAX_RUNS = 1000


class NeverEnds(AssertionError):
    """A job was run so often, and has not ended."""


def run(job_type: JobType, /, *args: Any, **kwargs: Any) -> Run:
    """One job to its end. What it enqueues is in `Run.enqueued`, and does not run. NeverEnds.

    TypeError: a function that is no job.
    """
    with in_memory(_app(job_type)) as jobs:
        job_type.enqueue(*args, **kwargs)
        jobs.run_all(only=jobs.runs[0])
    return jobs.runs[0]


async def run_async(job_type: JobType, /, *args: Any, **kwargs: Any) -> Run:
    """As `run`, for tests that are coroutines."""
    with in_memory(_app(job_type)) as jobs:
        await job_type.enqueue_async(*args, **kwargs)
        await jobs.run_all_async(only=jobs.runs[0])
    return jobs.runs[0]


def _app(job_type: object) -> App:
    if not isinstance(job_type, JobType):
        raise TypeError(f"{job_type!r:.200} is no job; allowed: a function with @app.job(queue=...) above it")
    return cast(App, job_type.app)


@contextmanager
def in_memory(app: App, *, queues: Sequence[str] = (), limits: JobLimits | None = None) -> Iterator[Jobs]:
    """Until the block ends, what is enqueued with this app stays here. QueueNotFound, BodyTooLarge,
    PriorityNotSupported, RequestInvalid: what a server would refuse.

    There are the queues of the app's types of job, and `queues`. `limits`: those of a server that is configured
    otherwise, as in JobLimits(priority_levels=5).
    """
    jobs = Jobs(app, queues, limits)
    sink, clock = app.sink, app.clock
    app.sink, app.clock = jobs, jobs.clock
    try:
        yield jobs
    finally:
        app.sink, app.clock = sink, clock


@dataclass(slots=True)
class _Attempt:
    """`runs`: one, or those of a batch. `middleware` makes it an app in the eyes of `execution`."""

    middleware: Sequence[Middleware]
    type: JobType
    runs: Sequence[Run]
    claimed: DequeuedJob
    context: VirtualContext | VirtualBatchContext


class Jobs:
    """`runs`: all jobs in the order of their enqueueing. `tell`: why each job is to stop when it begins."""

    def __init__(self, app: App, queues: Sequence[str] = (), limits: JobLimits | None = None) -> None:
        self._queues = frozenset(queues)
        self._limits = limits or SERVER_LIMITS
        self.clock = VirtualClock()
        self.runs: list[Run] = []
        self.tell: StopReason | None = None
        self._app = app
        self._schedule = RunSchedule(self.clock)
        self._now_running: Run | None = None
        self._schedules = VirtualSchedules(self.clock.now_ms(), self.send)

    def send(self, queue: str, jobs: Sequence[Job], *, timeout_s: float | None = None) -> list[str]:
        """For the app: keep these, all or none."""
        queues = self._queues.union(each.settings.queue for each in self._app.job_types.values())
        if queue not in queues:
            raise QueueNotFound(
                f"queue {queue!r} is of no job of this app; allowed: {', '.join(sorted(queues))}, and what "
                f"testing.in_memory(app, queues=[...]) names"
            )
        kept, _ = self._limits.enqueue(queue, jobs, self.clock.now_ms(), QUEUE_LIMITS)
        return [self._keep(queue, job).descriptor for job in kept]

    async def send_async(self, queue: str, jobs: Sequence[Job]) -> list[str]:
        return self.send(queue, jobs)

    def of(self, job: JobType) -> list[Run]:
        return [each for each in self.runs if each.job == job.name]

    @property
    def pending(self) -> list[Run]:
        return [each for each in self.runs if each.state is JobState.PENDING]

    def run_all(self, *, max_runs: int = MAX_RUNS, only: Run | None = None) -> None:
        """Until no job is pending, those that jobs enqueue included, and those of schedules whose times have passed;
        `only`: until this one has ended.

        NeverEnds: one of them was run `max_runs` times, and would be again. What is for ever: `run_for`.
        """
        self._fire_passed(only)
        self._run(math.inf, max_runs, only)

    def run_for(self, seconds: float, *, max_runs: int = MAX_RUNS) -> None:
        """All that is due within so much time from now, which then is over; schedules fire. NeverEnds."""
        end_ms = self.clock.now_ms() + math.ceil(seconds * 1000)
        types = list(self._app.job_types.values())
        while (time_ms := self._schedules.next_ms(types, end_ms)) is not None:
            self._run(time_ms, max_runs, None)
            self.clock.advance_to(time_ms)
            self._schedules.fire(types, time_ms)
        self._run(end_ms, max_runs, None)
        self.clock.advance_to(end_ms)

    async def run_all_async(self, *, max_runs: int = MAX_RUNS, only: Run | None = None) -> None:
        """As `run_all`, for tests that are coroutines: coroutine jobs run on their loop, all else in a thread."""
        self._fire_passed(only)
        while (due := self._next(math.inf, max_runs, only)) is not None:
            attempt = self._begin(due, math.inf, alone=only is not None)
            self._end(attempt, await _run_async(attempt))

    def _fire_passed(self, only: Run | None) -> None:
        if only is None:
            self._schedules.fire(list(self._app.job_types.values()), self.clock.now_ms())

    def _run(self, end_ms: float, max_runs: int, only: Run | None) -> None:
        try:
            while (due := self._next(end_ms, max_runs, only)) is not None:
                attempt = self._begin(due, end_ms, alone=only is not None)
                self._end(attempt, _run(attempt))
        finally:
            close_loop()

    def _keep(self, queue: str, job: Job) -> Run:
        envelope = read_envelope(job.body)
        name = self._type(queue, job.body).name if envelope is None else envelope.job
        kept = Run.of(job, name, queue, len(self.runs) + 1, self.clock.now_ms())
        self.runs.append(kept)
        self._schedule.add(kept)
        if self._now_running is not None:
            self._now_running.enqueued.append(kept)
        return kept

    def _type(self, queue: str, body: bytes) -> JobType:
        envelope = read_envelope(body)
        found = self._app.raw(queue) if envelope is None else self._app.find(envelope.job)
        if found is None:
            name = "without an envelope" if envelope is None else f"of type {envelope.job!r}"
            raise ConfigurationError(f"a job {name} in queue {queue!r}, which this app does not know")
        return found

    def _next(self, end_ms: float, max_runs: int, only: Run | None) -> Run | None:
        """What runs now; where nothing is due, it is later at once."""
        chosen = self._schedule.first(end_ms) if only is None else only
        if chosen is None or chosen.state is not JobState.PENDING:
            return None
        self.clock.advance_to(chosen.run_after_ms)
        if chosen.times >= max_runs:
            raise NeverEnds(
                f"job {chosen.job!r} was run {chosen.times} times, and comes again: {chosen.snoozes} snoozes, "
                f"{chosen.reschedules} reschedulings; for a job that repeats for ever use run_for(seconds)"
            )
        return chosen

    def _begin(self, run: Run, end_ms: float, *, alone: bool) -> _Attempt:
        job_type = self._type(run.queue, run.body)
        runs = self._batch(run, job_type, end_ms, alone=alone) if job_type.is_batch else [run]
        deadline_ms = self.clock.now_ms() + math.ceil(job_type.settings.time_limit_s * 1000)
        members = [(each.claim(), each) for each in runs]
        contexts = [self._context(job_type, claimed, each, deadline_ms) for claimed, each in members]
        context: VirtualContext | VirtualBatchContext = contexts[0]
        claimed = members[0][0]
        if job_type.is_batch:
            jobs = [(job, each) for (job, _), each in zip(members, contexts, strict=True)]
            context = VirtualBatchContext(jobs, RunHost(run, self._limits), deadline_ms)
            context.clock = self.clock
        if self.tell is not None:
            context.request_stop(self.tell)
        self._now_running = run
        recorder = Recorder({job.descriptor: each for job, each in members})
        return _Attempt((recorder, *self._app.middleware), job_type, runs, claimed, context)

    def _context(self, job_type: JobType, claimed: DequeuedJob, run: Run, deadline_ms: int) -> VirtualContext:
        context = VirtualContext(job_type.name, run.queue, claimed, RunHost(run, self._limits), deadline_ms)
        context.clock = self.clock
        return context

    def _batch(self, first: Run, job_type: JobType, end_ms: float, *, alone: bool) -> list[Run]:
        """With it, what else of its type is due within the time that the first of a batch waits, or until the batch is
        full; that time is over then.
        """
        most = job_type.settings.batch or 1
        wait_end_ms = self.clock.now_ms() + math.ceil(job_type.settings.batch_wait_s * 1000)
        others = [] if alone else self._schedule.like(first, wait_end_ms)
        runs = [first, *others[: most - 1]]
        due_ms = max(each.run_after_ms for each in runs) if len(runs) == most else wait_end_ms
        self.clock.advance_to(int(min(due_ms, end_ms)))
        return runs

    def _end(self, attempt: _Attempt, outcome: Outcome) -> None:
        self._now_running = None
        outcomes = outcome.members if isinstance(outcome, MemberOutcomes) else (outcome,)
        for run, each in zip(attempt.runs, outcomes, strict=True):
            if each.body is not None:
                self._limits.body(each.body, QUEUE_LIMITS.max_body_bytes)
            run.end(each, self.clock.now_ms())
            if run.state is JobState.PENDING:
                self._schedule.add(run)


def _run(attempt: _Attempt) -> Outcome:
    if attempt.type.is_batch:
        return run_batch(attempt, attempt.type, attempt.context, None)
    return run_attempt(attempt, attempt.type, attempt.claimed, attempt.context, None)


async def _run_async(attempt: _Attempt) -> Outcome:
    if not attempt.type.is_coroutine:
        return await asyncio.to_thread(_run, attempt)
    if attempt.type.is_batch:
        return await run_batch_async(attempt, attempt.type, attempt.context, None)
    return await run_attempt_async(attempt, attempt.type, attempt.claimed, attempt.context, None)
