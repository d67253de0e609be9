"""The calls about schedules, part of the table in methods.py."""

from __future__ import annotations

from typing import Any

from pinlater.api import Api
from pinlater.model import AccessAction, Schedule, ScheduleChange
from pinlater.wire.method import Access, Idempotency, Method, every_queue, queue_or_every
from pinlater.wire.struct_map import BY_HAND

BY_HAND[Schedule, "start_ms"] = lambda sent: sent.start_ms or None
BY_HAND[Schedule, "end_ms"] = lambda sent: sent.end_ms or None
_OPERATE = (AccessAction.OPERATE,)


def _update_idempotency(
    change: ScheduleChange, password: str, dry_run: bool = False, only_if_version: str | None = None
) -> Idempotency:
    return Idempotency.REPEAT if dry_run or only_if_version is None else Idempotency.ONCE


def _delete_idempotency(name: str, password: str, only_if_version: str | None = None) -> Idempotency:
    return Idempotency.REPEAT if only_if_version is None else Idempotency.ONCE


def _shows_bodies(args: Any) -> bool:
    return bool(args.request.include_body)


UPDATE_SCHEDULE = Method(
    "updateSchedule",
    Api.update_schedule,
    Idempotency.ONCE,
    _OPERATE,
    every_queue,
    access=Access.ADMIN_PASSWORD,
    idempotency_of=_update_idempotency,
)
GET_SCHEDULES = Method(
    "getSchedules",
    Api.get_schedules,
    Idempotency.READ,
    (AccessAction.READ,),
    queue_or_every,
    shows_bodies=_shows_bodies,
)
DELETE_SCHEDULE = Method(
    "deleteSchedule",
    Api.delete_schedule,
    Idempotency.ONCE,
    _OPERATE,
    every_queue,
    access=Access.ADMIN_PASSWORD,
    idempotency_of=_delete_idempotency,
)
