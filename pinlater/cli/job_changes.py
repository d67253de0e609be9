"""`pinlater job retry | delete`: changes to all jobs that match."""

from __future__ import annotations

from dataclasses import replace

import click

from pinlater.cli.connection import talks_to_server
from pinlater.cli.job_filter import (
    Extent,
    filter_options,
    job_change,
    priority_or_all_option,
    run_change,
    run_removal,
    yes_option,
)
from pinlater.cli.job_rows import state_option
from pinlater.cli.times import moment_option
from pinlater.client.client import Client
from pinlater.model import JobAction, JobState


@click.command(
    short_help="Put FAILED jobs of QUEUE back to PENDING.",
    epilog="""\b
Examples:
  pinlater job retry mail
  pinlater job retry mail --priority 2 --attempts 3 --run-after +1h --all
  pinlater job retry mail --priority all --newer-than 2h --match 'timed? ?out' --dry-run""",
)
@click.argument("queue")
@priority_or_all_option("1")
@click.option(
    "--attempts", type=click.IntRange(min=1), default=1, show_default=True, help="How often they may be tried again."
)
@click.option("--run-after", type=moment_option, metavar="TIME", help="Not before this time: ISO, or +10m from now.")
@filter_options
@talks_to_server
def retry(
    client: Client,
    queue: str,
    priority: int | None,
    attempts: int,
    run_after: int | None,
    older_ms: int | None,
    newer_ms: int | None,
    match: str,
    extent: Extent,
) -> None:
    """Put FAILED jobs of QUEUE back to PENDING, in slices of 1,000, and print how many.

    Jobs that fail while it runs are left alone. Where a shard is out, the others are done, it is named on stderr, and
    the exit code is 5.
    """
    change = job_change(queue, JobAction.RETRY, priority, older_ms, newer_ms, match)
    run_change(client, replace(change, attempts=attempts, run_after_ms=run_after), extent)


@click.command(
    short_help="Delete jobs of QUEUE in one state.",
    epilog="""\b
Examples:
  pinlater job delete mail --state failed --all
  pinlater job delete mail --state pending --priority 3 --match 'newsletter 17' --limit 5000
  pinlater job delete mail --state succeeded --priority all --older-than 2d --all --dry-run""",
)
@click.argument("queue")
@state_option
@priority_or_all_option("1")
@filter_options
@yes_option
@talks_to_server
def delete(
    client: Client,
    queue: str,
    state: JobState,
    priority: int | None,
    older_ms: int | None,
    newer_ms: int | None,
    match: str,
    extent: Extent,
    yes: bool,
) -> None:
    """Delete jobs of QUEUE in one state, in slices of 1,000, and print how many.

    On a terminal it counts them first and asks whether that is meant; then it deletes no more than it has counted.
    Where a shard is out, the others are done, it is named on stderr, and the exit code is 5.
    """
    change = job_change(queue, JobAction.DELETE, priority, older_ms, newer_ms, match)
    run_removal(client, replace(change, state=state), extent, yes=yes)
