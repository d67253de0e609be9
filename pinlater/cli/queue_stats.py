"""`pinlater queue stats`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from pinlater.cli.connection import out_shards, talks_to_server
from pinlater.cli.failures import EXIT_INCOMPLETE, say
from pinlater.cli.output import Row, open_output, output_option
from pinlater.client.client import Client
from pinlater.errors import PriorityNotSupported
from pinlater.model import JobFilter, JobState

COUNTS = ("pending", "scheduled", "in_progress", "succeeded", "failed")
_COUNTED = [
    ("scheduled" if (state, future) == (JobState.PENDING, True) else state.name.lower(), state, future)
    for state in JobState
    for future in (False, True)
]
"""Where each count goes. Outside of PENDING it says little that run_after is yet to come, as after a checkpoint."""
_MOST_PRIORITIES = 127


@click.command(
    short_help="Count the jobs of each queue and priority.",
    epilog="""\b
Examples:
  pinlater queue stats mail
  pinlater queue stats -o jsonl | jq 'select(.failed > 0)'""",
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@output_option
@talks_to_server
def stats(client: Client, names: tuple[str, ...], format: str) -> None:
    """Count the jobs of each queue and priority by what they wait for; without a NAME of all queues.

    `pending` jobs may run now, `scheduled` ones only later. Where a shard is out, it is named on stderr, its jobs are
    not counted, and the exit code is 5.
    """
    out = out_shards(client)
    output = open_output(format, ["queue", "priority", *COUNTS])
    priorities = 0
    for name in names or sorted(client.queue_names()):
        priorities = priorities or _priorities(client, name, bool(out))
        output.write(_stats(client, name, priorities, bool(out)))
    output.close()
    if out:
        say(f"not all was counted; missing shards: {', '.join(out)}")
        raise SystemExit(EXIT_INCOMPLETE)


def holds(client: Client, name: str, *, partial: bool, timeout_s: float | None = None) -> dict[str, int]:
    """How many jobs of each kind a queue holds, all priorities together. QueueNotFound."""
    counts = dict.fromkeys(COUNTS, 0)
    filters = [JobFilter(name, state, future=future) for _, state, future in _COUNTED]
    found = client.counts(filters, allow_partial=partial, timeout=timeout_s)
    for (column, *_), count in zip(_COUNTED, found, strict=True):
        counts[column] += count
    return counts


def _priorities(client: Client, name: str, partial: bool) -> int:
    """How many the server has; the same for all its queues."""
    for priority in range(1, _MOST_PRIORITIES + 1):
        try:
            client.count(JobFilter(name, JobState.PENDING, priority, future=True), allow_partial=partial)
        except PriorityNotSupported:
            return priority - 1
    return _MOST_PRIORITIES


def _stats(client: Client, name: str, priorities: int, partial: bool) -> Sequence[Row]:
    """A row for each priority, from counts that are asked for all at once."""
    asked = [
        (priority, column, JobFilter(name, state, priority, future=future))
        for priority in range(1, priorities + 1)
        for column, state, future in _COUNTED
    ]
    rows: list[dict[str, Any]] = [
        {"queue": name, "priority": priority, **dict.fromkeys(COUNTS, 0)} for priority in range(1, priorities + 1)
    ]
    counts = client.counts([filter for *_, filter in asked], allow_partial=partial)
    for (priority, column, _), count in zip(asked, counts, strict=True):
        rows[priority - 1][column] += count
    return rows
