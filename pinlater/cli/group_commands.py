"""`pinlater group`: the groups of a queue, which have fair shares of its hand-outs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click

from pinlater.cli.admin import PASSWORD_HELP, admin_password, needs_password
from pinlater.cli.completion import offer_queues
from pinlater.cli.connection import EXIT_CODES, ServerGroup, say_missed, talks_to_server
from pinlater.cli.group_clear_command import GroupClearing
from pinlater.cli.output import Columns, Row, has_new_keys, output_option, whole, write_all
from pinlater.cli.queue_settings import pause_options, pause_texts
from pinlater.cli.times import time_text
from pinlater.client.client import Client
from pinlater.model import CONTINUATION_END, CONTINUATION_START, GroupView, SettingView
from pinlater.queues.settings import GROUP_SETTINGS
from pinlater.text_table import Column
from pinlater.wire.operator_methods import CLEAR_GROUPS, UPDATE_GROUP

_PAGE = 1_000
_COLUMNS: Columns = (
    *("group", "ready", Column("limited", 6, is_number=True), "running", "oldest", Column("share", 5, is_number=True)),
    *("weight", "concurrency", "rate", "paused", whole("source")),
)
_ORDERS: dict[str, Callable[[GroupView], float]] = {
    "ready": lambda view: -view.ready,
    "limited": lambda view: -(view.limited or 0),
    "running": lambda view: -(view.running or 0),
    "oldest": lambda view: math.inf if view.oldest_run_after_ms is None else view.oldest_run_after_ms,
    "share": lambda view: -(view.last_minute_share or 0),
}
"""By name, what groups are sorted by, and then by their names."""

_NO_GROUPS = "no group of this queue has ready jobs or settings of its own"
_WITHOUT = "(no group)"
"""What a table says for the group of jobs without one."""


@click.group(
    cls=ServerGroup,
    epilog=f"""\b
Examples:
  pinlater group list mail
  pinlater group set mail acme --weight 3 --concurrency 20
  pinlater group set mail 'trial-*' --rate 10/s
  pinlater group pause mail acme --why 'they asked us to' --for 2h
  pinlater group resume mail acme

{EXIT_CODES}""",
)
def group() -> None:
    """Show the groups of a queue, such as its tenants; weigh, limit, pause and resume them, or take them off all jobs.

    docs/fairness.md says what a group is, and how groups share a queue.
    """


@group.command(
    "list",
    short_help="List the groups of a queue.",
    epilog="""\b
Examples:
  pinlater group list mail
  pinlater group list mail --sort ready
  pinlater group list mail --sort share        # who got the most in the last minute
  pinlater group list mail -o jsonl | jq -r 'select(.settings.paused.value == "true").name'""",
)
@click.argument("queue", shell_complete=offer_queues)
@click.option(
    "--sort",
    type=click.Choice(["name", *_ORDERS]),
    default="name",
    help="By name; or the most ready, limited or running jobs, the oldest ready job, or the largest share first.",
)
@click.option("--limit", type=click.IntRange(1), default=1_000, show_default=True, help="How many are read, by name.")
@output_option
@talks_to_server
def list_(client: Client, queue: str, sort: str, limit: int, format: str) -> None:
    """List the groups of a queue that have ready jobs, or settings of their own.

    A count of ready jobs goes no further than 10,000 for each shard and priority, and leaves out jobs that came due
    with no dequeue since. `limited` are those of them that the group's pause or limits hold back. Jobs that run are
    counted of groups that have a maximum. `share` is the part of the queue's hand-outs that the group had in the last
    minute, over all servers, at most 30 seconds old.
    """
    found: list[GroupView] = []
    continuation, missing = CONTINUATION_START, set[str]()
    while len(found) < limit and continuation != CONTINUATION_END:
        page = client.get_groups(queue, continuation=continuation, limit=min(_PAGE, limit - len(found)))
        found += page.groups
        missing.update(page.missing_shards)
        continuation = page.continuation
    if missing:
        click.echo(f"pinlater: not counted, since they are out: shard {', '.join(sorted(missing))}", err=True)
    if continuation != CONTINUATION_END:
        click.echo(f"pinlater: there are more groups than these {len(found):,}: --limit reads more", err=True)
    if sort in _ORDERS:
        found.sort(key=_ORDERS[sort])
    _write(format, found)


@group.command(
    short_help="Show groups, whatever they have.",
    epilog="""\b
Examples:
  pinlater group show mail acme
  pinlater group show mail acme betty -o json""",
)
@click.argument("queue", shell_complete=offer_queues)
@click.argument("groups", nargs=-1, required=True, metavar="GROUP...")
@output_option
@talks_to_server
def show(client: Client, queue: str, groups: Sequence[str], format: str) -> None:
    """Show groups of a queue, whatever they have: ready jobs, what they got in the last minute, weights, limits,
    pauses, and where these come from.
    """
    _show(client, queue, groups, format)


@group.command(
    "set",
    short_help="Give a group settings of its own.",
    help=f"""Give a group of a queue settings of its own, or those that fit a pattern.

    In a pattern, * stands for any text. What is set for a group's own name takes precedence; else the pattern with the
    longest text between its stars counts. It counts at once on the shards that answer, and within two seconds on the
    others. What is not named here stays as it is; --concurrency none lifts a limit that the queue has for all groups.

    {PASSWORD_HELP}""",
    epilog="""\b
