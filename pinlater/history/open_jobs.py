"""The open jobs of a history: those that were stored or handed out, and of which no end is known."""

from __future__ import annotations

from collections.abc import Iterable

from pinlater.history.call_events import CallBegin, CallEnd, Event
from pinlater.history.job_parts import JobPart, job_parts

_ENDS = {"SUCCEEDED", "FAILED", "CANCELLED"}
_BRING_JOBS = {"enqueue", "claim"}
_SAY_ENDS = {"success", "failure", "cancel", "found"}


def open_jobs(events: Iterable[Event]) -> list[str]:
    """Their descriptors, in the order in which they came. Whatever else ended is found out by a lookup."""
    found: dict[str, None] = {}
    begun: dict[int, CallBegin] = {}
    for event in events:
        if isinstance(event, CallBegin):
            begun[event.call] = event
        elif isinstance(event, CallEnd) and (begin := begun.pop(event.call, None)) is not None:
            for part in job_parts(begin, event):
                if part.action in _BRING_JOBS:
                    found.setdefault(part.job)
                elif has_ended(part):
                    found.pop(part.job, None)
    return list(found)


def has_ended(part: JobPart) -> bool:
    """Whether it says that its job has ended."""
    return part.action in _SAY_ENDS and part.outcome in _ENDS
