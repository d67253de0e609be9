"""`pinlater worker list`, and workers as rows of output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click

from pinlater.cli.completion import offer_queues
from pinlater.cli.connection import EXIT_CODES, ServerGroup, say, talks_to_server
from pinlater.cli.exit_codes import EXIT_INCOMPLETE
from pinlater.cli.output import Row, counted, has_new_keys, open_output, output_option, renamed, whole
from pinlater.cli.times import time_text
from pinlater.client.client import Client
from pinlater.durations import age_text
from pinlater.errors import MethodUnknown
from pinlater.model import (
    CONTINUATION_END,
    CONTINUATION_START,
    CommandedWorker,
    CommandOutcome,
    OutboxReport,
    WorkerCommand,
    WorkerInfo,
    WorkersPage,
    parse_descriptor,
)

OUTCOME_COLUMNS = ("name", "host", "pid", "outcome", "worker")
COLUMNS = ("name", "host", "pid", "queues", "slots", "longest", "version", "up", whole("seen", 5), "state")
RUNNING_COLUMNS = ("name", "host", "pid", "queue", whole("job"), "type", "running", whole("since", 5))
PAGE = 500
NO_COMMANDS = "this server is of an earlier version, which gives workers no commands"
TOO_OLD = "this server is of an earlier version, which keeps no list of workers"


def read_pages(client: Client, *, queue: str = "", name: str = "", running: bool = False) -> Iterator[WorkersPage]:
    """Every page of the list. MethodUnknown: the server is too old."""
    continuation = CONTINUATION_START
    while True:
        page = client.get_workers(
            queue=queue, name=name, include_running=running, continuation=continuation, limit=PAGE
        )
        yield page
        continuation = page.continuation
        if continuation == CONTINUATION_END:
            return


def worker_row(worker: WorkerInfo, now_ms: int) -> Row:
    """A worker, by its last report."""
    longest_ms = worker.longest_since_ms
    stuck = f", {worker.stuck_slots} stuck" if worker.stuck_slots else ""
    return {
        "name": worker.name,
        "host": worker.host,
        "pid": worker.pid,
        "queues": [name if weight == 1 else f"{name}={weight}" for name, weight in worker.queues.items()],
        "slots": None if worker.outbox else f"{worker.busy_slots}/{worker.slots}{stuck}",
        "longest": None if longest_ms is None else age_text(now_ms - longest_ms),
        "version": worker.versions.get("app") or worker.versions.get("pinlater"),
        "up": age_text(now_ms - worker.started_ms),
        "seen": f"{age_text(now_ms - worker.seen_ms)} ago",
        "state": state_text(worker, now_ms),
    }


def worker_json(worker: WorkerInfo, now_ms: int) -> Row:
    """The JSON of before: every field, and each running job that was asked for."""
    row = asdict(worker)
    for newer in ("is_stopping", "is_quiet", "job_types", "outbox", "unknown_types"):
        del row[newer]
    of_job = renamed(job_descriptor="job", job_type="type")
    return row | {
        "running": [{**of_job(job), "since": time_text(job["since_ms"])} for job in row["running"]],
        "state": state_text(worker, now_ms),
        "longest_since": time_text(worker.longest_since_ms),
        "started": time_text(worker.started_ms),
        "seen": time_text(worker.seen_ms),
    }


def state_text(worker: WorkerInfo, now_ms: int) -> str:
    """In a few words: working, quiet, stopping, or since when its process has not moved; of a relay its outbox.

    >>> outbox = OutboxReport("shop.db/pinlater_outbox", 12, 180_000)
    >>> state_text(WorkerInfo("a", "relay", "h", 1, {}, 0, 0, 0, [], None, {}, False, 0, 0, outbox=outbox), 60_000)
    'relay of shop.db/pinlater_outbox: 12 jobs wait, the oldest for 4m'
    """
    if worker.silent_since_ms is not None:
        return f"silent for {age_text(now_ms - worker.silent_since_ms)}"
    if worker.is_stopping:
        return "stopping"
    if worker.outbox is not None:
        return f"relay of {worker.outbox.name}: {outbox_text(worker.outbox, now_ms - worker.seen_ms)}"
    return "quiet" if worker.is_quiet else "working"


def outbox_text(outbox: OutboxReport, later_ms: int = 0) -> str:
    """What waits there, so much later than the relay said it.

    >>> outbox_text(OutboxReport("shop"))
    'nothing waits'
    """
    if not outbox.waiting:
        return "nothing waits"
    oldest = age_text(outbox.oldest_ms + later_ms)
    return f"{counted(outbox.waiting, 'job')} wait{'s' if outbox.waiting == 1 else ''}, the oldest for {oldest}"


def running_rows(worker: WorkerInfo, now_ms: int) -> Iterator[Row]:
    """A row for each job that it runs; of one that runs none, one row that says so."""
    who = {"name": worker.name, "host": worker.host, "pid": worker.pid}
    for job in worker.running:
        ref = parse_descriptor(job.job_descriptor)
        yield {
            **who,
            "queue": None if ref is None else ref.queue,
            "job": job.job_descriptor,
            "type": job.job_type,
            "running": age_text(now_ms - job.since_ms),
            "since": time_text(job.since_ms),
        }
    if not worker.running:
        yield who


def summary_text(page: WorkersPage) -> str:
    """
    >>> summary_text(WorkersPage(0, [], 12, 96, 40, 1))
    '12 workers with 96 slots, 40 busy, 1 stuck'
    """
    stuck = f", {page.stuck_slots:,} stuck" if page.stuck_slots else ""
    slots = f"{counted(page.slots, 'slot')}, {page.busy_slots:,} busy{stuck}"
    return f"{counted(page.total, 'worker')} with {slots}" if page.total else "no workers"


@click.group(
    cls=ServerGroup,
    epilog=f"""\b
