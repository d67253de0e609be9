"""A job as people and programs read it: a row of a table, an object of JSON, and all that is known of it on a page.

Bodies of the worker framework are shown as their type and arguments, without those that are marked as secret.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pinlater.cli.output import Row, ToRow, counted, json_object, whole
from pinlater.cli.times import from_now, time_text
from pinlater.clock import SystemClock
from pinlater.durations import duration_text, elapsed_text
from pinlater.model import HIDDEN_JOB, JobAttempt, JobInfo, JobProgress
from pinlater.model.attempt_counts import begun_attempts, counted_attempts
from pinlater.model.job_selection import phase_of
from pinlater.printable import json_text, printable, printable_lines
from pinlater.text_table import Column, TextTable

if TYPE_CHECKING:
    from pinlater.job_body import BodyDescription

_NAMED = ("descriptor", "state", whole("attempts"), whole("run_after", 3), whole("updated", 2))
COLUMNS = (*_NAMED, "custom_status")
"""What a table shows of a job; JSON has more."""

BODY_COLUMNS = (*_NAMED, Column("body", 5), "custom_status")
WHOLE_BODY_COLUMNS = (*_NAMED, whole("body"), "custom_status")
_BODY_CHARS = 60
_STATUS_CHARS = 120
_PAGE_LINES = 40
_PAGE_CHARS = 4_000
_ARGUMENT_CHARS = 500
_LABEL_WIDTH = 15
_HIDDEN = "a job of a queue that you may not read"


def attempts_used(info: JobInfo) -> int:
    """The one under way, or that succeeded, included. A permanent failure uses up all that were left, where nothing
    says how many attempts there were.
    """
    begun = begun_attempts(info)
    return info.attempts_allowed if begun is None else begun


def attempts_text(info: JobInfo) -> str:
    return counted_attempts(begun_attempts(info), info.attempts_allowed)


# -- for programs ------------------------------------------------------------------------------------------------------


def job_json(info: JobInfo) -> Row:
    """As the HTTP interface has it; a body of the framework has its type and arguments too."""
    return {**json_object(info), **_call_fields(info.body)}


def job_row(info: JobInfo) -> Row:
    """The JSON of before. Times twice: `_ms` as kept, and as a text. A body that is not UTF-8 is in base64;
    `body_encoding` says which. `attempts` is remaining/allowed.
    """
    row: dict[str, Any] = {
        "descriptor": info.descriptor,
        "state": info.state.name,
        "priority": info.priority,
        "attempts": f"{info.attempts_remaining}/{info.attempts_allowed}",
        "attempts_used": attempts_used(info),
        "attempts_remaining": info.attempts_remaining,
        "attempts_allowed": info.attempts_allowed,
        "crashes": info.crashes,
    }
    for name, time_ms in (
        ("run_after", info.run_after_ms),
        ("created_at", info.created_at_ms),
        ("updated_at", info.updated_at_ms),
        ("claimed_at", info.claimed_at_ms),
        ("claim_expires_at", info.claim_expires_at_ms),
        ("finished_at", info.finished_at_ms),
    ):
        row[name.removesuffix("_at")] = time_text(time_ms)
        row[f"{name}_ms"] = time_ms
    row |= {
        "claim_descriptor": info.claim_descriptor,
        "origin": info.origin,
        "moved_to": info.moved_to,
        "custom_status": info.custom_status,
    }
    if info.cancelled:
        row["cancelled"] = True
    for name, value in (
        ("dedupe_key", info.dedupe_key),
        ("serialize_key", info.serialize_key),
        ("tags", info.tags),
        ("group", info.group),
        ("waits_for", info.waits_for),
        ("successor", info.successor),
        ("replayed_to", info.replayed_to),
        ("expires_at_ms", info.expires_at_ms),
        ("claim_timeout_ms", info.claim_timeout_ms),
        ("cancel_requested_by", info.cancel_requested_by),
        ("body_stored_at", info.body_stored_at),
        ("body_left_out", info.body_left_out),
        ("result_left_out", info.result_left_out),
        ("progress", None if info.progress is None else info.progress._asdict()),
    ):
        if value is not None:
            row[name] = value
    if info.result is not None:
        row |= text_fields("result", info.result)
    return row if info.body is None else {**row, **text_fields("body", info.body), **_call_fields(info.body)}


def text_fields(name: str, data: bytes) -> dict[str, str]:
    """
    >>> text_fields("body", b"hi"), text_fields("result", bytes([255]))
    ({'body': 'hi', 'body_encoding': 'utf-8'}, {'result': '/w==', 'result_encoding': 'base64'})
    """
    try:
        return {name: data.decode(), f"{name}_encoding": "utf-8"}
    except UnicodeDecodeError:
        return {name: base64.b64encode(data).decode("ascii"), f"{name}_encoding": "base64"}


def _described(body: bytes) -> BodyDescription | None:
    """What a body of the worker framework says. Its formats take time to import, and most commands show no body."""
    from pinlater.job_body import describe_body  # noqa: PLC0415

    return describe_body(body)


def _call_fields(body: bytes | None) -> Row:
    call = None if body is None else _described(body)
    return {} if call is None else {"type": call.job, "args": call.args, "kwargs": call.kwargs}


# -- for people --------------------------------------------------------------------------------------------------------


def row_of(format: str, *, whole_body: bool = False) -> ToRow:
    """What makes a row of a table, or the JSON of before."""
    return partial(table_row, whole_body=whole_body) if format == "table" else job_row


def table_row(info: JobInfo, *, whole_body: bool = False) -> Row:
    """A line: of several lines of status the last record, of a body its beginning."""
    state = phase_of(info, SystemClock().now_ms()).word
    row = {
        **job_row(info),
        "state": state,
        "attempts": attempts_text(info),
        "custom_status": last_status_line(info.custom_status),
    }
    return row if info.body is None else {**row, "body": _one_line(info.body, None if whole_body else _BODY_CHARS)}


def last_status_line(status: str) -> str:
    """Of a failure its own line: those of its traceback stand in from the edge.

    >>> last_status_line("attempt 1: a\\nattempt 2: b\\n  File x\\n")
    '... attempt 2: b'
    """
    lines = [line for line in status.splitlines() if line.strip()] or [""]
    last = next((line for line in reversed(lines) if not line[0:1].isspace()), lines[-1])
    shown = lines[-1] if len(lines) == 1 else f"... {last.strip()}"
    return _cut(shown, _STATUS_CHARS) if len(lines) > 1 else shown


def _one_line(body: bytes, max_chars: int | None) -> str:
    """
    >>> _one_line(b'PINLATER/1 application/json\\n{"job": "resize", "args": [1]}', 60), _one_line(bytes([255]), 60)
    ('resize(1)', '(1 byte, no text)')
    """
    call = _described(body)
    if call is not None:
        return call.call_text(max_chars or len(body) + _BODY_CHARS)
    if max_chars is not None and len(body) > 4 * max_chars:
        return _cut(body[: 4 * max_chars].decode(errors="ignore"), max_chars)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return f"({counted(len(body), 'byte')}, no text)"
    return text if max_chars is None else _cut(text, max_chars)


def _cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[: max_chars - 3] + "..."


def page(info: JobInfo, now_ms: int, why: str = "") -> Iterator[str]:
    """All that is known of a job, in lines; what is not there is left out. `why` it does not run."""
    crashes = f", {info.crashes:,} crash{'' if info.crashes == 1 else 'es'}" if info.crashes else ""
    yield _field("descriptor", info.descriptor)
    yield _field("queue", info.descriptor.partition(":")[0])
    yield _field("state", phase_of(info, now_ms).word)
    if why:
        yield _field("why it waits", why)
    yield _field("priority", str(info.priority))
    yield _field("attempts", attempts_text(info) + crashes)
    for label, time_ms in (
        ("created", info.created_at_ms),
        ("run after", info.run_after_ms),
        ("expires", info.expires_at_ms),
        ("claimed", info.claimed_at_ms),
        ("claim expires", info.claim_expires_at_ms),
        ("finished", info.finished_at_ms),
        ("updated", info.updated_at_ms),
    ):
        if time_ms is not None:
            yield _field(label, f"{time_text(time_ms)}  ({from_now(time_ms, now_ms)})")
    for label, text in (
        ("claim", info.claim_descriptor),
        ("dedupe key", info.dedupe_key),
        ("serialize key", info.serialize_key),
        ("tags", ", ".join(info.tags or ())),
        ("group", info.group),
        ("waits for", _HIDDEN if info.waits_for == HIDDEN_JOB else info.waits_for),
        ("successor", info.successor),
        ("cancelled by" if info.cancelled else "to stop, by", info.cancel_requested_by),
        ("body in", info.body_stored_at),
        ("progress", None if info.progress is None else progress_text(info.progress)),
        ("copy of", info.origin),
        ("copied to", info.moved_to),
        ("replayed as", info.replayed_to),
    ):
        if text:
            yield _field(label, text)
    if info.claim_timeout_ms is not None:
        yield _field("claim time-out", duration_text(info.claim_timeout_ms))
    if info.result is not None:
        yield from _result(info.result)
    if info.attempts:
        yield from _attempts(info.attempts, now_ms)
    if info.log_lines:
        yield "log"
        for line in info.log_lines:
            yield f"  {time_text(line.at_ms)}  {line.attempt:>2}  {printable(line.text)}"
    yield from _status(info.custom_status)
    if info.body is not None:
        yield from _body(info.body)


def progress_text(progress: JobProgress) -> str:
    """
    >>> progress_text(JobProgress(0.415, "page 5", 0)), progress_text(JobProgress(None, "begun", 0))
    ('41% page 5', 'begun')
    """
    share = [] if progress.fraction is None else [f"{int(progress.fraction * 100)}%"]
    return " ".join([*share, *([progress.text] if progress.text else [])])


def _field(label: str, text: str) -> str:
    return f"{label:{_LABEL_WIDTH}}{printable(text)}"


def _status(status: str) -> Iterator[str]:
    """One line beside its label, several below it."""
    text = status.rstrip()
    if "\n" in text:
        yield "status"
        yield printable_lines(text, "  ")
    elif text:
        yield _field("status", text)


def _attempts(attempts: Sequence[JobAttempt], now_ms: int) -> Iterator[str]:
    yield "trail"
    table = TextTable(("attempt", "claimed", "waited", "ran", "outcome", "worker"))
    rows = [
        (
            *(str(each.number), time_text(each.claimed_at_ms), elapsed_text(each.wait_ms / 1000)),
            elapsed_text((max(0, now_ms - each.claimed_at_ms) if each.run_ms is None else each.run_ms) / 1000),
            *(each.outcome or "running", each.worker),
        )
        for each in attempts
    ]
    yield from (f"  {line}" for line in table.lines(rows))


def _body(body: bytes) -> Iterator[str]:
    call = _described(body)
    if call is not None:
        yield from _call(call)
        return
    size = counted(len(body), "byte")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        yield _field("body", f"{size}, no text; --body writes them")
        return
    lines = text[:_PAGE_CHARS].split("\n")[:_PAGE_LINES]
    shown = "\n".join(lines)
    more = "" if len(shown) >= len(text.rstrip("\n")) else "; --body writes all of it"
    yield _field("body", f"{size}{more}")
    if shown.strip():
        yield printable_lines(shown.rstrip("\n"), "  ")


def _result(result: bytes) -> Iterator[str]:
    """A text as it is, other bytes in hexadecimal; the beginning of either."""
    size = counted(len(result), "byte")
    try:
        text = result.decode()
    except UnicodeDecodeError:
        text, size = result[: _PAGE_CHARS // 2].hex(), f"{size}, in hexadecimal"
    shown = "\n".join(text[:_PAGE_CHARS].split("\n")[:_PAGE_LINES])
    yield _field("result", size)
    if shown.strip():
        yield printable_lines(shown.rstrip("\n"), "  ")


def _call(call: BodyDescription) -> Iterator[str]:
    yield _field("type", call.job)
    arguments = [*((str(place), value) for place, value in enumerate(call.args)), *call.kwargs.items()]
    if arguments:
        yield "arguments"
    for name, value in arguments:
        yield f"  {printable(name)} = {_cut(json_text(value, default=str), _ARGUMENT_CHARS)}"
    if call.snoozes:
        yield _field("snoozed", counted(call.snoozes, "time"))
    if call.traceparent:
        yield _field("trace", call.traceparent)
