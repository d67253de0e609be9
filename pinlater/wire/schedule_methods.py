"""The calls about schedules, part of the table in methods.py."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from pinlater.api import Api
from pinlater.model import AccessAction, RequestContext, ScheduleChange
from pinlater.wire import convert
from pinlater.wire import convert_operators as operators
from pinlater.wire import convert_schedules as schedules
from pinlater.wire.method import Access, Idempotency, Method, every_queue, queue_or_every


def _update_schedule(api: Api, args: Any, context: RequestContext) -> Awaitable[Any]:
    request = args.request
    return api.update_schedule(
        schedules.change_from_wire(request.schedule),
        request.password,
        dry_run=request.dry_run or False,
        only_if_version=request.only_if_version,
        context=context,
    )


def _update_schedule_idempotency(
    change: ScheduleChange, password: str, dry_run: bool, only_if_version: str | None
) -> Idempotency:
    return Idempotency.REPEAT if dry_run or only_if_version is None else Idempotency.ONCE


UPDATE_SCHEDULE = Method(
    "updateSchedule",
    "update_schedule",
    Idempotency.ONCE,
    (AccessAction.OPERATE,),
    every_queue,
    _update_schedule,
    request=schedules.update_schedule_to_wire,
    result=schedules.schedule_updated_from_wire,
    access=Access.ADMIN_PASSWORD,
    idempotency_of=_update_schedule_idempotency,
)


def _get_schedules(api: Api, args: Any, context: RequestContext) -> Awaitable[Any]:
    request = args.request
    return api.get_schedules(
        request.names,
        queue=request.queue_name or "",
        made_by=request.made_by or "",
        include_body=request.include_body or False,
        next_limit=1 if request.next_limit is None else request.next_limit,
        continuation=convert.continuation_from_wire(request),
        limit=100 if request.limit is None else request.limit,
        context=context,
    )


GET_SCHEDULES = Method(
    "getSchedules",
    "get_schedules",
    Idempotency.READ,
    (AccessAction.READ,),
    queue_or_every,
    _get_schedules,
    request=schedules.get_schedules_to_wire,
    result=schedules.schedules_from_wire,
    shows_bodies=lambda args: args.request.include_body or False,
)

DELETE_SCHEDULE = Method(
    "deleteSchedule",
    "delete_schedule",
    Idempotency.ONCE,
    (AccessAction.OPERATE,),
    every_queue,
    lambda api, args, context: api.delete_schedule(
        args.request.name, args.request.password, only_if_version=args.request.only_if_version, context=context
    ),
    request=schedules.delete_schedule_to_wire,
    result=operators.changed_from_wire,
    access=Access.ADMIN_PASSWORD,
    idempotency_of=lambda name, password, only_if_version: (
        Idempotency.REPEAT if only_if_version is None else Idempotency.ONCE
    ),
)
