"""`pinlater schedule`: jobs that are enqueued again and again, by a cron expression or an interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, BinaryIO
from zoneinfo import ZoneInfo

import click

from pinlater.cli.admin import PASSWORD_HELP, admin_password, needs_password
from pinlater.cli.call_options import call_options
from pinlater.cli.completion import offer_queues, offer_schedules
from pinlater.cli.connection import (
    EXIT_CODES,
    ServerGroup,
    can_ask,
    confirm,
    priority_option,
    say,
    say_missed,
    talks_patiently,
    talks_to_server,
)
from pinlater.cli.exit_codes import EXIT_FAILED
from pinlater.cli.job_text import text_fields
from pinlater.cli.output import Row, has_new_keys, json_object, output_option, whole, write_all, write_one
from pinlater.cli.times import duration_option, duration_or_zero_option, moment_option, time_text
from pinlater.client.client import Client
from pinlater.durations import duration_text
from pinlater.errors import RequestInvalid
from pinlater.model import (
    CONTINUATION_END,
    CONTINUATION_START,
    MAX_CATCH_UP,
    Misfire,
    Schedule,
    ScheduleChange,
    ScheduleView,
)
from pinlater.password_search import PASSWORD_VARIABLE
from pinlater.schedule import zone_moment
from pinlater.timetable import cron_warnings
from pinlater.wire.schedule_methods import DELETE_SCHEDULE, UPDATE_SCHEDULE

_PAGE = 1_000
_MISFIRES = {misfire.name.lower().replace("_", "-"): misfire for misfire in Misfire}
_NONE = "none"
LIST_COLUMNS = ("schedule", "queue", "times", whole("next"), whole("last_fired", 5), "state")


@click.group(
    cls=ServerGroup,
    epilog=f"""\b
Examples:
  pinlater schedule set nightly --queue reports --cron '0 3 * * *' --timezone Europe/Berlin --body '{{"all": true}}'
  pinlater schedule set poll --queue feeds --every 10m --body poll
  pinlater schedule list
  pinlater schedule next nightly
  pinlater schedule pause nightly

{EXIT_CODES}""",
)
def schedule() -> None:
    """Enqueue jobs again and again, by a cron expression or an interval."""


def _moment_or_none(text: str) -> int:
    """0 for none."""
    return 0 if text == _NONE else moment_option(text)


@schedule.command(
    "set",
    short_help="Make or change a schedule.",
    help=f"""Make the schedule NAME, or change what is given of it.

    A new one needs --queue, and --cron or --every, which take each other's place. The next five firings are shown
    before anything is saved, and on a terminal it asks for confirmation. It holds at every server within two
    seconds; only times that are yet to come count.

    A cron expression has five fields: minute, hour, day of the month, month, day of the week (0 or 7 is Sunday); also
    @hourly, @daily, @weekly, @monthly, @yearly. A time that does not exist, because the clock is set forward, fires at
    that moment; one that comes twice fires once. Where the hour is * or */n, each real minute fires that matches.

    {PASSWORD_HELP}""",
    epilog=f"""\b
