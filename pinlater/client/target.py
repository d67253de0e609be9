"""Which servers a client talks to, and as whom."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path

from pinlater.client.address import DEFAULT_PORT, Address, Target, parse_target
from pinlater.client.clusters import cluster_servers

SERVER_VARIABLE = "PINLATER_SERVER"
CLUSTER_VARIABLE = "PINLATER_CLUSTER"


def target_servers(
    servers: Iterable[str] = (), cluster: str | None = None, clusters_file: str | Path | None = None
) -> list[Target]:
    """The addresses given, or those of the cluster, or what the environment says, or this machine at the usual port.

    A text may hold several addresses with commas between them. ValueError: not an address, or not a cluster.
    """
    servers = list(servers)
    if not all(isinstance(text, str) for text in servers):
        raise ValueError(f"{servers!r}: each server is a text of its own, as in AsyncClient('a:9010', 'b:9010')")
    addresses = _addresses(servers)
    if addresses and cluster:
        raise ValueError("either servers or a cluster can be given, not both")
    named = target_cluster(addresses, cluster)
    if named:
        return cluster_servers(named, clusters_file)
    return addresses or _addresses([os.environ.get(SERVER_VARIABLE, "")]) or [Address("127.0.0.1", DEFAULT_PORT)]


def target_cluster(servers: Sequence[object], cluster: str | None) -> str | None:
    """The name of the cluster that is meant, where it is not some servers: what is given counts before the environment.

    ValueError: not an address in the environment.
    """
    if servers or cluster:
        return cluster
    if _addresses([os.environ.get(SERVER_VARIABLE, "")]):
        return None
    return os.environ.get(CLUSTER_VARIABLE)


def default_source() -> str:
    """Who calls, where nothing else is said: `HOST:PID:RANDOM`, different for every client."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def _addresses(texts: Iterable[str]) -> list[Target]:
    parts = [part.strip() for text in texts for part in text.split(",")]
    return list(dict.fromkeys(parse_target(part) for part in parts if part))
