"""The calls of the interface, one table: names, what each needs, and how it becomes bytes and a call of an Api.

A server reads a call by `serve` and writes its answer by `answer`; a client writes a call by `arguments` and reads its
result by `result`. These follow from the method of `pinlater.api.Api` and the interface file (struct_map.py), but for
what is said by hand. Metrics label calls by the wire's name. A further call is an entry here, beside these two and the
typed methods of the service and the clients.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable, Sequence
from itertools import chain
from typing import Any

from pinlater.api import Api
from pinlater.model import (
    ANY_QUEUE,
    AccessAction,
    Ack,
    Checkpoint,
    DequeuedJobs,
    DequeueRequest,
    KeyRef,
    RequestContext,
    RescheduleJob,
    WorkerReport,
    is_descriptor,
)
from pinlater.wire import (
    access_methods,
    body_methods,
    convert,
    flow_methods,
    found_job_methods,
    operator_methods,
    schedule_methods,
)
from pinlater.wire.found_job_methods import CHANGE_FOUND_JOBS, SEARCH_JOBS
from pinlater.wire.interface import SIGNATURES
from pinlater.wire.method import Access as Access
from pinlater.wire.method import Idempotency as Idempotency
from pinlater.wire.method import Method as Method
from pinlater.wire.method import any_queue, as_it_is, named_queue

_CONSUME, _READ, _OPERATE = (AccessAction.CONSUME,), (AccessAction.READ,), (AccessAction.OPERATE,)
_PRODUCE_OR_OPERATE = (AccessAction.ENQUEUE, AccessAction.OPERATE)
_CONSUME_OR_READ = (AccessAction.CONSUME, AccessAction.READ)


def _named(args: Any) -> Collection[str]:
    return (args.name,)


# -- queues ------------------------------------------------------------------------------------------------------------

CREATE_QUEUE = Method("createQueue", Api.create_queue, Idempotency.REPEAT, _OPERATE, _named)
DELETE_QUEUE = Method(
    "deleteQueue",
    Api.delete_queue,
    Idempotency.ONCE,
    (AccessAction.ADMIN,),
    _named,
    access=Access.ADMIN_PASSWORD,
)
GET_QUEUE_NAMES = Method("getQueueNames", Api.queue_names, Idempotency.READ, _READ, any_queue)

# -- producers ---------------------------------------------------------------------------------------------------------


def _enqueue(api: Api, args: Any, context: RequestContext) -> Awaitable[Any]:
    request = args.request
    return api.enqueue(request.queue, convert.jobs_from_wire(request.jobs), context=context)


def _groups_of_jobs(args: Any) -> Iterable[str]:
    return dict.fromkeys(job.group or "" for job in args.request.jobs)


ENQUEUE = Method(
    "enqueueJobs",
    Api.enqueue,
    Idempotency.ONCE,
    (AccessAction.ENQUEUE,),
    named_queue,
    _groups_of_jobs,
    pipelined=True,
    serve_by_hand=_enqueue,
    answer_by_hand=convert.enqueued_to_wire,
    request_by_hand=convert.enqueue_to_wire,
    result_by_hand=convert.enqueued_from_wire,
)

# -- workers -----------------------------------------------------------------------------------------------------------


def _dequeue(api: Api, args: Any, context: RequestContext) -> Awaitable[Any]:
    return api.dequeue(convert.dequeue_from_wire(args.request), context=context)


def _queues_of_dequeue(args: Any) -> Collection[str]:
    request = args.request
    riding = request.job_ack_request
    return (request.queue,) if riding is None else (request.queue, riding.queue)


def _is_look(args: Any) -> bool:
    request = args.request
    return bool(request.dry_run) and request.job_ack_request is None


def _dequeue_actions(args: Any) -> tuple[AccessAction, ...]:
    return _CONSUME_OR_READ if _is_look(args) else _CONSUME


def _dequeue_idempotency(request: DequeueRequest) -> Idempotency:
    pure = request.dry_run and not request.succeeded and not request.failed
    return Idempotency.SCAN if pure else Idempotency.ONCE


DEQUEUE: Method[DequeuedJobs] = Method(
    "dequeueJobs",
    Api.dequeue,  # type: ignore[arg-type]  # a client says more of the acks than every Api does
    Idempotency.ONCE,
    _CONSUME,
    _queues_of_dequeue,
    idempotency_of=_dequeue_idempotency,
    actions_of=_dequeue_actions,
    shows_bodies=_is_look,
    serve_by_hand=_dequeue,
    answer_by_hand=convert.dequeued_to_wire,
    request_by_hand=convert.dequeue_to_wire,
    result_by_hand=convert.dequeued_from_wire,
)


def _queues_of_shares(args: Any) -> Collection[str]:
    request = args.request
    return {each.queue for each in chain(request.queues, request.acks or ())}


DEQUEUE_FROM_QUEUES = Method(
    "dequeueFromQueues",
    Api.dequeue_from_queues,
    Idempotency.ONCE,
    _CONSUME,
    _queues_of_shares,
    answer_by_hand=convert.dequeued_from_queues_to_wire,
    result_by_hand=convert.dequeued_from_queues_from_wire,
)
"""A server that does not know it is asked by rounds of dequeueJobs (client/queue_rounds.py)."""


def _ack(api: Api, args: Any, context: RequestContext) -> Awaitable[Any]:
    request = args.request
    succeeded, failed = convert.acks_from_wire(request.succeeded or ()), convert.acks_from_wire(request.failed or ())
    return api.ack(request.queue, succeeded, failed, context=context)


def ack_idempotency(queue: str, succeeded: Sequence[Ack], failed: Sequence[Ack]) -> Idempotency:
    """An ack of what has ended is a no-op, so twice is as good as once.

    But for a failure that leads to a retry: without a claim to fence it, its second copy could end the next attempt.
    """
    if all(ack.claim_descriptor or ack.permanent for ack in failed):
        return Idempotency.REPEAT
    return Idempotency.ONCE


ACK_DEQUEUED: Method[Any] = Method(
    "ackDequeuedJobs",
    Api.ack,
    Idempotency.ONCE,
    _CONSUME,
    named_queue,
    idempotency_of=ack_idempotency,
    pipelined=True,
    serve_by_hand=_ack,
    answer_by_hand=lambda outcomes: None,
    request_by_hand=convert.acks_to_wire,
)

ACK = Method(
    "ackJobs",
    Api.ack,
    Idempotency.ONCE,
    _CONSUME,
    named_queue,
    idempotency_of=ack_idempotency,
    pipelined=True,
    fallback_method="ackDequeuedJobs",
    serve_by_hand=_ack,
    request_by_hand=convert.acks_to_wire,
)


def _queue_of_claims(args: Any) -> Collection[str]:
    """None of a call of nothing: a receipt, a question whether the server knows the call, or the report of a relay."""
    request = args.request
    claims = request.checkpoints if hasattr(request, "checkpoints") else request.heartbeats
    is_of_worker = request.worker is not None and request.worker.outbox is None
    return (request.queue,) if claims or is_of_worker else ()


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


CHECKPOINT = Method(
    "checkpointJobs",
    Api.checkpoint,
    Idempotency.ONCE,
    _CONSUME,
    _queue_of_claims,
    idempotency_of=checkpoint_idempotency,
    pipelined=True,
    request_by_hand=convert.checkpoints_to_wire,
)


HEARTBEAT: Method[Any] = Method(
    "heartbeatJobs",
    Api.heartbeat,
    Idempotency.REPEAT,
    _CONSUME,
    _queue_of_claims,
    pipelined=True,
    serve_by_hand=convert.serve_heartbeat,
    answer_by_hand=as_it_is,
    result_by_hand=as_it_is,
)
"""Its result is read by `convert.heartbeat_answers_from_wire`, with the heartbeats."""


# -- looking -----------------------------------------------------------------------------------------------------------


def _queues_of_lookup(args: Any) -> Collection[str]:
    """Those in the descriptors too; what is none finds nothing."""
    request = args.request
    queues = {each.partition(":")[0] for each in request.descriptors if is_descriptor(each)}
    if request.keys or not queues:
        queues.add(request.queue or ANY_QUEUE)
    return queues


def _lookup_idempotency(
    descriptors: Sequence[str],
    include_body: bool,
    include_result: bool = False,
    wait_ms: int = 0,
    queue: str = "",
    keys: Sequence[KeyRef] = (),
    include_trail: bool = False,
) -> Idempotency:
    return Idempotency.SCAN if wait_ms else Idempotency.READ


def _found_size(request: Any) -> tuple[int, bool]:
    jobs = len(request.descriptors) + len(request.keys or ())
    return jobs, request.include_body or request.include_result or request.include_trail or False


LOOKUP = Method(
    "lookupJobs",
    Api.lookup,
    Idempotency.READ,
    _READ,
    _queues_of_lookup,
    shows_bodies=lambda args: args.request.include_body or args.request.include_result or False,
    answer_size=_found_size,
    idempotency_of=_lookup_idempotency,
)


def _matches_bodies(args: Any) -> bool:
    """Who asks which jobs match a pattern learns of their bodies."""
    return bool(args.request.body_regex)


GET_JOB_COUNT = Method("getJobCount", Api.count, Idempotency.SCAN, _READ, named_queue, shows_bodies=_matches_bodies)
SCAN_JOBS = Method(
    "scanJobs",
    Api.scan,
    Idempotency.SCAN,
    _READ,
    named_queue,
    shows_bodies=_matches_bodies,
    answer_size=lambda request: (request.limit or 0, False),
)

# -- operators of queues and jobs --------------------------------------------------------------------------------------


def _reschedule_idempotency(queue: str, changes: Sequence[RescheduleJob], audited: bool = False) -> Idempotency:
    is_fenced = any(each.only_if_updated_at_ms is not None for each in changes)
    return Idempotency.ONCE if is_fenced else Idempotency.REPEAT


RETRY_FAILED = Method("retryFailedJobs", Api.retry_failed, Idempotency.ONCE, _OPERATE, named_queue)
DELETE_JOBS = Method(
    "deleteJobs", Api.delete_jobs, Idempotency.ONCE, _OPERATE, named_queue, shows_bodies=_matches_bodies
)
CANCEL = Method(
    "cancelJobs",
    Api.cancel,
    Idempotency.ONCE,
    _PRODUCE_OR_OPERATE,
    named_queue,
    answer_by_hand=convert.cancelled_to_wire,
    result_by_hand=convert.cancelled_from_wire,
)
RESCHEDULE = Method(
    "rescheduleJobs",
    Api.reschedule,
    Idempotency.ONCE,
    _PRODUCE_OR_OPERATE,
    named_queue,
    idempotency_of=_reschedule_idempotency,
)
CHANGE_JOBS = Method(
    "changeJobs",
    Api.change_jobs,
    Idempotency.ONCE,
    _OPERATE,
    named_queue,
    shows_bodies=_matches_bodies,
    idempotency_of=lambda change: Idempotency.SCAN if change.dry_run else Idempotency.ONCE,
)


def _table(*rows: dict[str, Any]) -> dict[str, Method[Any]]:
    by_name = {each.name: each for row in rows for each in row.values() if isinstance(each, Method)}
    return {name: by_name[name] for name in SIGNATURES}


METHODS = _table(
    globals(),
    *map(vars, (access_methods, body_methods, flow_methods, found_job_methods, operator_methods, schedule_methods)),
)
"""By the name of the method on the wire, in the order of the interface."""

BULK_METHODS = frozenset(
    (GET_JOB_COUNT, SCAN_JOBS, RETRY_FAILED, DELETE_JOBS, CHANGE_JOBS, SEARCH_JOBS, CHANGE_FOUND_JOBS)
)
"""Calls that read or change many jobs: a store carries out few of these at a time."""