Examples:
  pinlater schedule set nightly --queue reports --cron '0 3 * * *' --timezone Europe/Berlin --body '{{"all": true}}'
  pinlater schedule set report --queue reports --cron '0 6 * * 1' --job reports.weekly --args '{{"all": true}}'
  pinlater schedule set poll --queue feeds --every 10m --jitter 30s --file poll.json
  pinlater schedule set nightly --cron '30 2 * * 1-5' --dry-run
  pinlater schedule set nightly --misfire run-all --max-catch-up 7 --end none
  {PASSWORD_VARIABLE}=… pinlater schedule set nightly --priority 2 --yes""",
)
@click.argument("name", shell_complete=offer_schedules)
@click.option("--queue", shell_complete=offer_queues, help="The queue of its jobs.")
@click.option("--cron", metavar="EXPRESSION", help="When, in five fields, as in '30 3 * * 1-5'.")
@click.option("--timezone", metavar="ZONE", help="That of --cron, as in Europe/Berlin. [default: UTC]")
@click.option("--every", type=duration_option, metavar="DURATION", help="In place of --cron: 1s or more.")
@call_options
@click.option("--body", metavar="TEXT", help="The body of its jobs, up to 64 KiB.")
@click.option("--file", type=click.File("rb"), help="The body is what this file holds; - for standard input.")
@priority_option("1 is the highest. [default: 1]")
@click.option("--attempts", type=click.IntRange(1, 2**31 - 1), help="How often a job may be tried. [default: 2]")
@click.option("--group", metavar="TEXT", help="The group of its jobs, as a tenant; '': none.")
@click.option(
    "--tag", "tags", multiple=True, metavar="TAG", help="A text by which its jobs are found; up to 10; '': none."
)
@click.option("--serialize-key", metavar="KEY", help="Its jobs run one after the other, as all of this key; '': none.")
@click.option(
    "--misfire",
    type=click.Choice(list(_MISFIRES)),
    help="What becomes of the times at which no server ran. [default: run-once]",
)
@click.option(
    "--max-catch-up",
    type=click.IntRange(1, MAX_CATCH_UP),
    help="The most jobs that run-all makes up for. [default: 10]",
)
@click.option(
    "--jitter",
    type=duration_or_zero_option,
    metavar="DURATION",
    help="Each job waits up to this time, at random, after its firing; 0: it does not.",
)
@click.option("--start", type=_moment_or_none, metavar="TIME", help="No time before it counts: ISO, +10m, or none.")
@click.option("--end", type=_moment_or_none, metavar="TIME", help="No time from it on counts.")
@click.option("--only-if-version", metavar="VERSION", help="Only where this is its version; '': where it is not there.")
@click.option("--dry-run", is_flag=True, help="Check it, show the next five firings, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@output_option
@needs_password
@talks_to_server
def set_schedule(
    client: Client,
    name: str,
    queue: str | None,
    cron: str | None,
    timezone: str | None,
    every: int | None,
    call: bytes | None,
    body: str | None,
    file: BinaryIO | None,
    priority: int | None,
    attempts: int | None,
    tags: tuple[str, ...],
    group: str | None,
    serialize_key: str | None,
    misfire: str | None,
    max_catch_up: int | None,
    jitter: int | None,
    start: int | None,
    end: int | None,
    only_if_version: str | None,
    dry_run: bool,
    yes: bool,
    format: str,
) -> None:
    if cron is not None and every is not None:
        raise click.UsageError("give one of --cron and --every")
    if sum(each is not None for each in (body, file, call)) > 1:
        raise click.UsageError("give one of --body, --file and --job")
    if body is not None:
        call = body.encode("utf-8", "surrogateescape")
    change = ScheduleChange(
        name=name,
        queue=queue,
        body=call if file is None else file.read(),
        cron=cron,
        timezone=timezone,
        every_ms=every,
        priority=priority,
        attempts_allowed=attempts,
        serialize_key=serialize_key,
        tags=[tag for tag in tags if tag] if tags else None,
        group=group,
        misfire=None if misfire is None else _MISFIRES[misfire],
        max_catch_up=max_catch_up,
        jitter_ms=jitter,
        start_ms=start,
        end_ms=end,
    )
    password = admin_password(client, UPDATE_SCHEDULE)
    checked = client.update_schedule(change, password, dry_run=True, only_if_version=only_if_version)
    _say_next(checked.view)
    if dry_run:
        say("nothing was changed")
        view = checked.view
    else:
        if checked.is_changed and not yes and can_ask():
            confirm(f"Save schedule {name!r}?", "nothing was changed")
        saved = client.update_schedule(change, password, only_if_version=only_if_version)
        say_missed(saved.missed_shards)
        view = saved.view
    _write_view(format, view)


def _say_next(view: ScheduleView) -> None:
    shown = view.schedule
    if not view.next_ms:
        say(f"{shown.name} fires no more: no time is left")
        return
    say(f"{shown.name} fires {_times(shown)}{', but it is paused' if shown.paused else ''}; next:")
    for at_ms in view.next_ms:
        say(f"  {_local_text(shown, at_ms)}")
    for warning in cron_warnings(shown.cron):
        say(f"warning: {warning}")


def _times(shown: Schedule) -> str:
    if shown.every_ms is not None:
        return f"every {duration_text(shown.every_ms)}"
    return f"at {shown.cron} {shown.timezone}"


def _local_text(shown: Schedule, at_ms: int) -> str:
    """In its own zone, and in UTC."""
    utc = time_text(at_ms)
    if shown.every_ms is not None or shown.timezone == "UTC":
        return utc
    try:
        local = zone_moment(at_ms, ZoneInfo(shown.timezone))
    except (ValueError, OSError, LookupError):
        return utc
    return utc if local is None else f"{local:%a %Y-%m-%d %H:%M:%S %z}  ({utc})"


def _state(view: ScheduleView) -> str:
    if view.schedule.paused:
        return "paused"
    return view.trouble or "on"


def _list_row(view: ScheduleView) -> Row:
    return {
        "schedule": view.schedule.name,
        "queue": view.schedule.queue,
        "times": _times(view.schedule),
        "next": time_text(view.next_ms[0]) if view.next_ms and not view.schedule.paused else None,
        "last_fired": time_text(view.last_fired_ms) or None,
        "state": _state(view),
        "made_by": view.schedule.made_by,
        "version": view.version,
    }


def _row(view: ScheduleView) -> Row:
    """The JSON of before: times as milliseconds, and the next ones as texts too."""
    row: dict[str, Any] = {"schedule": view.schedule.name, **asdict(view.schedule)}
    del row["name"]
    row["misfire"] = view.schedule.misfire.name.lower().replace("_", "-")
    row |= text_fields("body", view.schedule.body)
    for key in ("version", "created_at_ms", "updated_at_ms", "updated_by", "last_fired_ms", "next_ms", "trouble"):
        row[key] = getattr(view, key)
    row["next"] = [time_text(at_ms) for at_ms in view.next_ms]
    return row


def _json(view: ScheduleView, *, with_body: bool = False) -> Row:
    shown = json_object(view)
    return shown if with_body else {name: shown[name] for name in shown if name not in ("body", "body_encoding")}


def _misfire_text(shown: Schedule) -> str:
    text = shown.misfire.name.lower().replace("_", "-")
    return f"{text}, up to {shown.max_catch_up}" if shown.misfire is Misfire.RUN_ALL else text


def _write_view(format: str, view: ScheduleView) -> None:
    if format != "table":
        write_all(format, (), [view], _row, partial(_json, with_body=True))
        return
    shown = view.schedule
    rows = {
        "schedule": shown.name,
        "queue": shown.queue,
        "times": _times(shown),
        "body": text_fields("body", shown.body)["body"],
        "priority": shown.priority,
        "attempts": shown.attempts_allowed,
        "serialize_key": shown.serialize_key or None,
        "tags": ", ".join(shown.tags) or None,
        "group": shown.group or None,
        "misfire": _misfire_text(shown),
        "jitter": duration_text(shown.jitter_ms),
        "start": time_text(shown.start_ms) or None,
        "end": time_text(shown.end_ms) or None,
        "state": _state(view),
        "last_fired": time_text(view.last_fired_ms) or None,
        "next": _local_text(shown, view.next_ms[0]) if view.next_ms else None,
        "made_by": shown.made_by or None,
        "updated": f"{time_text(view.updated_at_ms)} by {view.updated_by or '?'}" if view.version else None,
        "version": view.version or None,
    }
    write_all("table", ("field", whole("value")), [{"field": key, "value": value} for key, value in rows.items()])


def _views(client: Client, *, next_limit: int = 1, **which: Any) -> Iterator[ScheduleView]:
    continuation = CONTINUATION_START
    while True:
        page = client.get_schedules(next_limit=next_limit, continuation=continuation, limit=_PAGE, **which)
        yield from page.schedules
        continuation = page.continuation
        if continuation == CONTINUATION_END:
            return


def _one(client: Client, name: str, next_limit: int = 5) -> ScheduleView:
    for view in _views(client, names=[name], include_body=True, next_limit=next_limit):
        return view
    say(f"schedule {name!r} does not exist; `pinlater schedule list` shows those that do")
    raise SystemExit(EXIT_FAILED)


@schedule.command(
    "list",
    short_help="List the schedules, and when each fires next.",
    epilog="""\b
