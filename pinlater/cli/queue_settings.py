"""`pinlater queue set | unset | set-rate`, and what every change of settings has in common."""

from __future__ import annotations

from collections.abc import Mapping

import click

from pinlater.cli.admin_password import PASSWORD_HELP, admin_password, needs_password
from pinlater.cli.connection import talks_to_server
from pinlater.cli.failures import say_missed
from pinlater.cli.output import output_option
from pinlater.cli.queue_name import defaults_option, name_and_others
from pinlater.cli.queue_show import show_values
from pinlater.client.client import Client

_RATE = "max_jobs_per_second"


@click.command(
    "set",
    help=f"""Set values for a queue, and print what counts now.

    The settings and what they may be: docs/queues.md, or `pinlater queue show NAME`. All of them are set or none. It
    counts at once at the server that answers, and at all others within two seconds.

    {PASSWORD_HELP}""",
    epilog="""\b
Examples:
  pinlater queue set mail claim_timeout=30s max_attempts=20
  pinlater queue set mail dead_letter_queue=mail_dead
  pinlater queue set --defaults succeeded_ttl=6h""",
)
@click.argument("words", nargs=-1, metavar="[NAME] KEY=VALUE...")
@defaults_option
@output_option
@needs_password
@talks_to_server
def set_values(client: Client, words: tuple[str, ...], defaults: bool, format: str) -> None:
    name, pairs = name_and_others(words, defaults, "KEY=VALUE...")
    values = dict(map(_pair, pairs))
    if len(values) < len(pairs):
        raise click.UsageError("a setting is given twice")
    say_missed(client.update_queue(name, admin_password(client), set=values).missed_shards)
    show_values(client, format, name, values)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.UsageError(f"{text!r} is not KEY=VALUE")
    return key, value


@click.command(
    "unset",
    short_help="Take back what was set for a queue, and print what counts.",
    help=f"""Take back what was set for a queue, and print what counts now, and where it comes from.

    {PASSWORD_HELP}""",
    epilog="""\b
Examples:
  pinlater queue unset mail claim_timeout max_attempts
  pinlater queue unset --defaults succeeded_ttl""",
)
@click.argument("words", nargs=-1, metavar="[NAME] KEY...")
@defaults_option
@output_option
@needs_password
@talks_to_server
def unset_values(client: Client, words: tuple[str, ...], defaults: bool, format: str) -> None:
    name, keys = name_and_others(words, defaults, "KEY...")
    say_missed(client.update_queue(name, admin_password(client), unset=keys).missed_shards)
    show_values(client, format, name, keys)


@click.command(
    "set-rate",
    help=f"""Bound how fast jobs are handed out, over the whole cluster.

    A RATE is 100/s, 30/m, 5/h and the like, or none; 0/s is like paused.

    {PASSWORD_HELP}""",
    epilog="""\b
Examples:
  pinlater queue set-rate mail 100/s
  pinlater queue set-rate mail none
  pinlater queue set-rate --defaults 50/s""",
)
@click.argument("words", nargs=-1, metavar="[NAME] RATE")
@defaults_option
@output_option
@needs_password
@talks_to_server
def set_rate(client: Client, words: tuple[str, ...], defaults: bool, format: str) -> None:
    name, rates = name_and_others(words, defaults, "RATE")
    if len(rates) > 1:
        raise click.UsageError(f"one RATE is allowed, not {len(rates)}")
    say_missed(client.update_queue(name, admin_password(client), set={_RATE: rates[0]}).missed_shards)
    show_values(client, format, name, [_RATE])


def switch_on(client: Client, name: str, key: str, more: Mapping[str, str]) -> None:
    """Set a flag, and what goes with it; names the shards that missed it."""
    say_missed(client.update_queue(name, admin_password(client), set={key: "true", **more}).missed_shards)


def switch_off(client: Client, name: str, key: str) -> None:
    """Take a flag back; where it then comes from elsewhere (the file, all queues), set it to false here."""
    password = admin_password(client)
    changed = client.update_queue(name, password, unset=[key])
    (view,) = client.get_queues([name])
    if view.settings[key].value == "true":
        changed = client.update_queue(name, password, set={key: "false"})
    say_missed(changed.missed_shards)
