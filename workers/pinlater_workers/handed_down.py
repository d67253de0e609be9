"""Servers that the command line names in place of the app's own: told to the processes of the pool as well, through
the environment, so that what their jobs enqueue goes to the same servers."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pinlater_workers.app import App

_SERVERS = "PINLATER_WORKER_SERVERS"
_CLUSTER = "PINLATER_WORKER_CLUSTER"


def hand_down(app: App, servers: Sequence[str], cluster: str | None) -> None:
    """This app, and those of the processes that are started from here on, use these; nothing where neither is given."""
    for variable, value in ((_SERVERS, ",".join(servers)), (_CLUSTER, cluster or "")):
        os.environ[variable] = value
    take_over(app)


def take_over(app: App) -> None:
    """In a process of the pool: use what was handed down, if anything was."""
    servers, cluster = os.environ.get(_SERVERS, ""), os.environ.get(_CLUSTER, "")
    if servers or cluster:
        app.use(servers=servers.split(",") if servers else (), cluster=cluster or None)