Examples:
  pinlater schedule list
  pinlater schedule list --queue reports
  pinlater schedule list -o jsonl | jq -r 'select(.trouble != "").name'""",
)
@click.option("--queue", default="", shell_complete=offer_queues, help="Only those of this queue.")
@click.option("--made-by", default="", help="Only those that this program made.")
@output_option
@talks_to_server
def list_schedules(client: Client, queue: str, made_by: str, format: str) -> None:
    """List the schedules by name: their times, when each fired last and fires next, and what is wrong with it."""
    lists_all = "there are no such schedules; `pinlater schedule list` lists all"
    empty = lists_all if queue or made_by else "there are no schedules; `pinlater schedule set NAME` makes one"
    write_all(format, LIST_COLUMNS, list(_views(client, queue=queue, made_by=made_by)), _list_row, _json, empty)


@schedule.command(
    epilog="""\b
Examples:
  pinlater schedule show nightly
  pinlater schedule show nightly -o json"""
)
@click.argument("name", shell_complete=offer_schedules)
@output_option
@talks_to_server
def show(client: Client, name: str, format: str) -> None:
    """Show all of a schedule."""
    _write_view(format, _one(client, name))


@schedule.command(
    "next",
    epilog="""\b
Examples:
  pinlater schedule next nightly
  pinlater schedule next nightly --limit 20
  pinlater schedule next nightly -o jsonl | jq '.next_ms[]'""",
)
@click.argument("name", shell_complete=offer_schedules)
@click.option("--limit", type=click.IntRange(1, 100), default=5, show_default=True, help="How many.")
@output_option
@talks_to_server
def show_next(client: Client, name: str, limit: int, format: str) -> None:
    """Show when a schedule fires next; of a paused one, when it would."""
    view = _one(client, name, limit)
    rows = [{"next": _local_text(view.schedule, at_ms), "at_ms": at_ms} for at_ms in view.next_ms]
    if has_new_keys(format):
        rows = [{"name": name, "next_ms": view.next_ms}]
    write_all(format, ("next",), rows)


def _set_paused(client: Client, names: Sequence[str], paused: bool) -> None:
    password = admin_password(client, UPDATE_SCHEDULE)
    for name in names:
        version = _one(client, name).version
        changed = client.update_schedule(ScheduleChange(name=name, paused=paused), password)
        say_missed(changed.missed_shards)
        is_new = changed.view.version != version
        what = "is paused" if paused else "fires again"
        say(f"{name} {what}{'' if is_new else ' already'}")


@schedule.command(
    short_help="Fire schedules no more, until they are resumed.",
    help=f"""Fire the schedules no more. Times that pass meanwhile are not made up for.

    {PASSWORD_HELP}""",
    epilog="""\b
