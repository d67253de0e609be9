"""A process of the pool: `python -m pinlater_workers.pools.child JOBS_FD CONTROL_FD WORKER_PID`, started by the worker.

The main thread takes one job after another; a second thread reads what the worker says to the job that runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import io
import itertools
import os
import signal
import sys
import threading
import traceback
from concurrent.futures import Future
from pathlib import Path
from time import monotonic
from types import FrameType

from pinlater.child_process import die_with_parent
from pinlater.forks import in_forks
from pinlater.model import Checkpoint
from pinlater.standard_streams import drop_output
from pinlater_workers.app import loader
from pinlater_workers.app.app import App
from pinlater_workers.app.loader import load_app
from pinlater_workers.child_sockets import BlockingSocket
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.execution.attempt import close_loop, run_apart, run_attempt
from pinlater_workers.execution.batch_attempt import run_batch
from pinlater_workers.execution.decision import decide
from pinlater_workers.execution.start_context import StartContext
from pinlater_workers.jobs.attempt_record import use_worker
from pinlater_workers.jobs.batch import BatchContext
from pinlater_workers.jobs.context import JobContext, StopReason
from pinlater_workers.jobs.outcome import Action, Outcome
from pinlater_workers.observability import logs
from pinlater_workers.pools.messages import (
    BatchEnded,
    JobEnded,
    Message,
    ProgressMade,
    Ready,
    RunBatch,
    RunJob,
    SaveAnswer,
    SaveRequest,
    StartApp,
    StartFailed,
    StopJob,
    StopMember,
    ToProcess,
    read_by_process,
    written,
)

_TRACE_LINES = 6
_LINE_CHARS = 2_000
PROGRESS_EVERY_S = 0.5
"""The worker sends it with heartbeats, which are fewer."""
_OOM_SCORE = "500"
"""From -1000 (never) to 1000."""

_LEFT_TO_WORKER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(jobs_fd: int, control_fd: int, worker: int) -> None:
    die_with_parent(worker)
    use_worker(worker)
    _die_first()
    leave_signals_to_worker()
    jobs, control_socket = BlockingSocket(jobs_fd, read_by_process), BlockingSocket(control_fd, read_by_process)
    start = jobs.receive()
    if not isinstance(start, StartApp):
        return
    _set_up_output()
    try:
        app = _load(start)
        types = [job_type for name in start.job_types if (job_type := app.job_types.get(name)) is not None]
        if app.hooks.begins_process(types):
            run_apart(app.hooks.begin_process(types))
    except BaseException as error:
        _send(jobs, StartFailed(_last_lines(error)))
        return

    def close() -> None:
        jobs.close()
        control_socket.close()

    in_forks(_LEFT_TO_WORKER, close, __name__)
    control = Control(control_socket, takes_progress=start.takes_progress)
    control.start()
    _send(jobs, Ready())
    _work(app, jobs, control)
    if app.providers.has_made:
        run_apart(app.hooks.end_process())
    close_loop()
    app.close()


def _die_first() -> None:
    """When memory is short the kernel ends a job, whose next attempt comes, rather than the worker."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)


def _set_up_output() -> None:
    """What a job prints is out when it is killed."""
    faulthandler.enable()
    drop_output()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    logs.configure_child()


def _load(start: StartApp) -> App:
    sys.path[:] = start.path
    app = load_app(start.app_spec)
    loader.use_inherited_servers(app)
    return app


def _last_lines(error: BaseException) -> str:
    """What is wrong, and where in the app."""
    cause = error.__cause__ if isinstance(error, ConfigurationError) else error
    trace = [] if cause is None else "".join(traceback.format_exception(cause)).splitlines()
    lines = [f"{type(error).__name__}: {error}", *trace[-_TRACE_LINES:]]
    return "\n".join(line[:_LINE_CHARS] for line in lines)


def _work(app: App, jobs: BlockingSocket[ToProcess], control: Control) -> None:
    process, start = os.getpid(), StartContext()
    while isinstance(job := jobs.receive(), RunJob | RunBatch):
        ended: JobEnded | BatchEnded
        contexts: list[JobContext] = []
        if isinstance(job, RunJob):
            ended = JobEnded(_run(app, job, control, start, contexts))
        else:
            ended = _run_batch(app, job, control, start, contexts)
        if os.getpid() != process:
            os._exit(0)  # the job has forked, and this is the other one
        for context in contexts:  # before the end, by the same connection
            made = control.progress_of(job.number, context)
            if made is not None:
                _send(jobs, made)
        _send(jobs, ended)


def _send(jobs: BlockingSocket[ToProcess], message: Message) -> None:
    """A worker that has just died gets no message, and needs no traceback in its log."""
    try:
        jobs.send(written(message))
    except (BrokenPipeError, ConnectionResetError):
        os._exit(1)


def _run(app: App, run: RunJob, control: Control, start: StartContext, contexts: list[JobContext]) -> Outcome:
    job_type = app.find(run.name) if run.name else app.raw(run.queue)
    if job_type is None or job_type.is_batch:
        return Outcome(Action.GIVE_BACK, run.unknown_delay_ms)  # the code has changed since the worker was started
    context = JobContext(job_type.name, run.queue, run.job, JobHost(control, run.number), run.deadline_ms)
    contexts.append(context)
    control.begin(run.number, context)
    try:
        return run_attempt(app, job_type, run.job, context, start=start)
    except BaseException as error:  # KeyboardInterrupt too, which only the job itself can have raised
        return decide(job_type.settings, run.job, error, record=context.record())
    finally:
        control.end()


