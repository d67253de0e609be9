"""`pinlater job retry | cancel | delete`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import click

from pinlater.cli.connection import priority_option, talks_to_server
from pinlater.cli.failures import EXIT_INCOMPLETE
from pinlater.cli.job_rows import match_option, named_descriptors, state_option
from pinlater.cli.output import open_output, output_option, write_one
from pinlater.cli.progress import Progress
from pinlater.cli.slices import slices
from pinlater.cli.times import moment_option
from pinlater.client.client import Client
from pinlater.model import CancelOutcome, JobFilter, JobState, parse_descriptor

_SLICE = 1_000


def _in_slices(progress: Progress, limit: int | None, change: Callable[[int], int]) -> None:
    """Calls `change` with the size of a slice until it finds nothing more, or `limit` jobs are done.

    A slice that finds fewer than it might is not the end: a server may look at a bounded number of jobs per call.
    """
    while limit is None or progress.done < limit:
        changed = change(_SLICE if limit is None else min(_SLICE, limit - progress.done))
        if changed == 0:
            return
        progress.add(changed)


_limit_option = click.option(
    "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="At most so many jobs."
)
_all_option = click.option("--all", "everything", is_flag=True, help="All jobs, however many.")


@click.command(
    epilog="""\b
Examples:
  pinlater job retry mail
  pinlater job retry mail --priority 2 --attempts 3 --run-after +1h --all"""
)
@click.argument("queue")
@priority_option("The priority of the jobs.", required_level=True)
@click.option(
    "--attempts", type=click.IntRange(min=1), default=1, show_default=True, help="How often they may be tried again."
)
@click.option("--run-after", type=moment_option, metavar="TIME", help="Not before this time: ISO, or +10m from now.")
@_limit_option
@_all_option
@output_option
@talks_to_server
def retry(
    client: Client,
    queue: str,
    priority: int,
    attempts: int,
    run_after: int | None,
    limit: int,
    everything: bool,
    format: str,
) -> None:
    """Put FAILED jobs of QUEUE back to PENDING, in slices of 1,000, and print how many."""
    with Progress("jobs put back") as progress:
        _in_slices(
            progress,
            None if everything else limit,
            lambda slice_limit: client.retry_failed(
                queue, priority=priority, attempts=attempts, run_after_ms=run_after, limit=slice_limit
            ),
        )
    write_one(format, "retried", progress.done)


@click.command(
    epilog="""\b
Examples:
  pinlater job delete mail --state failed --all
  pinlater job delete mail --state pending --priority 3 --match 'newsletter 17' --limit 5000"""
)
@click.argument("queue")
@state_option
@priority_option("The priority of the jobs.", required_level=True)
@match_option
@_limit_option
@_all_option
@output_option
@talks_to_server
def delete(
    client: Client,
    queue: str,
    state: JobState,
    priority: int,
    match: str,
    limit: int,
    everything: bool,
    format: str,
) -> None:
    """Delete jobs of QUEUE in one state and of one priority, in slices of 1,000, and print how many."""
    wanted = JobFilter(queue, state, priority, body_regex=match)
    with Progress("jobs deleted") as progress:
        _in_slices(
            progress,
            None if everything else limit,
            lambda slice_limit: client.delete_jobs(wanted, limit=slice_limit),
        )
    write_one(format, "deleted", progress.done)


@click.command(
    epilog="""\b
Examples:
  pinlater job cancel mail:s1:p1:1790000000000000
  pinlater job scan mail --state pending --future -o jsonl | jq -r .descriptor | pinlater job cancel -"""
)
@click.argument("descriptors", nargs=-1, required=True, metavar="DESCRIPTOR...")
@output_option
@talks_to_server
def cancel(client: Client, descriptors: tuple[str, ...], format: str) -> None:
    """Remove jobs that are still PENDING, and print what became of each; - reads descriptors from standard input.

    The outcomes: CANCELLED, IN_PROGRESS (a worker has it), ENDED, NOT_FOUND (also for what is no descriptor). Where any
    was not cancelled, the exit code is 5.
    """
    output = open_output(format, ["descriptor", "outcome"])
    failed = False
    with Progress("jobs looked at") as progress:
        for queue, named in groupby(named_descriptors(descriptors), _queue_of):
            for part in slices(named, _SLICE, _SLICE, lambda _: 0):
                outcomes = {} if queue is None else client.cancel(queue, part)
                rows = [(each, outcomes.get(each, CancelOutcome.NOT_FOUND)) for each in part]
                failed = failed or any(outcome is not CancelOutcome.CANCELLED for _, outcome in rows)
                progress.add(len(part))
                output.write([{"descriptor": each, "outcome": outcome.name} for each, outcome in rows])
    output.close()
    if failed:
        raise SystemExit(EXIT_INCOMPLETE)


def _queue_of(descriptor: str) -> str | None:
    """None: the text is no descriptor, so there is no such job."""
    ref = parse_descriptor(descriptor)
    return None if ref is None else ref.queue
