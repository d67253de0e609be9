"""The story of one job: what each call of a history was to it, in the order in which the calls were answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pinlater.history.call_events import CallBegin, CallEnd, Event, Note
from pinlater.history.job_parts import JobPart, job_parts


class StoryLine(NamedTuple):
    """One call and what it was to the job, or a note. `at_ms`: when it was answered; where that is not known, `took_ms`
    is None, and it is when it was sent.
    """

    at_ms: float
    took_ms: float | None
    call: int
    by: str
    did: str
    outcome: str
    details: dict[str, Any]


def job_story(events: Iterable[Event], descriptor: str) -> list[StoryLine]:
    """Calls that name or bring the job, and the notes of its shard. Calls that change many jobs name none."""
    shard = descriptor.split(":")[1].removeprefix("s") if descriptor.count(":") > 1 else ""
    return sorted(_lines(events, descriptor, shard), key=lambda each: each.at_ms)


def calls_of(events: Iterable[Event], number: int) -> list[Event]:
    """The begin and the end of the call with that number, as far as they are there."""
    return [each for each in events if not isinstance(each, Note) and each.call == number]


def _lines(events: Iterable[Event], descriptor: str, shard: str) -> Iterator[StoryLine]:
    begun: dict[int, CallBegin] = {}
    for event in events:
        if isinstance(event, CallBegin):
            begun[event.call] = event
        elif isinstance(event, Note):
            if event.shard in ("", shard):
                to = {} if event.to_ms is None else {"to_ms": event.to_ms}
                yield StoryLine(event.at_ms, None, 0, "", event.note, "", to)
        elif (begin := begun.pop(event.call, None)) is not None:
            yield from (_line(begin, event, part) for part in job_parts(begin, event) if part.job == descriptor)
    for begin in begun.values():
        yield from (_line(begin, None, part) for part in job_parts(begin, None) if part.job == descriptor)


def _line(begin: CallBegin, end: CallEnd | None, part: JobPart) -> StoryLine:
    outcome = part.outcome
    if end is None:
        outcome = "no answer"
    elif end.error is not None:
        outcome = f"{end.error.name}, {end.error.changed} changed"
    elif end.resent:
        outcome = f"{outcome}, sent more than once".removeprefix(", ")
    at_ms, took_ms = (begin.at_ms, None) if end is None else (end.at_ms, end.at_ms - begin.at_ms)
    return StoryLine(at_ms, took_ms, begin.call, begin.by, part.action, outcome, part.details)
