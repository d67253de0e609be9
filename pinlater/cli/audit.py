"""`pinlater audit`."""

from __future__ import annotations

import re

import click

from pinlater.cli.connection import talks_to_server
from pinlater.cli.failures import EXIT_CODES, ServerCommand
from pinlater.cli.output import Row, output_option, write_all
from pinlater.cli.times import moment_option, time_text
from pinlater.client.client import Client
from pinlater.model import AuditEntry

_MOMENT = re.compile(r"\b(paused_until=)([0-9]{1,16})\b")
_COLUMNS = ("at", "who", "action", "target", "detail")


@click.command(
    cls=ServerCommand,
    epilog=f"""\b
Examples:
  pinlater audit
  pinlater audit --limit 1000 --before 2026-01-31T12:00:00Z
  pinlater audit -o jsonl | jq 'select(.target == "mail")'

{EXIT_CODES}""",
)
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many.")
@click.option("--before", "before_ms", type=moment_option, metavar="TIME", help="Only changes of before this time.")
@output_option
@talks_to_server
def audit(client: Client, limit: int, before_ms: int | None, format: str) -> None:
    """Show what operators changed, the latest first: who, what and when. The last 90 days are kept."""
    write_all(format, _COLUMNS, [_row(entry, format) for entry in client.audit(limit=limit, before_ms=before_ms)])


def _row(entry: AuditEntry, format: str) -> Row:
    """In a table, a moment is shown as a time."""
    detail = _MOMENT.sub(lambda found: found[1] + time_text(int(found[2])), entry.detail)
    return {
        "at": time_text(entry.at_ms),
        "at_ms": entry.at_ms,
        "who": entry.who,
        "action": entry.action,
        "target": entry.target,
        "detail": detail if format == "table" else entry.detail,
        "server": entry.server,
    }
