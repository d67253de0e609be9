"""`pinlater-worker schedules`: what the app says of schedules, against what the cluster has."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from pinlater.durations import duration_text
from pinlater.errors import MethodUnknown, RecordChanged
from pinlater.model import CONTINUATION_END, CONTINUATION_START, AccessAction, Schedule, ScheduleChange, ScheduleView
from pinlater.printable import printable
from pinlater.timetable import cron_warnings
from pinlater.written import secret_variable
from pinlater_workers.app.loader import ServerFlags, load
from pinlater_workers.cli.process_exit import EXIT_FAILED, say
from pinlater_workers.cli.run import server_options
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.jobs.job_schedule import schedule_of

if TYPE_CHECKING:
    from pinlater.client.client import Client

PASSWORD_VARIABLE = "PINLATER_ADMIN_PASSWORD"
_PAGE = 1_000
_KEPT = ("name", "paused", "start_ms", "end_ms", "max_catch_up")
"""What an app does not say: operators may change it."""

_COMPARED = tuple(each.name for each in fields(Schedule) if each.name not in _KEPT)


@click.command(
    epilog=f"""\b
Examples:
  pinlater-worker schedules --app shop.jobs:app                            show what would change
  {PASSWORD_VARIABLE}=… pinlater-worker schedules --app shop.jobs:app --apply
  pinlater-worker schedules --config conf/jobs.toml --made-by shop"""
)
@click.option("--app", metavar="MODULE:NAME", help="The app; the current folder is on the import path.")
@click.option("--config", metavar="FILE", type=click.Path(dir_okay=False), help="A TOML file with jobs, or the app.")
@server_options
@click.option("--made-by", metavar="NAME", help="Who keeps them: only what has this name is changed or removed. "
              "[default: what --app or --config says]")  # fmt: skip
@click.option(
    "--apply", is_flag=True, help="Change the cluster so; it needs a token that allows it, or the admin password."
)
def schedules(
    app: str | None,
    config: str | None,
    target: ServerFlags,
    made_by: str | None,
    apply: bool,
) -> None:
    """Show how the schedules of the app differ from those of the cluster, and with --apply change these.

    A schedule has the name of its job. Only schedules that this app made are changed and removed; one of the same name
    that somebody else made is left alone, and the command fails. A pause, a start and an end are left as they are.
    """
    loaded = load(app, config)
    target.apply_to(loaded.app)
    keeper = made_by or app or os.path.basename(config or "")
    wanted: dict[str, Schedule] = {}
    for job_type in loaded.app.job_types.values():
        schedule = schedule_of(job_type, keeper)
        if schedule is not None:
            wanted[schedule.name] = schedule
    with loaded.app.client as client:
        taken = _compare_and_apply(client, wanted, keeper, apply=apply)
    if taken:
        raise SystemExit(EXIT_FAILED)


def _compare_and_apply(client: Client, wanted: Mapping[str, Schedule], keeper: str, *, apply: bool) -> list[str]:
    """The names that somebody else has."""
    found = {view.schedule.name: view for view in _views(client, names=sorted(wanted))} if wanted else {}
    found |= {view.schedule.name: view for view in _views(client, made_by=keeper)}
    changes: list[tuple[Schedule, ScheduleView | None]] = []
    removed: list[ScheduleView] = []
    taken: list[str] = []
    for name in sorted(wanted.keys() | found.keys()):
        schedule, view = wanted.get(name), found.get(name)
        if schedule is None:
            assert view is not None
            removed.append(view)
            click.echo(printable(f"- {name}"))
        elif view is None:
            changes.append((schedule, None))
            click.echo(printable(f"+ {name}  queue {schedule.queue}, {_times(schedule)}"))
        elif view.schedule.made_by != keeper:
            taken.append(name)
        else:
            differences = list(_differences(view.schedule, schedule))
            if differences:
                changes.append((schedule, view))
                click.echo(printable(f"~ {name}  {'; '.join(differences)}"))
    if not changes and not removed:
        click.echo(f"no difference in {len(wanted) - len(taken)} schedules")
    for name in taken:
        owner = found[name].schedule.made_by or "an operator"
        hint = f"rename the job, or delete the other one: pinlater schedule delete {name}"
        say(printable(f"{name} was made by {owner}, and is left alone; {hint}"))
    for name in sorted(wanted.keys() - taken):
        for warning in cron_warnings(wanted[name].cron):
            say(printable(f"warning: {name}: {warning}"))
    if apply and (changes or removed):
        _apply(client, changes, removed)
    return taken


def _views(client: Client, **which: Any) -> Iterator[ScheduleView]:
    continuation = CONTINUATION_START
    while True:
        page = client.get_schedules(include_body=True, next_limit=0, continuation=continuation, limit=_PAGE, **which)
        yield from page.schedules
        continuation = page.continuation
        if continuation == CONTINUATION_END:
            return


def _apply(client: Client, changes: list[tuple[Schedule, ScheduleView | None]], removed: list[ScheduleView]) -> None:
    """What somebody else changed meanwhile is not overwritten: RecordChanged. Other hosts of a deploy make the same
    changes at the same moment, which is no reason to fail, and neither is a pause.
    """
    password = _password(client)
    for schedule, view in changes:
        _set(client, schedule, view, password)
    for view in removed:
        _remove(client, view, password)
    click.echo(f"applied: {len(changes)} set, {len(removed)} removed")


def _set(client: Client, schedule: Schedule, view: ScheduleView | None, password: str) -> None:
    """`view`: as it was found."""
    version = "" if view is None else view.version
    while True:
        try:
            client.update_schedule(_change(schedule), password, only_if_version=version)
        except RecordChanged:
            now = next(_views(client, names=[schedule.name]), None)
            if now is not None and not any(_differences(now.schedule, schedule)):
                return
            if now is None or view is None or any(_differences(now.schedule, view.schedule)):
                raise
            version = now.version
        else:
            return


def _remove(client: Client, view: ScheduleView, password: str) -> None:
    version = view.version
    while True:
        try:
            client.delete_schedule(view.schedule.name, password, only_if_version=version)
        except RecordChanged:
            now = next(_views(client, names=[view.schedule.name]), None)
            if now is None:
                return
            if any(_differences(now.schedule, view.schedule)):
                raise
            version = now.version
        else:
            return


def _password(client: Client) -> str:
    """ "" where the caller's token or certificate allows it."""
    with suppress(MethodUnknown):  # of an older server
        if client.get_access().needs_no_password([AccessAction.OPERATE]):
            return ""
    password = secret_variable(PASSWORD_VARIABLE)
    if password:
        return password
    try:
        prompted: str = click.prompt("Admin password", hide_input=True, err=True)
    except click.Abort:
        raise ConfigurationError(f"no admin password; set {PASSWORD_VARIABLE}, or give it on a terminal") from None
    return prompted


def _change(schedule: Schedule) -> ScheduleChange:
    values = {name: getattr(schedule, name) for name in ("name", *_COMPARED)}
    if schedule.every_ms is not None:
        values["cron"] = None
    return ScheduleChange(**values)


def _differences(has: Schedule, wants: Schedule) -> Iterator[str]:
    for name in _COMPARED:
        before, after = getattr(has, name), getattr(wants, name)
        if before != after:
            shown = "other arguments" if name == "body" else f"{_shown(before)} -> {_shown(after)}"
            yield f"{name.removesuffix('_ms')}: {shown}"


def _shown(value: object) -> str:
    return str(getattr(value, "name", value)).lower() if value not in (None, "") else "none"


def _times(schedule: Schedule) -> str:
    if schedule.every_ms is not None:
        return f"every {duration_text(schedule.every_ms)}"
    return f"at {schedule.cron} {schedule.timezone}"