Examples:
  pinlater worker list
  pinlater worker list --queue mail --running
  pinlater worker quiet --host web-1
  pinlater worker stop web-1:4711

{EXIT_CODES}""",
)
def worker() -> None:
    """List the workers of a cluster; quiet, resume and stop them."""


@worker.command(
    "list",
    short_help="List the workers, with what each runs.",
    epilog="""\b
Examples:
  pinlater worker list
  pinlater worker list --queue mail
  pinlater worker list --name shop.jobs --running                       each running job, and since when
  pinlater worker list -o json | jq '.[] | select(.stuck_slots > 0)'""",
)
@click.option(
    "--queue", metavar="NAME", shell_complete=offer_queues, help="Only workers that take jobs from this queue."
)
@click.option("--name", metavar="NAME", help="Only workers of this name.")
@click.option("--running", is_flag=True, help="A row for each running job: its queue, type, and since when.")
@output_option
@talks_to_server
def list_workers(client: Client, queue: str | None, name: str | None, running: bool, format: str) -> None:
    """List the workers of the whole cluster, by name, host and process, by their last reports.

    Workers report every ten seconds what they run, so a row is as old as SEEN. A worker that stops in order is off the
    list at once, one that was killed after a minute. A worker is silent when its event loop does not run, as when a job
    holds the interpreter. Up to 100 running jobs of each are named, those that run longest. JSON has all of it, also
    without --running.
    """
    output = open_output(format, RUNNING_COLUMNS if running else COLUMNS)
    missing: Iterable[str] = ()
    total = 0
    try:
        for page in read_pages(client, queue=queue or "", name=name or "", running=running or format != "table"):
            missing, total = page.missing_shards, page.total
            if format != "table":
                new = has_new_keys(format)
                output.write(page.workers if new else [worker_json(each, page.now_ms) for each in page.workers])
            elif running:
                output.write([row for each in page.workers for row in running_rows(each, page.now_ms)])
            else:
                output.write([worker_row(each, page.now_ms) for each in page.workers])
    except MethodUnknown as unknown:
        raise MethodUnknown(TOO_OLD) from unknown
    output.close()
    if not total and format == "table":
        say("no such worker reported in the last minute" if queue or name else "no worker reported in the last minute")
    if missing:
        say(f"could not be read: shard {', '.join(missing)}; workers may be missing")
        raise SystemExit(EXIT_INCOMPLETE)


def _meant(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which workers a command is for."""
    decorated = command
    for option in (
        talks_to_server,
        output_option,
        click.option("--all", "everybody", is_flag=True, help="All workers of the cluster."),
        click.option("--app", "app", default="", metavar="NAME", help="All of this name, as `worker list` shows it."),
        click.option("--host", default="", metavar="HOST", help="All on this host."),
        click.argument("workers", nargs=-1, metavar="[WORKER]..."),
    ):
        decorated = option(decorated)
    return decorated


