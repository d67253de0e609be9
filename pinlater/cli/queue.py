"""`pinlater queue`: queues, their settings, and what is done to all jobs of one."""

from __future__ import annotations

import click

from pinlater.cli.failures import EXIT_CODES, ServerGroup
from pinlater.cli.queue_drain import drain
from pinlater.cli.queue_life import create, delete, list_queues
from pinlater.cli.queue_pause import pause, resume
from pinlater.cli.queue_replay import replay
from pinlater.cli.queue_settings import set_rate, set_values, unset_values
from pinlater.cli.queue_show import show
from pinlater.cli.queue_stats import stats


@click.group(
    cls=ServerGroup,
    epilog=f"""\b
Examples:
  pinlater queue create mail
  pinlater queue set mail max_attempts=20 claim_timeout=30s
  pinlater queue pause mail --why 'the provider is down' --for 1h
  pinlater queue delete --help                      the help of one command

{EXIT_CODES}""",
)
def queue() -> None:
    """Create, look at, set, pause, drain and delete queues."""


for command in (
    create,
    list_queues,
    stats,
    show,
    set_values,
    unset_values,
    set_rate,
    pause,
    resume,
    drain,
    replay,
    delete,
):
    queue.add_command(command)
