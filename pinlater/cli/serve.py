"""`pinlater serve`: the configuration's table as flags, and a supervisor that serves by it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import structlog

from pinlater.cli import EXIT_FAILED, EXIT_USAGE
from pinlater.cli.failures import say
from pinlater.cli.planner import AtStart, Flags, Planner
from pinlater.config import SETTINGS, ConfigInvalid, Loaded, Setting, config_toml, default_of, keep_secrets, load
from pinlater.logs import configure
from pinlater.redaction import secrets_of_url
from pinlater.server.generation import Plan
from pinlater.server.supervisor import ServeRefused, Supervisor
from pinlater.server.watched_file import WatchedFile
from pinlater.web.beside import Beside

log = structlog.get_logger("pinlater.serve")
_IN_PROCESS_LIST = (
    "every user of this machine can read the command line: put the store into a file (--config FILE, as [[store]] with "
    "url = …) that only this user can read, or into the variable PINLATER_STORE"
)


def _flag(setting: Setting) -> Callable[[Any], Any]:
    repeatable = ", repeatable" if setting.kind.repeatable else ""
    text = f"{setting.help} Allowed: {setting.kind.allowed}{repeatable}. [default: {default_of(setting) or 'none'}]"
    return click.option(
        f"--{setting.name}", setting.field, metavar=setting.kind.metavar, multiple=setting.kind.repeatable, help=text
    )


def _flags(command: Callable[..., None]) -> Callable[..., None]:
    for setting in reversed(SETTINGS):
        command = _flag(setting)(command)
    return command


@click.command(
    epilog="""\b
Examples:
  pinlater serve
  pinlater serve --store 1=redis://127.0.0.1:6379/0 --store 2=redis://127.0.0.1:6380/0 --processes 4
  pinlater serve --config conf/mysql.toml --claim-timeout 10m
  pinlater serve --config conf/redis.toml --print-config
  PINLATER_PORT=9011 pinlater serve

\b
Signals: SIGTERM or SIGINT answers what was read and ends, a second one at once; SIGHUP reads the configuration again
and replaces the processes without losing a connection. So does a change of the --config file, within seconds. One that
has mistakes, or leaves out a shard that is not drained, changes nothing.
Exit codes: 0 stopped by a signal, 1 cannot start, 2 mistakes in the configuration (all are listed)."""
)
@click.option(
    "--store",
    metavar="[ID=]URL",
    multiple=True,
    help="Where jobs are kept, once per shard: sqlite:///path, redis://…, rediss://…, mysql+pymysql://… or "
    "mysql+mysqldb://…. Without ID the store's own record decides. [default: one SQLite file in the data folder]",
)
@click.option("--config", metavar="FILE", help="A TOML file with any of these settings.")
@_flags
@click.option("--print-config", is_flag=True, help="Print the configuration that counts, as a TOML file, and end.")
@click.option("--show-secrets", is_flag=True, help="Print passwords too, with --print-config.")
@click.option(
    "--accept-new-store",
    metavar="ID",
    multiple=True,
    help="The shard ID has a new store now, on purpose; descriptors of jobs in the old one are void.",
)
@click.option(
    "--forget-shard",
    metavar="ID",
    multiple=True,
    help="The shard ID is gone for good, with all that it holds, and is taken off the record of shards.",
)
def serve(
    print_config: bool,
    show_secrets: bool,
    accept_new_store: tuple[str, ...],
    forget_shard: tuple[str, ...],
    **given: Any,
) -> None:
    """Run a server.

    Every setting is a flag, a key of the file, and an environment variable: --claim-timeout, claim-timeout,
    PINLATER_CLAIM_TIMEOUT. Flags count before variables, and those before the file.
    """
    flags = {name.removesuffix("_ms").removesuffix("_bytes").replace("_", "-"): each for name, each in given.items()}
    written: Flags = {name: each for name, each in flags.items() if each not in (None, ())}
    watched = _watched(written)
    loaded = _loaded(written)
    if print_config:
        click.echo(config_toml(loaded, show_secrets=show_secrets), nl=False)
        return
    configure(loaded.config.log_level, loaded.config.log_format)
    if any(True for url in flags.get("store") or () for _ in secrets_of_url(url)):
        log.warning("password_in_process_list", flag="--store", hint=_IN_PROCESS_LIST)
    for name in loaded.unknown_variables:
        log.warning("unknown_variable", name=name)
    planner = Planner(written, loaded, AtStart(accept_new_store, forget_shard))
    _run(planner, watched, announce=loaded.config.port == 0)


def _loaded(flags: Flags) -> Loaded:
    keep_secrets(flags, os.environ)
    try:
        return load(flags, os.environ)
    except ConfigInvalid as invalid:
        for mistake in invalid.mistakes:
            say(str(mistake))
        raise SystemExit(EXIT_USAGE) from None


def _watched(flags: Flags) -> WatchedFile | None:
    """The file that the configuration is read from, if there is one."""
    path = flags.get("config") or os.environ.get("PINLATER_CONFIG")
    return WatchedFile(Path(str(path)).expanduser()) if path else None


def _run(planner: Planner, watched: WatchedFile | None, *, announce: bool) -> None:
    def on_ready(address: str) -> None:
        if announce:
            with suppress(OSError):  # whoever wanted to read it is gone; those who connect are not
                click.echo(address)

    async def supervise() -> None:
        supervisor = Supervisor(planner, on_ready, watched)
        beside = Beside(supervisor.reports)

        async def started(plan: Plan) -> None:
            planner.started(plan)
            await beside.follow(plan.payload["config"])

        supervisor.on_started = started
        try:
            await supervisor.run()
        finally:
            await beside.close()

    try:
        asyncio.run(supervise())
    except ServeRefused as refused:
        say(f"cannot start: {refused}")
        raise SystemExit(EXIT_FAILED) from None
