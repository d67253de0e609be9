"""PinLater: store jobs now, have them executed later.

The clients, the jobs, and what else their calls take and return; errors are in `pinlater.errors`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pinlater import errors
    from pinlater.client.async_client import AsyncClient
    from pinlater.client.client import Client
    from pinlater.client.client_tls import Tls
    from pinlater.errors import PinLaterError
    from pinlater.model import (
        WHILE_KEPT,
        Ack,
        AckOutcome,
        AttemptOutcome,
        Cancelled,
        CancelOutcome,
        Checkpoint,
        DequeuedFromQueues,
        DequeuedJob,
        DequeuedJobs,
        DequeueFromQueuesRequest,
        DequeueRequest,
        EnqueuedJobs,
        EnqueueOutcome,
        ExtendedJob,
        Heartbeat,
        HeartbeatAnswer,
        HeartbeatOutcome,
        Job,
        JobAttempt,
        JobFilter,
        JobInfo,
        JobProgress,
        JobState,
        KeyRef,
        LogLine,
        OnDuplicate,
        QueueAcks,
        QueueShare,
        ReplaceRunning,
        ReportingAck,
        RequestContext,
        RescheduleJob,
        RescheduleOutcome,
        ScanPage,
    )

__all__ = [
    "WHILE_KEPT",
    "Ack",
    "AckOutcome",
    "AsyncClient",
    "AttemptOutcome",
    "CancelOutcome",
    "Cancelled",
    "Checkpoint",
    "Client",
    "DequeueFromQueuesRequest",
    "DequeueRequest",
    "DequeuedFromQueues",
    "DequeuedJob",
    "DequeuedJobs",
    "EnqueueOutcome",
    "EnqueuedJobs",
    "ExtendedJob",
    "Heartbeat",
    "HeartbeatAnswer",
    "HeartbeatOutcome",
    "Job",
    "JobAttempt",
    "JobFilter",
    "JobInfo",
    "JobProgress",
    "JobState",
    "KeyRef",
    "LogLine",
    "OnDuplicate",
    "PinLaterError",
    "QueueAcks",
    "QueueShare",
    "ReplaceRunning",
    "ReportingAck",
    "RequestContext",
    "RescheduleJob",
    "RescheduleOutcome",
    "ScanPage",
    "Tls",
    "errors",
]

_HOMES = {
    "AsyncClient": "client.async_client",
    "Client": "client.client",
    "PinLaterError": "errors",
    "Tls": "client.client_tls",
}
"""The modules of what is not in `pinlater.model`."""


def __getattr__(name: str) -> object:
    """Imported when asked for: neither a server's processes nor a worker's pool need the clients."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "errors":
        return import_module("pinlater.errors")
    found: object = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'model')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
