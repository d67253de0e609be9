"""The settings of a worker as options of the command line: the keys of a file's table [worker], checked as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import click

from pinlater_workers.app.settings import WORKER_KEYS, WorkerSettings, worker_settings
from pinlater_workers.settings_table import duration_text


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
    "pool": Option("thread|process|async", "Where jobs run whose type does not say it."),
    "lease": Option("DURATION", "How long a claim holds without a heartbeat."),
    "grace": Option("DURATION", "How long running jobs may go on after SIGTERM."),
    "poll-wait": Option("DURATION", "How long a server may hold back an empty answer; at most a third of the lease."),
    "ack-delay": Option("DURATION", "How long a result may wait for others to travel with."),
    "unknown-delay": Option("DURATION", "How long a job of an unknown type stays away."),
    "recycle-jobs": Option("N", "Replace a process of the pool after so many jobs; 0: never.", int),
    "recycle-mib": Option("N", "Replace a process of the pool above so much memory, between jobs; 0: never.", int),
    "http": Option("HOST:PORT", "Serve /healthz and /metrics there."),
    "statsd": Option("HOST:PORT", "Send the metrics there, over UDP, every 10 s."),
    "statsd-prefix": Option("TEXT", "What the names of those metrics begin with."),
}


def worker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All of them, by the names of their keys; None where one is not given."""
    command = click.option("--create-queues/--no-create-queues", default=None, help="Create queues that are missing.")(
        command
    )
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
    if name == "poll-wait":
        return f"{duration_text(WorkerSettings().poll_s)} with the default lease"
    field = WORKER_KEYS[name.replace("-", "_")].field
    value = getattr(WorkerSettings(), field)
    return duration_text(value) if field.endswith("_s") else str(value) or "none"
