"""`pinlater-worker run-here`: the function of one job, in this process and its main thread, for a debugger."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import click

from pinlater.errors import RequestInvalid
from pinlater.model import Checkpoint, DequeuedJob, JobInfo
from pinlater_workers.app.app import App
from pinlater_workers.app.loader import ServerFlags, load
from pinlater_workers.cli.run import server_options
from pinlater_workers.envelope import read_envelope
from pinlater_workers.errors import BodyInvalid, ConfigurationError
from pinlater_workers.execution.attempt import after, before, close_loop, prepare, run_apart
from pinlater_workers.jobs.batch import call_alone
from pinlater_workers.jobs.context import JobContext
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.middleware import Middleware
from pinlater_workers.observability import logs


class Onlooker:
    """The host of a job that nobody has claimed: what it would store is shown."""

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        click.echo(f"pinlater-worker: checkpoint of {len(checkpoint.new_body or b'')} bytes, not stored", err=True)

    async def checkpoint_async(self, checkpoint: Checkpoint) -> None:
        self.checkpoint(checkpoint)

    def progress_made(self, context: JobContext) -> None:
        made = context.take_progress()
        if made is not None and (made.fraction is not None or made.text):
            click.echo(f"pinlater-worker: progress {made.fraction} {made.text or ''}", err=True)


@click.command(
    "run-here",
    epilog="""\b
Nothing changes in the store: the job is not claimed, no attempt is spent, and neither its end nor its progress is
reported. What the function itself does, it does: it sends its mails, and jobs that it enqueues are stored. A worker may
run the same job meanwhile.

\b
Examples:
  pinlater-worker run-here --app shop.jobs:app mail:s1:p1:1790000000000000
  python -m pdb -c continue -m pinlater_workers run-here --app shop.jobs:app mail:s1:p1:1790000000000000

\b
What the function raises is raised here, so that a debugger stops there; breakpoint() works, as it runs in the main
thread. Its token needs the right to read bodies of the queue. Exit codes: 0 it returned, 1 it raised or the job is not
there, 2 wrong command line, file or app.""",
)
@click.argument("descriptor")
@click.option("--app", metavar="MODULE:NAME", help="The app; the current folder is on the import path.")
@click.option("--config", metavar="FILE", type=click.Path(dir_okay=False), help="A TOML file with jobs, or the app.")
@server_options
def run_here(descriptor: str, app: str | None, config: str | None, target: ServerFlags) -> None:
    """Run the function of one job in this process, in whatever state the job is, and change nothing in the store."""
    logs.configure("info", "human")
    loaded = load(app, config).app
    target.apply_to(loaded)
    try:
        info = loaded.client.lookup([descriptor], include_body=True).get(descriptor)
    except RequestInvalid as error:
        raise click.BadParameter(str(error), param_hint="DESCRIPTOR") from None
    if info is None:
        raise click.ClickException(f"there is no job {descriptor}")
    if info.body is None:
        raise click.ClickException(f"the body of {descriptor} is hidden: the token may not read bodies there")
    queue = descriptor.partition(":")[0]
    job_type = _type_of(loaded, queue, info.body)
    click.echo(f"pinlater-worker: {job_type.name} runs here, without a claim: nothing is stored", err=True)
    try:
        run_apart(loaded.hooks.begin_process([job_type]))
        result = _called(loaded, job_type, queue, _as_claimed(info))
    finally:
        run_apart(loaded.hooks.end_process())
        close_loop()
        loaded.close()
    click.echo(f"pinlater-worker: it returned {result!r:.2000}", err=True)


def _type_of(app: App, queue: str, body: bytes) -> JobType:
    """ConfigurationError: the app does not know it."""
    try:
        envelope = read_envelope(body)
    except BodyInvalid as error:
        raise ConfigurationError(f"the body of this job cannot be read: {error}") from error
    found = app.raw(queue) if envelope is None else app.find(envelope.job)
    if found is None:
        what = "has no envelope" if envelope is None else f"is of type {envelope.job!r}"
        known = ", ".join(sorted(app.job_types)) or "none"
        raise ConfigurationError(f"this job {what}, and the app has no such type of job; it has: {known}")
    return found


def _as_claimed(info: JobInfo) -> DequeuedJob:
    """As a dequeue would hand it out, with an attempt left."""
    return DequeuedJob(
        info.descriptor,
        info.body or b"",
        info.priority,
        info.attempts_allowed,
        max(1, info.attempts_remaining),
        info.run_after_ms,
        info.created_at_ms,
    )


def _called(app: App, job_type: JobType, queue: str, job: DequeuedJob) -> Any:
    """What the function returns or raises, between the middleware."""
    deadline_ms = int((time.time() + job_type.settings.time_limit_s) * 1000)
    context = JobContext(job_type.name, queue, job, Onlooker(), deadline_ms)
    args, kwargs = prepare(job_type, job, context)
    begun: list[Middleware] = []
    before(app.middleware, begun, context)
    result = call_alone(job_type.call, args[0]) if job_type.is_batch else job_type.call(*args, **kwargs)
    if asyncio.iscoroutine(result):
        result = _awaited(result)
    after(begun, context, result)
    return result


def _awaited(coroutine: Any) -> Any:
    results: list[Any] = []

    async def noted() -> None:
        results.append(await coroutine)

    run_apart(noted())
    return results[0]
