"""Tests of jobs: what is enqueued stays in memory, and runs by the real rules and policies with the waits dropped.

    run = testing.run(thumbnail, "a.jpg", size=200)         # one job, to its end
    assert run.state is JobState.FAILED and run.delays_s == [10, 20]

    with testing.in_memory(app) as jobs:                    # whatever the code under test enqueues
        sign_up("ada@example.com")
        jobs.run_all()
    assert [run.job for run in jobs.runs] == ["welcome", "remind"]

Keys, windows, order, expiry, cancels, progress and results count as on a server. Handles, and the clients that jobs use
(`app.client`, `app.async_client()`), find what is in memory; NotPlayed: a call that needs a server.

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
import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from pinlater.client.enqueue_batching import duplicate, rejecting
from pinlater.errors import QueueNotFound, RequestInvalid
from pinlater.extended_limits import extended_jobs
from pinlater.job_limits import JobLimits
from pinlater.model import (
    Cancelled,
    CancelOutcome,
    DequeuedJob,
    EnqueuedJobs,
    EnqueueOutcome,
    ExtendedJob,
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatOutcome,
    Job,
    JobInfo,
    JobState,
    KeyRef,
    OnDuplicate,
    RescheduleJob,
    RescheduleOutcome,
    any_extended,
)
from pinlater.model.status_text import job_expired_status
from pinlater_workers.app.app import App
from pinlater_workers.envelope import read_envelope
from pinlater_workers.errors import ConfigurationError, NotPlayed
from pinlater_workers.execution.attempt import close_loop, run_attempt, run_attempt_async, stopped
from pinlater_workers.execution.batch_attempt import run_batch, run_batch_async
from pinlater_workers.execution.start_context import StartContext
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
from pinlater_workers.testing.memory_client import MemoryClient, MemoryClients
from pinlater_workers.testing.memory_keys import MemoryKeys
from pinlater_workers.testing.virtual_flows import VirtualFlows
from pinlater_workers.testing.virtual_schedules import VirtualSchedules

MAX_RUNS = 1000
MAX_CLAIM_TIMEOUT_MS = 86_400_000
"""As a server has it that is not told otherwise (--max-claim-timeout)."""


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
    before = app.sink, app.clock, app.clients
    app.sink, app.clock, app.clients = jobs, jobs.clock, MemoryClients(jobs)
    try:
        yield jobs
    finally:
        app.sink, app.clock, app.clients = before
        jobs.flows.close()


@dataclass(slots=True)
class _Attempt:
    """`runs`: one, or those of a batch. `middleware` makes it an app in the eyes of `execution`."""

    middleware: Sequence[Middleware]
    type: JobType
    runs: Sequence[Run]
    claimed: DequeuedJob
    context: VirtualContext | VirtualBatchContext
    contexts: Mapping[str, VirtualContext]


_Offered = tuple[Run, EnqueueOutcome | None]
"""The job that stands, and what became of an offer; None: it cannot replace that one."""


def _different(jobs: Sequence[ExtendedJob], offered: Sequence[_Offered]) -> RequestInvalid:
    """The error for the first that cannot replace the job that stands. The others were stored, and it says so."""
    number, (stands, _) = next(each for each in enumerate(offered) if each[1][1] is None)
    job = jobs[number]
    error = RequestInvalid.of(
        f"priority or serializeKey of job {number + 1}",
        (job.priority, job.serialize_key),
        f"those of {stands.descriptor}, which it would replace",
    )
    if len(jobs) > 1:
        error.job_descriptors = ["" if outcome is None else run.descriptor for run, outcome in offered]
    return error


class Jobs:
    """`runs`: all jobs in the order of their enqueueing. `tell`: why each job is to stop when it begins."""

    def __init__(self, app: App, queues: Sequence[str] = (), limits: JobLimits | None = None) -> None:
        self._queues = set(queues)
        self._limits = limits or SERVER_LIMITS
        self.clock = VirtualClock()
        self.runs: list[Run] = []
        self.tell: StopReason | None = None
        self._app = app
        self._schedule = RunSchedule(self.clock)
        self._now_running: _Attempt | None = None
        self._keys = MemoryKeys(self.clock)
        self._named: dict[str, Run] = {}
        self._expiries: list[tuple[int, int, Run]] = []
        self._schedules = VirtualSchedules(self.clock.now_ms(), self.send)
        self.flows = VirtualFlows(self)

    def send(self, queue: str, jobs: Sequence[Job], *, timeout_s: float | None = None) -> list[str]:
        """For the app: keep these, all or none. Their keys count as on a server. EnqueueRejected, DUPLICATE."""
        queues = self.queue_names()
        if queue not in queues:
            raise QueueNotFound(
                f"queue {queue!r} is of no job of this app; allowed: {', '.join(sorted(queues))}, and what "
                f"testing.in_memory(app, queues=[...]) names"
            )
        kept, _ = self._limits.enqueue(queue, jobs, self.clock.now_ms(), QUEUE_LIMITS)
        if not any_extended(kept):
            return [self._keep(queue, job).descriptor for job in kept]
        rejects = rejecting(kept)
        if rejects is not None:
            stands = self._keys.standing(queue, rejects.dedupe_key, rejects.serialize_key)
            if stands is not None:
                raise duplicate(queue, rejects, stands.descriptor)
            kept = [replace(rejects, on_duplicate=OnDuplicate.KEEP)]
        checked = extended_jobs(kept, MAX_CLAIM_TIMEOUT_MS)
        offered = [self._offer(queue, job) for job in checked]
        outcomes = [outcome for _, outcome in offered if outcome is not None]
        if len(outcomes) < len(offered):
            raise _different(checked, offered)
        descriptors = [run.descriptor for run, _ in offered]
        return EnqueuedJobs(descriptors, outcomes if any(outcomes) else [])

    def put(self, queue: str, job: ExtendedJob) -> str:
        """For flows: keep a job that is no caller's."""
        self._queues.add(queue)
        return self._offer(queue, job)[0].descriptor

    async def send_async(self, queue: str, jobs: Sequence[Job]) -> list[str]:
        return self.send(queue, jobs)

    def queue_names(self) -> set[str]:
        """Those of the app's types of job, and those that the test has named."""
        return {*self._queues, *(each.settings.queue for each in self._app.job_types.values())}

    def found(
        self, queue: str | None, descriptors: Sequence[str], keys: Sequence[KeyRef], *, body: bool, result: bool
    ) -> dict[str, JobInfo]:
        """What a lookup finds, by descriptor."""
        named = [self._run_named(queue, each) for each in descriptors]
        runs = [*named, *self._keys.find(queue or "", keys)]
        now_ms = self.clock.now_ms()
        return {run.descriptor: run.info(now_ms, body=body, result=result) for run in runs if run is not None}

    def cancel_jobs(
        self, queue: str | None, descriptors: Sequence[str], keys: Sequence[KeyRef], *, running: bool
    ) -> Cancelled:
        """Those that are PENDING are gone; `running`: the one that runs is asked to stop."""
        outcomes = {each: self._cancel(self._run_named(queue, each), running) for each in descriptors}
        return Cancelled(outcomes, [self._cancel(run, running) for run in self._keys.find(queue or "", keys)])

    def reschedule_jobs(self, queue: str, changes: Sequence[RescheduleJob]) -> list[RescheduleOutcome]:
        """Those that are PENDING get another time, body or number of attempts."""
        return [self._reschedule(queue, change) for change in changes]

    def beat(self, queue: str, heartbeats: Sequence[Heartbeat]) -> list[HeartbeatAnswer]:
        """What a server answers to these signs of life."""
        return [self._beat(self._run_named(queue, each.descriptor), each) for each in heartbeats]

    def _beat(self, run: Run | None, beat: Heartbeat) -> HeartbeatAnswer:
        if run is None or run.state is not JobState.IN_PROGRESS or beat.claim_descriptor != run.claim_descriptor:
            return HeartbeatAnswer(HeartbeatOutcome.LOST)
        run.make_progress(beat.fraction, beat.text, self.clock.now_ms())
        if run.cancel_requested_by is not None:
            return HeartbeatAnswer(HeartbeatOutcome.CANCEL, run.cancel_requested_by)
        return HeartbeatAnswer(HeartbeatOutcome.OK)

    def run_until_one_ended(self, descriptors: Sequence[str], within_ms: float) -> None:
        """Run what is pending until one of these has ended, for whoever waits for that; or so long.

        NotPlayed: a job waits for another one. Jobs run one after the other here: that would be for ever.
        """
        self._run_until(lambda: not self._all_live(descriptors), within_ms)

    async def run_until_one_ended_async(self, descriptors: Sequence[str], within_ms: float) -> None:
        """As `run_until_one_ended`, on the event loop."""
        await self._run_until_async(lambda: not self._all_live(descriptors), within_ms)

    def run_until_over(self, flow_id: str, within_ms: float) -> None:
        """Run what is pending until this flow is over, or so long. NotPlayed, as above; or nothing is pending."""
        self._refuse_idle(flow_id)
        self._run_until(lambda: self.flows.is_over(flow_id), within_ms)

    async def run_until_over_async(self, flow_id: str, within_ms: float) -> None:
        """As `run_until_over`, on the event loop."""
        self._refuse_idle(flow_id)
        await self._run_until_async(lambda: self.flows.is_over(flow_id), within_ms)

    def _refuse_idle(self, flow_id: str) -> None:
        if not self.pending and not self.flows.is_over(flow_id):
            raise NotPlayed(
                f"flow {flow_id} is not over, and no job is pending: a stage is not sealed, or its status has troubles"
            )

    def _run_until(self, is_over: Callable[[], bool], within_ms: float) -> None:
        end_ms = self._refuse_waiting(is_over, within_ms)
        try:
            while not is_over() and (due := self._next(end_ms, MAX_RUNS, None)) is not None:
                attempt = self._begin(due, end_ms, alone=False)
                self._end(attempt, _run(attempt))
        finally:
            close_loop()
        self._waited_until(is_over, end_ms)

    async def _run_until_async(self, is_over: Callable[[], bool], within_ms: float) -> None:
        end_ms = self._refuse_waiting(is_over, within_ms)
        while not is_over() and (due := self._next(end_ms, MAX_RUNS, None)) is not None:
            attempt = self._begin(due, end_ms, alone=False)
            self._end(attempt, await _run_async(attempt))
        self._waited_until(is_over, end_ms)

    def _refuse_waiting(self, is_over: Callable[[], bool], within_ms: float) -> float:
        """Until when it is waited."""
        if self._now_running is not None and not is_over():
            raise NotPlayed(
                f"job {self._now_running.runs[0].job!r} waits for another one, and in memory one runs at a time: let "
                "that one enqueue what follows, or test this against a server"
            )
        return self.clock.now_ms() + within_ms

    def _waited_until(self, is_over: Callable[[], bool], end_ms: float) -> None:
        if end_ms < math.inf and not is_over():
            self.clock.advance_to(int(end_ms))
            self._expire()

    def _all_live(self, descriptors: Sequence[str]) -> bool:
        runs = [self._run_named(None, each) for each in descriptors]
        return bool(runs) and all(run is not None and run.is_live for run in runs)

    def _run_named(self, queue: str | None, descriptor: str) -> Run | None:
        run = self._named.get(descriptor)
        is_there = run is not None and run.is_kept(self.clock.now_ms()) and queue in (None, run.queue)
        return run if is_there else None

    def _offer(self, queue: str, job: ExtendedJob) -> _Offered:
        """The job that stands, and what became of this one; the first answer, where it was sent before."""
        before = self._keys.sent(queue, job.send_id)
        if before is not None:
            return before
        stands, outcome = self._decide(queue, job)
        if outcome is not None:
            self._keys.answer(queue, job.send_id, stands, outcome)
        return stands, outcome

    def _decide(self, queue: str, job: ExtendedJob) -> _Offered:
        stands = self._keys.standing(queue, job.dedupe_key, job.serialize_key)
        if stands is None:
            return self._keep(queue, job), EnqueueOutcome.STORED
        if job.on_duplicate is not OnDuplicate.REPLACE or stands.state is not JobState.PENDING:
            if job.on_duplicate is OnDuplicate.REPLACE:
                stands.note_not_replaced(self.clock.now_ms())
            return stands, EnqueueOutcome.KEPT
        if job.priority != stands.priority:
            return stands, None
        now_ms = self.clock.now_ms()
        stands.change(job if job.run_after_ms is not None else replace(job, run_after_ms=now_ms), now_ms)
        self._wait_its_turn(stands)
        return stands, EnqueueOutcome.REPLACED

    def _cancel(self, run: Run | None, running: bool) -> CancelOutcome:
        if run is None:
            return CancelOutcome.NOT_FOUND
        if not run.is_live:
            return CancelOutcome.ENDED
        if run.state is JobState.PENDING:
            run.is_gone = True
            run.fail(self.clock.now_ms(), cancelled=True)
            self._ended(run)
            return CancelOutcome.CANCELLED
        if not running:
            return CancelOutcome.IN_PROGRESS
        if run.cancel_requested_by is None and self._now_running is not None:
            run.cancel_requested_by = MemoryClient.source
            self._now_running.contexts[run.descriptor].request_stop(StopReason.CANCELLED, run.cancel_requested_by)
        return CancelOutcome.REQUESTED

    def _reschedule(self, queue: str, change: RescheduleJob) -> RescheduleOutcome:
        if change.key is not None:
            (run,) = self._keys.find(queue, [change.key])
        else:
            run = self._run_named(queue, change.descriptor)
        if run is None:
            return RescheduleOutcome.NOT_FOUND
        if run.state is not JobState.PENDING:
            return RescheduleOutcome.IN_PROGRESS if run.is_live else RescheduleOutcome.ENDED
        if change.only_if_updated_at_ms not in (None, run.updated_at_ms):
            return RescheduleOutcome.CHANGED
        if change.body is not None:
            self._limits.body(change.body, QUEUE_LIMITS.max_body_bytes)
        run.change(change, self.clock.now_ms())
        self._wait_its_turn(run)
        return RescheduleOutcome.RESCHEDULED

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
        self._expire()

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
        self._named[kept.descriptor] = kept
        self._keys.enter(kept)
        self._wait_its_turn(kept)
        if self._now_running is not None:
            self._now_running.runs[0].enqueued.append(kept)
        return kept

    def _wait_its_turn(self, run: Run) -> None:
        """A run that is PENDING now, or at another time than before."""
        if run.waits_for is None:
            self._schedule.add(run)
        if run.expires_at_ms is not None:
            heapq.heappush(self._expiries, (run.expires_at_ms, run.number, run))

    def _ended(self, run: Run) -> None:
        """The next of its serialize key is free."""
        freed = self._keys.leave(run)
        if freed is not None:
            self._schedule.add(freed)

    def _expire(self) -> None:
        """Those that wait, and whose time is over, fail."""
        now_ms = self.clock.now_ms()
        while self._expiries and self._expiries[0][0] <= now_ms:
            expires_at_ms, _, run = heapq.heappop(self._expiries)
            if run.state is JobState.PENDING:
                run.fail(now_ms, status=job_expired_status(now_ms, expires_at_ms))
                self._ended(run)

    def _type(self, queue: str, body: bytes) -> JobType:
        envelope = read_envelope(body)
        found = self._app.raw(queue) if envelope is None else self._app.find(envelope.job)
        if found is None:
            name = "without an envelope" if envelope is None else f"of type {envelope.job!r}"
            raise ConfigurationError(f"a job {name} in queue {queue!r}, which this app does not know")
        return found

    def _next(self, end_ms: float, max_runs: int, only: Run | None) -> Run | None:
        """What runs now; where nothing is due, it is later at once."""
        while True:
            self._expire()
            chosen = self._schedule.first(end_ms) if only is None else only
            if chosen is None or (only is not None and chosen.state is not JobState.PENDING):
                return None
            self.clock.advance_to(chosen.run_after_ms)
            self._expire()
            if chosen.state is JobState.PENDING:
                break
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
            context = VirtualBatchContext(jobs, RunHost(run, self.clock, self._limits), deadline_ms)
            context.clock = self.clock
        if self.tell is not None:
            context.request_stop(self.tell)
        recorder = Recorder({job.descriptor: each for job, each in members})
        named = {job.descriptor: each for (job, _), each in zip(members, contexts, strict=True)}
        self._now_running = _Attempt((recorder, *self._app.middleware), job_type, runs, claimed, context, named)
        return self._now_running

    def _context(self, job_type: JobType, claimed: DequeuedJob, run: Run, deadline_ms: int) -> VirtualContext:
        context = VirtualContext(job_type.name, run.queue, claimed, RunHost(run, self.clock, self._limits), deadline_ms)
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
            run.end(self.flows.end(run, each), self.clock.now_ms())
            if run.state is JobState.PENDING:
                self._wait_its_turn(run)
            else:
                self._ended(run)


def _run(attempt: _Attempt) -> Outcome:
    if attempt.type.is_batch:
        return run_batch(attempt, attempt.type, attempt.context, None)
    return run_attempt(attempt, attempt.type, attempt.claimed, attempt.context, None)


async def _run_async(attempt: _Attempt) -> Outcome:
    if not attempt.type.is_coroutine:
        return await asyncio.to_thread(_run, attempt)
    context, loop, fresh = attempt.context, asyncio.get_running_loop(), StartContext().fresh()
    if attempt.type.is_batch:
        return await loop.create_task(run_batch_async(attempt, attempt.type, context, None), context=fresh)
    running = run_attempt_async(attempt, attempt.type, attempt.claimed, context, None)
    task = loop.create_task(running, context=fresh)

    def told() -> None:
        if context.cancel_reason is StopReason.CANCELLED:
            task.cancel()

    no_more = context.on_stop(told)
    try:
        return await task
    except asyncio.CancelledError:
        if context.cancel_reason is not StopReason.CANCELLED:
            raise
        return stopped(attempt.type, attempt.claimed, context)
    finally:
        no_more()
