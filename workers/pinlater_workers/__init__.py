"""PinLater's worker framework: functions that run later, on any server that speaks PinLater. docs/workers.md.

    app = App(servers=["127.0.0.1:9010"])

    @app.job(queue="thumbnails")
    def thumbnail(path: str, size: int) -> None: ...

    thumbnail.enqueue("a.jpg", size=200)

What is named here is the interface for programs; `errors` and `testing` are modules of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pinlater_workers.app.app import App
    from pinlater_workers.app.loader import load_app, load_file
    from pinlater_workers.errors import (
        ArgumentsInvalid,
        ConfigurationError,
        ItemFailed,
        JobCancelled,
        JobFailed,
        ResultGone,
        WorkerError,
    )
    from pinlater_workers.flows.flow import Flow, FlowStage
    from pinlater_workers.flows.flow_run import AsyncFlowRun, FlowEnd, FlowRun
    from pinlater_workers.flows.item_calls import EndedItem
    from pinlater_workers.jobs.batch import Batch, BatchJob
    from pinlater_workers.jobs.context import JobContext, StopReason, current
    from pinlater_workers.jobs.dependencies import provided
    from pinlater_workers.jobs.enqueue_calls import EnqueuedInPart
    from pinlater_workers.jobs.enqueue_options import EnqueueOptions, TypedOptions
    from pinlater_workers.jobs.handle import AsyncJobHandle, JobHandle
    from pinlater_workers.jobs.job_type import JobFunction, JobType
    from pinlater_workers.jobs.outcome import Action, Fail, Outcome, Reschedule, Retry, Snooze
    from pinlater_workers.jobs.retry import (
        Constant,
        Default,
        Delays,
        Exponential,
        Function,
        Linear,
        Never,
        Policy,
        RetryRules,
    )
    from pinlater_workers.middleware import Middleware, Observer
    from pinlater_workers.worker.worker import Worker

__all__ = [
    "Action",
    "App",
    "ArgumentsInvalid",
    "AsyncFlowRun",
    "AsyncJobHandle",
    "Batch",
    "BatchJob",
    "ConfigurationError",
    "Constant",
    "Default",
    "Delays",
    "EndedItem",
    "EnqueueOptions",
    "EnqueuedInPart",
    "Exponential",
    "Fail",
    "Flow",
    "FlowEnd",
    "FlowRun",
    "FlowStage",
    "Function",
    "ItemFailed",
    "JobCancelled",
    "JobContext",
    "JobFailed",
    "JobFunction",
    "JobHandle",
    "JobType",
    "Linear",
    "Middleware",
    "Never",
    "Observer",
    "Outcome",
    "Policy",
    "Reschedule",
    "ResultGone",
    "Retry",
    "RetryRules",
    "Snooze",
    "StopReason",
    "TypedOptions",
    "Worker",
    "WorkerError",
    "current",
    "load_app",
    "load_file",
    "provided",
]

_HOMES = {
    "app.app": ("App",),
    "app.loader": ("load_app", "load_file"),
    "errors": (
        "ArgumentsInvalid",
        "ConfigurationError",
        "ItemFailed",
        "JobCancelled",
        "JobFailed",
        "ResultGone",
        "WorkerError",
    ),
    "flows.flow": ("Flow", "FlowStage"),
    "flows.flow_run": ("AsyncFlowRun", "FlowEnd", "FlowRun"),
    "flows.item_calls": ("EndedItem",),
    "jobs.batch": ("Batch", "BatchJob"),
    "jobs.context": ("JobContext", "StopReason", "current"),
    "jobs.dependencies": ("provided",),
    "jobs.enqueue_calls": ("EnqueuedInPart",),
    "jobs.enqueue_options": ("EnqueueOptions", "TypedOptions"),
    "jobs.handle": ("AsyncJobHandle", "JobHandle"),
    "jobs.job_type": ("JobFunction", "JobType"),
    "jobs.outcome": ("Action", "Fail", "Outcome", "Reschedule", "Retry", "Snooze"),
    "jobs.retry": (
        "Constant",
        "Default",
        "Delays",
        "Exponential",
        "Function",
        "Linear",
        "Never",
        "Policy",
        "RetryRules",
    ),
    "middleware": ("Middleware", "Observer"),
    "worker.worker": ("Worker",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Imported when asked for: a process of a pool runs its first line at once, and a job's module needs no client."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
