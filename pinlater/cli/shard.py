"""`pinlater shard`: show the shards of a cluster, drain one, move one, and give one up."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from pinlater.cli.admin import PASSWORD_HELP, admin_password, needs_password
from pinlater.cli.cluster import HEALTH_COLUMNS, SHARD_COLUMNS, keys_text, shard_row
from pinlater.cli.completion import offer_shards
from pinlater.cli.connection import (
    EXIT_CODES,
    ServerGroup,
    can_ask,
    confirm,
    readable_status,
    say,
    say_missed,
    talks_to_server,
)
from pinlater.cli.exit_codes import EXIT_FAILED
from pinlater.cli.output import counted, has_new_keys, output_option, write_all
from pinlater.cli.progress import Left, wait_until_empty
from pinlater.cli.times import duration_or_zero_option
from pinlater.client.client import Client
from pinlater.errors import ShardNotFound, install_command
from pinlater.model import ShardView
from pinlater.wire.operator_methods import UPDATE_SHARD


@click.group(
    cls=ServerGroup,
    epilog=f"""\b
Examples:
  pinlater shard list
  pinlater shard health
  pinlater shard drain 2
  pinlater shard give-up 3
  pinlater shard move 2 redis://10.0.0.8/0

{EXIT_CODES}""",
)
def shard() -> None:
    """Show the shards; drain, move or give up one."""


@shard.command(
    "list",
    short_help="List the shards, and whether each is in.",
    epilog="""\b
Examples:
  pinlater shard list
  pinlater shard list -o jsonl | jq -r 'select(.dequeue_only).id'""",
)
@output_option
@talks_to_server
def list_shards(client: Client, format: str) -> None:
    """List the shards: whether each is in, takes new jobs, and how many jobs it holds that have not ended.

    A state is that of the server process that answers: in, full (in, without room for new jobs), out, probing or
    unopened.
    """
    status = readable_status(client, [])
    write_all(format, SHARD_COLUMNS, status.shards, partial(shard_row, status=status))


@shard.command(
    epilog="""\b
Examples:
  pinlater shard health
  pinlater shard health > /dev/null || echo 'a shard is out or full'"""
)
@output_option
@talks_to_server
def health(client: Client, format: str) -> None:
    """Show how each shard does. The exit code is 1 where one is out or full.

    `window` are the good ones of the last calls of the process that answers, `skew_ms` how far the store's clock is
    ahead of that process, `next_try` when a shard that is out is tried again, `out_at` the processes that have it out,
    `full_at` those for which it has no room for new jobs.
    """
    status = readable_status(client, [])
    rows = [shard_row(each, status) for each in status.shards]
    write_all(format, HEALTH_COLUMNS, status.shards if has_new_keys(format) else rows)
    out = [row["shard"] for row in rows if row["state"] not in ("in", "full") or row["out_at"]]
    full = [row["shard"] for row in rows if row["shard"] not in out and row["state"] == "full"]
    for word, shards in (("out", out), ("full", full)):
        if shards:
            say(f"{word}: {', '.join(shards)}")
    if out or full:
        raise SystemExit(EXIT_FAILED)


@shard.command(
    "give-up",
    short_help="Declare a shard lost, and give its keys new homes.",
    help=f"""Declare the shard ID lost: its store will not come back.

    A change of the shards waits until all of them know where keys are to live, since a shard that does not could let
    two jobs of one key come into being. One that is given up is not waited for: the keys that lived there live on the
    other shards from then on, as new ones. Should it come back, what it holds is handed out, beside newer jobs of the
    same keys; it takes no new ones until `pinlater shard drain ID --undo`. A shard that is out for a while only is not
    to be given up: its keys are refused until it is back, and no promise is broken.

    It says what that risks, and asks on a terminal whether it is meant.

    {PASSWORD_HELP}""",
    epilog="""\b
Examples:
  pinlater shard give-up 3
  pinlater shard give-up 3 --yes   without a terminal
  pinlater shard drain 3 --undo    it is back, and well""",
)
@click.argument("shard_id", metavar="ID", shell_complete=offer_shards)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@needs_password
@talks_to_server
def give_up(client: Client, shard_id: str, yes: bool) -> None:
    if not (yes or can_ask()):
        raise click.UsageError("without a terminal to ask on, --yes is needed")
    states = {view.id: view.state for view in client.cluster_status(queues=[]).shards}
    say(
        f"shard {shard_id} ({states.get(shard_id, 'not configured')}): what it holds is handed out only if it comes "
        "back; keys that lived there are new from now on, so a job of such a key may run a second time, and beside "
        "earlier jobs of its serialize key"
    )
    if not yes:
        confirm(f"Take shard {shard_id} for lost?", "nothing was changed")
    changed = client.update_shard(shard_id, admin_password(client, UPDATE_SHARD), dequeue_only=True, give_up=True)
    say_missed([each for each in changed.missed_shards if each != shard_id])
    say(f"shard {shard_id} is given up: keys that lived there live elsewhere from now on")


@shard.command(
    "move",
    short_help="Move a shard to another store, with all that it holds.",
    epilog="""\b
