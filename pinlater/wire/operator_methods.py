"""The calls for operators of a cluster, part of the table in methods.py."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pinlater.api import Api
from pinlater.model import AccessAction
from pinlater.wire.method import (
    Access,
    Idempotency,
    Method,
    any_queue,
    every_queue,
    named_queue,
    queue_or_every,
    queues_or_any,
    queues_or_every,
)

_READ, _OPERATE, _ADMIN = (AccessAction.READ,), (AccessAction.OPERATE,), (AccessAction.ADMIN,)


def _queues_of_update(args: Any) -> Collection[str]:
    """The one that its failed jobs are to go to, too."""
    request = args.request
    target = (request.set or {}).get("dead_letter_queue")
    return (request.name, target) if target else (request.name,)


GET_QUEUES = Method("getQueues", Api.get_queues, Idempotency.READ, _READ, queues_or_any)
UPDATE_QUEUE = Method(
    "updateQueue", Api.update_queue, Idempotency.REPEAT, _OPERATE, _queues_of_update, access=Access.ADMIN_PASSWORD
)
GET_GROUPS = Method("getGroups", Api.get_groups, Idempotency.READ, _READ, named_queue)
UPDATE_GROUP = Method(
    "updateGroup",
    Api.update_group,
    Idempotency.REPEAT,
    _OPERATE,
    named_queue,
    lambda args: (args.request.group,),
    access=Access.ADMIN_PASSWORD,
)
CLEAR_GROUPS = Method(
    "clearGroups", Api.clear_groups, Idempotency.REPEAT, _OPERATE, named_queue, access=Access.ADMIN_PASSWORD
)
UPDATE_SHARD = Method(
    "updateShard", Api.update_shard, Idempotency.REPEAT, _ADMIN, every_queue, access=Access.ADMIN_PASSWORD
)
GET_CLUSTER_STATUS = Method("getClusterStatus", Api.cluster_status, Idempotency.READ, _READ, queues_or_every)
GET_WORKERS = Method("getWorkers", Api.get_workers, Idempotency.READ, _READ, queue_or_every)
GET_ALARMS = Method("getAlarms", Api.get_alarms, Idempotency.READ, _READ, any_queue)
MUTE_ALARM = Method(
    "muteAlarm", Api.mute_alarm, Idempotency.REPEAT, _OPERATE, every_queue, access=Access.ADMIN_PASSWORD
)
COMMAND_WORKERS = Method("commandWorkers", Api.command_workers, Idempotency.REPEAT, _OPERATE, any_queue)
"""The service asks for the right on the queues of each worker."""

GET_AUDIT = Method("getAudit", Api.audit, Idempotency.READ, _OPERATE, every_queue)
