"""The parts of a call as the interface file has them; what is not known says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, TypeVar

from pinlater.history.checker.job_machine import Key
from pinlater.model import OnDuplicate

E = TypeVar("E", bound=IntEnum)


def queues_of(request: Mapping[str, Any]) -> list[str]:
    """The queues of a dequeue."""
    name = request.get("queueName")
    return [name] if name else [share.get("queueName", "") for share in structs(request.get("queues"))]


def acked_jobs(request: Mapping[str, Any]) -> list[str]:
    """The jobs that the acks of a request name."""
    acks = (*structs(request.get("jobsSucceeded")), *structs(request.get("jobsFailed")))
    return [ack.get("jobDescriptor", "") for ack in acks]


def key_of(queue: str, named: Mapping[str, Any]) -> Key | None:
    """The dedupe key that a job or a reference has; None: it has none."""
    dedupe_key = named.get("dedupeKey")
    return (queue, dedupe_key, named.get("serializeKey") or "") if dedupe_key else None


def follows(job: Mapping[str, Any]) -> bool:
    """Whether a job of an enqueue is stored as the successor of one that runs."""
    return job.get("onDuplicate") == OnDuplicate.REPLACE and bool(job.get("replaceRunning"))


def enum_member(enum: type[E], number: Any) -> E | None:
    """That of this number; None where a newer version has more."""
    try:
        return enum(number)
    except ValueError:
        return None


def field_of(answer: Any, name: str) -> Any:
    """That of an answer, if it has it."""
    return answer.get(name) if isinstance(answer, dict) else None


def structs(value: Any) -> list[Mapping[str, Any]]:
    """Those of a list that was sent."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def texts(value: Any) -> list[str]:
    """Those of a list that was sent."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
