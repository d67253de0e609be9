"""The servers of a client: as addresses, as a name in the DNS, or as a cluster in `clusters.toml`.

`HOST`, `HOST:PORT` or `[IPV6]:PORT` is a server; `dns:NAME:PORT` is every address that the name has, each a server of
its own; NAME alone is one of them, as the system chooses. A cluster is a list of these, by name:

    [clusters]
    mail = ["queue-1:9010", "queue-2:9010"]

Where there is more to say of a cluster than its servers (`check`: docs/cli.md; `tls`, `token_file`: docs/access.md;
`dashboard`, the address of its HTTP interface: docs/dashboard.md):

    [clusters.mail]
    servers = ["queue-1:9010", "queue-2:9010"]
    check.warn = { ready = 10_000 }
    tls = { ca = "ca.pem", cert = "me.pem", key = "me.key" }
    token_file = "mail.token"

The first of these files that is given or exists is read, and no other: the path handed over, the environment variable
PINLATER_CLUSTERS, ./conf/clusters.toml, ~/.config/pinlater/clusters.toml, /etc/pinlater/clusters.toml.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from pinlater.data_folder.private_files import SecretFileOpen, check_secret_file
from pinlater.written import toml_of, variable

DEFAULT_PORT = 9010
DNS = "dns:"
_HOST_PORT = re.compile(r"(?:\[([0-9A-Fa-f]*:[0-9A-Fa-f:.]+(?:%[0-9A-Za-z]+)?)\]|([^\s:/\[\],]+))(?::([0-9]{1,5}))?")


class Address(NamedTuple):
    """One server."""

    host: str
    port: int = DEFAULT_PORT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class DnsName(NamedTuple):
    """All servers whose addresses the name has."""

    name: str
    port: int = DEFAULT_PORT

    def __str__(self) -> str:
        return f"{DNS}{self.name}:{self.port}"


Target = Address | DnsName


def parse_target(text: str) -> Target:
    """A server, or a name that stands for several. ValueError for anything else.

    >>> parse_target("dns:queue.internal:9011"), parse_target("dns:9011")
    (DnsName(name='queue.internal', port=9011), Address(host='dns', port=9011))
    """
    prefix, rest = text.strip()[: len(DNS)], text.strip()[len(DNS) :]
    if prefix != DNS or rest.isdecimal():
        return parse_address(text)
    try:
        address = parse_address(rest)
    except ValueError:
        address = Address("")
    if not address.host or ":" in address.host:
        raise ValueError(f"server address {text!r}; allowed: dns:NAME or dns:NAME:PORT, with a port of 1 to 65535")
    return DnsName(*address)


def parse_address(text: str) -> Address:
    """The host and port of a text; ValueError for anything else.

    >>> parse_address("queue-1"), parse_address("[::1]:9011")
    (Address(host='queue-1', port=9010), Address(host='::1', port=9011))
    """
    match = _HOST_PORT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"server address {text!r}; allowed: HOST, HOST:PORT or [IPV6]:PORT")
    bracketed, plain, port_text = match.groups()
    port = int(port_text) if port_text else DEFAULT_PORT
    if not 1 <= port <= 65535:
        raise ValueError(f"server address {text!r}: port {port}; allowed: 1 to 65535")
    return Address(bracketed or plain, port)


ENVIRONMENT_VARIABLE = "PINLATER_CLUSTERS"


_KEYS = ("servers", "check", "tls", "token", "token_file", "dashboard")


def cluster_servers(name: str, path: str | Path | None = None) -> list[Target]:
    """The addresses of one cluster. ValueError: no file, a file that is not as above, or a name it does not hold."""
    file = clusters_file(path)
    servers = _table(file, name)["servers"]
    if not isinstance(servers, list) or not servers or not all(isinstance(server, str) for server in servers):
        raise ValueError(f"cluster {name!r} in {file} is {servers!r}; allowed: a list of HOST:PORT texts")
    return [parse_target(server) for server in servers]


def cluster_names(path: str | Path | None = None) -> list[str]:
    """Those in `clusters.toml`, sorted. ValueError: there is none, or it cannot be read."""
    return sorted(_read(clusters_file(path)))


class ClusterPlace(NamedTuple):
    """Where a cluster is: its servers as the file has them, and its HTTP interface, "" where the file does not say."""

    servers: Sequence[str]
    dashboard: str


def cluster_places(path: str | Path | None = None) -> dict[str, ClusterPlace]:
    """Of all clusters of the file, by name in its order. ValueError as above."""
    file = clusters_file(path)
    found = {}
    for name in _read(file):
        servers = [str(server) for server in cluster_servers(name, file)]
        dashboard = _table(file, name).get("dashboard", "")
        if not isinstance(dashboard, str) or (dashboard and not dashboard.startswith(("http://", "https://"))):
            raise ValueError(f"cluster {name!r} in {file} has dashboard = {dashboard!r}; allowed: https://HOST:PORT")
        found[name] = ClusterPlace(servers, dashboard)
    return found


def cluster_check(name: str, path: str | Path | None = None) -> object:
    """What the file says under `check` of one cluster, as TOML gives it; {}: nothing. ValueError as above."""
    return _table(clusters_file(path), name).get("check", {})


def cluster_tls(name: str, path: str | Path | None = None) -> dict[str, object] | None:
    """What the file says under `tls` of one cluster; None: nothing. ValueError as above."""
    file = clusters_file(path)
    tls = _table(file, name).get("tls")
    if tls is True or tls is None:
        return {} if tls else None
    if not isinstance(tls, dict):
        raise ValueError(f"cluster {name!r} in {file} has tls = {tls!r}; allowed: true, or a table with ca, cert, key")
    return tls


def cluster_dashboard(name: str, path: str | Path | None = None) -> str:
    """The address of the HTTP interface that the file has for one cluster. ValueError as above, or there is none."""
    file = clusters_file(path)
    found = _table(file, name).get("dashboard")
    if not isinstance(found, str):
        raise ValueError(
            f"cluster {name!r} in {file} says nothing of its HTTP interface: add dashboard = "
            '"https://HOST:PORT" there, or give --url'
        )
    return found


def cluster_token(name: str, path: str | Path | None = None) -> tuple[str, str] | None:
    """The token that the file has for one cluster, or the path of the file that has it; None: neither.

    ValueError as above, or others may read the token.
    """
    file = clusters_file(path)
    table = _table(file, name)
    given = {key: table[key] for key in ("token", "token_file") if key in table}
    if not given:
        return None
    text, token_file = given.get("token", ""), given.get("token_file", "")
    if len(given) > 1 or not isinstance(text, str) or not isinstance(token_file, str) or not text + token_file:
        raise ValueError(f"cluster {name!r} in {file}: allowed are a text as token, or as token_file, and not both")
    if text:
        try:
            check_secret_file(file, file.stat())
        except (OSError, SecretFileOpen) as error:
            raise ValueError(str(error)) from None
    return text, str(file.parent / Path(token_file).expanduser()) if token_file else ""


def _table(file: Path, name: str) -> dict[str, object]:
    """All that is said of a cluster, with the key `servers`."""
    clusters = _read(file)
    if name not in clusters:
        known = ", ".join(sorted(clusters)) or "none"
        raise ValueError(f"cluster {name!r} is not in {file}; known: {known}")
    table = clusters[name]
    if not isinstance(table, dict):
        return {"servers": table}
    for key in table:
        if key not in _KEYS:
            raise ValueError(f"cluster {name!r} in {file} has the key {key!r}; allowed: {', '.join(_KEYS)}")
    return {"servers": None, **table}


def clusters_file(path: str | Path | None = None) -> Path:
    """The file that counts. ValueError where there is none."""
    given = path or variable(ENVIRONMENT_VARIABLE)
    if given:
        return Path(given)
    usual = [
        Path("conf/clusters.toml"),
        Path.home() / ".config/pinlater/clusters.toml",
        Path("/etc/pinlater/clusters.toml"),
    ]
    for candidate in usual:
        if candidate.is_file():
            return candidate
    places = ", ".join(map(str, usual))
    raise ValueError(f"no clusters.toml: {ENVIRONMENT_VARIABLE} is not set, and there is none of {places}")


def _read(file: Path) -> dict[str, object]:
    try:
        content = toml_of(file.read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: {error}") from error
    clusters = content.get("clusters")
    if not isinstance(clusters, dict):
        raise ValueError(f"{file} has no table [clusters]")
    return clusters


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
    return addresses or _addresses([variable(SERVER_VARIABLE)]) or [Address("127.0.0.1", DEFAULT_PORT)]


def target_cluster(servers: Sequence[object], cluster: str | None) -> str | None:
    """The name of the cluster that is meant, where it is not some servers: what is given counts before the environment.

    ValueError: not an address in the environment.
    """
    if servers or cluster:
        return cluster
    if _addresses([variable(SERVER_VARIABLE)]):
        return None
    return variable(CLUSTER_VARIABLE) or None


def default_source() -> str:
    """The name of a client that was given none: `HOST:PID:RANDOM`, different for every client."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def _addresses(texts: Iterable[str]) -> list[Target]:
    parts = [part.strip() for text in texts for part in text.split(",")]
    return list(dict.fromkeys(parse_target(part) for part in parts if part))
