"""The options of every command that talks to a server, and the client made from them."""

from __future__ import annotations

import functools
import getpass
import os
import socket
from collections.abc import Callable
from typing import Any

import click

from pinlater.cli.times import duration_option
from pinlater.client.client import Client

_DEFAULT_TIMEOUT_MS = 10_000


def talks_to_server(command: Callable[..., None], *, patient: bool = False) -> Callable[..., None]:
    """Adds --server, --cluster and --timeout; the command gets a Client as its first argument.

    `patient`: shards that cannot be used are waited for until the timeout, else it is said at once.
    """

    @click.option(
        "--server",
        "servers",
        multiple=True,
        metavar="HOST:PORT",
        help="A server, or dns:NAME:PORT for every address of a name; repeatable. "
        "[env: PINLATER_SERVER, with commas; default: 127.0.0.1:9010]",
    )
    @click.option(
        "--cluster", metavar="NAME", help="The servers that clusters.toml has under this name. [env: PINLATER_CLUSTER]"
    )
    @click.option(
        "--timeout",
        "timeout_ms",
        type=duration_option,
        metavar="DURATION",
        default=_DEFAULT_TIMEOUT_MS,
        help="How long one call may take, all its attempts together. [default: 10s]",
    )
    @functools.wraps(command)
    def connected(servers: tuple[str, ...], cluster: str | None, timeout_ms: int, **options: Any) -> None:
        with _client(servers, cluster, timeout_ms, patient) as client:
            command(client, **options)

    return connected


def talks_patiently(command: Callable[..., None]) -> Callable[..., None]:
    """For what stores jobs: a store that restarts is no reason to lose them."""
    return talks_to_server(command, patient=True)


def _client(servers: tuple[str, ...], cluster: str | None, timeout_ms: int, patient: bool) -> Client:
    try:
        return Client(
            servers=servers, cluster=cluster, source=_who(), timeout=timeout_ms / 1000, retry_unavailable=patient
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _who() -> str:
    """Who changes something, as `pinlater audit` shows it."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def out_shards(client: Client) -> list[str]:
    """The shards that cannot be used now, as one of the servers sees it."""
    return [shard.id for shard in client.cluster_status(queues=[]).shards if shard.state != "in"]


def priority_option(help: str, *, required_level: bool = False) -> Callable[[Any], Any]:
    """--priority; without `required_level` all priorities are meant where it is not given."""
    default = 1 if required_level else None
    return click.option(
        "--priority", type=click.IntRange(1, 127), default=default, show_default=required_level, metavar="N", help=help
    )
