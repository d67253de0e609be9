"""`pinlater shard drain`."""

from __future__ import annotations

import click

from pinlater.cli.admin_password import PASSWORD_HELP, admin_password
from pinlater.cli.connection import talks_to_server
from pinlater.cli.draining import Left, wait_until_empty
from pinlater.cli.failures import say, say_missed
from pinlater.client.client import Client
from pinlater.errors import RequestInvalid

_EVERYWHERE_MS = 5_000
"""A count that began so long after the change has all jobs in it that were stored before every server knew of it."""


@click.command(
    help=f"""Store no new jobs on the shard ID, and wait until workers have ended those that are there.

    What is left is shown on a terminal, as it was last counted. Ctrl-C ends the waiting; the shard goes on draining
    until --undo. One that is drained can be taken out of the configuration of the servers.

    {PASSWORD_HELP}""",
    epilog="""\b
Examples:
  pinlater shard drain 2
  pinlater shard drain 2 --no-wait
  pinlater shard drain 2 --undo""",
)
@click.argument("shard_id", metavar="ID")
@click.option("--undo", is_flag=True, help="Store new jobs there again.")
@click.option("--no-wait", is_flag=True, help="Only order it, and end.")
@talks_to_server
def drain(client: Client, shard_id: str, undo: bool, no_wait: bool) -> None:
    changed = client.update_shard(shard_id, admin_password(), dequeue_only=not undo)
    say_missed(changed.missed_shards)
    if undo:
        say(f"shard {shard_id} takes new jobs again, unless the configuration says otherwise")
    elif no_wait:
        say(f"shard {shard_id} takes no new jobs")
    else:
        from_ms = client.cluster_status(queues=[]).now_ms + _EVERYWHERE_MS
        wait_until_empty(
            lambda: _look(client, shard_id, from_ms),
            f"shard {shard_id} is left draining; `pinlater shard drain {shard_id} --undo` stores new jobs there again",
        )
        say(f"shard {shard_id} is drained")


def _look(client: Client, shard_id: str, from_ms: int) -> Left:
    """Only a count that began at `from_ms` or later, by the clock of the servers, can say that nothing is left."""
    for view in client.cluster_status(queues=[]).shards:
        if view.id == shard_id:
            text = "not counted yet" if view.jobs is None else f"{view.jobs:,} jobs left"
            if view.state != "in":
                return Left(f"{text}; waiting for the shard, which is {view.state}: {view.trouble}")
            return Left(text, is_empty=view.jobs == 0 and (view.counted_at_ms or 0) >= from_ms)
    raise RequestInvalid(f"shard {shard_id} is not configured any more")
