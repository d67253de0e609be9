"""The schedules of an app at the start of its worker: applied, or logged where they are not in effect."""

from __future__ import annotations

import asyncio
from logging import DEBUG, ERROR
from typing import TYPE_CHECKING

from pinlater.errors import PinLaterError, QueueNotFound, RecordChanged
from pinlater.log_guard import GuardedLogger
from pinlater.password_search import PasswordNotFound, first_elsewhere, search_password
from pinlater_workers.app.app import App
from pinlater_workers.cli.schedule_plan import (
    SchedulePlan,
    carry_out,
    compared_schedules,
    keeper_of,
    operates,
    schedules_of,
)
from pinlater_workers.errors import ConfigurationError

if TYPE_CHECKING:
    from pinlater.client.async_client import AsyncClient

SOON_S = 5.0
LATER_S = 60.0
"""Before it is tried again: where servers cannot be reached, and where somebody has to mend something."""

_log = GuardedLogger("pinlater_workers.cli")
_NOT_APPLIED = (
    "schedules of this app are not in effect, so the cluster does not enqueue their jobs as declared: %s. Apply them: "
    "pinlater-worker schedules %s --apply, or start workers with --apply-schedules"
)


async def tend_schedules(app: App, named: str, *, apply: bool) -> None:
    """Until they are compared, and with `apply` applied. `named`: the option that names it, as "--app shop:app"."""
    keeper = keeper_of(*named.split(" ", 1))
    try:
        wanted = schedules_of(app, keeper)
    except ConfigurationError as error:
        _log.error("schedules: %s", error)
        return
    problem = ""
    while wanted or apply:
        pause_s = LATER_S
        try:
            client = app.async_client()
            plan = await compared_schedules(client, wanted, keeper)
            if apply:
                await _apply(client, plan)
            elif plan.not_in_effect:
                _log.warning(_NOT_APPLIED, ", ".join(plan.not_in_effect), named)
            return
        except (PinLaterError, PasswordNotFound) as error:
            if _passes(error):
                pause_s = SOON_S
            elif not apply:
                _log.info("whether the cluster has the schedules of this app cannot be seen: %s", error)
                return
            if str(error) != problem:
                problem = str(error)
                _log.log(ERROR if apply else DEBUG, "the schedules of this app are not applied yet: %s", error)
        await asyncio.sleep(pause_s)


def _passes(error: PinLaterError | PasswordNotFound) -> bool:
    """Without anybody who mends something: other workers apply them too, and create queues."""
    return isinstance(error, RecordChanged | QueueNotFound) or (isinstance(error, PinLaterError) and error.retryable)


async def _apply(client: AsyncClient, plan: SchedulePlan) -> None:
    for text in plan.taken_texts:
        _log.warning("schedule %s", text)
    if not plan.lines:
        return
    password = "" if await operates(client) else search_password(first_elsewhere(client), may_ask=False).text
    _log.info("schedules %s (%s)", await carry_out(client, plan, password), ", ".join(plan.lines))
