"""The command `pinlater`. Data goes to stdout, all else to stderr.

Exit codes, everywhere: 0 done; 1 it did not succeed, and a line says why; 2 the command line or the configuration is
wrong; 3 no server could be reached. Ctrl-C: 130, but 0 for a server, which it stops in order. `check` has those of a
Nagios plugin.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import click
from click.shell_completion import CompletionItem

from pinlater.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED
from pinlater.command_group import CommandGroup
from pinlater.errors import install_command
from pinlater.printable import printable
from pinlater.redaction import redact
from pinlater.standard_streams import standard_streams

OF_THE_SERVER = ("structlog", "uvloop", "apscheduler", "re2", "aiohttp", "jinja2", "prometheus_client", "statsd")


class Entry(NamedTuple):
    """Where a command lives (an attribute of the same name in that module), and its line in `pinlater --help`."""

    module: str
    help: str
    attribute: str = ""
    """Where that is not the name of the command, which may be a word of Python."""


COMMANDS = {
    "serve": Entry("pinlater.cli.serve", "Run a server."),
    "api": Entry("pinlater.cli.api_command", "Serve the HTTP interface for a cluster."),
    "dashboard": Entry("pinlater.cli.dashboard_command", "Open the dashboard in a browser."),
    "queue": Entry("pinlater.cli.queue", "Create, show, set, pause, drain and delete queues."),
    "group": Entry("pinlater.cli.group_commands", "Show the groups of a queue; weigh, limit, pause and resume them."),
    "job": Entry("pinlater.cli.job", "Enqueue, show, retry, cancel and delete jobs."),
    "schedule": Entry("pinlater.cli.schedule_commands", "Enqueue jobs again and again, by cron or an interval."),
    "flow": Entry("pinlater.cli.flow_commands", "Run work in several stages, each on many items."),
    "shard": Entry("pinlater.cli.shard", "Show the shards; drain, move or give up one."),
    "bodies": Entry("pinlater.cli.bodies_commands", "Show, sweep, verify and move bodies in tiers."),
    "worker": Entry("pinlater.cli.worker", "List, quiet, resume and stop workers."),
    "cluster": Entry("pinlater.cli.cluster", "Show a cluster as a whole."),
    "alarms": Entry("pinlater.cli.alarm_commands", "Show what is broken, since when, why, and what to do."),
    "top": Entry("pinlater.cli.top", "Watch a cluster, live."),
    "watch": Entry("pinlater.cli.watch", "Print what happens in queues, as it happens."),
    "mcp": Entry("pinlater.cli.mcp_command", "Let an agent inspect a cluster, by the Model Context Protocol."),
    "check": Entry("pinlater.cli.check", "Check a cluster against thresholds, for Nagios and the like."),
    "token": Entry("pinlater.cli.token_commands", "Create, list and revoke tokens, which identify callers."),
    "access": Entry("pinlater.cli.access_commands", "Show who may do what, and check a rules file."),
    "history": Entry("pinlater.cli.history_commands", "Judge whether one order explains what callers were answered."),
    "audit": Entry("pinlater.cli.cluster", "Show what operators changed."),
    "export": Entry("pinlater.cli.export_commands", "Write all that a shard holds into a file."),
    "import": Entry("pinlater.cli.export_commands", "Import an export into an empty store of any kind.", "import_"),
    "completion": Entry("pinlater.cli.completion", "Print the completion script of a shell."),
    "admin": Entry("pinlater.cli.admin", "Hash an admin password for a server's configuration."),
}


@contextmanager
def _printable_mistakes() -> Iterator[None]:
    """What is wrong with a command line repeats words of it, which a script may have from anybody."""
    try:
        yield
    except click.UsageError as mistake:
        raise click.UsageError(printable(redact(mistake.format_message())), mistake.ctx) from None


class LazyGroup(CommandGroup):
    """Imports a command when it is used, so that `pinlater queue` needs nothing that only a server needs."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> Any:
        if args is not None:
            return super().main(args, *more, **options)
        with standard_streams("pinlater"):
            return super().main(None, *more, **options)

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with _printable_mistakes():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _printable_mistakes():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        try:
            command = getattr(importlib.import_module(entry.module), entry.attribute or cmd_name)
        except KeyboardInterrupt:
            raise SystemExit(EXIT_INTERRUPTED) from None
        except ModuleNotFoundError as missing:
            if missing.name not in OF_THE_SERVER:
                raise
            extra_missing(cmd_name, missing.name, "server")
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Without importing the commands."""
        names = [
            CompletionItem(name, help=entry.help) for name, entry in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


def extra_missing(what: str, module: str, extra: str) -> NoReturn:
    """End with the one line that helps."""
    click.echo(f"pinlater: {what} needs the Python package {module}: {install_command(extra)}", err=True)
    raise SystemExit(EXIT_FAILED)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="""\b
Examples:
  pinlater serve                                    a server on 127.0.0.1:9010, jobs kept in ./pinlater-data
  pinlater queue create mail
  echo hello | pinlater job enqueue mail
  pinlater job scan mail --state ready
  pinlater cluster status
  eval "$(pinlater completion bash)"                words are completed in this shell; also for zsh and fish

\b
Exit codes: 0 done, 1 failed, 2 wrong command line or configuration, 3 no server could be reached, 4 it is not known
whether it was done, 5 done in part, 130 interrupted.""",
)
@click.version_option(package_name="pinlater", message="%(prog)s %(version)s")
def main() -> None:
    """Store jobs now, have them executed later."""
