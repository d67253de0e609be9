"""`pinlater job scan | count`."""

from __future__ import annotations

import click

from pinlater.cli.connection import priority_option, talks_to_server
from pinlater.cli.failures import EXIT_INCOMPLETE, say
from pinlater.cli.job_rows import COLUMNS, job_row, match_option, state_option
from pinlater.cli.output import open_output, output_option, write_one
from pinlater.client.client import Client
from pinlater.model import JobFilter, JobState

_SLICE = 1_000
_FUTURE_HELP = "Jobs that may run only later, in place of those whose time has come."
_ALL_PRIORITIES = "Only jobs of this priority. [default: all]"


@click.command(
    epilog="""\b
Examples:
  pinlater job scan mail --state failed
  pinlater job scan mail --state pending --future --limit 20
  pinlater job scan mail --state failed --match 'timed? ?out' --all -o jsonl"""
)
@click.argument("queue")
@state_option
@priority_option(_ALL_PRIORITIES)
@click.option("--future", is_flag=True, help=_FUTURE_HELP)
@match_option
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many jobs.")
@click.option("--all", "everything", is_flag=True, help="All jobs, however many.")
@output_option
@talks_to_server
def scan(
    client: Client,
    queue: str,
    state: JobState,
    priority: int | None,
    future: bool,
    match: str,
    limit: int,
    everything: bool,
    format: str,
) -> None:
    """List jobs of QUEUE in one state, the newest run-after first. Rows are printed as they come.

    Where a shard cannot be read, the others are listed, it is named on stderr, and the exit code is 5.
    """
    left = None if everything else limit
    output = open_output(format, COLUMNS)
    missing_shards: set[str] = set()
    wanted = JobFilter(queue, state, priority, future, match)
    for page in client.scan_pages(wanted, limit=_SLICE if left is None else min(_SLICE, left)):
        missing_shards.update(page.missing_shards)
        output.write([job_row(info) for info in page.jobs[:left]])
        if left is not None:
            left -= len(page.jobs)
            if left <= 0:
                break
    output.close()
    if missing_shards:
        say(f"not all was read; missing shards: {', '.join(sorted(missing_shards))}")
        raise SystemExit(EXIT_INCOMPLETE)


@click.command(
    epilog="""\b
Examples:
  pinlater job count mail --state pending
  pinlater job count mail --state failed --priority 1 --match '"to": "ada@' -o json"""
)
@click.argument("queue")
@state_option
@priority_option(_ALL_PRIORITIES)
@click.option("--future", is_flag=True, help=_FUTURE_HELP)
@match_option
@click.option("--partial", is_flag=True, help="Count what is there although a shard cannot be read.")
@output_option
@talks_to_server
def count(
    client: Client,
    queue: str,
    state: JobState,
    priority: int | None,
    future: bool,
    match: str,
    partial: bool,
    format: str,
) -> None:
    """Count the jobs of QUEUE in one state."""
    wanted = JobFilter(queue, state, priority, future, match)
    write_one(format, "count", client.count(wanted, allow_partial=partial))
