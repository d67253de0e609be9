"""Jobs as rows of output, and the texts that name jobs and states on the command line."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from pinlater.cli.output import Row
from pinlater.cli.times import time_text
from pinlater.model import JobInfo, JobState

COLUMNS = ("descriptor", "state", "attempts", "run_after", "updated", "custom_status")
"""What a table shows of a job; JSON has more."""


def job_row(info: JobInfo) -> Row:
    """Times twice: `_ms` as kept, and as a text. A body that is not UTF-8 is in base64; `body_encoding` says which."""
    row = {
        "descriptor": info.descriptor,
        "state": info.state.name,
        "priority": info.priority,
        "attempts": f"{info.attempts_remaining}/{info.attempts_allowed}",
        "attempts_remaining": info.attempts_remaining,
        "attempts_allowed": info.attempts_allowed,
        "run_after": time_text(info.run_after_ms),
        "run_after_ms": info.run_after_ms,
        "created": time_text(info.created_at_ms),
        "created_at_ms": info.created_at_ms,
        "updated": time_text(info.updated_at_ms),
        "updated_at_ms": info.updated_at_ms,
        "claim_descriptor": info.claim_descriptor,
        "custom_status": info.custom_status,
    }
    return row if info.body is None else {**row, **body_fields(info.body)}


def body_fields(body: bytes) -> Row:
    """
    >>> body_fields(b"hi"), body_fields(bytes([255]))
    ({'body': 'hi', 'body_encoding': 'utf-8'}, {'body': '/w==', 'body_encoding': 'base64'})
    """
    try:
        return {"body": body.decode(), "body_encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"body": base64.b64encode(body).decode("ascii"), "body_encoding": "base64"}


def named_descriptors(given: Sequence[str]) -> Iterator[str]:
    """The descriptors of the command line; `-` stands for standard input, one to a line, read as they are needed."""
    for text in given:
        if text != "-":
            yield text
            continue
        for line in sys.stdin:
            if line.strip():
                yield line.strip()


def state_choice(*allowed: JobState) -> Callable[[str | JobState], JobState]:
    """The type of an option that takes one of these states."""
    names = {state.name.lower(): state for state in allowed}

    def state(text: str | JobState) -> JobState:
        found = text if isinstance(text, JobState) else names.get(text.lower().replace("-", "_"))
        if found is None:
            raise click.BadParameter(f"{text!r} is no state; allowed: {', '.join(names)}")
        return found

    return state


def state_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--state, as a JobState."""
    return click.option(
        "--state",
        type=state_choice(*JobState),
        required=True,
        metavar="STATE",
        help=f"The state of the jobs: {', '.join(state.name.lower() for state in JobState)}.",
    )(command)


def match_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--match, a pattern for bodies."""
    return click.option(
        "--match", default="", metavar="REGEX", help="Only jobs whose body holds a match of this RE2 pattern."
    )(command)
