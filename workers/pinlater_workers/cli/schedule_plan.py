"""The changes that a cluster's schedules need to match those of an app."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from pinlater.durations import duration_text
from pinlater.errors import MethodUnknown, RecordChanged
from pinlater.model import CONTINUATION_END, CONTINUATION_START, AccessAction, Schedule, ScheduleChange, ScheduleView
from pinlater_workers.app.app import App
from pinlater_workers.jobs.job_schedule import schedule_of

if TYPE_CHECKING:
    from pinlater.client.async_client import AsyncClient

_PAGE = 1_000
_KEPT = ("name", "paused", "start_ms", "end_ms", "max_catch_up")
"""What an app does not say: operators may change it."""

_COMPARED = tuple(each.name for each in fields(Schedule) if each.name not in _KEPT)


@dataclass
class SchedulePlan:
    """`changes`: schedules, each with the one that is there. `taken`: those that others made, by name."""

    wanted: Mapping[str, Schedule]
    changes: list[tuple[Schedule, ScheduleView | None]] = field(default_factory=list)
    removed: list[ScheduleView] = field(default_factory=list)
    taken: dict[str, ScheduleView] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    """What changes, for people."""

    @property
    def taken_texts(self) -> list[str]:
        return [
            f"{name} was made by {view.schedule.made_by or 'an operator'}, and is left alone; rename the job, or "
            f"delete the other one: pinlater schedule delete {name}"
            for name, view in self.taken.items()
        ]

    @property
    def not_in_effect(self) -> list[str]:
        """The schedules of the app that no one of the cluster stands for, whoever made it."""
        missing = [schedule.name for schedule, _ in self.changes]
        others = [
            name
            for name, view in self.taken.items()
            if any(_differences(view.schedule, self.wanted[name], ("made_by",)))
        ]
        return sorted(missing + others)


def keeper_of(option: str, value: str) -> str:
    """Who keeps the schedules of the app that --app or --config names."""
    return os.path.basename(value) if option == "--config" else value


def schedules_of(app: App, keeper: str) -> dict[str, Schedule]:
    """What the app says, by name. ConfigurationError."""
    found = (schedule_of(job_type, keeper) for job_type in app.job_types.values())
    return {schedule.name: schedule for schedule in found if schedule is not None}


async def compared_schedules(client: AsyncClient, wanted: Mapping[str, Schedule], keeper: str) -> SchedulePlan:
    found = {view.schedule.name: view async for view in _views(client, names=sorted(wanted))} if wanted else {}
    found |= {view.schedule.name: view async for view in _views(client, made_by=keeper)}
    plan = SchedulePlan(wanted)
    for name in sorted(wanted.keys() | found.keys()):
        schedule, view = wanted.get(name), found.get(name)
        if schedule is None:
            assert view is not None
            plan.removed.append(view)
            plan.lines.append(f"- {name}")
        elif view is None:
            plan.changes.append((schedule, None))
            plan.lines.append(f"+ {name}  queue {schedule.queue}, {_times(schedule)}")
        elif view.schedule.made_by != keeper:
            plan.taken[name] = view
        else:
            differences = list(_differences(view.schedule, schedule))
            if differences:
                plan.changes.append((schedule, view))
                plan.lines.append(f"~ {name}  {'; '.join(differences)}")
    return plan


async def carry_out(client: AsyncClient, plan: SchedulePlan, password: str) -> str:
    """What was done. What somebody else changed meanwhile is not overwritten: RecordChanged. Other hosts of a deploy
    make the same changes at the same moment, which is no reason to fail, and neither is a pause.
    """
    for schedule, view in plan.changes:
        await _set(client, schedule, view, password)
    for view in plan.removed:
        await _remove(client, view, password)
    return f"applied: {len(plan.changes)} set, {len(plan.removed)} removed"


async def operates(client: AsyncClient) -> bool:
    """Whether the caller's token or certificate allows it, so that no admin password is needed."""
    with suppress(MethodUnknown):  # of an older server
        return (await client.get_access()).needs_no_password([AccessAction.OPERATE])
    return False


async def _views(client: AsyncClient, **which: Any) -> AsyncIterator[ScheduleView]:
    continuation = CONTINUATION_START
    while True:
        page = await client.get_schedules(
            include_body=True, next_limit=0, continuation=continuation, limit=_PAGE, **which
        )
        for view in page.schedules:
            yield view
        continuation = page.continuation
        if continuation == CONTINUATION_END:
            return


async def _view_of(client: AsyncClient, name: str) -> ScheduleView | None:
    return next(iter([view async for view in _views(client, names=[name])]), None)


async def _set(client: AsyncClient, schedule: Schedule, view: ScheduleView | None, password: str) -> None:
    """`view`: as it was found."""
    version = "" if view is None else view.version
    while True:
        try:
            await client.update_schedule(_change(schedule), password, only_if_version=version)
        except RecordChanged:
            now = await _view_of(client, schedule.name)
            if now is not None and not any(_differences(now.schedule, schedule)):
                return
            if now is None or view is None or any(_differences(now.schedule, view.schedule)):
                raise
            version = now.version
        else:
            return


async def _remove(client: AsyncClient, view: ScheduleView, password: str) -> None:
    version = view.version
    while True:
        try:
            await client.delete_schedule(view.schedule.name, password, only_if_version=version)
        except RecordChanged:
            now = await _view_of(client, view.schedule.name)
            if now is None:
                return
            if any(_differences(now.schedule, view.schedule)):
                raise
            version = now.version
        else:
            return


def _change(schedule: Schedule) -> ScheduleChange:
    values = {name: getattr(schedule, name) for name in ("name", *_COMPARED)}
    if schedule.every_ms is not None:
        values["cron"] = None
    return ScheduleChange(**values)


def _differences(has: Schedule, wants: Schedule, but: tuple[str, ...] = ()) -> Iterator[str]:
    for name in (each for each in _COMPARED if each not in but):
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
