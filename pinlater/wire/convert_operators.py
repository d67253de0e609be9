"""The calls for operators of a cluster, both ways: arguments -> model (a server reads), model -> arguments (a client
calls), results -> model (a client reads answers). What a server answers is mostly the model itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pinlater.errors import RequestInvalid
from pinlater.model import (
    CONTINUATION_END,
    CONTINUATION_START,
    AuditEntry,
    BlockedChain,
    Changed,
    ClusterStatus,
    JobAction,
    JobChange,
    JobsChanged,
    LevelView,
    PauseView,
    ProcessCounters,
    QueueStatus,
    QueueView,
    ServerView,
    SettingView,
    ShardView,
    WorkerInfo,
    WorkerJobInfo,
    WorkersPage,
)
from pinlater.wire.convert import job_info_from_wire, state_from_wire
from pinlater.wire.interface import filled, struct

_GetQueuesRequest = struct("GetQueuesRequest")
_GetQueuesResponse = struct("GetQueuesResponse")
_UpdateQueueRequest = struct("UpdateQueueRequest")
_UpdateShardRequest = struct("UpdateShardRequest")
_StatusRequest = struct("GetClusterStatusRequest")
_ChangeJobsRequest = struct("ChangeJobsRequest")
_AuditRequest = struct("GetAuditRequest")
_AuditResponse = struct("GetAuditResponse")
_GetWorkersRequest = struct("GetWorkersRequest")
_ACTIONS = {int(action): action for action in JobAction}


# -- a server reads and answers --------------------------------------------------------------------------------------


def queues_to_wire(queues: list[QueueView]) -> Any:
    return filled(_GetQueuesResponse, queues=queues)


def audit_to_wire(entries: list[AuditEntry]) -> Any:
    return filled(_AuditResponse, entries=entries)


def action_from_wire(number: int) -> JobAction:
    """RequestInvalid."""
    action = _ACTIONS.get(number)
    if action is None:
        raise RequestInvalid.of("action", number, ", ".join(f"{each.name} {each}" for each in JobAction))
    return action


def job_change_from_wire(request: Any) -> JobChange:
    """RequestInvalid."""
    return JobChange(
        queue=request.queue_name,
        action=action_from_wire(request.action),
        state=None if request.job_state is None else state_from_wire(request.job_state),
        priority=request.priority,
        created_before_ms=request.created_before_ms,
        created_after_ms=request.created_after_ms,
        body_regex=request.body_regex_to_match or "",
        limit=1000 if request.limit is None else request.limit,
        dry_run=request.dry_run or False,
        attempts=request.attempts,
        run_after_ms=request.run_after_ms,
        continuation=CONTINUATION_START if request.continuation is None else request.continuation,
    )


# -- a client calls ----------------------------------------------------------------------------------------------------


def get_queues_to_wire(names: Sequence[str]) -> Any:
    return filled(_GetQueuesRequest, queue_names=list(names) or None)


def update_queue_to_wire(
    name: str, password: str, settings: Mapping[str, str], unset: Sequence[str], create: bool
) -> Any:
    return filled(
        _UpdateQueueRequest,
        queue_name=name,
        password=password,
        settings=dict(settings) or None,
        unset=list(unset) or None,
        create=create,
    )


def update_shard_to_wire(shard_id: str, password: str, dequeue_only: bool, give_up: bool) -> Any:
    return filled(
        _UpdateShardRequest, shard_id=shard_id, password=password, dequeue_only=dequeue_only, give_up=give_up or None
    )


def status_to_wire(queues: Sequence[str] | None, counters_since_ms: int | None = None) -> Any:
    return filled(
        _StatusRequest, queue_names=None if queues is None else list(queues), counters_since_ms=counters_since_ms
    )


def change_jobs_to_wire(change: JobChange) -> Any:
    return filled(
        _ChangeJobsRequest,
        queue_name=change.queue,
        action=change.action,
        job_state=change.state,
        priority=change.priority,
        created_before_ms=change.created_before_ms,
        created_after_ms=change.created_after_ms,
        body_regex_to_match=change.body_regex or None,
        limit=change.limit,
        dry_run=change.dry_run,
        attempts=change.attempts,
        run_after_ms=change.run_after_ms,
        continuation=change.continuation,
    )


def get_audit_to_wire(limit: int, before_ms: int | None) -> Any:
    return filled(_AuditRequest, limit=limit, before_ms=before_ms)


def get_workers_to_wire(queue: str, name: str, include_running: bool, continuation: str, limit: int) -> Any:
    return filled(
        _GetWorkersRequest,
        queue_name=queue or None,
        name=name or None,
        include_running=include_running,
        limit=limit,
        continuation=continuation,
    )


# -- a client reads ----------------------------------------------------------------------------------------------------


def queues_from_wire(response: Any) -> list[QueueView]:
    return [
        QueueView(
            view.name, view.version, {key: SettingView(each.value, each.source) for key, each in view.settings.items()}
        )
        for view in response.queues
    ]


def changed_from_wire(response: Any) -> Changed:
    return Changed(response.version, response.missed_shards)


def jobs_changed_from_wire(response: Any) -> JobsChanged:
    return JobsChanged(
        response.changed,
        response.looked_at,
        [job_info_from_wire(info) for info in response.samples or ()],
        CONTINUATION_END if response.continuation is None else response.continuation,
        response.missing_shards or [],
        response.refusals or {},
        response.asked_to_stop or 0,
    )


def audit_from_wire(response: Any) -> list[AuditEntry]:
    return [
        AuditEntry(each.at_ms, each.who, each.action, each.target, each.detail or "", each.server or "")
        for each in response.entries
    ]


def workers_from_wire(response: Any) -> WorkersPage:
    return WorkersPage(
        response.now_ms,
        [_worker(each) for each in response.workers],
        response.total,
        response.slots,
        response.busy_slots,
        response.stuck_slots,
        CONTINUATION_END if response.continuation is None else response.continuation,
        response.missing_shards or [],
    )


def _worker(view: Any) -> WorkerInfo:
    return WorkerInfo(
        view.id,
        view.name,
        view.host,
        view.pid,
        view.queues,
        view.slots,
        view.busy_slots,
        view.stuck_slots,
        [WorkerJobInfo(job.job_descriptor, job.job_type, job.since_ms) for job in view.running],
        view.longest_since_ms,
        view.versions,
        view.is_stopping,
        view.started_ms,
        view.seen_ms,
        view.silent_since_ms,
        view.identity,
    )


def status_from_wire(status: Any) -> ClusterStatus:
    return ClusterStatus(
        status.now_ms,
        [_server(each) for each in status.servers],
        [_shard(each) for each in status.shards],
        [_queue(each) for each in status.queues],
        status.homes_trouble or "",
        None if status.counters is None else [_counters(each) for each in status.counters],
    )


def _counters(view: Any) -> ProcessCounters:
    queues = {queue: tuple(numbers) for queue, numbers in view.queues.items()}
    return ProcessCounters(view.process, view.started_ms, view.counted_at_ms, queues, view.is_cut or False)


def _server(view: Any) -> ServerView:
    return ServerView(
        view.server,
        view.process,
        view.address,
        view.started_ms,
        view.seen_ms,
        view.is_ready,
        view.trouble or "",
        view.maintains or [],
        view.shards_out or [],
        view.overflow_jobs,
        view.shards_full or [],
        view.exposed or "",
    )


def _shard(view: Any) -> ShardView:
    return ShardView(
        view.id,
        view.store,
        view.state,
        view.dequeue_only,
        view.trouble or "",
        view.good or 0,
        view.samples or 0,
        view.skew_ms or 0,
        view.next_try_ms,
        view.maintained_by or "",
        view.jobs,
        view.counted_at_ms,
        view.jobs_by_queue or {},
        view.is_full or False,
        [
            BlockedChain(each.serialize_key, each.first, each.waiting, each.since_ms)
            for each in view.blocked_chains or ()
        ],
        view.is_home,
        view.left_slots or 0,
        view.barriers or 0,
        view.is_given_up or False,
        view.has_windows_left or False,
    )


def _queue(view: Any) -> QueueStatus:
    levels = [
        LevelView(
            each.priority,
            each.ready,
            each.scheduled,
            each.in_progress,
            each.succeeded,
            each.failed,
            each.oldest_ready_ms,
            each.waiting or 0,
            each.cancelled or 0,
        )
        for each in view.levels
    ]
    found = view.pause
    pause = None if found is None else PauseView(found.by or "", found.why or "", found.at_ms, found.until_ms)
    return QueueStatus(view.name, view.counted_at_ms, levels, view.rates or {}, view.flags or [], pause)
