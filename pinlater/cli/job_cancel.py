"""`pinlater job cancel`: jobs by their descriptors, or all pending ones of a queue that match."""

from __future__ import annotations

from itertools import groupby

import click

from pinlater.cli.connection import talks_to_server
from pinlater.cli.failures import EXIT_INCOMPLETE
from pinlater.cli.job_filter import Extent, filter_options, job_change, priority_or_all_option, run_removal, yes_option
from pinlater.cli.job_rows import named_descriptors
from pinlater.cli.output import open_output
from pinlater.cli.progress import Progress
from pinlater.cli.slices import slices
from pinlater.client.client import Client
from pinlater.model import CancelOutcome, JobAction, parse_descriptor

_SLICE = 1_000


@click.command(
    epilog="""\b
Examples:
  pinlater job cancel mail:s1:p1:1790000000000000
  pinlater job scan mail --state pending --future -o jsonl | jq -r .descriptor | pinlater job cancel -
  pinlater job cancel --queue mail --match 'newsletter 17' --dry-run
  pinlater job cancel --queue mail --older-than 7d --all"""
)
@click.argument("descriptors", nargs=-1, metavar="[DESCRIPTOR]...")
@click.option("--queue", metavar="QUEUE", help="In place of descriptors: the PENDING jobs of this queue that match.")
@priority_or_all_option("all")
@filter_options
@yes_option
@talks_to_server
def cancel(
    client: Client,
    descriptors: tuple[str, ...],
    queue: str | None,
    priority: int | None,
    older_ms: int | None,
    newer_ms: int | None,
    match: str,
    extent: Extent,
    yes: bool,
) -> None:
    """Remove jobs that are still PENDING.

    By descriptor, it prints what became of each; - reads descriptors from standard input. The outcomes: CANCELLED,
    IN_PROGRESS (a worker has it), ENDED, NOT_FOUND (also for what is no descriptor). Where any was not cancelled, the
    exit code is 5.

    With --queue, all of its jobs that match, scheduled ones too, in slices of 1,000, and it prints how many. On a
    terminal it counts them first and asks whether that is meant; then it cancels no more than it has counted.
    """
    if bool(descriptors) == (queue is not None):
        raise click.UsageError(
            "give descriptors or --queue, not both" if descriptors else "give descriptors or --queue"
        )
    if queue is not None:
        change = job_change(queue, JobAction.CANCEL, priority, older_ms, newer_ms, match)
        run_removal(client, change, extent, yes=yes)
        return
    if extent.dry_run or match or priority or older_ms is not None or newer_ms is not None:
        raise click.UsageError("a filter and --dry-run need --queue; descriptors name each job")
    _cancel_named(client, descriptors, extent.format)


def _cancel_named(client: Client, descriptors: tuple[str, ...], format: str) -> None:
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
