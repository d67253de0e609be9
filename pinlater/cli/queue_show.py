"""`pinlater queue show`, and the values that a command prints after it changed some."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import click

from pinlater.cli.connection import talks_to_server
from pinlater.cli.output import Row, output_option, write_all
from pinlater.cli.queue_name import defaults_option, only_name
from pinlater.cli.times import time_text
from pinlater.client.client import Client
from pinlater.model import QueueView

_COLUMNS = ("queue", "setting", "value", "source")
_MOMENTS = ("paused_at", "paused_until")


@click.command(
    epilog="""\b
Examples:
  pinlater queue show mail
  pinlater queue show --defaults
  pinlater queue show                               of all queues, what is set anywhere
  pinlater queue show -o jsonl | jq -r 'select(.setting == "paused" and .value == "true").queue'"""
)
@click.argument("name", required=False)
@defaults_option
@output_option
@talks_to_server
def show(client: Client, name: str | None, defaults: bool, format: str) -> None:
    """Show the settings of a queue, and where each value comes from.

    The sources: `queue` (a command, for this queue), `file` (the file of queue settings, for this queue), `default` (a
    command, for all queues), `file default`, `server` (its configuration). With --defaults, what counts for all queues
    that say nothing else. Without a NAME, of all queues the values that do not come from the server's configuration.
    """
    everything = name is None and not defaults
    views = client.get_queues([] if everything else [only_name(name, defaults)])
    rows = [row for view in views for row in _rows(view, format)]
    write_all(format, _COLUMNS, [row for row in rows if not everything or row["source"] != "server"])


def show_values(client: Client, format: str, name: str, keys: Collection[str]) -> None:
    """What counts now for these settings of a queue."""
    (view,) = client.get_queues([name])
    write_all(format, _COLUMNS, [row for row in _rows(view, format) if row["setting"] in keys])


def _rows(view: QueueView, format: str) -> Iterator[Row]:
    """In a table, a moment is shown as a time."""
    for key, (value, source) in view.settings.items():
        shown = time_text(int(value)) if format == "table" and key in _MOMENTS and value.isdigit() else value
        yield {"queue": view.name, "setting": key, "value": shown, "source": source}
