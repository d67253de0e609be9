"""Tests of jobs: what is enqueued stays in memory, and runs by the real rules and policies with the waits dropped.

    run = testing.run(thumbnail, "a.jpg", size=200)         # one job, to its end
    assert run.state is JobState.FAILED and run.delays_s == [10, 20]

    with testing.in_memory(app) as jobs:                    # whatever the code under test enqueues
        sign_up("ada@example.com")
        jobs.run_all()
    assert [run.job for run in jobs.runs] == ["welcome", "remind"]

Behind it is a server in this process, over SQLite in memory: all that a server keeps, refuses, expires and finds is as
there, and handles and clients (`app.client`, `app.async_client()`) have all their calls. It needs the extra `testing`.
The queues are those of the app's types; `in_memory(app, queues=["vip"])` has more. NotPlayed: a job that waits for
another one. Dead letters are kept, and do not run.

Time is virtual and starts now: it goes on by the delays of jobs and by `context.wait`, without anybody waiting.
Schedules fire as it passes: in `run_for` one by one, in `run_all` those whose times have passed (`jobs.clock.advance`).
Jobs run one after the other: by priority, then by when they are due, then by age; those of one queue that have groups
by turns of these. A batch is what is due within the time that its first job waits. Delays have no jitter, and time
limits are not enforced. Nothing here needs pytest, and nothing stands in its way.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from pinlater.errors import QueueNotFound, install_command
from pinlater.job_limits import JobLimits
from pinlater.model import (
    Checkpoint,
    DequeuedJob,
    Heartbeat,
    HeartbeatOutcome,
    Job,
    JobInfo,
    JobState,
    RescheduleJob,
)
from pinlater_workers.app.app import App
from pinlater_workers.envelope import read_envelope
from pinlater_workers.errors import ConfigurationError, NotPlayed
from pinlater_workers.execution.acknowledgements import ACKS, ack_of, requeue_of
from pinlater_workers.execution.attempt import close_loop, run_attempt, run_attempt_async, stopped
from pinlater_workers.execution.batch_attempt import run_batch, run_batch_async
from pinlater_workers.execution.start_context import StartContext
from pinlater_workers.jobs.batch import MemberOutcomes
from pinlater_workers.jobs.context import JobContext, StopReason
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.outcome import Action, Outcome
from pinlater_workers.middleware import Middleware
from pinlater_workers.testing.memory import (
    AttemptRecorder,
    Run,
    RunHost,
    VirtualBatchContext,
    VirtualClock,
    VirtualContext,
)
from pinlater_workers.testing.virtual_schedules import VirtualSchedules

if TYPE_CHECKING:
    from pinlater_workers.testing.memory_client import MemoryServer

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
    """Until the block ends, what is enqueued with this app stays here. ConfigurationError: what a server needs is not
    installed. QueueNotFound, BodyTooLarge, PriorityNotSupported, RequestInvalid: what a server would refuse.

    There are the queues of the app's types of job, and `queues`. `limits`: those of a server that is configured
    otherwise, as in JobLimits(priority_levels=5).
    """
    jobs = Jobs(app, queues, limits)
    before = app.sink, app.clock, app.clients
    clients = _memory_client().MemoryClients(jobs)
    app.sink, app.clock, app.clients = jobs, jobs.clock, clients
    try:
        with app.providers.replaced({}):
            yield jobs
    finally:
        app.sink, app.clock, app.clients = before
        clients.close()
        jobs.close()


def providing(app: App, values: Mapping[Any, Any]) -> AbstractContextManager[None]:
    """Until the block ends, jobs get these values in place of what the app provides: `{Mailer: fake}`, by what its
    providers are annotated to make. `run` and `in_memory` stand inside of it.

    Without it the app's providers make what jobs need, when a job needs it, and it ends with `in_memory`.
    """
    return app.providers.replaced(values)


@dataclass(slots=True)
class _Attempt:
    """`runs`: one, or those of a batch. `middleware` makes it an app in the eyes of `execution`."""

    middleware: Sequence[Middleware]
    type: JobType
    runs: Sequence[Run]
    claims: Sequence[DequeuedJob]
    context: VirtualContext | VirtualBatchContext
    contexts: Mapping[str, VirtualContext]


class FlowPosts:
    """`posts`: what URLs would have been told of flows, each with what it would have got."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, dict[str, Any]]] = []


