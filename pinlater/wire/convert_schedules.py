"""Schedules: the structs of the interface <-> the model. What a server answers is mostly the model itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pinlater.errors import RequestInvalid
from pinlater.model import (
    CONTINUATION_END,
    Misfire,
    Schedule,
    ScheduleChange,
    SchedulesPage,
    ScheduleUpdated,
    ScheduleView,
)
from pinlater.wire.interface import filled, struct

_UpdateRequest = struct("UpdateScheduleRequest")
_GetRequest = struct("GetSchedulesRequest")
_DeleteRequest = struct("DeleteScheduleRequest")
_FIELDS = tuple(ScheduleChange.__dataclass_fields__)
_MISFIRES = {int(misfire): misfire for misfire in Misfire}


# -- a server reads and answers ----------------------------------------------------------------------------------------


def change_from_wire(schedule: Any) -> ScheduleChange:
    """RequestInvalid."""
    change = ScheduleChange(**{name: getattr(schedule, name) for name in _FIELDS})
    if change.misfire is not None:
        if change.misfire not in _MISFIRES:
            raise RequestInvalid.of("misfire", change.misfire, ", ".join(f"{each.name} {each}" for each in Misfire))
        change.misfire = _MISFIRES[change.misfire]
    return change


# -- a client calls ----------------------------------------------------------------------------------------------------


def update_schedule_to_wire(change: ScheduleChange, password: str, dry_run: bool, only_if_version: str | None) -> Any:
    return filled(
        _UpdateRequest, schedule=change, password=password, dry_run=dry_run or None, only_if_version=only_if_version
    )


def get_schedules_to_wire(
    names: Sequence[str] | None,
    queue: str,
    made_by: str,
    include_body: bool,
    next_limit: int,
    continuation: str,
    limit: int,
) -> Any:
    return filled(
        _GetRequest,
        names=None if names is None else list(names),
        queue_name=queue or None,
        made_by=made_by or None,
        include_body=include_body,
        next_limit=next_limit,
        limit=limit,
        continuation=continuation,
    )


def delete_schedule_to_wire(name: str, password: str, only_if_version: str | None) -> Any:
    return filled(_DeleteRequest, name=name, password=password, only_if_version=only_if_version)


# -- a client reads ----------------------------------------------------------------------------------------------------


def schedule_updated_from_wire(response: Any) -> ScheduleUpdated:
    return ScheduleUpdated(_view(response.view), response.is_changed is not False, response.missed_shards or [])


def schedules_from_wire(response: Any) -> SchedulesPage:
    return SchedulesPage(
        [_view(each) for each in response.schedules],
        CONTINUATION_END if response.continuation is None else response.continuation,
    )


def _view(view: Any) -> ScheduleView:
    told = {name: getattr(view.schedule, name) for name in _FIELDS}
    schedule = Schedule(**{name: value for name, value in told.items() if value is not None})
    schedule.misfire = _MISFIRES.get(schedule.misfire, Misfire.RUN_ONCE)
    schedule.start_ms, schedule.end_ms = schedule.start_ms or None, schedule.end_ms or None
    return ScheduleView(
        schedule=schedule,
        version=view.version or "",
        created_at_ms=view.created_at_ms or 0,
        updated_at_ms=view.updated_at_ms or 0,
        updated_by=view.updated_by or "",
        last_fired_ms=view.last_fired_ms,
        next_ms=view.next_ms or [],
        trouble=view.trouble or "",
        body_size=view.body_size or 0,
    )