Examples:
  pinlater group set mail acme --weight 3
  pinlater group set mail acme --concurrency 20 --rate 50/s
  pinlater group set mail 'trial-*' --concurrency 2
  pinlater queue set mail group_concurrency=5             # for each group of which nothing else is said""",
)
@click.argument("queue", shell_complete=offer_queues)
@click.argument("name", metavar="GROUP")
@click.option("--weight", metavar="N", help="Its share, in proportion to other groups, which have 1.")
@click.option("--concurrency", metavar="N", help="The most of its jobs in progress; none: no limit.")
@click.option("--rate", metavar="RATE", help="The most of its jobs handed out, as 50/s or 30/m; none: no limit.")
@output_option
@needs_password
@talks_to_server
def set_(client: Client, queue: str, name: str, format: str, **texts: str | None) -> None:
    given = {key: text for key, text in texts.items() if text is not None}
    if not given:
        raise click.UsageError("name at least one of --weight, --concurrency and --rate")
    _change(client, queue, name, format, given)


@group.command(
    short_help="Take back the settings of a group.",
    help=f"""Take back all settings of a group, or of a pattern; a pause too.

    {PASSWORD_HELP}""",
    epilog="""\b
Examples:
  pinlater group unset mail acme
  pinlater group unset mail 'trial-*'""",
)
@click.argument("queue", shell_complete=offer_queues)
@click.argument("name", metavar="GROUP")
@output_option
@needs_password
@talks_to_server
def unset(client: Client, queue: str, name: str, format: str) -> None:
    _change(client, queue, name, format, {}, [row.name for row in GROUP_SETTINGS.values() if not row.by_server])


@group.command(
    help=f"""Hand out no jobs of a group for a while.

    Until it is resumed, or until the time that is given. All else goes on: its jobs are stored, workers end what they
    have, and other groups take its share.

    {PASSWORD_HELP}""",
    epilog="""\b
Examples:
  pinlater group pause mail acme
  pinlater group pause mail acme --why 'their provider is down' --for 2h""",
)
@click.argument("queue", shell_complete=offer_queues)
@click.argument("name", metavar="GROUP")
@pause_options
@output_option
@needs_password
@talks_to_server
def pause(
    client: Client, queue: str, name: str, why: str | None, for_ms: int | None, until_ms: int | None, format: str
) -> None:
    _change(client, queue, name, format, {"paused": "true", **pause_texts(why, for_ms, until_ms)})


@group.command(
    help=f"""Hand out jobs of a group again, whoever paused it.

    Its turn is beside those of the others: it gets nothing for the time of its pause.

    {PASSWORD_HELP}""",
    epilog="""\b
Examples:
  pinlater group resume mail acme""",
)
@click.argument("queue", shell_complete=offer_queues)
@click.argument("name", metavar="GROUP")
@output_option
@needs_password
@talks_to_server
def resume(client: Client, queue: str, name: str, format: str) -> None:
    _change(client, queue, name, format, {}, ["paused"])


@group.command(
    short_help="Take the groups off all jobs of a queue.",
    help=f"""Take the groups off all jobs of a queue, whatever state they are in, and take back all settings of groups.

    So servers of versions that do not know groups can be started again: docs/fairness.md says how to go back. Jobs are
    handed out meanwhile, and may be out of turn. If a run is broken off, run it again: it clears the rest.

    {PASSWORD_HELP}""",
    epilog="""\b
Examples:
  pinlater group clear mail --dry-run
  pinlater group clear mail""",
)
@click.argument("queue", shell_complete=offer_queues)
@click.option("--dry-run", is_flag=True, help="Count the jobs that have a group, and change nothing.")
@output_option
@needs_password
@talks_to_server
def clear(client: Client, queue: str, dry_run: bool, format: str) -> None:
    GroupClearing(client, queue, admin_password(client, CLEAR_GROUPS, queue), dry_run=dry_run).run(format)


def _change(
    client: Client, queue: str, name: str, format: str, set: Mapping[str, str], unset: Sequence[str] = ()
) -> None:
    password = admin_password(client, UPDATE_GROUP, queue)
    say_missed(client.update_group(queue, name, password, set=set, unset=unset).missed_shards)
    _show(client, queue, [name], format)


def _show(client: Client, queue: str, groups: Sequence[str], format: str) -> None:
    _write(format, client.get_groups(queue, groups).groups)


def _write(format: str, views: Sequence[GroupView]) -> None:
    if has_new_keys(format):
        write_all(format, (), views)
    else:
        write_all(format, _COLUMNS, list(_rows(views, format)), empty=_NO_GROUPS)


def _rows(views: Sequence[GroupView], format: str) -> Iterator[Row]:
    """What came later is in the table alone: the keys of before are what they were."""
    for view in views:
        settings, oldest_ms = view.settings, view.oldest_run_after_ms
        row: dict[str, Any] = {
            "group": view.name or (_WITHOUT if format == "table" else ""),
            "ready": view.ready,
            "oldest": time_text(oldest_ms) if format == "table" and oldest_ms is not None else oldest_ms,
            "weight": int(settings["weight"].value),
            "paused": settings["paused"].value,
            "source": settings["weight"].source,
        }
        if format == "table":
            row["running"], row["limited"] = view.running, view.limited
            row["share"] = None if view.last_minute_share is None else f"{view.last_minute_share:.2f}"
            for key in ("concurrency", "rate"):
                row[key] = _limit(settings, key)
        yield row


def _limit(settings: Mapping[str, SettingView], key: str) -> str | None:
    """None: there is no such limit, or an older server does not know of it."""
    return settings[key].value if key in settings and settings[key].value != "none" else None
