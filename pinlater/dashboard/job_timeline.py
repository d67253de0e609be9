"""The time-line of a job: its attempts with their delays, workers and errors, from what the stores know of it and from
the lines that servers and the worker framework write into its status.

    attempt 1 of 3: ConnectionError: mx1 refused (mail.py:42 in deliver) [2026-11-23T00:09:12Z, 1.2s, web-1:4711]

What is written in another way is a note, and none is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise

from pinlater.model import AuditEntry, JobInfo, JobState, claim_source
from pinlater.model.attempt_counts import ATTEMPT_BEGINS, ATTEMPTS_LEFT
from pinlater.model.job_selection import JobPhase, phase_of
from pinlater.model.status_text import NOT_REPLACED, NOT_REPLACED_END
from pinlater.schedule import delay_seconds

ATTEMPT_LINE = re.compile(
    ATTEMPT_BEGINS + r"(?P<text>.*?)"
    r"(?: \[(?P<began>[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z), (?P<took>[0-9a-z.]{1,20}), "
    r"(?P<worker>[^\]]*)\])?"
)
_EXPIRED = re.compile(r"\[claim expired at (?P<at>[0-9]{1,16})" + ATTEMPTS_LEFT)
_RELEASED = re.compile(r"\[claim released at (?P<at>[0-9]{1,16}): its connection broke" + ATTEMPTS_LEFT)
_CRASHED = re.compile(r"\[failed: crash budget used up, (?P<crashes>[0-9]{1,10}) crashes\]")
_TOO_LATE = re.compile(r"\[failed: EXPIRED at (?P<expires>[0-9]{1,16}), ended at (?P<at>[0-9]{1,16})\]")
_NOT_TAKEN = re.compile(
    re.escape(NOT_REPLACED) + "(?P<at>[0-9]{1,16})" + re.escape(NOT_REPLACED_END.rstrip("\n")),
)
_LETTER = re.compile(
    r"\[dead letter of (?P<origin>\S+), created at (?P<created>[0-9]{1,16}), "
    r"attempts allowed (?P<allowed>[0-9]{1,10}), "
    r"crashes (?P<crashes>[0-9]{1,10}), moved at (?P<at>[0-9]{1,16})\]"
)
_BEGINS = re.compile(r"\[(?:claim (?:expired|released)|failed:|newer arguments|dead letter of) ")
"""How lines begin that servers write."""

_TRACE = "  "
ASKED_TO_STOP = "Asked to stop"
_CHANGES = {"retry_jobs": "Retried", "reschedule_jobs": "Rescheduled"}
"""What changes of jobs that the audit has are called."""
_GIVEN = ("runs after ", "runs at once", "gets attempts ", "another body")
_LETTER_TITLE = "Copied as a dead letter"
_MAX_MS = 2**53


@dataclass(slots=True)
class TimelineStep:
    """Something that happened, or will. `at_ms` None: nobody noted when. `gap_ms`: how long after the end of the step
    before; `took` is as the worker wrote it.
    """

    title: str
    kind: str = ""
    at_ms: int | None = None
    text: str = ""
    worker: str = ""
    took: str = ""
    trace: list[str] = field(default_factory=list)
    descriptor: str = ""
    gap_ms: int | None = None
    is_future: bool = False
    origin_ms: int | None = None
    """Of a dead letter: when the job was enqueued that it is a copy of."""

    @property
    def ended_ms(self) -> int | None:
        if self.at_ms is None or not self.took:
            return self.at_ms
        return self.at_ms + _length_ms(self.took)


@dataclass(slots=True)
class Timeline:
    """`notes` are lines of producers and workers, in their order."""

    steps: list[TimelineStep]
    notes: list[str]


def timeline(info: JobInfo, now_ms: int, why: str = "", *, sees_texts: bool = True) -> Timeline:
    """`why`: what holds the job back, as far as that is known. `sees_texts`: else it is without what workers and
    producers wrote.
    """
    steps = [TimelineStep("Enqueued", at_ms=info.created_at_ms, text=f"priority {info.priority}")]
    notes: list[str] = []
    for line in [part for each in info.custom_status.splitlines() for part in _parts(each)]:
        if line.startswith(_TRACE) and steps[-1].title.startswith("Attempt"):
            if sees_texts:
                steps[-1].trace.append(line[len(_TRACE) :])
        elif (step := _step(line)) is not None:
            if not sees_texts and step.title.startswith("Attempt"):
                step.text = ""
            steps.append(step)
        elif line.strip() and sees_texts:
            notes.append(line.strip())
    steps += _now(info, now_ms, why)
    _place_letter(steps)
    _add_gaps(steps)
    return Timeline(steps, notes)


def attempt_text(line: str) -> str:
    """What a line of a status says of an attempt, without its number, when and where it was; others as they are."""
    line = line.strip()
    return line if (attempt := ATTEMPT_LINE.fullmatch(line)) is None else attempt["text"]


def add_changes(found: Timeline, info: JobInfo, entries: Iterable[AuditEntry]) -> None:
    """Put into the time-line who retried or rescheduled this very job, when and how, as the audit tells, and when it
    was asked to stop. (What else operators do to a job by its name leaves none.)
    """
    for entry in sorted(entries, key=lambda each: each.at_ms):
        if entry.at_ms < info.created_at_ms or info.descriptor not in entry.detail.replace(",", " ").split():
            continue
        if entry.action == "ask_jobs_to_stop":
            for step in found.steps:
                if step.title == ASKED_TO_STOP and step.at_ms is None:
                    step.at_ms = entry.at_ms
        elif (title := _CHANGES.get(entry.action)) is not None:
            places = (place for place, step in enumerate(found.steps) if place and (step.at_ms or 0) > entry.at_ms)
            place = next(places, len(found.steps) - 1)
            text = f"by {entry.who}{_changed_to(entry.detail)}"
            found.steps.insert(place, TimelineStep(title, "held", entry.at_ms, text))
    for step in found.steps:
        step.gap_ms = None
    _add_gaps(found.steps)


def _changed_to(detail: str) -> str:
    """What an entry of the audit says that a job was given: its time, attempts and body, in front of whose they are."""
    given = detail.partition(", of ")[0].split(", ")
    return "".join(f", {part}" for part in given if part.startswith(_GIVEN))


def _parts(line: str) -> list[str]:
    """A worker's text without an end of line has the line that a server wrote behind it in the same one."""
    for found in _BEGINS.finditer(line, 1):
        if _step(line[found.start() :]) is not None:
            return [line[: found.start()], line[found.start() :]]
    return [line]


