"""The open jobs of a history: those that were stored or handed out, and of which no end is known."""

from __future__ import annotations

from collections.abc import Iterable

from pinlater.history.call_events import CallBegin, CallEnd, Event
from pinlater.history.job_parts import JobPart, job_parts

_ENDS = {"SUCCEEDED", "FAILED", "CANCELLED"}
_SAY_ENDS = {"success", "failure", "cancel", "found"}


def open_jobs(events: Iterable[Event]) -> list[str]:
    """Their descriptors, in the order in which they came. Whatever else ended is found out by a lookup.

    A worker may have ended a job before the answer of its enqueue has arrived, which then brings nothing.
    """
    found: dict[str, None] = {}
    enqueued: set[str] = set()
    ended_before: set[str] = set()
    begun: dict[int, CallBegin] = {}
    for event in events:
        if isinstance(event, CallBegin):
            begun[event.call] = event
        elif isinstance(event, CallEnd) and (begin := begun.pop(event.call, None)) is not None:
            for part in job_parts(begin, event):
                if part.action == "enqueue":
                    if part.job not in ended_before:
                        found.setdefault(part.job)
                        enqueued.add(part.job)
                elif part.action == "claim":
                    found.setdefault(part.job)
                elif has_ended(part):
                    found.pop(part.job, None)
                    if part.job in enqueued:
                        enqueued.remove(part.job)
                    else:
                        ended_before.add(part.job)
    return list(found)


def has_ended(part: JobPart) -> bool:
    """Whether it says that its job has ended."""
    return part.action in _SAY_ENDS and part.outcome in _ENDS
