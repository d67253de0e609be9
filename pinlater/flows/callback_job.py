"""The job of a completion callback, and the callback's content."""

from __future__ import annotations

from typing import Any

import msgspec

from pinlater.flows.ends import DueCallback
from pinlater.flows.item_jobs import envelope
from pinlater.job_body import FLOW_HEADER
from pinlater.model import ExtendedJob
from pinlater.model.flow_words import FlowStatus

CALLBACK_HEADER = "pinlater-callback"
ATTEMPTS = 10
"""Of the job of a callback, once it is in its queue."""


def status_document(status: FlowStatus) -> dict[str, Any]:
    """What a callback says of a flow."""
    return {
        "id": status.id,
        "name": status.name,
        "state": status.state.name,
        "dedupeKey": status.dedupe_key,
        "metadata": dict(status.metadata),
        "createdMs": status.created_ms,
        "completedMs": status.completed_ms,
        "end": status.ends,
        "stages": [
            {
                "name": each.stage.name,
                "items": each.items,
                "succeeded": each.succeeded,
                "failed": each.failed,
                "appletErrors": each.applet_errors,
            }
            for each in status.stages
        ],
    }


def callback_job(due: DueCallback) -> ExtendedJob:
    arguments = msgspec.json.encode({"flow": status_document(due.status)})
    headers = {CALLBACK_HEADER: due.id, FLOW_HEADER: due.status.id}
    body = envelope(due.callback.job, arguments, headers) if due.callback.job else arguments
    return ExtendedJob(body, attempts_allowed=ATTEMPTS, dedupe_key=f"@flow-end/{due.id}")