class Jobs:
    """`runs`: all jobs in the order of their enqueueing. `tell`: why each job is to stop when it begins."""

    def __init__(self, app: App, queues: Sequence[str] = (), limits: JobLimits | None = None) -> None:
        self._queues = set(queues)
        self.clock = VirtualClock()
        self.tell: StopReason | None = None
        self.flows = FlowPosts()
        self._app = app
        self._runs: list[Run] = []
        self._named: dict[str, Run] = {}
        self._new: deque[tuple[str, str, Job, int]] = deque()
        self._now_running: _Attempt | None = None
        self._is_over = False
        self.server: MemoryServer = _memory_client().MemoryServer(
            self.clock, limits or JobLimits(), self.queue_names, self._note_new, self._note_post
        )
        self._schedules = VirtualSchedules(self.clock.now_ms(), self.send)

    def close(self) -> None:
        """The runs stay as they are."""
        self._refresh(self.runs)
        self._is_over = True
        self.server.close()

    # -- what is enqueued ----------------------------------------------------------------------------------------------

    def send(self, queue: str, jobs: Sequence[Job], *, timeout_s: float | None = None) -> list[str]:
        """For the app: keep these, all or none. Their keys count as on a server. EnqueueRejected, DUPLICATE."""
        return self.server.run(self._send(queue, jobs))

    async def send_async(self, queue: str, jobs: Sequence[Job]) -> list[str]:
        return await self.server.run_async(self._send(queue, jobs))

    async def _send(self, queue: str, jobs: Sequence[Job]) -> list[str]:
        queues = self.queue_names()
        if queue not in queues and not self.server.has_queue(queue):
            raise QueueNotFound(
                f"queue {queue!r} is of no job of this app; allowed: {', '.join(sorted(queues))}, and what "
                f"testing.in_memory(app, queues=[...]) names"
            )
        return await self.server.client.enqueue(queue, jobs)

    def queue_names(self) -> set[str]:
        """Those of the app's types of job, and those that the test has named."""
        return {*self._queues, *(each.settings.queue for each in self._app.job_types.values())}

    def _note_new(self, queue: str, descriptor: str, job: Job) -> None:
        """On the server's thread: it has stored a job."""
        self._new.append((queue, descriptor, job, self.clock.now_ms()))

    def _note_post(self, url: str, document: dict[str, Any]) -> None:
        self.flows.posts.append((url, document))

    @property
    def runs(self) -> list[Run]:
        while self._new:
            self._add(*self._new.popleft())
        return self._runs

    def _add(self, queue: str, descriptor: str, job: Job, now_ms: int) -> Run:
        run_after_ms = now_ms if job.run_after_ms is None else job.run_after_ms
        attempts = job.attempts_allowed
        info = JobInfo(descriptor, JobState.PENDING, job.priority, attempts, attempts, "", now_ms, run_after_ms, now_ms)
        info.body = job.body
        envelope = read_envelope(job.body)
        raw = self._app.raw(queue) if envelope is None else None
        name = envelope.job if envelope is not None else raw.name if raw is not None else ""
        run = self._named[descriptor] = Run(self, len(self._runs) + 1, queue, name, info)
        self._runs.append(run)
        if self._now_running is not None:
            self._now_running.runs[0].enqueued.append(run)
        return run

    def _run_of(self, queue: str, job: DequeuedJob) -> Run:
        """That of a job that is found, which may be of the server's own making, as a dead letter is."""
        run = self.run_named(job.descriptor)
        if run is not None:
            return run
        kept = Job(job.body, job.priority, job.run_after_ms, job.attempts_allowed)
        return self._add(queue, job.descriptor, kept, job.enqueued_at_ms)

    def run_named(self, descriptor: str | None) -> Run | None:
        """The job of this descriptor."""
        _ = self.runs
        return self._named.get(descriptor or "")

    def info(self, run: Run) -> JobInfo:
        """What the server keeps of it now; at last, what it kept."""
        if not self._is_over and run.last_change != self.server.version:
            self._refresh([run])
        return run.last_info

    def _refresh(self, runs: Sequence[Run]) -> None:
        if self._is_over:
            return
        version = self.server.version
        names = [run.descriptor for run in runs]
        found = self.server.run(self.server.client.lookup(names, include_body=True, include_result=True))
        for run in runs:
            run.last_change = version
            info = found.get(run.descriptor)
            if info is not None:
                run.last_info, run.was_removed = info, False
                continue
            run.was_removed = run.was_removed or run.last_info.state in (JobState.PENDING, JobState.IN_PROGRESS)
            if run.was_removed:
                run.last_info = replace(run.last_info, state=JobState.FAILED, attempts_remaining=0, cancelled=True)

    # -- for jobs that run ---------------------------------------------------------------------------------------------

    def change_body(self, run: Run, body: bytes) -> None:
        """Of a job that is pending."""
        self.server.run(self.server.client.reschedule(run.queue, [RescheduleJob(run.descriptor, body=body)]))

    def checkpoint(self, run: Run, checkpoint: Checkpoint) -> None:
        """As a worker sends it."""
        self.server.run(self.server.client.checkpoint(run.queue, [checkpoint]))
        if checkpoint.new_body is not None:
            run.checkpoints.append(checkpoint.new_body)
        if checkpoint.prepend_status:
            run.statuses.append(checkpoint.prepend_status.rstrip("\n"))

    def beat(self, contexts: Iterable[JobContext] | None = None) -> None:
        """As a worker does for its jobs: the server is told of their progress, and tells which are to stop."""
        if contexts is None:
            contexts = () if self._now_running is None else self._now_running.contexts.values()
        for context in contexts:
            made, claimed = context.take_progress(), context.claimed
            beat = Heartbeat(claimed.descriptor, claimed.claim_descriptor)
            if made is not None:
                beat.fraction, beat.text, beat.log_lines = made.fraction, made.text, made.log_lines
            (answer,) = self.server.run(self.server.client.heartbeat(context.queue, [beat]))
            if answer.outcome is HeartbeatOutcome.CANCEL:
                context.request_stop(StopReason.CANCELLED, answer.cancelled_by)

    # -- who waits -----------------------------------------------------------------------------------------------------

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
        self._run_until(lambda: self._is_complete(flow_id), within_ms)

    async def run_until_over_async(self, flow_id: str, within_ms: float) -> None:
        """As `run_until_over`, on the event loop."""
        self._refuse_idle(flow_id)
        await self._run_until_async(lambda: self._is_complete(flow_id), within_ms)

    def _refuse_idle(self, flow_id: str) -> None:
        if not self._is_complete(flow_id) and self.server.run(self.server.next_due_ms()) is None:
            raise NotPlayed(
                f"flow {flow_id} is not over, and no job is pending: a stage is not sealed, or its status has problems"
            )

    def _is_complete(self, flow_id: str) -> bool:
        return self.server.run(self.server.client.get_flow(flow_id)).completed_ms is not None

    def _run_until(self, is_over: Callable[[], bool], within_ms: float) -> None:
        end_ms = self._refuse_waiting(is_over, within_ms)
        try:
            while not is_over() and (attempt := self._next(end_ms, MAX_RUNS, None)) is not None:
                self._end(attempt, _run(attempt))
        finally:
            close_loop()
        self._waited_until(is_over, end_ms)

    async def _run_until_async(self, is_over: Callable[[], bool], within_ms: float) -> None:
        end_ms = self._refuse_waiting(is_over, within_ms)
        while not is_over() and (attempt := self._next(end_ms, MAX_RUNS, None)) is not None:
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

    def _all_live(self, descriptors: Sequence[str]) -> bool:
        runs = [self.run_named(each) for each in descriptors]
        return bool(runs) and all(run is not None and run.is_live for run in runs)

    # -- running -------------------------------------------------------------------------------------------------------

    def of(self, job: JobType) -> list[Run]:
        return [each for each in self.runs if each.job == job.name]

    @property
    def pending(self) -> list[Run]:
        self._refresh(self.runs)
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
        while (attempt := self._next(math.inf, max_runs, only)) is not None:
            self._end(attempt, await _run_async(attempt))

    def _fire_passed(self, only: Run | None) -> None:
        if only is None:
            self._schedules.fire(list(self._app.job_types.values()), self.clock.now_ms())

    def _run(self, end_ms: float, max_runs: int, only: Run | None) -> None:
        try:
            while (attempt := self._next(end_ms, max_runs, only)) is not None:
                self._end(attempt, _run(attempt))
        finally:
            close_loop()

    def _type(self, queue: str, body: bytes) -> JobType:
        envelope = read_envelope(body)
        found = self._app.raw(queue) if envelope is None else self._app.find(envelope.job)
        if found is None:
            name = "without an envelope" if envelope is None else f"of type {envelope.job!r}"
            raise ConfigurationError(f"a job {name} in queue {queue!r}, which this app does not know")
        return found

    def _next(self, end_ms: float, max_runs: int, only: Run | None) -> _Attempt | None:
        """What runs now, claimed; where nothing is due, it is later at once."""
        while True:
            chosen = self._first(end_ms) if only is None else self._only(only)
            if chosen is None:
                return None
            if chosen.times >= max_runs:
                raise NeverEnds(
                    f"job {chosen.job!r} was run {chosen.times} times, and comes again: {chosen.snoozes} snoozes, "
                    f"{chosen.reschedules} reschedulings; for a job that repeats for ever use run_for(seconds)"
                )
            attempt = self._begin(chosen, end_ms, alone=only is not None)
            if attempt is not None:
                return attempt
            pause_ms = self.server.pause_ms(chosen.queue)
            if not pause_ms or self.clock.now_ms() + pause_ms > end_ms:
                return None
            self.clock.advance(pause_ms / 1000)

    def _first(self, end_ms: float) -> Run | None:
        """The job that is to run next; the clock goes on to when it is due. None: none until then."""
        server = self.server
        while (found := server.run(server.first())) is None:
            due_ms = server.run(server.next_due_ms())
            if due_ms is None or due_ms > end_ms or due_ms <= self.clock.now_ms():
                return None
            self.clock.advance_to(due_ms)
        return self._run_of(*found)

    def _only(self, run: Run) -> Run | None:
        if run.state is JobState.PENDING:
            self.clock.advance_to(run.run_after_ms)
            self._refresh([run])
        return run if run.state is JobState.PENDING else None

    def _claimed(self, run: Run) -> DequeuedJob | None:
        return self.server.run(self.server.claim(run.queue, run.descriptor, "memory"))

    def _begin(self, chosen: Run, end_ms: float, *, alone: bool) -> _Attempt | None:
        """This job if it is `alone`, else what its queue hands out now. None: the limits of its queue keep it."""
        queue, job_type = chosen.queue, self._type(chosen.queue, chosen.body)
        first = self._claimed(chosen) if alone else self.server.run(self.server.claim_next(queue, "memory"))
        if first is None:
            return None
        run = self._run_of(queue, first)
        if run is not chosen:  # a job that has just become due comes into line with the claim
            job_type = self._type(queue, first.body)
        others = [] if alone or not job_type.is_batch else self._others(run, job_type, end_ms)
        members = [(first, run), *[(job, each) for each in others if (job := self._claimed(each)) is not None]]
        for _, each in members:
            each.times += 1
        deadline_ms = self.clock.now_ms() + math.ceil(job_type.settings.time_limit_s * 1000)
        contexts = [self._context(job_type, job, each, deadline_ms) for job, each in members]
        context: VirtualContext | VirtualBatchContext = contexts[0]
        if job_type.is_batch:
            jobs = [(job, each) for (job, _), each in zip(members, contexts, strict=True)]
            context = VirtualBatchContext(jobs, RunHost(run, self), deadline_ms)
            context.clock = self.clock
        if self.tell is not None:
            context.request_stop(self.tell)
        recorder = AttemptRecorder({job.descriptor: each for job, each in members})
        named = {job.descriptor: each for (job, _), each in zip(members, contexts, strict=True)}
        runs, claims = [each for _, each in members], [job for job, _ in members]
        _ = self.runs  # those that are new so far are none of its
        self._now_running = _Attempt((recorder, *self._app.middleware), job_type, runs, claims, context, named)
        return self._now_running

    def _context(self, job_type: JobType, claimed: DequeuedJob, run: Run, deadline_ms: int) -> VirtualContext:
        context = VirtualContext(job_type.name, run.queue, claimed, RunHost(run, self), deadline_ms)
        context.clock = self.clock
        return context

    def _others(self, first: Run, job_type: JobType, end_ms: float) -> list[Run]:
        """What else of its type is due within the time that the first of a batch waits, or until the batch is full;
        that time is over then.
        """
        most = job_type.settings.batch or 1
        wait_end_ms = self.clock.now_ms() + math.ceil(job_type.settings.batch_wait_s * 1000)
        ready = self.server.run(self.server.ready(first.queue, self.server.max_jobs, wait_end_ms))
        found = [self._run_of(first.queue, job) for job in ready if job.descriptor != first.descriptor]
        others = [run for run in found if run.job == first.job][: most - 1]
        is_full = len(others) == most - 1
        due_ms = max(each.run_after_ms for each in (first, *others)) if is_full else wait_end_ms
        self.clock.advance_to(int(min(due_ms, end_ms)))
        return others

    def _end(self, attempt: _Attempt, outcome: Outcome) -> None:
        _ = self.runs  # those that are new so far are of its making
        self._now_running = None
        outcomes = outcome.members if isinstance(outcome, MemberOutcomes) else (outcome,)
        for run, job, each in zip(attempt.runs, attempt.claims, outcomes, strict=True):
            now_ms = self.clock.now_ms()
            self.server.run(self._report(run.queue, job, each, now_ms))
            run.note_end(each, now_ms)

    def _report(self, queue: str, job: DequeuedJob, outcome: Outcome, now_ms: int) -> Coroutine[Any, Any, object]:
        if outcome.action not in ACKS:
            return self.server.client.checkpoint(queue, [requeue_of(job, outcome, now_ms)])
        ack = [ack_of(job, outcome)]
        return (
            self.server.client.ack(queue, ack)
            if outcome.action is Action.SUCCEED
            else self.server.client.ack(queue, (), ack)
        )


