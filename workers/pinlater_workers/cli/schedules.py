"""`pinlater-worker schedules`: the schedules of an app, compared with those of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import click

from pinlater.model import Schedule
from pinlater.password_search import DATA_HELP, PASSWORD_VARIABLE, PasswordNotFound, first_elsewhere, search_password
from pinlater.printable import printable
from pinlater.timetable import cron_warnings
from pinlater_workers.app.app import App
from pinlater_workers.app.loader import ServerFlags, load
from pinlater_workers.cli.process_exit import EXIT_FAILED, say
from pinlater_workers.cli.run import server_options
from pinlater_workers.cli.schedule_plan import (
    SchedulePlan,
    carry_out,
    compared_schedules,
    keeper_of,
    operates,
    schedules_of,
)
from pinlater_workers.errors import ConfigurationError


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
@click.option("--data", metavar="PATH", help=DATA_HELP)
def schedules(
    app: str | None,
    config: str | None,
    target: ServerFlags,
    made_by: str | None,
    apply: bool,
    data: str | None,
) -> None:
    """Show how the schedules of the app differ from those of the cluster, and with --apply change these.

    A schedule has the name of its job. Only schedules that this app made are changed and removed; one of the same name
    that somebody else made is left alone, and the command fails. A pause, a start and an end are left as they are.
    """
    loaded = load(app, config)
    target.apply_to(loaded.app)
    keeper = made_by or keeper_of(*(("--app", app) if app else ("--config", config or "")))
    plan, elsewhere = asyncio.run(_compared(loaded.app, schedules_of(loaded.app, keeper), keeper))
    if apply and plan.lines:
        try:
            password = "" if elsewhere is None else search_password(elsewhere, data).text
        except PasswordNotFound as error:
            raise ConfigurationError(str(error)) from None
        click.echo(asyncio.run(_applied(loaded.app, plan, password)))
    if plan.taken:
        raise SystemExit(EXIT_FAILED)


async def _compared(app: App, wanted: Mapping[str, Schedule], keeper: str) -> tuple[SchedulePlan, str | None]:
    """What has to change, which it prints; and a place elsewhere that the password goes to. None: none is needed."""
    async with app.connect() as client:
        plan = await compared_schedules(client, wanted, keeper)
        for line in plan.lines:
            click.echo(printable(line))
        if not plan.lines:
            click.echo(f"no difference in {len(wanted) - len(plan.taken)} schedules")
        for text in plan.taken_texts:
            say(printable(text))
        for name in sorted(wanted.keys() - plan.taken):
            for warning in cron_warnings(wanted[name].cron):
                say(printable(f"warning: {name}: {warning}"))
        return plan, first_elsewhere(client) if plan.lines and not await operates(client) else None


async def _applied(app: App, plan: SchedulePlan, password: str) -> str:
    async with app.connect() as client:
        return await carry_out(client, plan, password)
