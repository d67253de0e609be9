"""`pinlater shard drain`."""

from __future__ import annotations

import click

from pinlater.cli.admin_password import PASSWORD_HELP, admin_password, needs_password
from pinlater.cli.connection import talks_to_server
from pinlater.cli.draining import Left, wait_until_empty
from pinlater.cli.failures import say, say_missed
from pinlater.cli.output import counted
from pinlater.client.client import Client
from pinlater.errors import RequestInvalid
from pinlater.model import ShardView

_EVERYWHERE_MS = 5_000
"""A count that began so long after the change has all jobs in it that were stored before every server knew of it."""

_NAMED = 3
"""So many queues are named."""


@click.command(
    short_help="Store no new jobs on a shard, and wait until it is empty.",
    help=f"""Store no new jobs on the shard ID, and wait until workers have ended those that are there.

    What is left is shown, queue by queue, as it was last counted. Whatever is pending or in progress holds it up: jobs
    that are scheduled for later, those of queues without workers, and dead letters, which `pinlater queue replay` or
    `pinlater job delete` ends. Ctrl-C ends the waiting; the shard goes on draining until --undo. One that is drained
    can be taken out of the configuration of the servers.

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
@needs_password
@talks_to_server
def drain(client: Client, shard_id: str, undo: bool, no_wait: bool) -> None:
    changed = client.update_shard(shard_id, admin_password(client), dequeue_only=not undo)
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
            text = "not counted yet" if view.jobs is None else f"{counted(view.jobs, 'job')} left{_of_queues(view)}"
            if view.state != "in":
                return Left(f"{text}; waiting for the shard, which is {view.state}: {view.trouble}")
            return Left(text, is_empty=view.jobs == 0 and (view.counted_at_ms or 0) >= from_ms)
    raise RequestInvalid(f"shard {shard_id} is not configured any more")


def _of_queues(view: ShardView) -> str:
    """The queues with the most of them.

    >>> _of_queues(ShardView("2", "", "in", True, jobs=9, jobs_by_queue={"mail_dead": 5, "a": 2, "b": 1, "c": 1}))
    ': 5 of mail_dead, 2 of a, 1 of b, and others'
    """
    most = [f"{jobs:,} of {queue}" for queue, jobs in sorted(view.jobs_by_queue.items(), key=lambda each: -each[1])]
    return f": {', '.join(most[:_NAMED])}{', and others' if len(most) > _NAMED else ''}" if most else ""