def _command_row(commanded: CommandedWorker) -> Row:
    return {
        "name": commanded.name or None,
        "host": commanded.host or None,
        "pid": commanded.pid or None,
        "outcome": str(commanded.outcome).replace("_", " "),
        "worker": commanded.id,
    }


def _give(
    client: Client,
    command: WorkerCommand,
    workers: Sequence[str],
    host: str,
    app: str,
    everybody: bool,
    format: str,
) -> None:
    if sum((bool(workers), bool(host or app), everybody)) != 1:
        raise click.UsageError("give workers, or --host and --app, or --all")
    try:
        given = client.command_workers(command, workers, host=host, name=app, all_workers=everybody)
    except MethodUnknown as unknown:
        raise MethodUnknown(NO_COMMANDS) from unknown
    empty = "there is no such worker; `pinlater worker list` lists all"
    output = open_output(format, OUTCOME_COLUMNS, _command_row, empty=empty)
    output.write(given.workers)
    output.close()
    if given.missing_shards:
        say(f"could not be read: shard {', '.join(given.missing_shards)}; more workers may be meant")
    if given.missing_shards or any(each.outcome is not CommandOutcome.TAKEN for each in given.workers):
        raise SystemExit(EXIT_INCOMPLETE)


@worker.command(
    short_help="Let workers take no more jobs.",
    epilog="""\b
Examples:
  pinlater worker quiet web-1:4711
  pinlater worker quiet --host web-1
  pinlater worker quiet --app shop.jobs
  pinlater worker quiet --all""",
)
@_meant
def quiet(client: Client, workers: Sequence[str], host: str, app: str, everybody: bool, format: str) -> None:
    """Let workers take no more jobs; they finish those they have. WORKER is HOST:PID as `worker list` shows it, or
    the id in JSON.

    It takes effect within 15 seconds, lasts until `worker resume` or the end of the process, and the list shows it.
    It prints what became of each worker: taken, not known, too old for commands, or forbidden, where this caller may
    not operate all of its queues.
    """
    _give(client, WorkerCommand.QUIET, workers, host, app, everybody, format)


@worker.command(
    short_help="Let quiet workers take jobs again.",
    epilog="""\b
Examples:
  pinlater worker resume web-1:4711
  pinlater worker resume --all""",
)
@_meant
def resume(client: Client, workers: Sequence[str], host: str, app: str, everybody: bool, format: str) -> None:
    """Let workers that are quiet, or that are stopping and still have jobs, take jobs again."""
    _give(client, WorkerCommand.RESUME, workers, host, app, everybody, format)


@worker.command(
    "stop",
    short_help="Let workers end when their jobs have ended.",
    epilog="""\b
Examples:
  pinlater worker stop web-1:4711
  pinlater worker stop --host web-1 --app shop.jobs""",
)
@_meant
def stop_workers(client: Client, workers: Sequence[str], host: str, app: str, everybody: bool, format: str) -> None:
    """Let workers take no more jobs, and end when their jobs have ended, however long these take. What starts them
    (systemd, Kubernetes) may start them again.
    """
    _give(client, WorkerCommand.STOP, workers, host, app, everybody, format)
