"""The worker command: its options, the keys of a file's table [worker]; its run; and the end of the process."""

from __future__ import annotations

import asyncio
import functools
import importlib
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, TypeVar, cast

import click

from pinlater.durations import seconds_text
from pinlater.listener import raise_descriptor_limit
from pinlater.log_guard import GuardedLogger, guard_loop
from pinlater.program_start import begin_service
from pinlater.standard_streams import drop_output
from pinlater_workers.app.app import App
from pinlater_workers.app.loader import LoadedApp, ServerFlags, load, pass_on_servers
from pinlater_workers.app.settings import WORKER_KEYS, WorkerSettings, worker_settings
from pinlater_workers.cli.process_exit import (
    EXIT_FAILED,
    EXIT_USAGE,
    exec_restart,
    exit_soon,
    say,
    say_configuration_error,
)
from pinlater_workers.cli.sidecars import optional, serve
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.observability.metrics import WorkerMetrics
from pinlater_workers.worker.worker import ExitReason, Worker, with_queues
from pinlater_workers.worker.worker_thread import loop_factory

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_log = GuardedLogger("pinlater_workers.cli")
_DESCRIPTORS, _PER_SLOT = 512, 8
"""What a worker holds by itself, and for each job that runs: its process with pipes, and files of its own."""


def run(
    app_spec: str | None,
    config: str | None,
    target: ServerFlags,
    given: Mapping[str, Any],
    *,
    reload: bool = False,
    until_empty: bool = False,
) -> None:
    """Until it is stopped; or, with `until_empty`, its queues are. ConfigurationError: it cannot begin. `reload`: it
    begins anew when code changes, and waits for a change where it cannot begin.
    """
    drop_output()
    begin_service()
    reloader = optional("pinlater_workers.reload", "--reload").Reloader(config) if reload else None
    try:
        loaded, settings = _loaded(app_spec, config, target, given)
    except ConfigurationError as error:
        if reloader is None:
            raise
        say_configuration_error(error)
        say("--reload: waiting for a change of the code; Ctrl-C ends it")
        say(f"{reloader.wait_for_change()} has changed")
        exec_restart()
    if reloader is not None:
        settings = reloader.tune(settings, given)
    raise_descriptor_limit(_DESCRIPTORS + _PER_SLOT * settings.concurrency)
    metrics = WorkerMetrics()
    worker = Worker(loaded.app, settings, loaded.spec, metrics, may_end=True, until_empty=until_empty)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        guard_loop(runner.get_loop())
        begins = _begins(loaded.app, loaded.spec, settings)
        changed = None if reloader is None else reloader.changed
        served = functools.partial(serve, worker, settings, metrics, begins, changed)
        tended = _tended(loaded.app, settings, f"--app {app_spec}" if app_spec else f"--config {config}")
        try:
            ending = runner.run(_served(loaded.app, served, tended))
        except BaseException as error:
            exit_soon(EXIT_USAGE if isinstance(error, ConfigurationError) else EXIT_FAILED, error)
            raise
        loaded.app.close()
        if ending is ExitReason.REPLACE:  # before the loop is closed: that waits for every coroutine
            _log.info("beginning anew, as the same process %d", os.getpid())
            exec_restart()
        _log.info("ended")
        exit_soon(0)


def check(app_spec: str | None, config: str | None, target: ServerFlags, given: Mapping[str, Any]) -> None:
    """Whether a worker would begin, and nothing runs. ConfigurationError: it would not."""
    loaded, settings = _loaded(app_spec, config, target, given)
    click.echo(_begins(loaded.app, loaded.spec, settings))


def _loaded(
    app_spec: str | None, config: str | None, target: ServerFlags, given: Mapping[str, Any]
) -> tuple[LoadedApp, WorkerSettings]:
    loaded = load(app_spec, config)
    pass_on_servers(loaded.app, target)
    return loaded, with_queues(loaded.app, over(loaded.settings, given))


def _tended(app: App, settings: WorkerSettings, named: str) -> Callable[[], Coroutine[Any, Any, None]] | None:
    """What sees to the schedules of the app; None: it has none. `named`: the option that names it."""
    scheduled = (each for each in app.job_types.values() if each.settings.cron or each.settings.every_s is not None)
    if not settings.apply_schedules and next(scheduled, None) is None:
        return None
    tend = importlib.import_module("pinlater_workers.cli.applied_schedules").tend_schedules
    return functools.partial(tend, app, named, apply=settings.apply_schedules)


async def _served(
    app: App,
    served: Callable[[], Coroutine[Any, Any, ExitReason]],
    tended: Callable[[], Coroutine[Any, Any, None]] | None,
) -> ExitReason:
    schedules = None if tended is None else asyncio.ensure_future(tended())
    try:
        return await served()
    finally:
        if schedules is not None:
            schedules.cancel()
            await asyncio.wait([schedules])
        await app.close_async()


