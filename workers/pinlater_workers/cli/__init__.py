"""The command `pinlater-worker`. Data goes to stdout, the log and all else to stderr.

Exit codes: 0 done, or stopped by a signal; 1 it failed, and a line says why; 2 the command line, the file or the app is
wrong, or a process of its own does not start, and a line says what to do; 130 Ctrl-C before it ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from pinlater.command_group import CommandGroup
from pinlater.standard_streams import standard_streams
from pinlater_workers.app.loader import ServerFlags
from pinlater_workers.cli import run
from pinlater_workers.cli.listings import jobs, retry
from pinlater_workers.cli.process_exit import failures_as_exit_codes
from pinlater_workers.cli.run import server_options, worker_options
from pinlater_workers.observability import logs

WHEN_NEEDED = {
    "outbox": "pinlater_workers.cli.outbox_commands",
    "run-here": "pinlater_workers.cli.run_here",
    "schedules": "pinlater_workers.cli.schedules",
}
"""Commands by the modules that have them: a worker does not import what it does not run."""


class Commands(CommandGroup):
    """Without a command, the worker itself."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> Any:
        if args is not None:
            return super().main(args, *more, **options)
        with standard_streams("pinlater-worker"):
            return super().main(None, *more, **options)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *WHEN_NEEDED])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in WHEN_NEEDED:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(WHEN_NEEDED[cmd_name]), cmd_name.replace("-", "_"))
        return command

    def invoke(self, ctx: click.Context) -> Any:
        with failures_as_exit_codes():
            return super().invoke(ctx)


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="""\b
Examples:
  pinlater-worker --app shop.jobs:app
  pinlater-worker --app shop.jobs:app --queues mail=3,reports --concurrency 32 --http 127.0.0.1:9014
  pinlater-worker --app shop.jobs:app --queues thumbnails --pool process --recycle-mib 500 --server queue-1:9010
  pinlater-worker --config conf/jobs.toml --grace 2m
  pinlater-worker --app shop.jobs:app --apply-schedules
  pinlater-worker --app shop.jobs:app --reload
  pinlater-worker --app shop.jobs:app --check
  pinlater-worker --app shop.jobs:app --queues reports --until-empty
  pinlater-worker run-here --app shop.jobs:app mail:s1:p1:1790000000000000
  pinlater-worker jobs --app shop.jobs:app
  pinlater-worker retry "exponential first=1s factor=2 cap=1h"
  pinlater-worker schedules --app shop.jobs:app --apply
  pinlater-worker outbox --database postgresql+psycopg://shop@db/shop --app shop.jobs:app

\b
Signals: SIGTERM or SIGINT takes no new jobs, gives those that run --grace to end, and gives the rest back without an
attempt spent; a second one does that at once. SIGHUP ends likewise and then begins anew, as the same process with new
code; where that cannot be imported, the old goes on and the log says why. So does a worker of its own accord when half
its slots are held by threads that do not stop.
Exit codes: 0 stopped by a signal, or --until-empty is so, 1 failed, 2 wrong command line, file or app, or a process of
its own that does not start, 130 interrupted before it ran.""",
)
@click.option("--app", metavar="MODULE:NAME", help="The app; the current folder is on the import path.")
@click.option(
    "--config", metavar="FILE", type=click.Path(dir_okay=False), help="A TOML file: jobs, or the app, and any setting."
)
@server_options
@worker_options
@click.option(
    "--log-level",
    type=click.Choice(logs.LEVELS),
    default="info",
    show_default=True,
    help="The least that is logged; at debug every success and every traceback.",
)
@click.option(
    "--log-format",
    type=click.Choice(logs.FORMATS),
    default="human",
    show_default=True,
    help="Lines for people, or one JSON object per line.",
)
@click.option(
    "--reload",
    is_flag=True,
    help="While you develop: restart when a .py or .toml file below the current folder changes. Running jobs have "
    "2s to end, unless --grace says otherwise.",
)
@click.option(
    "--until-empty",
    is_flag=True,
    help="End, with exit code 0, when nothing runs here and none of the queues has a job that is ready: for CI, cron "
    "and Kubernetes Jobs. Jobs that are due later, as retries are, are not waited for.",
)
@click.option("--check", is_flag=True, help="Load the app and the settings, report mistakes, and run nothing.")
@click.version_option(package_name="pinlater", message="%(prog)s %(version)s")
@click.pass_context
def main(
    ctx: click.Context,
    /,
    app: str | None,
    config: str | None,
    target: ServerFlags,
    log_level: str,
    log_format: str,
    reload: bool,
    check: bool,
    until_empty: bool,
    **given: Any,
) -> None:
    """Run the jobs of an app."""
    if ctx.invoked_subcommand is not None:
        return
    logs.configure(log_level, log_format)
    if until_empty and reload:
        raise click.UsageError("--until-empty and --reload do not go together")
    if check:
        run.check(app, config, target, given)
    else:
        run.run(app, config, target, given, reload=reload, until_empty=until_empty)


main.add_command(jobs)
main.add_command(retry)
