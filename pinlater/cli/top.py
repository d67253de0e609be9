"""`pinlater top`."""

from __future__ import annotations

import click

from pinlater.cli import terminal
from pinlater.cli.connection import talks_to_server
from pinlater.cli.failures import EXIT_CODES, ServerCommand
from pinlater.cli.times import duration_option
from pinlater.cli.top_frame import frame
from pinlater.client.client import Client
from pinlater.errors import PinLaterError
from pinlater.printable import printable


@click.command(
    cls=ServerCommand,
    epilog=f"""\b
Examples:
  pinlater top
  pinlater top --interval 500ms --cluster mail
  pinlater top --once > now.txt

{EXIT_CODES}""",
)
@click.option(
    "--interval",
    "interval_ms",
    type=duration_option,
    metavar="DURATION",
    default=2_000,
    help="How often it is drawn. [default: 2s]",
)
@click.option("--once", is_flag=True, help="One picture, and end; so too where it is not on a terminal.")
@talks_to_server
def top(client: Client, interval_ms: int, once: bool) -> None:
    """Watch a cluster: its servers and shards, and its queues with the busiest first.

    Rates are per second over the whole cluster. What does not fit into the width is left out, the least important
    first. q or Ctrl-C ends it; while no server answers, it goes on trying.
    """
    servers = ", ".join(map(str, client.servers))
    if once or not terminal.is_terminal():
        width, _ = terminal.size()
        click.echo("\n".join(frame(client.cluster_status(), servers, width)))
        return
    try:
        with terminal.screen():
            _watch(client, servers, interval_ms / 1000)
    except KeyboardInterrupt:
        return


def _watch(client: Client, servers: str, interval_s: float) -> None:
    """Until q."""
    trouble = ""
    while True:
        try:
            status = client.cluster_status()
            trouble = ""
        except PinLaterError as error:
            trouble = error.message
        width, height = terminal.size()
        if trouble:
            lines = [printable(line)[:width] for line in (f"pinlater {servers}", "", trouble)]
        else:
            lines = frame(status, servers, width, height)
        terminal.draw(lines)
        if terminal.key_within(interval_s) in ("q", "Q", terminal.END):
            return
