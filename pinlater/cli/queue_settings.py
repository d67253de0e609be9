"""`pinlater queue set | unset | set-rate | show | pause | resume`: the settings of a queue, or of all queues."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click
from click.shell_completion import CompletionItem

from pinlater.cli.admin import PASSWORD_HELP, admin_password, needs_password
from pinlater.cli.completion import begun_with, offer_queues, only_first
from pinlater.cli.connection import say_missed, talks_to_server
from pinlater.cli.output import Row, has_new_keys, output_option, whole, write_all
from pinlater.cli.times import duration_option, moment_option, time_text
from pinlater.client.client import Client
from pinlater.clock import SystemClock
from pinlater.model import QueueView, SettingView
from pinlater.queues.settings import SETTINGS
from pinlater.wire.operator_methods import UPDATE_QUEUE

DEFAULTS = "@defaults"
"""What the server calls the settings for all queues."""


def defaults_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--defaults."""
    return click.option(
        "--defaults", is_flag=True, help="In place of a NAME: for all queues that have no value of their own."
    )(command)


def only_name(name: str | None, defaults: bool) -> str:
    """UsageError: both, or none of them."""
    if defaults == (name is not None):
        raise click.UsageError("give a NAME or --defaults, not both" if defaults else "Missing argument 'NAME'.")
    return DEFAULTS if name is None else name


def name_and_others(words: Sequence[str], defaults: bool, metavar: str) -> tuple[str, list[str]]:
    """The NAME, which stands first where --defaults is not given, and what follows. UsageError: too few words."""
    words = [DEFAULTS, *words] if defaults else list(words)
    if not words:
        raise click.UsageError("Missing argument 'NAME'.")
    if len(words) == 1:
        raise click.UsageError(f"Missing argument '{metavar}'.")
    return words[0], words[1:]


def offer_settings(
    ctx: click.Context, param: click.Parameter, incomplete: str, suffix: str = ""
) -> list[CompletionItem]:
    """The first word is a queue, unless --defaults is there; the others are settings."""
    if not ctx.params.get("defaults") and not ctx.params.get(param.name or ""):
        return offer_queues(ctx, param, incomplete)
    return begun_with((each.name + suffix for each in SETTINGS if not each.by_server), incomplete)