def _begins(app: App, spec: str, settings: WorkerSettings) -> str:
    queues = " ".join(f"{name}={weight}" for name, weight in settings.queues.items())
    beside = [f"http://{settings.http}" if settings.http else "no http", f"pid {os.getpid()}"]
    parts = [f"app {spec}", f"queues {queues}", f"pool {settings.pool} with {settings.concurrency} slots"]
    return ", ".join([*parts, f"servers {' '.join(app.servers)}", *beside])


class Option(NamedTuple):
    """`type`: what click makes of the text; the rest of the checks are those of the key."""

    metavar: str
    help: str
    type: type = str


OPTIONS: dict[str, Option] = {
    "queues": Option(
        "QUEUE[=WEIGHT],...",
        "Where jobs are taken from. A queue of weight 3 gets three times the turns of one of weight 1.",
    ),
    "concurrency": Option("N", "Jobs at once.", int),
    "pool": Option("thread|process|async", "Where jobs run, unless their type sets it."),
    "lease": Option("DURATION", "How long a claim holds without a heartbeat."),
    "grace": Option("DURATION", "How long running jobs may go on after SIGTERM."),
    "poll-wait": Option("DURATION", "How long a server may hold back an empty answer; at most a third of the lease."),
    "ack-delay": Option("DURATION", "How long a result may wait for others to travel with."),
    "prefetch": Option("DURATION", "How long a job may wait in the worker for a slot; 0: none does."),
    "unknown-delay": Option("DURATION", "How long a job of an unknown type stays away at first."),
    "unknown-limit": Option("DURATION", "A job that no worker knows for so long fails; or never."),
    "recycle-jobs": Option("N", "Replace a process of the pool after so many jobs; 0: never.", int),
    "cancel-grace": Option("DURATION", "How long a cancelled job may take to stop, before its process is killed."),
    "recycle-mib": Option("N", "Replace a process of the pool above so much memory, between jobs; 0: never.", int),
    "name": Option("TEXT", "The name of this worker in `pinlater worker list`."),
    "http": Option("HOST:PORT", "Serve /healthz and /metrics there."),
    "statsd": Option("HOST:PORT", "Send the metrics there, over UDP, every 10 s."),
    "statsd-prefix": Option("TEXT", "What the names of those metrics begin with."),
}

FLAGS = {
    "apply-schedules": "At the start, bring the schedules of the app to the cluster, as `schedules --apply` does.",
    "create-queues": "Create queues that are missing.",
}

_TLS_FLAGS = {
    "ca": "The certificates that may sign those of the servers; they are called over TLS.",
    "client-cert": "The certificate that this worker shows, in PEM.",
    "client-key": "Its private key, where the file of the certificate does not hold it.",
}


def server_options(command: CommandT) -> CommandT:
    """The options that say which servers are called and how; the command gets them as `target`."""

    @functools.wraps(command)
    def targeted(**options: Any) -> None:
        command(target=ServerFlags.taken_from(options), **options)

    wrapped: Any = targeted
    for option in (
        click.option(
            "--server-name",
            metavar="NAME",
            help="The name in the servers' certificates, where it is not the one they are called by.",
        ),
        *(
            click.option(f"--{name}", metavar="PATH", type=click.Path(dir_okay=False), help=text)
            for name, text in reversed(_TLS_FLAGS.items())
        ),
        click.option(
            "--token-file",
            metavar="PATH",
            type=click.Path(dir_okay=False),
            help="The file with the worker's token, in place of the app's own.",
        ),
        click.option("--cluster", metavar="NAME", help="The servers that clusters.toml has under this name."),
        click.option(
            "--server",
            "servers",
            multiple=True,
            metavar="HOST:PORT",
            help="A server, in place of the app's own; repeatable. dns:NAME:PORT is every address of a name.",
        ),
    ):
        wrapped = option(wrapped)
    return cast(CommandT, wrapped)


def worker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All of them, by the names of their keys; None where one is not given."""
    for flag, text in FLAGS.items():
        command = click.option(f"--{flag}/--no-{flag}", default=None, help=text)(command)
    for name, option in reversed(OPTIONS.items()):
        text = f"{option.help} [default: {_default(name)}]"
        command = click.option(f"--{name}", metavar=option.metavar, type=option.type, help=text)(command)
    return command


def over(base: WorkerSettings, given: Mapping[str, Any]) -> WorkerSettings:
    """The settings of a file with what the command line says in their place. ConfigurationError."""
    return worker_settings(
        {name: value for name, value in given.items() if value is not None}, "the command line", base
    )


def _default(name: str) -> str:
    if name == "queues":
        return "the queues of all the app's jobs"
    if name == "name":
        return "that of the app's module or file"
    if name == "poll-wait":
        return f"{seconds_text(WorkerSettings().poll_s)} with the default lease"
    field = WORKER_KEYS[name.replace("-", "_")].field
    value = getattr(WorkerSettings(), field)
    return seconds_text(value) if field.endswith("_s") else str(value) or "none"
