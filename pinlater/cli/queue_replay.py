"""`pinlater queue replay`."""

from __future__ import annotations

from dataclasses import replace

import click

from pinlater.cli.connection import talks_to_server
from pinlater.cli.job_filter import Extent, filter_options, job_change, priority_or_all_option, run_change
from pinlater.cli.job_rows import state_choice
from pinlater.client.client import Client
from pinlater.config.values import Rate
from pinlater.model import JobAction, JobState


def _rate(text: str | float) -> float:
    try:
        per_second = text if isinstance(text, float) else Rate().parse(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no rate; allowed: such as 100/s, 30/m, 5/h") from None
    if not per_second:
        raise click.BadParameter("a rate of 0 would never end")
    return per_second


@click.command(
    short_help="Send dead letters back to where they came from.",
    epilog="""\b
Examples:
  pinlater queue replay mail_dead
  pinlater queue replay mail_dead --newer-than 2h --match '"to": "ada@' --dry-run
  pinlater queue replay mail_dead --all --rate 100/s --attempts 3""",
)
@click.argument("queue", metavar="DLQ")
@priority_or_all_option("all")
@click.option(
    "--state",
    type=state_choice(JobState.PENDING, JobState.FAILED),
    metavar="STATE",
    help="Only dead letters in this state: pending or failed. [default: both]",
)
@click.option(
    "--attempts", type=click.IntRange(min=1), help="How often they may be tried again. [default: as before they failed]"
)
@click.option("--rate", type=_rate, metavar="RATE", help="At most so many: 100/s, 30/m. [default: as fast as it goes]")
@filter_options
@talks_to_server
def replay(
    client: Client,
    queue: str,
    priority: int | None,
    state: JobState | None,
    attempts: int | None,
    rate: float | None,
    older_ms: int | None,
    newer_ms: int | None,
    match: str,
    extent: Extent,
) -> None:
    """Send dead letters of the queue DLQ back to the queues that they came from, and print how many.

    The age of a dead letter counts from when it came to DLQ. One that arrives while it runs is left alone.
    """
    change = job_change(queue, JobAction.REPLAY, priority, older_ms, newer_ms, match)
    run_change(client, replace(change, state=state, attempts=attempts), replace(extent, per_second=rate))