def offer_assignments(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """As `offer_settings`, each with its equals sign."""
    return offer_settings(ctx, param, incomplete, "=")


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
@click.argument("words", nargs=-1, metavar="[NAME] KEY=VALUE...", shell_complete=offer_assignments)
@defaults_option
@output_option
@needs_password
@talks_to_server
def set_values(client: Client, words: tuple[str, ...], defaults: bool, format: str) -> None:
    name, pairs = name_and_others(words, defaults, "KEY=VALUE...")
    values = dict(map(_pair, pairs))
    if len(values) < len(pairs):
        raise click.UsageError("a setting is given twice")
    say_missed(client.update_queue(name, admin_password(client, UPDATE_QUEUE, name), set=values).missed_shards)
    show_values(client, format, name, values)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.UsageError(f"{text!r} is not KEY=VALUE")
    return key, value


@click.command(
    "unset",
    short_help="Remove settings of a queue, and print what holds.",
    help=f"""Take back what was set for a queue, and print what counts now, and where it comes from.

    {PASSWORD_HELP}""",
    epilog="""\b
Examples:
  pinlater queue unset mail claim_timeout max_attempts
  pinlater queue unset --defaults succeeded_ttl""",
)
@click.argument("words", nargs=-1, metavar="[NAME] KEY...", shell_complete=offer_settings)
@defaults_option
@output_option
@needs_password
@talks_to_server
def unset_values(client: Client, words: tuple[str, ...], defaults: bool, format: str) -> None:
    name, keys = name_and_others(words, defaults, "KEY...")
    say_missed(client.update_queue(name, admin_password(client, UPDATE_QUEUE, name), unset=keys).missed_shards)
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
@click.argument("words", nargs=-1, metavar="[NAME] RATE", shell_complete=only_first(offer_queues))
@defaults_option
@output_option
@needs_password
@talks_to_server
def set_rate(client: Client, words: tuple[str, ...], defaults: bool, format: str) -> None:
    name, rates = name_and_others(words, defaults, "RATE")
    if len(rates) > 1:
        raise click.UsageError(f"one RATE is allowed, not {len(rates)}")
    say_missed(
        client.update_queue(name, admin_password(client, UPDATE_QUEUE, name), set={_RATE: rates[0]}).missed_shards
    )
    show_values(client, format, name, [_RATE])


def switch_on(client: Client, name: str, key: str, more: Mapping[str, str]) -> None:
    """Set a flag, and what goes with it; names the shards that missed it."""
    say_missed(
        client.update_queue(name, admin_password(client, UPDATE_QUEUE, name), set={key: "true", **more}).missed_shards
    )


def switch_off(client: Client, name: str, key: str) -> None:
    """Take a flag back; where it then comes from elsewhere (the file, all queues), set it to false here."""
    password = admin_password(client, UPDATE_QUEUE, name)
    changed = client.update_queue(name, password, unset=[key])
    (view,) = client.get_queues([name])
    if view.settings[key].value == "true":
        changed = client.update_queue(name, password, set={key: "false"})
    say_missed(changed.missed_shards)


_COLUMNS = ("queue", whole("setting"), whole("value"), "source")
_NOTHING_SET = (
    "no queue has settings but those of the server; `pinlater queue set NAME KEY=VALUE` gives it some, `pinlater queue "
    "show NAME` shows all that count"
)
_MOMENTS = ("paused_at", "paused_until")


@click.command(
    epilog="""\b
Examples:
  pinlater queue show mail
  pinlater queue show --defaults
  pinlater queue show                               of all queues, what is set anywhere
  pinlater queue show -o jsonl | jq -r 'select(.settings.paused.value == "true").name'"""
)
@click.argument("name", required=False, shell_complete=offer_queues)
@defaults_option
@output_option
@talks_to_server
def show(client: Client, name: str | None, defaults: bool, format: str) -> None:
    """Show the settings of a queue, and where each value comes from.

    The sources: `breaker` (its circuit breaker is open), `queue` (a command, for this queue), `file` (the file of queue
    settings, for this queue), `default` (a command, for all queues), `file default`, `server` (its configuration). With
    --defaults, what counts for all queues without a value of their own. Without a NAME, of all queues the values that
    are not those of the server's configuration.
    """
    everything = name is None and not defaults
    views = client.get_queues([] if everything else [only_name(name, defaults)])
    _write(format, views, lambda _, setting: not everything or setting.source != "server")


def show_values(client: Client, format: str, name: str, keys: Collection[str]) -> None:
    """What counts now for these settings of a queue."""
    (view,) = client.get_queues([name])
    _write(format, [view], lambda key, _: key in keys)


def _write(format: str, views: Iterable[QueueView], is_meant: Callable[[str, SettingView], bool]) -> None:
    """Those settings of queues: a row for each of them, or an object for each queue."""
    parts = [
        replace(view, settings={key: each for key, each in view.settings.items() if is_meant(key, each)})
        for view in views
    ]
    if has_new_keys(format):
        write_all(format, (), parts)
    else:
        write_all(format, _COLUMNS, [row for part in parts for row in _rows(part, format)], empty=_NOTHING_SET)


def _rows(view: QueueView, format: str) -> Iterator[Row]:
    """In a table, a moment is shown as a time."""
    for key, (value, source) in view.settings.items():
        shown = time_text(int(value)) if format == "table" and key in _MOMENTS and value.isdigit() else value
        yield {"queue": view.name, "setting": key, "value": shown, "source": source}


def pause_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--why, --for and --until, for `pause_texts`."""
    until_help = "When it ends by itself: ISO, or +10m from now."
    for option in (
        click.option("--until", "until_ms", type=moment_option, metavar="TIME", help=until_help),
        click.option(
            "--for", "for_ms", type=duration_option, metavar="DURATION", help="How long; then it ends by itself."
        ),
        click.option("--why", metavar="TEXT", help="The reason, which others see."),
    ):
        command = option(command)
    return command


def pause_texts(why: str | None, for_ms: int | None, until_ms: int | None) -> dict[str, str]:
    """The settings that say more of a pause. UsageError, BadParameter."""
    if for_ms is not None and until_ms is not None:
        raise click.UsageError("give --for or --until, not both")
    now_ms = SystemClock().now_ms()
    if until_ms is not None and until_ms <= now_ms:
        raise click.BadParameter(f"{time_text(until_ms)} is over already", param_hint="--until")
    if for_ms is not None:
        until_ms = now_ms + for_ms
    reason = {} if why is None else {"paused_why": why}
    until = {} if until_ms is None else {"paused_until": str(until_ms)}
    return reason | until


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
@click.argument("name", required=False, shell_complete=offer_queues)
@defaults_option
@pause_options
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
    switch_on(client, name, "paused", pause_texts(why, for_ms, until_ms))
    show_values(client, format, name, _PAUSE)


@click.command(
    help=f"""Hand out jobs of a queue again, whoever paused it.

    That may be an operator or its circuit breaker.

    Where a file or the settings for all queues say that it is paused, it is set otherwise for this queue.

    {PASSWORD_HELP}""",
    epilog="""\b
Examples:
  pinlater queue resume mail
  pinlater queue resume --defaults""",
)
@click.argument("name", required=False, shell_complete=offer_queues)
@defaults_option
@output_option
@needs_password
@talks_to_server
def resume(client: Client, name: str | None, defaults: bool, format: str) -> None:
    name = only_name(name, defaults)
    switch_off(client, name, "paused")
    show_values(client, format, name, ["paused"])
