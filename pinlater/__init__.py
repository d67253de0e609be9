"""PinLater: store jobs now, have them executed later.

The clients, the jobs, and what else their calls take and return; errors are in `pinlater.errors`.
"""

from pinlater import errors
from pinlater.client.async_client import AsyncClient
from pinlater.client.client import Client
from pinlater.errors import PinLaterError
from pinlater.model import (
    Ack,
    AckOutcome,
    CancelOutcome,
    Checkpoint,
    DequeuedJob,
    DequeuedJobs,
    DequeueRequest,
    Job,
    JobFilter,
    JobInfo,
    JobState,
    RequestContext,
    ScanPage,
)

__all__ = [
    "Ack",
    "AckOutcome",
    "AsyncClient",
    "CancelOutcome",
    "Checkpoint",
    "Client",
    "DequeueRequest",
    "DequeuedJob",
    "DequeuedJobs",
    "Job",
    "JobFilter",
    "JobInfo",
    "JobState",
    "PinLaterError",
    "RequestContext",
    "ScanPage",
    "errors",
]
