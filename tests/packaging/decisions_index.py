"""docs/decisions.md, the index of the records in docs/decisions/.

`python -m tests.packaging.decisions_index > docs/decisions.md` writes it anew; a test compares them. A record is a
title, a line with its date and its subject, and what was decided. Numbers stay; a record that no longer binds goes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
SUBJECTS = (
    "Calls, ids and answers",
    "Keys and chains",
    "Schedules",
    "Flows",
    "Bodies in tiers",
    "Queues, operators and the command line",
    "Alarms and what operators see",
    "The dashboard",
    "HTTP",
    "Who may do what",
    "The cluster",
    "Where keys live",
    "The overflow shard",
    "Stores",
    "Connections and processes",
    "Workers: types of job and attempts",
    "Workers: claims and the loop",
    "Speed",
    "Code and packages",
    "Tests",
)
_RECORD = re.compile(r"# (?P<title>.+)\n\n\*(?P<date>\d{4}-\d\d-\d\d) · (?P<subject>.+)\*\n\n(?P<text>.+)", re.DOTALL)
_PAGE = """# Decisions

<!-- Written by `python -m tests.packaging.decisions_index > docs/decisions.md`. Edit docs/decisions/ instead. -->

Dated records: what was open, what was decided, what that costs, and what was tried instead. These are those that bind.
What the contract and the semantics decide is in [wire.md](wire.md) and [semantics.md](semantics.md); the words are in
[concepts.md](concepts.md).

A new record is a file of its own with the next number, made like the others. Where it takes another one's place, that
one is deleted; where it changes a part, a line of the other one says which.
"""


class DecisionRecord(NamedTuple):
    """`number`: as its file has it."""

    number: str
    title: str
    date: str
    subject: str
    path: Path


def records() -> Iterator[DecisionRecord]:
    """By number. ValueError: a file is not made like a record."""
    for path in sorted(FOLDER.iterdir()):
        found = _RECORD.fullmatch(path.read_text(encoding="utf-8"))
        if found is None or not re.fullmatch(r"\d{3}-[a-z0-9-]+\.md", path.name):
            raise ValueError(f"{path.name} is not made like the other records: a title, *date · subject*, a text")
        if found["subject"] not in SUBJECTS:
            raise ValueError(f"{path.name} has the subject {found['subject']!r}; subjects: {', '.join(SUBJECTS)}")
        yield DecisionRecord(path.name[:3], found["title"], found["date"], found["subject"], path)


def decisions_index() -> str:
    """docs/decisions.md."""
    parts = [_PAGE]
    found = list(records())
    for subject in SUBJECTS:
        parts.append(f"\n## {subject}\n\n")
        parts += [
            f"- [{each.number}](decisions/{each.path.name}) {each.title} ({each.date})\n"
            for each in found
            if each.subject == subject
        ]
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(decisions_index())
