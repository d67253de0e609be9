"""`pinlater-worker outbox`: the relay of an outbox as a process, and the commands about an outbox."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import click

from pinlater.client.token import read_secret_line
from pinlater.durations import parse_duration, seconds_text
from pinlater.errors import PinLaterError
from pinlater.log_guard import GuardedLogger
from pinlater.printable import json_text, printable
from pinlater.program_start import begin_service, stop_signals
from pinlater.standard_streams import OutputFailed
from pinlater.written import variable
from pinlater_workers.app.app import App
from pinlater_workers.app.loader import ServerFlags, load, pass_on_servers
from pinlater_workers.cli.listings import write_table
from pinlater_workers.cli.process_exit import EXIT_FAILED, say
from pinlater_workers.cli.run import server_options
from pinlater_workers.cli.sidecars import optional
from pinlater_workers.errors import ConfigurationError, WorkerError
from pinlater_workers.observability import logs
from pinlater_workers.outbox import Outbox
from pinlater_workers.outbox.database import Database
from pinlater_workers.outbox.outbox_view import OutboxView
from pinlater_workers.outbox.relay import (
    DEFAULT_BATCH,
    DEFAULT_GOAL_S,
    DEFAULT_POLL_S,
    MAX_BATCH,
    OutboxRelay,
    failure_text,
)
from pinlater_workers.outbox.schema import DEFAULT_TABLE, DIALECTS, creation

VARIABLE = "PINLATER_OUTBOX_DATABASE"
FILE_VARIABLE = f"{VARIABLE}_FILE"
_log = GuardedLogger("pinlater_workers.outbox")


def _database_options(command: Callable[..., None]) -> Callable[..., None]:
    @click.option(
        "--database",
        metavar="URL",
        help="Where the outbox is: a URL of SQLAlchemy, or django:ALIAS.  [env var: PINLATER_OUTBOX_DATABASE, which "
        "other users of the machine do not see]",
    )
    @click.option(
        "--database-file",
        metavar="FILE",
        help="A file that only this user can read, with what --database says.  "
        "[env var: PINLATER_OUTBOX_DATABASE_FILE]",
    )
    @click.option("--table", metavar="NAME", default=DEFAULT_TABLE, show_default=True, help="The outbox's table.")
    @wraps(command)
    def with_database(*args: Any, database: str | None, database_file: str | None, **named: Any) -> None:
        is_meant = click.get_current_context().invoked_subcommand is None
        command(*args, database=_named(database, database_file) if is_meant else None, **named)

    return with_database


def _has_password(url: str) -> bool:
    """In front of its host, or among its parameters."""
    rest = url.partition("://")[2]
    parameters = [name.lower() for name, _ in parse_qsl(rest.partition("?")[2])]
    return not url.startswith("sqlite:") and (
        ":" in rest.rpartition("@")[0] or any("passw" in each for each in parameters)
    )


def _named(database: str | None, file: str | None) -> str | None:
    """By the command line, or else by the environment; None: nothing says it. ConfigurationError."""
    if database and file:
        raise ConfigurationError("--database and --database-file: give one of them")
    if database and _has_password(database):
        say(
            "every user of this machine can read the command line, with the password in --database: say "
            f"--database-file FILE, or set {VARIABLE}"
        )
    file = file or (None if database else variable(FILE_VARIABLE) or None)
    if file is None:
        return database or variable(VARIABLE) or None
    try:
        return read_secret_line(Path(file).expanduser())
    except OSError as error:
        raise ConfigurationError(f"--database-file: {file}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigurationError(f"--database-file: {error}") from None


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  pinlater-worker outbox --database postgresql+psycopg://shop@db/shop --app shop.jobs:app
  pinlater-worker outbox --database-file shop.url --server queue-1:9010
  DJANGO_SETTINGS_MODULE=shop.settings pinlater-worker outbox --database django:default --app shop.jobs:app
  pinlater-worker outbox --database sqlite:///shop.db --once
  pinlater-worker --log-format json outbox --database sqlite:///shop.db --http 127.0.0.1:9013
  pinlater-worker outbox schema --dialect postgresql
  pinlater-worker outbox status --database sqlite:///shop.db

\b
Any number of relays may run: they take turns, and keep the order of one. SIGTERM or SIGINT ends it after the batch
under way; a second one ends it at once, and that batch may come again.""",
)
@_database_options
@click.option("--app", metavar="MODULE:NAME", help="The app whose servers get the jobs.")
@click.option(
    "--config", metavar="FILE", type=click.Path(dir_okay=False), help="A TOML file that names them, or the app."
)
@server_options
@click.option(
    "--poll",
    metavar="DURATION",
    default=seconds_text(DEFAULT_POLL_S),
    show_default=True,
    help="The pause between two polls of an empty outbox.",
)
@click.option(
    "--batch",
    metavar="N",
    type=click.IntRange(1, MAX_BATCH),
    default=DEFAULT_BATCH,
    show_default=True,
    help="Jobs in one turn.",
)
@click.option(
    "--goal",
    metavar="DURATION",
    default=seconds_text(DEFAULT_GOAL_S),
    show_default=True,
    help="A job that waits for longer is an alarm.",
)
@click.option("--once", is_flag=True, help="Hand over what is there, print how many jobs that was, and end.")
@click.option("--http", metavar="HOST:PORT", help="Serve /metrics for Prometheus there.")
@click.pass_context
def outbox(
    ctx: click.Context,
    database: str | None,
    table: str,
    app: str | None,
    config: str | None,
    target: ServerFlags,
    poll: str,
    batch: int,
    goal: str,
    once: bool,
    http: str | None,
) -> None:
    """Hand over the jobs of an outbox, as long as it runs: a table in an application's database."""
    if ctx.invoked_subcommand is not None:
        return
    begin_service()
    given = ctx.find_root().params
    logs.configure(given["log_level"], given["log_format"])
    app, config = app or given["app"], config or given["config"]
    loaded = load(app, config).app if app or config else App()
    pass_on_servers(loaded, target.over(ServerFlags.taken_from(dict(given))))
    _log.debug("servers %s", " ".join(loaded.servers))  # that there are some is said now, not with the first job
    _ = loaded.token  # likewise
    poll_s, goal_s = _duration("--poll", poll), _duration("--goal", goal)
    relay = Outbox(loaded, table=table).relay(_database(database), poll=poll_s, batch=batch, goal=goal_s)
    with _database_errors(table):
        _run(relay, once=once, http=http)
    loaded.close()