def _step(line: str) -> TimelineStep | None:
    """What a line of a status tells; None: it is a note."""
    if (found := ATTEMPT_LINE.fullmatch(line)) is not None:
        of = f" of {found['allowed']}" if found["allowed"] else ""
        at_ms = _moment_ms(found["began"]) if found["began"] else None
        worker, took = found["worker"] or "", found["took"] or ""
        return TimelineStep(f"Attempt {int(found['number'])}{of} failed", "bad", at_ms, found["text"], worker, took)
    if (found := _EXPIRED.fullmatch(line)) is not None:
        return TimelineStep(
            "Its worker was lost", "bad", _ms(found["at"]), "No heartbeat came before the claim ran out."
        )
    if (found := _RELEASED.fullmatch(line)) is not None:
        return TimelineStep("Its worker was lost", "bad", _ms(found["at"]), "The worker's connection broke.")
    if (found := _CRASHED.fullmatch(line)) is not None:
        return TimelineStep(
            "Given up", "bad", text=f"It took {found['crashes']} workers with it: its crash budget is used up."
        )
    if (found := _TOO_LATE.fullmatch(line)) is not None:
        return TimelineStep("Too late", "bad", _ms(found["at"]), "It was not to be handed out after its expiry.")
    if (found := _NOT_TAKEN.fullmatch(line)) is not None:
        text = "An enqueue was to replace this job (REPLACE), which ran already."
        return TimelineStep("Newer arguments not taken from here on", "held", _ms(found["at"]), text)
    if (found := _LETTER.fullmatch(line)) is not None:
        origin_ms = _ms(found["created"])
        return TimelineStep(_LETTER_TITLE, "held", _ms(found["at"]), descriptor=found["origin"], origin_ms=origin_ms)
    return None


def _now(info: JobInfo, now_ms: int, why: str) -> Iterator[TimelineStep]:
    """How it is now, and what comes."""
    phase = phase_of(info, now_ms)
    claim = info.claim_descriptor
    if info.state is JobState.IN_PROGRESS:
        yield TimelineStep("Running", "run", info.claimed_at_ms, worker=_source(claim))
        if info.cancel_requested_by is not None:
            yield TimelineStep(ASKED_TO_STOP, "held", text=f"by {info.cancel_requested_by}")
    elif info.state is JobState.SUCCEEDED:
        moved = info.moved_to is not None
        yield TimelineStep("Moved" if moved else "Done", "good", info.finished_at_ms, worker=_source(claim))
    elif phase is JobPhase.CANCELLED:
        by = f"by {info.cancel_requested_by}" if info.cancel_requested_by else ""
        yield TimelineStep("Cancelled", "held", info.finished_at_ms, text=by)
    elif info.state is JobState.FAILED:
        yield TimelineStep("Failed for good", "bad", info.finished_at_ms)
        if info.replayed_to is not None:
            yield TimelineStep("Replayed as", "held", info.updated_at_ms, descriptor=info.replayed_to)
    elif phase is JobPhase.SCHEDULED:
        yield TimelineStep("Runs", "", info.run_after_ms, is_future=True)
    elif phase is JobPhase.WAITING:
        yield TimelineStep("Waits for another job of its key", "", descriptor=info.waits_for or "")
    else:
        yield TimelineStep("Ready", "", info.run_after_ms, why or "It waits for a worker.")


def _place_letter(steps: list[TimelineStep]) -> None:
    """A dead letter says in front what it was; the copy was made when all that the status tells had happened."""
    place = next((place for place, step in enumerate(steps) if step.title == _LETTER_TITLE), None)
    if place is None:
        return
    letter = steps.pop(place)
    steps[0].at_ms = letter.origin_ms
    last = max(at for at, step in enumerate(steps) if at == 0 or step.title.startswith("Attempt"))
    steps.insert(last + 1, letter)


def _add_gaps(steps: list[TimelineStep]) -> None:
    for before, step in pairwise(steps):
        if before.ended_ms is not None and step.at_ms is not None and step.at_ms > before.ended_ms:
            step.gap_ms = step.at_ms - before.ended_ms


def _source(claim_descriptor: str | None) -> str:
    """Who holds, or held, a claim, as it calls itself."""
    return claim_source(claim_descriptor or "") or claim_descriptor or ""


def _ms(text: str) -> int | None:
    value = int(text)
    return value if value <= _MAX_MS and value < 253_402_300_800_000 else None


def _moment_ms(text: str) -> int | None:
    try:
        return int(datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def _length_ms(took: str) -> int:
    try:
        return int(delay_seconds(took) * 1000)
    except ValueError:
        return 0
