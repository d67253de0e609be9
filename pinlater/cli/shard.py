"""`pinlater shard`: look at the shards of a cluster, and empty one."""

from __future__ import annotations

import click

from pinlater.cli import EXIT_FAILED
from pinlater.cli.cluster_rows import HEALTH_COLUMNS, SHARD_COLUMNS, shard_row
from pinlater.cli.connection import talks_to_server
from pinlater.cli.failures import EXIT_CODES, ServerGroup, say
from pinlater.cli.output import output_option, write_all
from pinlater.cli.shard_drain import drain
from pinlater.client.client import Client


@click.group(
    cls=ServerGroup,
    epilog=f"""\b
Examples:
  pinlater shard list
  pinlater shard health
  pinlater shard drain 2

{EXIT_CODES}""",
)
def shard() -> None:
    """Look at shards, and empty one."""


@shard.command(
    "list",
    short_help="List the shards, and whether each is in.",
    epilog="""\b
Examples:
  pinlater shard list
  pinlater shard list -o jsonl | jq -r 'select(.dequeue_only).shard'""",
)
@output_option
@talks_to_server
def list_shards(client: Client, format: str) -> None:
    """List the shards: whether each is in, takes new jobs, and how many jobs it holds that are pending or in progress.

    A state is that of the server process that answers: in, full (in, without room for new jobs), out, probing or
    unopened.
    """
    status = client.cluster_status(queues=[])
    write_all(format, SHARD_COLUMNS, [shard_row(each, status) for each in status.shards])


@shard.command(
    epilog="""\b
Examples:
  pinlater shard health
  pinlater shard health > /dev/null || echo 'a shard is out or full'"""
)
@output_option
@talks_to_server
def health(client: Client, format: str) -> None:
    """Show how each shard does. The exit code is 1 where one is out or full.

    `window` are the good ones of the last calls of the process that answers, `skew_ms` how far the store's clock is
    ahead of that process, `next_try` when a shard that is out is tried again, `out_at` the processes that have it out,
    `full_at` those for which it has no room for new jobs.
    """
    status = client.cluster_status(queues=[])
    rows = [shard_row(each, status) for each in status.shards]
    write_all(format, HEALTH_COLUMNS, rows)
    out = [row["shard"] for row in rows if row["state"] not in ("in", "full") or row["out_at"]]
    full = [row["shard"] for row in rows if row["shard"] not in out and row["state"] == "full"]
    for word, shards in (("out", out), ("full", full)):
        if shards:
            say(f"{word}: {', '.join(shards)}")
    if out or full:
        raise SystemExit(EXIT_FAILED)


shard.add_command(drain)