Examples:
  pinlater shard move 2 postgresql+psycopg://pinlater@db2/jobs --config /etc/pinlater/pinlater.toml
  pinlater shard move 1 redis://10.0.0.8/0 --from sqlite:////var/lib/pinlater/pinlater.db
  pinlater shard move 1 redis://10.0.0.8/0 --from sqlite:////var/lib/pinlater/pinlater.db --undo""",
)
@click.argument("shard_id", metavar="ID")
@click.argument("new_store", metavar="STORE")
@click.option(
    "--from", "from_store", metavar="STORE", help="Where the shard is now. [default: as in the configuration]"
)
@click.option("--config", metavar="PATH", help="The configuration of a server. [env: PINLATER_CONFIG]")
@click.option("--undo", is_flag=True, help="Use the shard again where it was, if the move is not over.")
@click.option("--replace", is_flag=True, help="Remove what the new store holds first.")
@click.option(
    "--wait",
    "wait_ms",
    type=duration_or_zero_option,
    metavar="DURATION",
    default=10_000,
    help="The least time to wait for calls that are under way. [default: 10s]",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def move(shard_id: str, new_store: str, **options: Any) -> None:
    """Move the shard ID to STORE, of any kind that is exported, with ids, keys, order, results and claims.

    No server is asked, and none has to be stopped. The old store is closed first: servers take the shard out within
    seconds, as one that is away, and go on with the others. What it holds is copied and compared. Then give servers
    the new address; it is the same shard for them. Begun again the command goes on where it was interrupted.
    """
    try:
        from pinlater.cli.shard_move_command import move_shard  # noqa: PLC0415  # it needs what a server needs
    except ModuleNotFoundError as missing:
        say(f"shard move needs the Python package {missing.name}: {install_command('server')}")
        raise SystemExit(EXIT_FAILED) from None
    move_shard(shard_id, new_store, **options)


_EVERYWHERE_MS = 5_000
"""A count that began so long after the change has all jobs in it that were stored before every server knew of it."""

_NAMED = 3
"""So many queues are named."""


@shard.command(
    short_help="Store no new jobs on a shard, and wait until it is empty.",
    help=f"""Store no new jobs on the shard ID, and wait until workers have ended those that are there.

    What is left is shown, queue by queue, as it was last counted. Jobs that are not due soon move to other shards by
    themselves, but for those with an expiry and those that others of their serialize key wait for. Whatever else has
    not ended holds it up: jobs of queues without workers, and dead letters, which `pinlater queue replay`
    or `pinlater job delete` ends. Keys that lived there are known there for as long as their jobs or windows count;
    `pinlater shard list` shows what is left of them.

    Ctrl-C ends the waiting; the shard goes on draining until --undo. One that is drained can be taken out of the
    configuration of the servers.

    {PASSWORD_HELP}""",
    epilog="""\b
Examples:
  pinlater shard drain 2
  pinlater shard drain 2 --no-wait
  pinlater shard drain 2 --undo""",
)
@click.argument("shard_id", metavar="ID", shell_complete=offer_shards)
@click.option("--undo", is_flag=True, help="Store new jobs there again.")
@click.option("--no-wait", is_flag=True, help="Only order it, and end.")
@needs_password
@talks_to_server
def drain(client: Client, shard_id: str, undo: bool, no_wait: bool) -> None:
    changed = client.update_shard(shard_id, admin_password(client, UPDATE_SHARD), dequeue_only=not undo)
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
    status = client.cluster_status(queues=[])
    views = status.shards
    for view in views:
        if view.id == shard_id:
            if view.is_home and all(each.dequeue_only for each in views):
                say(
                    f"shard {shard_id} cannot be emptied: keys need a home, and no other shard takes new jobs. Add a "
                    f"shard, or undo the drain of another one; `pinlater shard drain {shard_id} --undo` takes this back"
                )
                raise SystemExit(EXIT_FAILED)
            text = "not counted yet" if view.jobs is None else f"{counted(view.jobs, 'job')} left{_of_queues(view)}"
            if view.state != "in":
                return Left(f"{text}; waiting for the shard, which is {view.state}: {view.trouble}")
            if view.jobs == 0 and (view.has_windows_left or view.is_home):
                return Left("; ".join(filter(None, [text, f"keys: {keys_text(view)}", status.homes_trouble])))
            return Left(text, is_empty=view.jobs == 0 and (view.counted_at_ms or 0) >= from_ms)
    raise ShardNotFound(f"shard {shard_id} is not configured any more")


def _of_queues(view: ShardView) -> str:
    """The queues with the most of them.

    >>> _of_queues(ShardView("2", "", "in", True, jobs=9, jobs_by_queue={"mail_dead": 5, "a": 2, "b": 1, "c": 1}))
    ': 5 of mail_dead, 2 of a, 1 of b, and others'
    """
    most = [f"{jobs:,} of {queue}" for queue, jobs in sorted(view.jobs_by_queue.items(), key=lambda each: -each[1])]
    return f": {', '.join(most[:_NAMED])}{', and others' if len(most) > _NAMED else ''}" if most else ""
