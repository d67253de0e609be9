"""A process of the pool: `python -m pinlater_workers.pools.child JOBS_FD CONTROL_FD WORKER_PID`, started by the worker.

The main thread takes one job after another; a second thread reads what the worker says to the job that runs.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import sys
import traceback
from pathlib import Path

from pinlater_workers import executing, handed_down, logs
from pinlater_workers.app import App
from pinlater_workers.context import JobContext
from pinlater_workers.dying import die_with
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.judging import judge
from pinlater_workers.loading import load_app
from pinlater_workers.pools.control import Control, JobHost
from pinlater_workers.pools.line import Line
from pinlater_workers.pools.messages import TO_PROCESS, Broken, Ended, Message, Ready, Run, Start, ToProcess
from pinlater_workers.pools.signals import in_forks, leave_signals_to_worker
from pinlater_workers.verdict import Action, Verdict

_TRACE_LINES = 6
_OOM_SCORE = "500"
"""Of -1000 (never) to 1000."""


def main(jobs_fd: int, control_fd: int, worker: int) -> None:
    die_with(worker)
    _die_first()
    leave_signals_to_worker()
    jobs, control_line = Line(jobs_fd, TO_PROCESS), Line(control_fd, TO_PROCESS)
    start = jobs.receive()
    if not isinstance(start, Start):
        return
    _set_up_output()
    try:
        app = _load(start)
    except BaseException as error:
        _tell(jobs, Broken(_last_lines(error)))
        return

    def close() -> None:
        jobs.close()
        control_line.close()

    in_forks(close)
    control = Control(control_line)
    control.start()
    _tell(jobs, Ready())
    _work(app, jobs, control)
    executing.close_loop()
    app.close()


def _die_first() -> None:
    """When memory is short the kernel ends a job, whose next attempt comes, rather than the worker."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)


def _set_up_output() -> None:
    """What a job prints is out when it is killed."""
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    logs.configure_child()


def _load(start: Start) -> App:
    sys.path[:] = start.path
    app = load_app(start.app_spec)
    handed_down.take_over(app)
    return app


def _last_lines(error: BaseException) -> str:
    """What is wrong, and where in the app."""
    cause = error.__cause__ if isinstance(error, ConfigurationError) else error
    trace = [] if cause is None else "".join(traceback.format_exception(cause)).splitlines()
    return "\n".join([f"{type(error).__name__}: {error}", *trace[-_TRACE_LINES:]])


def _work(app: App, jobs: Line[ToProcess], control: Control) -> None:
    process = os.getpid()
    while isinstance(job := jobs.receive(), Run):
        verdict = _run(app, job, control)
        if os.getpid() != process:
            os._exit(0)  # the job has forked, and this is the other one
        _tell(jobs, Ended(verdict))


def _tell(jobs: Line[ToProcess], message: Message) -> None:
    """A worker that has just died hears nothing more, and needs no traceback in its log."""
    try:
        jobs.send(message)
    except (BrokenPipeError, ConnectionResetError):
        os._exit(1)


def _run(app: App, run: Run, control: Control) -> Verdict:
    job_type = app.find(run.name) if run.name else app.raw(run.queue)
    if job_type is None:
        return Verdict(Action.GIVE_BACK, run.unknown_delay_ms)  # the code has changed since the worker was started
    context = JobContext(job_type.name, run.queue, run.job, JobHost(control, run.number), run.deadline_ms)
    control.begin(run.number, context)
    try:
        return executing.run(app, job_type, run.job, context)
    except BaseException as error:  # KeyboardInterrupt too, which only the job itself can have raised
        return judge(job_type.settings, run.job, error)
    finally:
        control.end()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
