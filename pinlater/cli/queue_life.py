"""`pinlater queue create | list | delete`."""

from __future__ import annotations

import click

from pinlater.cli.admin_password import PASSWORD_HELP, PASSWORD_VARIABLE, admin_password, needs_password
from pinlater.cli.connection import out_shards, talks_to_server
from pinlater.cli.failures import can_ask, confirm, say, say_missed
from pinlater.cli.output import output_option, write_all
from pinlater.cli.queue_stats import holds
from pinlater.client.client import Client
from pinlater.errors import PinLaterError, QueueNotFound, ServerUnreachable

_SOON_S = 2.0
"""So long a script waits for what is only said."""


@click.command(
    epilog="""\b
Examples:
  pinlater queue create mail
  pinlater queue create mail thumbnails --cluster production"""
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@talks_to_server
def create(client: Client, names: tuple[str, ...]) -> None:
    """Create queues. One that is there already is left as it is.

    A name is letters, digits and underscores, up to 64. Shards that are out are named: they hear of the queues before
    they serve again.
    """
    for name in names:
        client.create_queue(name)
    say_missed(out_shards(client))


@click.command(
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


@click.command(
    help=f"""Delete a queue and all its jobs, in every state.

    It says how many jobs those are, and asks on a terminal whether that is meant.

    {PASSWORD_HELP} A queue that does not exist is no error.""",
    epilog=f"""\b
Examples:
  pinlater queue delete old_mail                              asks for the password and for confirmation
  pass show pinlater | pinlater queue delete old_mail --yes
  {PASSWORD_VARIABLE}=… pinlater queue delete old_mail --yes""",
)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask whether that is meant.")
@needs_password
@talks_to_server
def delete(client: Client, name: str, yes: bool) -> None:
    if not (yes or can_ask()):
        raise click.UsageError("without a terminal to ask on, --yes is needed")
    is_there = _say_contents(client, name, None if can_ask() else _SOON_S)
    if is_there and not yes:
        confirm(f"Delete queue {name!r} and all its jobs?", "nothing was deleted")
    client.delete_queue(name, admin_password(client))
    say_missed(out_shards(client))


def _say_contents(client: Client, name: str, timeout_s: float | None) -> bool:
    """What goes with a queue; False where it does not exist. What cannot be counted keeps nobody from deleting it."""
    try:
        out = out_shards(client)
        counts = holds(client, name, partial=bool(out), timeout_s=timeout_s)
    except QueueNotFound:
        say(f"queue {name} does not exist")
        return False
    except ServerUnreachable:
        pass  # too slow, or the deletion itself will say so
    except PinLaterError as error:
        say(f"how many jobs queue {name} holds is not known: {error.message}")
    else:
        text = ", ".join(f"{count:,} {column.replace('_', ' ')}" for column, count in counts.items())
        beyond = f", and what is on shard {', '.join(out)}, which cannot be counted" if out else ""
        say(f"queue {name} holds {text}{beyond}")
    return True
