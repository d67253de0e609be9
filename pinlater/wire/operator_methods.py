"""The calls for operators of a cluster, part of the table in methods.py."""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Any

from pinlater.api import Api
from pinlater.model import AccessAction, RequestContext
from pinlater.wire import convert
from pinlater.wire import convert_operators as operators
from pinlater.wire.method import (
    Access,
    Idempotency,
    Method,
    every_queue,
    queue_or_every,
    queues_or_any,
    queues_or_every,
)

GET_QUEUES = Method(
    "getQueues",
    "get_queues",
    Idempotency.READ,
    (AccessAction.READ,),
    queues_or_any,
    lambda api, args, context: api.get_queues(args.request.queue_names or (), context=context),
    operators.queues_to_wire,
    operators.get_queues_to_wire,
    result=operators.queues_from_wire,
)


def _queues_of_update(args: Any) -> Collection[str]:
    """The one that its failed jobs are to go to, too."""
    request = args.request
    target = (request.settings or {}).get("dead_letter_queue")
    return (request.queue_name, target) if target else (request.queue_name,)


def _update_queue(api: Api, args: Any, context: RequestContext) -> Awaitable[Any]:
    request = args.request
    return api.update_queue(
        request.queue_name,
        request.password,
        set=request.settings or {},
        unset=request.unset or (),
        create=request.create or False,
        context=context,
    )


UPDATE_QUEUE = Method(
    "updateQueue",
    "update_queue",
    Idempotency.REPEAT,
    (AccessAction.OPERATE,),
    _queues_of_update,
    _update_queue,
    request=operators.update_queue_to_wire,
    result=operators.changed_from_wire,
    access=Access.ADMIN_PASSWORD,
)


def _update_shard(api: Api, args: Any, context: RequestContext) -> Awaitable[Any]:
    request = args.request
    give_up = bool(request.give_up)
    return api.update_shard(
        request.shard_id, request.password, dequeue_only=request.dequeue_only, give_up=give_up, context=context
    )


UPDATE_SHARD = Method(
    "updateShard",
    "update_shard",
    Idempotency.REPEAT,
    (AccessAction.ADMIN,),
    every_queue,
    _update_shard,
    request=operators.update_shard_to_wire,
    result=operators.changed_from_wire,
    access=Access.ADMIN_PASSWORD,
)

GET_CLUSTER_STATUS = Method(
    "getClusterStatus",
    "cluster_status",
    Idempotency.READ,
    (AccessAction.READ,),
    queues_or_every,
    lambda api, args, context: api.cluster_status(
        queues=args.request.queue_names, counters_since_ms=args.request.counters_since_ms, context=context
    ),
    request=operators.status_to_wire,
    result=operators.status_from_wire,
)


def _get_workers(api: Api, args: Any, context: RequestContext) -> Awaitable[Any]:
    request = args.request
    return api.get_workers(
        queue=request.queue_name or "",
        name=request.name or "",
        include_running=request.include_running or False,
        continuation=convert.continuation_from_wire(request),
        limit=100 if request.limit is None else request.limit,
        context=context,
    )


GET_WORKERS = Method(
    "getWorkers",
    "get_workers",
    Idempotency.READ,
    (AccessAction.READ,),
    queue_or_every,
    _get_workers,
    request=operators.get_workers_to_wire,
    result=operators.workers_from_wire,
)


def _audit(api: Api, args: Any, context: RequestContext) -> Awaitable[Any]:
    limit = args.request.limit
    return api.audit(limit=100 if limit is None else limit, before_ms=args.request.before_ms, context=context)


GET_AUDIT = Method(
    "getAudit",
    "audit",
    Idempotency.READ,
    (AccessAction.OPERATE,),
    every_queue,
    _audit,
    operators.audit_to_wire,
    operators.get_audit_to_wire,
    result=operators.audit_from_wire,
)
