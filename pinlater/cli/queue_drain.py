"""`pinlater queue drain`."""

from __future__ import annotations

import time

import click

from pinlater.cli.admin_password import PASSWORD_HELP, needs_password
from pinlater.cli.connection import talks_to_server
from pinlater.cli.draining import Left, wait_until_empty
from pinlater.cli.failures import EXIT_INCOMPLETE, say
from pinlater.cli.queue_settings import switch_off, switch_on
from pinlater.client.client import Client
from pinlater.errors import QueueNotFound
from pinlater.model import JobFilter, JobState

_EVERYWHERE_S = 2.5
"""After so long every server refuses new jobs."""

_LEFT = [
    ("pending", JobState.PENDING, False),
    ("scheduled", JobState.PENDING, True),
    ("in progress", JobState.IN_PROGRESS, False),
    ("in progress", JobState.IN_PROGRESS, True),
]


@click.command(
    short_help="Refuse new jobs of a queue, and wait until it is empty.",
    help=f"""Refuse new jobs of a queue, and wait until workers have ended those that are there.

    What is left is shown on a terminal. A shard that is out is waited for, since nobody knows what it holds. Ctrl-C
    ends the waiting; the queue goes on draining until --undo.

    {PASSWORD_HELP}""",
    epilog="""\b
Examples:
  pinlater queue drain old_mail
  pinlater queue drain old_mail --partial           ends also while a shard is out, with the exit code 5
  pinlater queue drain old_mail --no-wait
  pinlater queue drain old_mail --undo""",
)
@click.argument("name")
@click.option("--undo", is_flag=True, help="Take new jobs again.")
@click.option("--no-wait", is_flag=True, help="Only set it, and end.")
@click.option("--partial", is_flag=True, help="Do not wait for shards that are out.")
@needs_password
@talks_to_server
def drain(client: Client, name: str, undo: bool, no_wait: bool, partial: bool) -> None:
    if undo:
        switch_off(client, name, "draining")
        say(f"queue {name} takes new jobs again")
        return
    switch_on(client, name, "draining", {})
    if no_wait:
        say(f"queue {name} refuses new jobs")
        return
    refused_from_s = time.monotonic() + _EVERYWHERE_S
    left = wait_until_empty(
        lambda: _look(client, name, partial, refused_from_s),
        f"queue {name} is left draining; `pinlater queue drain {name} --undo` takes new jobs again",
    )
    if left.unknown:
        say(f"queue {name} is empty, but for shards that are out: {', '.join(left.unknown)}")
        raise SystemExit(EXIT_INCOMPLETE)
    say(f"queue {name} is drained")


def _look(client: Client, name: str, partial: bool, refused_from_s: float) -> Left:
    """As the servers counted last; only what looks empty is counted exactly, which costs more the more there is."""
    status = client.cluster_status(queues=[name])
    is_refused = time.monotonic() >= refused_from_s
    if not status.queues:
        if is_refused:
            raise QueueNotFound.of(name)
        return Left("waiting for the servers to hear of it")
    levels = status.queues[0].levels
    counts = {
        "pending": sum(level.ready for level in levels),
        "scheduled": sum(level.scheduled for level in levels),
        "in progress": sum(level.in_progress for level in levels),
    }
    out = tuple(shard.id for shard in status.shards if shard.state != "in")
    if not any(counts.values()) and (partial or not out):
        for word, state, future in _LEFT:
            counts[word] += client.count(JobFilter(name, state, future=future), allow_partial=partial)
    text = ", ".join(f"{count:,} {word}" for word, count in counts.items())
    is_empty = is_refused and not any(counts.values()) and (partial or not out)
    return Left(f"{text}; waiting for shard {', '.join(out)}" if out else text, is_empty, out)
