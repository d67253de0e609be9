"""`pinlater queue`: create, list, look at and delete queues."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from pinlater.cli import EXIT_FAILED
from pinlater.cli.connection import talks_to_server
from pinlater.cli.failures import EXIT_CODES, ServerGroup, say
from pinlater.cli.output import Row, open_output, output_option, write_all
from pinlater.client.client import Client
from pinlater.errors import PriorityNotSupported
from pinlater.model import JobFilter, JobState

PASSWORD_VARIABLE = "PINLATER_ADMIN_PASSWORD"
COUNTS = ("pending", "scheduled", "in_progress", "succeeded", "failed")
_COUNTED = [
    ("scheduled" if (state, future) == (JobState.PENDING, True) else state.name.lower(), state, future)
    for state in JobState
    for future in (False, True)
]
"""Where each count goes. Outside of PENDING it says little that run_after is yet to come, as after a checkpoint."""
_MOST_PRIORITIES = 127


@click.group(
    cls=ServerGroup,
    epilog=f"""\b
Examples:
  pinlater queue create mail
  pinlater queue stats mail
  pinlater queue delete --help                      the help of one command

{EXIT_CODES}""",
)
def queue() -> None:
    """Create, list, look at and delete queues."""


@queue.command(
    epilog="""\b
Examples:
  pinlater queue create mail
  pinlater queue create mail thumbnails --cluster production"""
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@talks_to_server
def create(client: Client, names: tuple[str, ...]) -> None:
    """Create queues. One that is there already is left as it is.

    A name is letters, digits and underscores, up to 64.
    """
    for name in names:
        client.create_queue(name)


@queue.command(
    "list",
    epilog="""\b
Examples:
  pinlater queue list
  pinlater queue list -o json --server queue-1:9010""",
)
@output_option
@talks_to_server
def list_queues(client: Client, format: str) -> None:
    """List the queues, by name."""
    write_all(format, ["queue"], [{"queue": name} for name in sorted(client.queue_names())])


@queue.command(
    epilog="""\b
Examples:
  pinlater queue stats mail
  pinlater queue stats -o jsonl | jq 'select(.failed > 0)'"""
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@output_option
@talks_to_server
def stats(client: Client, names: tuple[str, ...], format: str) -> None:
    """Count the jobs of each queue and priority by what they wait for; without a NAME of all queues.

    `pending` jobs may run now, `scheduled` ones only later.
    """
    output = open_output(format, ["queue", "priority", *COUNTS])
    priorities = 0
    for name in names or sorted(client.queue_names()):
        priorities = priorities or _priorities(client, name)
        output.write(_stats(client, name, priorities))
    output.close()


def _priorities(client: Client, name: str) -> int:
    """How many the server has; the same for all its queues."""
    for priority in range(1, _MOST_PRIORITIES + 1):
        try:
            client.count(JobFilter(name, JobState.PENDING, priority, future=True))
        except PriorityNotSupported:
            return priority - 1
    return _MOST_PRIORITIES


def _stats(client: Client, name: str, priorities: int) -> Sequence[Row]:
    """A row for each priority, from counts that are asked for all at once."""
    asked = [
        (priority, column, JobFilter(name, state, priority, future=future))
        for priority in range(1, priorities + 1)
        for column, state, future in _COUNTED
    ]
    rows: list[dict[str, Any]] = [
        {"queue": name, "priority": priority, **dict.fromkeys(COUNTS, 0)} for priority in range(1, priorities + 1)
    ]
    for (priority, column, _), count in zip(asked, client.counts([filter for *_, filter in asked]), strict=True):
        rows[priority - 1][column] += count
    return rows


@queue.command(
    epilog=f"""\b
Examples:
  pinlater queue delete old_mail                              asks for the password and for confirmation
  pass show pinlater | pinlater queue delete old_mail --yes
  {PASSWORD_VARIABLE}=… pinlater queue delete old_mail --yes"""
)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask whether that is meant.")
@talks_to_server
def delete(client: Client, name: str, yes: bool) -> None:
    """Delete a queue and all its jobs, in every state.

    The admin password of the server is taken from PINLATER_ADMIN_PASSWORD, asked for on a terminal, or read from the
    first line of standard input. A queue that does not exist is no error.
    """
    if not yes:
        _confirm(name)
    client.delete_queue(name, _password())


def _confirm(name: str) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("without a terminal to ask on, --yes is needed")
    if not click.confirm(f"Delete queue {name!r} and all its jobs?", err=True):
        say("nothing was deleted")
        raise SystemExit(EXIT_FAILED)


def _password() -> str:
    password = os.environ.get(PASSWORD_VARIABLE)
    if password is None and sys.stdin.isatty():
        password = str(click.prompt("Admin password", hide_input=True, err=True))
    if password is None:
        password = sys.stdin.readline().rstrip("\r\n")
        if not password:
            raise click.UsageError(f"no admin password: neither in {PASSWORD_VARIABLE} nor on standard input")
    return password
