"""The calls of the interface, one table: names, what each needs, and how it becomes bytes and a call of an Api.

A server reads a call by `serve` and writes its answer by `answer`; a client writes a call by `arguments` and reads its
result by `result`. Metrics label calls by the wire's name. A further call is an entry here, beside the interface file,
the method of `pinlater.api.Api` and the typed methods of the service and the clients.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from typing import Any

from pinlater.api import Api
from pinlater.model import (
    ANY_QUEUE,
    AccessAction,
    Ack,
    Checkpoint,
    DequeueRequest,
    KeyRef,
    RequestContext,
    WorkerReport,
    is_descriptor,
)
from pinlater.wire import convert
from pinlater.wire import convert_keyed as keyed
from pinlater.wire import convert_operators as operators
from pinlater.wire.access_methods import DELETE_TOKEN, GET_ACCESS, GET_TOKENS, GET_USAGE, UPDATE_TOKEN
from pinlater.wire.body_methods import CHANGE_BODIES, GET_BODY_TIERS
from pinlater.wire.flow_methods import (
    ADD_FLOW_ITEMS,
    ASSIGN_ITEM,
    CANCEL_FLOW,
    CREATE_FLOW,
    DELETE_FLOW,
    GET_FLOW,
    GET_FLOW_ITEMS,
    GET_FLOWS,
    RESUME_FLOW,
    SEAL_STAGE,
)
from pinlater.wire.found_job_methods import CHANGE_FOUND_JOBS, SEARCH_JOBS
from pinlater.wire.method import Access as Access
from pinlater.wire.method import Idempotency as Idempotency
from pinlater.wire.method import Method as Method
from pinlater.wire.method import any_queue, named_queue
from pinlater.wire.operator_methods import (
    GET_AUDIT,
    GET_CLUSTER_STATUS,
    GET_QUEUES,
    GET_WORKERS,
    UPDATE_QUEUE,
    UPDATE_SHARD,
)
from pinlater.wire.schedule_methods import DELETE_SCHEDULE, GET_SCHEDULES, UPDATE_SCHEDULE

_CONSUME_OR_READ = (AccessAction.CONSUME, AccessAction.READ)

# -- queues ------------------------------------------------------------------------------------------------------------

CREATE_QUEUE: Method[None] = Method(
    "createQueue",
    "create_queue",
    Idempotency.REPEAT,
    (AccessAction.OPERATE,),
    lambda args: (args.name,),
    lambda api, args, context: api.create_queue(args.name, context=context),
    names=("name",),
)

DELETE_QUEUE: Method[None] = Method(
    "deleteQueue",
    "delete_queue",
    Idempotency.ONCE,
    (AccessAction.ADMIN,),
    lambda args: (args.name,),
    lambda api, args, context: api.delete_queue(args.name, args.password, context=context),
    names=("name", "password"),
    access=Access.ADMIN_PASSWORD,
)

GET_QUEUE_NAMES = Method(
    "getQueueNames",
    "queue_names",
    Idempotency.READ,
    (AccessAction.READ,),
    any_queue,
    lambda api, args, context: api.queue_names(context=context),
    result=set[str],
)


# -- producers ---------------------------------------------------------------------------------------------------------


def _enqueue(api: Api, args: Any, context: RequestContext) -> Awaitable[Any]:
    request = args.request
    return api.enqueue(request.queue_name, convert.jobs_from_wire(request.jobs), context=context)


ENQUEUE = Method(
    "enqueueJobs",
    "enqueue",
    Idempotency.ONCE,
    (AccessAction.ENQUEUE,),
    named_queue,
    _enqueue,
    convert.enqueued_to_wire,
    convert.enqueue_to_wire,
    result=convert.enqueued_from_wire,
    pipelined=True,
)


# -- workers -----------------------------------------------------------------------------------------------------------


def _dequeue(api: Api, args: Any, context: RequestContext) -> Awaitable[Any]:
    return api.dequeue(convert.dequeue_from_wire(args.request), context=context)


def _queues_of_dequeue(args: Any) -> Collection[str]:
    request = args.request
    riding = request.job_ack_request
    return (request.queue_name,) if riding is None else (request.queue_name, riding.queue_name)


def _is_look(args: Any) -> bool:
    request = args.request
    return bool(request.dry_run) and request.job_ack_request is None


def _dequeue_actions(args: Any) -> tuple[AccessAction, ...]:
    return _CONSUME_OR_READ if _is_look(args) else DEQUEUE.actions


def _dequeue_idempotency(request: DequeueRequest) -> Idempotency:
    pure = request.dry_run and not request.succeeded and not request.failed
    return Idempotency.SCAN if pure else Idempotency.ONCE


DEQUEUE = Method(
    "dequeueJobs",
    "dequeue",
    Idempotency.ONCE,
    (AccessAction.CONSUME,),
    _queues_of_dequeue,
    _dequeue,
    convert.dequeued_to_wire,
    convert.dequeue_to_wire,
    result=convert.dequeued_from_wire,
    idempotency_of=_dequeue_idempotency,
    actions_of=_dequeue_actions,
    shows_bodies=_is_look,
)


def _queues_of_shares(args: Any) -> Collection[str]:
    request = args.request
    return {each.queue for each in request.queues} | {each.queue_name for each in request.acks or ()}


DEQUEUE_FROM_QUEUES = Method(
    "dequeueFromQueues",
    "dequeue_from_queues",
    Idempotency.ONCE,
    (AccessAction.CONSUME,),
    _queues_of_shares,
    lambda api, args, context: api.dequeue_from_queues(
        convert.dequeue_from_queues_from_wire(args.request), context=context
    ),
    convert.dequeued_from_queues_to_wire,
    convert.dequeue_from_queues_to_wire,
    result=convert.dequeued_from_queues_from_wire,
)
"""A server that does not know it is asked by rounds of dequeueJobs (client/queue_rounds.py)."""


def _ack(api: Api, args: Any, context: RequestContext) -> Awaitable[Any]:
    request = args.request
    succeeded, failed = convert.acks_from_wire(request.jobs_succeeded), convert.acks_from_wire(request.jobs_failed)
    return api.ack(request.queue_name, succeeded, failed, context=context)


def ack_idempotency(queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack]) -> Idempotency:
    """An ack of what has ended is a no-op, so twice is as good as once.

    But for a failure that leads to a retry: without a claim to fence it, its second copy could end the next attempt.
    """
    if all(ack.claim_descriptor or ack.permanent for ack in failed):
        return Idempotency.REPEAT
    return Idempotency.ONCE


ACK_DEQUEUED: Method[None] = Method(
    "ackDequeuedJobs",
    "ack",
    Idempotency.ONCE,
    (AccessAction.CONSUME,),
    named_queue,
    _ack,
    lambda outcomes: None,
    convert.acks_to_wire,
    idempotency_of=ack_idempotency,
    pipelined=True,
)

ACK = Method(
    "ackJobs",
    "ack",
    Idempotency.ONCE,
    (AccessAction.CONSUME,),
    named_queue,
    _ack,
    convert.acked_to_wire,
    convert.acks_to_wire,
    result=lambda response: convert.ack_outcomes_from_wire(response.outcomes),
    idempotency_of=ack_idempotency,
    pipelined=True,
    fallback_method="ackDequeuedJobs",
)


def _queue_of_claims(args: Any) -> Collection[str]:
    """None of a call of nothing: a receipt, or a question whether the server knows the call."""
    request = args.request
    claims = request.requests if hasattr(request, "requests") else request.heartbeats
    return (request.queue_name,) if claims or request.worker is not None else ()


def _checkpoint(api: Api, args: Any, context: RequestContext) -> Awaitable[None]:
    request = args.request
    checkpoints = convert.checkpoints_from_wire(request.requests)
    if request.worker is None:
        return api.checkpoint(request.queue_name, checkpoints, context=context)
    worker = convert.worker_from_wire(request.worker)
    return api.checkpoint(request.queue_name, checkpoints, worker=worker, context=context)


def checkpoint_idempotency(
    queue: str, checkpoints: Sequence[Checkpoint], worker: WorkerReport | None = None
) -> Idempotency:
    """A plain heartbeat may be late or doubled; a text put in front, a new body or a requeued job may not.

    But a job that is requeued under a claim that is named may be doubled: the first copy ends that claim, and the
    second does nothing.
    """
    return Idempotency.REPEAT if all(_may_be_doubled(checkpoint) for checkpoint in checkpoints) else Idempotency.ONCE


def _may_be_doubled(checkpoint: Checkpoint) -> bool:
    if checkpoint.move_to_pending:
        return bool(checkpoint.claim_descriptor)
    return not checkpoint.prepend_status and checkpoint.new_body is None


CHECKPOINT: Method[None] = Method(
    "checkpointJobs",
    "checkpoint",
    Idempotency.ONCE,
    (AccessAction.CONSUME,),
    _queue_of_claims,
    _checkpoint,
    request=convert.checkpoints_to_wire,
    idempotency_of=checkpoint_idempotency,
    pipelined=True,
)


async def _heartbeat(api: Api, args: Any, context: RequestContext) -> Any:
    request = args.request
    heartbeats = keyed.heartbeats_from_wire(request.heartbeats)
    worker = None if request.worker is None else convert.worker_from_wire(request.worker)
    answers = await api.heartbeat(request.queue_name, heartbeats, worker=worker, context=context)
    return keyed.heartbeat_answers_to_wire(heartbeats, answers)


HEARTBEAT: Method[Any] = Method(
    "heartbeatJobs",
    "heartbeat",
    Idempotency.REPEAT,
    (AccessAction.CONSUME,),
    _queue_of_claims,
    _heartbeat,
    request=keyed.heartbeats_to_wire,
    pipelined=True,
)
"""Its result is read by `convert_keyed.heartbeat_answers_from_wire`, with the heartbeats."""


# -- looking -----------------------------------------------------------------------------------------------------------


def _lookup(api: Api, args: Any, context: RequestContext) -> Awaitable[Any]:
    request = args.request
    return api.lookup(
        request.job_descriptors,
        include_body=request.include_body or False,
        include_result=request.include_result or False,
        wait_ms=request.wait_ms or 0,
        queue=request.queue_name or "",
        keys=keyed.keys_from_wire(request.keys),
        context=context,
    )


def _queues_of_lookup(args: Any) -> Collection[str]:
    """Those in the descriptors too; what is none finds nothing."""
    request = args.request
    queues = {each.partition(":")[0] for each in request.job_descriptors if is_descriptor(each)}
    if request.keys or not queues:
        queues.add(request.queue_name or ANY_QUEUE)
    return queues


def _lookup_idempotency(
    descriptors: Sequence[str],
    include_body: bool,
    include_result: bool = False,
    wait_ms: int = 0,
    queue: str = "",
    keys: Sequence[KeyRef] = (),
) -> Idempotency:
    return Idempotency.SCAN if wait_ms else Idempotency.READ


def _found_size(request: Any) -> tuple[int, bool]:
    jobs = len(request.job_descriptors) + len(request.keys or ())
    return jobs, request.include_body or request.include_result or False


LOOKUP = Method(
    "lookupJobs",
    "lookup",
    Idempotency.READ,
    (AccessAction.READ,),
    _queues_of_lookup,
    _lookup,
    request=convert.lookup_to_wire,
    result=convert.lookup_from_wire,
    shows_bodies=lambda args: args.request.include_body or args.request.include_result or False,
    answer_size=_found_size,
    idempotency_of=_lookup_idempotency,
)


def _matches_bodies(args: Any) -> bool:
    """Who asks which jobs match a pattern learns of their bodies."""
    return bool(args.request.body_regex_to_match)


def _count(api: Api, args: Any, context: RequestContext) -> Awaitable[int]:
    wanted = convert.count_filter_from_wire(args.request)
    return api.count(wanted, allow_partial=args.request.allow_partial or False, context=context)


GET_JOB_COUNT = Method(
    "getJobCount",
    "count",
    Idempotency.SCAN,
    (AccessAction.READ,),
    named_queue,
    _count,
    request=convert.count_to_wire,
    result=int,
    shows_bodies=_matches_bodies,
)


def _scan(api: Api, args: Any, context: RequestContext) -> Awaitable[Any]:
    request = args.request
    return api.scan(
        convert.scan_filter_from_wire(request),
        continuation=convert.continuation_from_wire(request),
        limit=100 if request.limit is None else request.limit,
        context=context,
    )


SCAN_JOBS = Method(
    "scanJobs",
    "scan",
    Idempotency.SCAN,
    (AccessAction.READ,),
    named_queue,
    _scan,
    convert.scan_page_to_wire,
    convert.scan_to_wire,
    result=convert.scan_page_from_wire,
    shows_bodies=_matches_bodies,
    answer_size=lambda request: (request.limit or 0, False),
)


# -- operators of queues and jobs --------------------------------------------------------------------------------------


def _retry(api: Api, args: Any, context: RequestContext) -> Awaitable[int]:
    request = args.request
    return api.retry_failed(
        request.queue_name,
        priority=1 if request.priority is None else request.priority,
        attempts=1 if request.attempts_to_allow is None else request.attempts_to_allow,
        run_after_ms=request.run_after_ms,
        limit=1000 if request.limit is None else request.limit,
        context=context,
    )


RETRY_FAILED = Method(
    "retryFailedJobs",
    "retry_failed",
    Idempotency.ONCE,
    (AccessAction.OPERATE,),
    named_queue,
    _retry,
    request=convert.retry_to_wire,
    result=int,
)


def _delete_jobs(api: Api, args: Any, context: RequestContext) -> Awaitable[int]:
    limit = args.request.limit
    wanted = convert.delete_filter_from_wire(args.request)
    return api.delete_jobs(wanted, limit=1000 if limit is None else limit, context=context)


DELETE_JOBS = Method(
    "deleteJobs",
    "delete_jobs",
    Idempotency.ONCE,
    (AccessAction.OPERATE,),
    named_queue,
    _delete_jobs,
    request=convert.delete_to_wire,
    result=int,
    shows_bodies=_matches_bodies,
)


def _cancel(api: Api, args: Any, context: RequestContext) -> Awaitable[Any]:
    request = args.request
    return api.cancel(
        request.queue_name,
        request.job_descriptors,
        keys=keyed.keys_from_wire(request.keys),
        running=keyed.cancels_running(request),
        context=context,
    )


CANCEL = Method(
    "cancelJobs",
    "cancel",
    Idempotency.ONCE,
    (AccessAction.ENQUEUE, AccessAction.OPERATE),
    named_queue,
    _cancel,
    keyed.cancelled_to_wire,
    keyed.cancel_to_wire,
    result=keyed.cancelled_from_wire,
)

RESCHEDULE = Method(
    "rescheduleJobs",
    "reschedule",
    Idempotency.ONCE,
    (AccessAction.ENQUEUE, AccessAction.OPERATE),
    named_queue,
    lambda api, args, context: api.reschedule(
        args.request.queue_name, keyed.reschedules_from_wire(args.request.jobs), context=context
    ),
    keyed.rescheduled_to_wire,
    keyed.reschedule_to_wire,
    result=keyed.rescheduled_from_wire,
    idempotency_of=lambda queue, changes: (
        Idempotency.ONCE if any(each.only_if_updated_at_ms is not None for each in changes) else Idempotency.REPEAT
    ),
)

CHANGE_JOBS = Method(
    "changeJobs",
    "change_jobs",
    Idempotency.ONCE,
    (AccessAction.OPERATE,),
    named_queue,
    lambda api, args, context: api.change_jobs(operators.job_change_from_wire(args.request), context=context),
    request=operators.change_jobs_to_wire,
    result=operators.jobs_changed_from_wire,
    shows_bodies=_matches_bodies,
    idempotency_of=lambda change: Idempotency.SCAN if change.dry_run else Idempotency.ONCE,
)


METHODS: dict[str, Method[Any]] = {
    method.name: method
    for method in (
        CREATE_QUEUE,
        DELETE_QUEUE,
        GET_QUEUE_NAMES,
        ENQUEUE,
        DEQUEUE,
        DEQUEUE_FROM_QUEUES,
        ACK_DEQUEUED,
        ACK,
        CHECKPOINT,
        HEARTBEAT,
        LOOKUP,
        GET_JOB_COUNT,
        SCAN_JOBS,
        RETRY_FAILED,
        DELETE_JOBS,
        CANCEL,
        RESCHEDULE,
        CHANGE_JOBS,
        SEARCH_JOBS,
        CHANGE_FOUND_JOBS,
        GET_QUEUES,
        UPDATE_QUEUE,
        UPDATE_SHARD,
        GET_CLUSTER_STATUS,
        GET_AUDIT,
        GET_WORKERS,
        GET_BODY_TIERS,
        CHANGE_BODIES,
        UPDATE_SCHEDULE,
        GET_SCHEDULES,
        DELETE_SCHEDULE,
        UPDATE_TOKEN,
        GET_TOKENS,
        DELETE_TOKEN,
        GET_ACCESS,
        GET_USAGE,
        CREATE_FLOW,
        ADD_FLOW_ITEMS,
        SEAL_STAGE,
        GET_FLOW,
        GET_FLOWS,
        GET_FLOW_ITEMS,
        CANCEL_FLOW,
        DELETE_FLOW,
        RESUME_FLOW,
        ASSIGN_ITEM,
    )
}
"""By the name of the method on the wire."""

BULK_METHODS = frozenset(
    (GET_JOB_COUNT, SCAN_JOBS, RETRY_FAILED, DELETE_JOBS, CHANGE_JOBS, SEARCH_JOBS, CHANGE_FOUND_JOBS)
)
"""Calls that read or change many jobs: a store carries out few of these at a time."""
