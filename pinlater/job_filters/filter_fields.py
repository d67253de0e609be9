"""The fields of the filter language, one table: what each compares, how it is written, and its help.

The parser, the completion and the table in docs/dashboard-filters.md are made of it, which `python -m
pinlater.job_filters.filter_fields` prints. A further field is a row here and a line of `FilterLine.selection`.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from pinlater.model.job_selection import JobPhase


class ValueKind(Enum):
    """How the value of a field is written."""

    NAMES = "one or more, with commas between"
    TEXT = "a text, or ~ and a pattern (RE2)"
    PATTERN = "a name; * stands for any characters"
    EXACT = "a text"
    TIME = "< or > and a length of time, or FROM..TO, either of which can be left out"
    NUMBER = "a number, with < or > in front, or FROM..TO"


class FilterField(NamedTuple):
    """A row. `can_negate`: it may have a - in front. `is_once`: a second condition on it could never be met beside the
    first.
    """

    name: str
    kind: ValueKind
    help: str
    examples: tuple[str, ...]
    can_negate: bool = False
    is_once: bool = False
    aliases: tuple[str, ...] = ()


_MEANINGS = {
    JobPhase.READY: "waits for a worker",
    JobPhase.SCHEDULED: "may run only later",
    JobPhase.WAITING: "waits for another job of its serialize key",
    JobPhase.IN_PROGRESS: "a worker has it",
    JobPhase.SUCCEEDED: "done",
    JobPhase.FAILED: "failed for good",
    JobPhase.CANCELLED: "stopped by somebody",
    JobPhase.REPLAYED: "failed, and its dead letter was sent back",
}
STATES = {phase.word: (phase, meaning) for phase, meaning in _MEANINGS.items()}
"""The states that a filter names, and what each means."""

SERVER_ERRORS = {
    "claim expired": "claim expired",
    "connection lost": "claim released",
    "too many crashes": "failed: crash budget",
    "not handed out in time": "failed: EXPIRED",
}
"""Errors that are no exceptions, and how the lines begin, behind a [, by which servers note them in a status."""

STATE_GROUPS: dict[str, tuple[str, ...]] = {
    "pending": ("ready", "scheduled", "waiting"),
    "ended": ("succeeded", "failed", "cancelled", "replayed"),
}
_OTHER_STATES = {"in_progress": "running", "canceled": "cancelled", "in-progress": "running", "done": "succeeded"}


def states_named(word: str) -> tuple[str, ...]:
    """The states that a word means, as they are written; () for none."""
    word = word.lower()
    word = _OTHER_STATES.get(word, word)
    return STATE_GROUPS.get(word) or ((word,) if word in STATES else ())


FIELDS: tuple[FilterField, ...] = (
    FilterField(
        "queue", ValueKind.NAMES, "The queue; * stands for any characters.", ("queue:mail", "queue:mail-*,sms"), True
    ),
    FilterField(
        "state",
        ValueKind.NAMES,
        f"The state: {', '.join(STATES)}; pending is any of the first three, ended any of the last four.",
        ("state:failed", "state:ready,running"),
        True,
    ),
    FilterField(
        "status",
        ValueKind.TEXT,
        "A text in the custom status, which has errors, tracebacks and notes of workers.",
        ("status:timeout", 'status:~"time(d )?out"'),
        True,
    ),
    FilterField(
        "error",
        ValueKind.PATTERN,
        f"What an attempt failed with: the type of its exception, or {', '.join(SERVER_ERRORS)}.",
        ("error:ValueError", "error:*Timeout*", 'error:"claim expired"'),
        True,
    ),
    FilterField(
        "body",
        ValueKind.TEXT,
        "A text in the body; slow, as every body is read.",
        ("body:ada", 'body:~"ada@"'),
        True,
    ),
    FilterField(
        "type",
        ValueKind.PATTERN,
        "The type of a job of the worker framework; slow, as every body is read.",
        ("type:resize", "type:shop.*"),
        True,
    ),
    FilterField(
        "age",
        ValueKind.TIME,
        "How long ago the job was created, or when.",
        ("age:>1h", "age:<10m", "age:2026-11-25T10:00..2026-11-25T11:00"),
        aliases=("created",),
    ),
    FilterField("updated", ValueKind.TIME, "How long ago it was changed last, or when.", ("updated:<5m",)),
    FilterField("ended", ValueKind.TIME, "How long ago it ended, or when; of jobs that have ended.", ("ended:<1d",)),
    FilterField("attempts", ValueKind.NUMBER, "How many attempts have failed.", ("attempts:>2", "attempts:0")),
    FilterField("priority", ValueKind.NAMES, "The priority; 1 is the highest.", ("priority:1", "priority:2,3"), True),
    FilterField("key", ValueKind.EXACT, "The dedupe key.", ("key:report-17",), is_once=True),
    FilterField("serialize", ValueKind.EXACT, "The serialize key.", ("serialize:account-7",), is_once=True),
    FilterField("group", ValueKind.EXACT, "The group, as a tenant.", ("group:acme",), is_once=True),
    FilterField(
        "tag", ValueKind.EXACT, "A tag; of several tags a job has to have all. Fast, by an index.", ("tag:tenant:7",)
    ),
    FilterField(
        "origin",
        ValueKind.EXACT,
        "The queue that a dead letter, or another copy, came from.",
        ("origin:mail",),
        is_once=True,
    ),
    FilterField(
        "id",
        ValueKind.EXACT,
        "The descriptor of a job; several conditions find several jobs.",
        ("id:mail:s1:p1:1790000000000000",),
    ),
)
BY_NAME: dict[str, FilterField] = {name: field for field in FIELDS for name in (field.name, *field.aliases)}


def reference_table() -> str:
    """The table of docs/dashboard-filters.md."""
    rows = [
        f"| `{field.name}`{''.join(f', `{each}`' for each in field.aliases)} | {field.help} | {field.kind.value} | "
        f"{'yes' if field.can_negate else ''} | {', '.join(f'`{each}`' for each in field.examples)} |\n"
        for field in FIELDS
    ]
    head = "| field | what it compares | how its value is written | with `-` | examples |\n"
    return head + "| --- | --- | --- | --- | --- |\n" + "".join(row.replace("FROM..TO", "`FROM..TO`") for row in rows)


if __name__ == "__main__":
    print(reference_table(), end="")