Examples:
  pinlater schedule pause nightly
  pinlater schedule pause nightly poll""",
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=offer_schedules)
@needs_password
@talks_to_server
def pause(client: Client, names: Sequence[str]) -> None:
    _set_paused(client, names, True)


@schedule.command(
    short_help="Fire paused schedules again.",
    help=f"""Fire paused schedules again, at the times that come from now on.

    So does a schedule that is silent, because a clock was ahead when it fired last: `pinlater schedule show` shows it.

    {PASSWORD_HELP}""",
    epilog="""\b
Examples:
  pinlater schedule resume nightly""",
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=offer_schedules)
@needs_password
@talks_to_server
def resume(client: Client, names: Sequence[str]) -> None:
    _set_paused(client, names, False)


@schedule.command(
    help=f"""Delete schedules. The jobs that they enqueued stay.

    {PASSWORD_HELP} A schedule that does not exist is no error.""",
    epilog=f"""\b
Examples:
  pinlater schedule delete nightly
  {PASSWORD_VARIABLE}=… pinlater schedule delete nightly poll --yes""",
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=offer_schedules)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@needs_password
@talks_to_server
def delete(client: Client, names: Sequence[str], yes: bool) -> None:
    if not (yes or can_ask()):
        raise click.UsageError("without a terminal to ask on, --yes is needed")
    if not yes:
        confirm(f"Delete {', '.join(names)}?", "nothing was deleted")
    password = admin_password(client, DELETE_SCHEDULE)
    for name in names:
        changed = client.delete_schedule(name, password)
        say_missed(changed.missed_shards)
        say(f"schedule {name} was deleted" if changed.version else f"schedule {name} does not exist")


@schedule.command(
    short_help="Enqueue the job of a schedule now.",
    epilog="""\b
Examples:
  pinlater schedule run nightly
  pinlater job wait "$(pinlater schedule run nightly)\"""",
)
@click.argument("name", shell_complete=offer_schedules)
@output_option
@talks_patiently
def run(client: Client, name: str, format: str) -> None:
    """Enqueue the job of a schedule now, whether or not it is paused, and print its descriptor.

    The times of the schedule stay as they are.
    """
    view = _one(client, name)
    try:
        job = view.job()
    except ValueError as error:
        raise RequestInvalid(str(error)) from None
    (descriptor,) = client.enqueue(view.schedule.queue, [job])
    write_one(format, "descriptor", descriptor)