def _run_batch(
    app: App, run: RunBatch, control: Control, start: StartContext, contexts: list[JobContext]
) -> BatchEnded:
    job_type = app.find(run.name) if run.name else app.raw(run.queue)
    if job_type is None or not job_type.is_batch:
        return BatchEnded([Outcome(Action.GIVE_BACK, run.unknown_delay_ms)] * len(run.jobs))
    host = JobHost(control, run.number)
    name, deadline_ms = job_type.name, run.deadline_ms
    members = [(job, JobContext(name, run.queue, job, host, deadline_ms)) for job in run.jobs]
    contexts += [context for _, context in members]
    context = BatchContext(members, host, deadline_ms)
    control.begin(run.number, context)
    try:
        return BatchEnded(list(run_batch(app, job_type, context, start=start).members))
    except BaseException as error:
        return BatchEnded([decide(job_type.settings, job, error) for job in run.jobs])
    finally:
        control.end()


class Control:
    """Its own thread reads, as the main one is busy with the job."""

    def __init__(self, socket: BlockingSocket[ToProcess], *, takes_progress: bool) -> None:
        self._socket = socket
        self._takes_progress = takes_progress
        self._progress_s = -PROGRESS_EVERY_S
        self._lock = threading.Lock()
        self._number = 0
        self._context: JobContext | None = None
        self._stops: list[StopJob | StopMember] = []
        self._asks = itertools.count()
        self._saves: dict[int, Future[None]] = {}

    def start(self) -> None:
        threading.Thread(target=self._serve, name="pinlater-control", daemon=True).start()

    def begin(self, number: int, context: JobContext) -> None:
        """This job runs from now on. It may have been told already, as that comes by another connection."""
        with self._lock:
            self._number, self._context = number, context
            stops, self._stops = [each for each in self._stops if each.number == number], []
        for message in stops:
            _tell(context, message)

    def end(self) -> None:
        with self._lock:
            self._context = None

    def ask(self, number: int, checkpoint: Checkpoint) -> Future[None]:
        """For the job of that number: the checkpoint under way."""
        ask = next(self._asks)
        saved: Future[None] = Future()
        saved.set_running_or_notify_cancel()  # a coroutine that gives up waiting does not cancel it
        self._saves[ask] = saved
        self._socket.send(written(SaveRequest(number, ask, checkpoint)))
        return saved

    def progress_made(self, number: int, context: JobContext) -> None:
        """For the job of that number: what is newest when it may be told, at once or after a while."""
        if not self._takes_progress:
            return
        with self._lock:
            now_s = monotonic()
            tell_s = max(now_s, self._progress_s + PROGRESS_EVERY_S)
            self._progress_s = tell_s
        if tell_s <= now_s:
            self._tell_progress(number, context)
            return
        timer = threading.Timer(tell_s - now_s, self._tell_progress, (number, context))
        timer.daemon = True
        timer.start()

    def _tell_progress(self, number: int, context: JobContext) -> None:
        made = self.progress_of(number, context) if number == self._number else None
        if made is not None:
            with contextlib.suppress(OSError):  # the worker is gone
                self._socket.send(written(made))

    def progress_of(self, number: int, context: JobContext) -> ProgressMade | None:
        """What is new, once; None: nothing, or the worker takes none."""
        made = context.take_progress() if self._takes_progress else None
        if made is None:
            return None
        return ProgressMade(number, context.descriptor, made.fraction, made.text, list(made.log_lines))

    def _serve(self) -> None:
        while (message := self._socket.receive()) is not None:
            if isinstance(message, StopJob | StopMember):
                self._stop(message)
            elif isinstance(message, SaveAnswer):
                self._answer(message)
        os._exit(1)  # the worker is gone, and what the job does is for nobody

    def _stop(self, message: StopJob | StopMember) -> None:
        with self._lock:
            if message.number > self._number:
                self._stops.append(message)
            context = self._context if self._number == message.number else None
        if context is not None:
            _tell(context, message)

    def _answer(self, answer: SaveAnswer) -> None:
        saved = self._saves.pop(answer.ask)
        error = answer.exception()
        if error is None:
            saved.set_result(None)
        else:
            saved.set_exception(error)


def _tell(context: JobContext, message: StopJob | StopMember) -> None:
    reason = StopReason(message.reason)
    if isinstance(message, StopMember):
        assert isinstance(context, BatchContext)
        context.stop_member(message.index, reason, message.by)
    else:
        context.request_stop(reason, message.by)


class JobHost:
    """The host of one job's context."""

    def __init__(self, control: Control, number: int) -> None:
        self._control = control
        self._number = number

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        self._control.ask(self._number, checkpoint).result()

    async def checkpoint_async(self, checkpoint: Checkpoint) -> None:
        await asyncio.wrap_future(self._control.ask(self._number, checkpoint))

    def progress_made(self, context: JobContext) -> None:
        self._control.progress_made(self._number, context)


def leave_signals_to_worker() -> None:
    """Ctrl-C in a terminal, or a service manager that signals all processes: the worker decides what comes of it.

    A handler that does nothing, as an ignored signal would stay ignored in the programs that a job starts. But for
    SIGTTOU, which is for who writes to a terminal in the background, and comes again after a handler.
    """
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    for number in _LEFT_TO_WORKER:
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # else it is under nohup
            signal.signal(number, _nothing)


def _nothing(number: int, frame: FrameType | None) -> None:
    pass


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
