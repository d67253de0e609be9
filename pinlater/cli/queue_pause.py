"""`pinlater queue pause | resume`."""

from __future__ import annotations

import click

from pinlater.cli.admin_password import PASSWORD_HELP, needs_password
from pinlater.cli.connection import talks_to_server
from pinlater.cli.output import output_option
from pinlater.cli.queue_name import defaults_option, only_name
from pinlater.cli.queue_settings import switch_off, switch_on
from pinlater.cli.queue_show import show_values
from pinlater.cli.times import duration_option, moment_option, time_text
from pinlater.client.client import Client
from pinlater.clock import SystemClock

_PAUSE = ("paused", "paused_by", "paused_at", "paused_why", "paused_until")


@click.command(
    help=f"""Hand out no jobs of a queue for a while.

    Until it is resumed, or until the time that is given. All else goes on: jobs are stored, and workers end what they
    have.

    {PASSWORD_HELP}""",
    epilog="""\b
Examples:
  pinlater queue pause mail
  pinlater queue pause mail --why 'the provider is down' --for 2h
  pinlater queue pause mail --until 2030-01-31T12:00:00Z
  pinlater queue pause --defaults --why 'moving house'""",
)
@click.argument("name", required=False)
@defaults_option
@click.option("--why", metavar="TEXT", help="Shown to whoever finds it paused.")
@click.option("--for", "for_ms", type=duration_option, metavar="DURATION", help="It ends by itself: after so long.")
@click.option(
    "--until",
    "until_ms",
    type=moment_option,
    metavar="TIME",
    help="It ends by itself: at this time, ISO, or +10m from now.",
)
@output_option
@needs_password
@talks_to_server
def pause(
    client: Client,
    name: str | None,
    defaults: bool,
    why: str | None,
    for_ms: int | None,
    until_ms: int | None,
    format: str,
) -> None:
    name = only_name(name, defaults)
    if for_ms is not None and until_ms is not None:
        raise click.UsageError("give --for or --until, not both")
    now_ms = SystemClock().now_ms()
    if until_ms is not None and until_ms <= now_ms:
        raise click.BadParameter(f"{time_text(until_ms)} is over already", param_hint="--until")
    if for_ms is not None:
        until_ms = now_ms + for_ms
    said = {} if why is None else {"paused_why": why}
    until = {} if until_ms is None else {"paused_until": str(until_ms)}
    switch_on(client, name, "paused", said | until)
    show_values(client, format, name, _PAUSE)


@click.command(
    help=f"""Hand out jobs of a queue again, whoever paused it.

    Where a file or the settings for all queues say that it is paused, it is set otherwise for this queue.

    {PASSWORD_HELP}""",
    epilog="""\b
Examples:
  pinlater queue resume mail
  pinlater queue resume --defaults""",
)
@click.argument("name", required=False)
@defaults_option
@output_option
@needs_password
@talks_to_server
def resume(client: Client, name: str | None, defaults: bool, format: str) -> None:
    name = only_name(name, defaults)
    switch_off(client, name, "paused")
    show_values(client, format, name, ["paused"])
