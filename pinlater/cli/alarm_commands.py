"""`pinlater alarms`: what is broken, what was, and mutes."""

from __future__ import annotations

from collections.abc import Iterator

import click

from pinlater.cli.admin import PASSWORD_HELP, admin_password, needs_password
from pinlater.cli.connection import EXIT_CODES, ServerGroup, say, talks_to_server
from pinlater.cli.output import Row, json_object, output_option, whole, write_all
from pinlater.cli.times import duration_option, time_text
from pinlater.client.client import Client
from pinlater.durations import age_text
from pinlater.errors import MethodUnknown
from pinlater.model.alarm_views import OLD_MS, Alarm, AlarmsPage
from pinlater.printable import printable
from pinlater.wire.operator_methods import MUTE_ALARM

ENDED_COLUMNS = (whole("severity"), whole("began"), whole("lasted", 5), "alarm", "peak", "why")
TOO_OLD = (
    "this server is of an earlier version, which judges no alarms; pinlater cluster status shows shards and servers"
)


class AlarmsGroup(ServerGroup):
    """Without the name of a command it lists the alarms."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def ended_row(alarm: Alarm) -> Row:
    """One that is over."""
    return {
        "severity": str(alarm.severity),
        "began": time_text(alarm.since_ms),
        "lasted": age_text((alarm.ended_ms or alarm.since_ms) - alarm.since_ms),
        "alarm": alarm.title,
        "peak": alarm.peak or None,
        "why": alarm.why,
    }


def alarm_lines(alarm: Alarm, now_ms: int) -> Iterator[str]:
    """One that stands, as a paragraph: what and since when; why and how bad; what to do."""
    yield f"{alarm.severity.name} for {age_text(now_ms - alarm.since_ms)}  {alarm.title}"
    yield from (f"  {text}" for text in (alarm.why, f"{alarm.impact}." if alarm.impact else "", alarm.error) if text)
    yield from (f"  also: {each.title}" for each in alarm.absorbed)
    yield from (f"  {text}" for text in (alarm.action, f"$ {alarm.command}" if alarm.command else "") if text)
    if alarm.muted_until_ms is not None:
        why = f": {alarm.muted_why}" if alarm.muted_why else ""
        yield f"  muted by {alarm.muted_by} for another {age_text(alarm.muted_until_ms - now_ms)}{why}"


def judged_text(page: AlarmsPage) -> str:
    """Whose judgement it is, where that matters; "" where all is as usual."""
    if page.is_alone:
        return "no shard can be reached: this is what one server knows by itself"
    if page.judged_at_ms is None:
        return "no server has judged yet: ask again in ten seconds"
    age_ms = page.now_ms - page.judged_at_ms
    return f"judged {age_text(age_ms)} ago by {page.judged_by}: is it away?" if age_ms > OLD_MS else ""


def calm_text(page: AlarmsPage) -> str:
    """What is said where no alarm stands; "" where one does, or nobody can know yet."""
    return "" if page.alarms or page.judged_at_ms is None else "all is well: no alarm stands"


@click.group(
    cls=AlarmsGroup,
    epilog=f"""\b
Examples:
  pinlater alarms
  pinlater alarms --ended
  pinlater alarms -o json | jq '.[] | select(.severity == "critical").title'
  pinlater alarms mute no_worker --subject mail --for 2h --reason 'the provider is down'

{EXIT_CODES}""",
)
def alarms() -> None:
    """Show what is broken, since when, why, and what to do; mute what is known.

    `pinlater alarms` alone is `pinlater alarms list`. All faces of a cluster show the same alarms.
    """


@alarms.command(
    "list",
    short_help="Show what is broken, the worst first.",
    epilog=f"""\b
Examples:
  pinlater alarms list
  pinlater alarms list --ended --limit 20
  pinlater alarms list -o jsonl

{EXIT_CODES}""",
)
@click.option("--ended", is_flag=True, help="Those that are over, the latest first: the last 200 are kept.")
@click.option(
    "--limit", type=click.IntRange(min=1, max=1_000), default=200, show_default=True, help="The most alarms to show."
)
@output_option
@talks_to_server
def list_alarms(client: Client, ended: bool, limit: int, format: str) -> None:
    """Show the alarms that stand, the worst first: what is broken, since when, why, and what to do."""
    try:
        page = client.get_alarms(ended=ended, limit=limit)
    except MethodUnknown:
        say(TOO_OLD)
        raise SystemExit(1) from None
    if note := judged_text(page):
        say(note)
    if format != "table":
        write_all(format, (), page.alarms, json_object)
    elif ended:
        empty = "no alarm has ended in the last 90 days"
        write_all(format, ENDED_COLUMNS, page.alarms, ended_row, empty=empty)
    else:
        if text := calm_text(page):
            say(text)
        for each in page.alarms:
            for line in alarm_lines(each, page.now_ms):
                click.echo(printable(line))
    if page.more:
        say(f"and {page.more:,} more")


@alarms.command(
    help=f"""Show the alarms of the condition NAME as known for a while: they are listed as muted, and `pinlater check`
    and the first screen of the dashboard pass over them.

    {PASSWORD_HELP}""",
    short_help="Show alarms as known for a while.",
    epilog=f"""\b
Examples:
  pinlater alarms mute shard_out --for 2h --reason 'the store moves to another machine'
  pinlater alarms mute no_worker --subject mail --for 1d --reason 'mail starts on Monday'

{EXIT_CODES}""",
)
@click.argument("name")
@click.option("--subject", default="", metavar="NAME", help="Only of this queue, shard or process. [default: all]")
@click.option("--for", "for_ms", type=duration_option, metavar="DURATION", required=True, help="When it ends: 2h, 1d.")
@click.option("--reason", metavar="TEXT", required=True, help="The reason, which others see, also in the audit.")
@needs_password
@talks_to_server
def mute(client: Client, name: str, subject: str, for_ms: int, reason: str) -> None:
    client.mute_alarm(name, for_ms, reason, admin_password(client, MUTE_ALARM), subject=subject)
    say(f"{name}{f' of {subject}' if subject else ''} is muted for {age_text(for_ms)}; it shows within ten seconds")


@alarms.command(
    help=f"""End a mute of the condition NAME.

    {PASSWORD_HELP}""",
    short_help="End a mute.",
    epilog=f"""\b
Examples:
  pinlater alarms unmute shard_out
  pinlater alarms unmute no_worker --subject mail

{EXIT_CODES}""",
)
@click.argument("name")
@click.option("--subject", default="", metavar="NAME", help="As it was given to `mute`.")
@needs_password
@talks_to_server
def unmute(client: Client, name: str, subject: str) -> None:
    client.mute_alarm(name, 0, "", admin_password(client, MUTE_ALARM), subject=subject)
    say(f"{name}{f' of {subject}' if subject else ''} is muted no more")