def _duration(option: str, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ConfigurationError(f"{option}: {error}") from None


def _run(relay: OutboxRelay, *, once: bool, http: str | None) -> None:
    """Until a signal."""

    def stop(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        _log.info("%s: no more after this batch", signal.Signals(number).name)
        relay.stop()

    for number in stop_signals():
        signal.signal(number, stop)
    if http:
        optional("pinlater_workers.outbox.relay_metrics", "--http").serve_metrics(relay, http)
    if once:
        click.echo(f"{relay.run_once()} jobs handed over")
    else:
        relay.run()


@outbox.command(
    epilog="""\b
Examples:
  pinlater-worker outbox schema --dialect postgresql | psql shop
  pinlater-worker outbox schema --dialect mysql --table mail_outbox"""
)
@click.option(
    "--dialect", type=click.Choice(DIALECTS), required=True, help="The SQL dialect; mysql is for MariaDB too."
)
@click.option("--table", metavar="NAME", default=DEFAULT_TABLE, show_default=True, help="The outbox's table.")
def schema(dialect: str, table: str) -> None:
    """Print the statements that make an outbox's tables."""
    for statement in creation(table, dialect):
        click.echo(f"{statement};\n")


@outbox.command(
    epilog="""\b
Examples:
  pinlater-worker outbox status --database sqlite:///shop.db
  pinlater-worker outbox status --database django:default -o json"""
)
@_database_options
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def status(database: str | None, table: str, output: str) -> None:
    """Show how many jobs wait, how old they are, what was refused, and what the relays do."""
    with _view(database, table) as view:
        found = view.status()
    if output == "json":
        click.echo(json_text(found.as_json(), indent=2))
        return
    rows = [
        (each.queue, each.waiting, seconds_text(round(each.oldest_s)) if each.waiting else "-", each.refused)
        for each in found.queues
    ]
    write_table(("queue", "waiting", "oldest", "refused"), rows or [("-", 0, "-", 0)])
    click.echo()
    if not found.relay:
        click.echo("no relay was ever here: start one with `pinlater-worker outbox`")
        return
    ago = seconds_text(round(found.seen_s))
    click.echo(f"last relay {printable(found.relay)}, {ago} ago; {found.handed_over} jobs handed over in all")
    if found.error:
        click.echo(f"for {seconds_text(round(found.error_s))}: {printable(found.error)}")


@outbox.command(
    epilog="""\b
Examples:
  pinlater-worker outbox refused --database sqlite:///shop.db
  pinlater-worker outbox refused --database sqlite:///shop.db --queue mail --limit 10 -o json"""
)
@_database_options
@click.option("--queue", metavar="QUEUE", help="Those of this queue alone.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="The most jobs to list.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def refused(database: str | None, table: str, queue: str | None, limit: int, output: str) -> None:
    """List the jobs that the servers refused, with the error of each. They stay until they are retried or deleted."""
    with _view(database, table) as view:
        jobs = view.refused(limit, queue)
    if output == "json":
        click.echo(json_text([job._asdict() for job in jobs], indent=2))
        return
    rows = [(job.id, job.queue, job.job, job.size, _time(job.refused_at_ms), job.error) for job in jobs]
    write_table(("id", "queue", "job", "bytes", "refused", "error"), rows)


@outbox.command(
    epilog="""\b
Examples:
  pinlater-worker outbox retry --database sqlite:///shop.db 17 18
  pinlater-worker outbox retry --database sqlite:///shop.db --queue mail
  pinlater-worker outbox retry --database sqlite:///shop.db --all"""
)
@_database_options
@click.argument("ids", nargs=-1, type=int, metavar="[ID]...")
@click.option("--queue", metavar="QUEUE", help="All of this queue.")
@click.option("--all", "everything", is_flag=True, help="All.")
def retry(database: str | None, table: str, ids: tuple[int, ...], queue: str | None, everything: bool) -> None:
    """Let refused jobs wait again, behind those that do: by their IDs, of a queue, or all."""
    if sum([bool(ids), queue is not None, everything]) != 1:
        raise click.UsageError("give IDs, --queue QUEUE or --all")
    with _view(database, table) as view:
        click.echo(f"{view.retry(queue, ids)} jobs wait again")


def _time(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))


def _database(database: str | None) -> Database:
    if not database:
        raise ConfigurationError(f"no database: give --database-file FILE or --database URL, or set {VARIABLE}")
    return Database.of(database)


@contextmanager
def _view(database: str | None, table: str) -> Iterator[OutboxView]:
    where = _database(database)
    with _database_errors(table):
        view = OutboxView(where, table)
        try:
            yield view
        finally:
            view.close()


@contextmanager
def _database_errors(table: str) -> Iterator[None]:
    """Whatever a driver raises, as a line."""
    try:
        yield
    except (click.ClickException, WorkerError, PinLaterError, OutputFailed):
        raise
    except Exception as error:
        say(f"the outbox cannot be used: {failure_text(error, table)}")
        raise SystemExit(EXIT_FAILED) from error
