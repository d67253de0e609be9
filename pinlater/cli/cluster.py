"""`pinlater cluster status`."""

from __future__ import annotations

import click

from pinlater.cli.cluster_rows import (
    QUEUE_COLUMNS,
    SERVER_COLUMNS,
    SHARD_COLUMNS,
    queue_row,
    server_row,
    shard_row,
)
from pinlater.cli.connection import talks_to_server
from pinlater.cli.failures import EXIT_CODES, ServerGroup
from pinlater.cli.output import Row, output_option, write_all
from pinlater.client.client import Client
from pinlater.printable import json_text


@click.group(
    cls=ServerGroup,
    epilog=f"""\b
Examples:
  pinlater cluster status

{EXIT_CODES}""",
)
def cluster() -> None:
    """Look at a cluster as a whole."""


@cluster.command(
    short_help="Show servers, shards and queues.",
    epilog="""\b
Examples:
  pinlater cluster status
  pinlater cluster status -o json | jq '.shards[] | select(.state != "in")'    out or full
  pinlater cluster status -o jsonl | jq 'select(.kind == "queue" and .failed > 0)'""",
)
@output_option
@talks_to_server
def status(client: Client, format: str) -> None:
    """Show the server processes that are alive, the shards as one of them sees them, and the queues as last counted.

    It answers also when no shard can be used. JSON is one object with `servers`, `shards` and `queues`; in jsonl each
    line says its `kind`.
    """
    found = client.cluster_status()
    servers = [server_row(each) for each in found.servers]
    shards = [shard_row(each, found) for each in found.shards]
    queues: list[Row] = [queue_row(each, found.now_ms) for each in found.queues]
    if format == "table":
        write_all(format, SERVER_COLUMNS, servers)
        click.echo()
        write_all(format, SHARD_COLUMNS, shards)
        if queues:
            click.echo()
        write_all(format, QUEUE_COLUMNS, queues)
    elif format == "json":
        whole = {"now_ms": found.now_ms, "servers": servers, "shards": shards, "queues": queues}
        click.echo(json_text(whole, indent=1))
    else:
        kinds = {"server": servers, "shard": shards, "queue": queues}
        write_all(format, (), [{"kind": kind, **row} for kind, rows in kinds.items() for row in rows])
