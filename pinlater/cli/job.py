"""`pinlater job`: enqueue, look at, retry, cancel and delete jobs."""

from __future__ import annotations

import click

from pinlater.cli.failures import EXIT_CODES, ServerGroup
from pinlater.cli.job_cancel import cancel
from pinlater.cli.job_changes import delete, retry
from pinlater.cli.job_enqueue import enqueue
from pinlater.cli.job_get import get
from pinlater.cli.job_views import count, scan


@click.group(
    cls=ServerGroup,
    epilog=f"""\b
Examples:
  pinlater job enqueue mail '{{"to": "ada@example.org"}}'
  pinlater job scan mail --state failed
  pinlater job retry --help                         the help of one command

{EXIT_CODES}""",
)
def job() -> None:
    """Enqueue, look at, retry, cancel and delete jobs."""


for command in (enqueue, get, scan, count, retry, cancel, delete):
    job.add_command(command)