def _memory_client() -> ModuleType:
    """ConfigurationError: what a server needs is not installed."""
    try:
        from pinlater_workers.testing import memory_client  # noqa: PLC0415

        return memory_client
    except ImportError as error:
        needed = f"tests of jobs run a server in this process, and {error.name} is not installed"
        raise ConfigurationError(f"{needed}: {install_command('testing')}") from error


def _run(attempt: _Attempt) -> Outcome:
    if attempt.type.is_batch:
        return run_batch(attempt, attempt.type, attempt.context, None)
    return run_attempt(attempt, attempt.type, attempt.claims[0], attempt.context, None)


async def _run_async(attempt: _Attempt) -> Outcome:
    if not attempt.type.is_coroutine:
        return await asyncio.to_thread(_run, attempt)
    context, loop, fresh = attempt.context, asyncio.get_running_loop(), StartContext().fresh()
    if attempt.type.is_batch:
        return await loop.create_task(run_batch_async(attempt, attempt.type, context, None), context=fresh)
    running = run_attempt_async(attempt, attempt.type, attempt.claims[0], context, None)
    task = loop.create_task(running, context=fresh)

    def stop() -> None:
        if context.cancel_reason is StopReason.CANCELLED:
            task.cancel()

    no_more = context.on_stop(stop)
    try:
        return await task
    except asyncio.CancelledError:
        if context.cancel_reason is not StopReason.CANCELLED:
            raise
        return stopped(attempt.type, attempt.claims[0], context)
    finally:
        no_more()
