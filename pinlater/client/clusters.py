"""Which servers a cluster's name means: the file `clusters.toml`.

    [clusters]
    mail = ["queue-1:9010", "queue-2:9010"]

A server is HOST:PORT, or dns:NAME:PORT for every address of a name. Where there is more to say of a cluster than its
servers (`check`: docs/cli.md):

    [clusters.mail]
    servers = ["queue-1:9010", "queue-2:9010"]
    check.warn = { ready = 10_000 }

The first of these that is given or exists is read, and no other: the path handed over, the environment variable
PINLATER_CLUSTERS, ./conf/clusters.toml, ~/.config/pinlater/clusters.toml, /etc/pinlater/clusters.toml.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from pinlater.client.address import Target, parse_target

ENVIRONMENT_VARIABLE = "PINLATER_CLUSTERS"


_KEYS = ("servers", "check")


def cluster_servers(name: str, path: str | Path | None = None) -> list[Target]:
    """The addresses of one cluster. ValueError: no file, a file that is not as above, or a name it does not hold."""
    file = clusters_file(path)
    servers = _table(file, name)["servers"]
    if not isinstance(servers, list) or not servers or not all(isinstance(server, str) for server in servers):
        raise ValueError(f"cluster {name!r} in {file} is {servers!r}; allowed: a list of HOST:PORT texts")
    return [parse_target(server) for server in servers]


def cluster_check(name: str, path: str | Path | None = None) -> object:
    """What the file says under `check` of one cluster, as TOML gives it; {}: nothing. ValueError as above."""
    return _table(clusters_file(path), name).get("check", {})


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
    given = path or os.environ.get(ENVIRONMENT_VARIABLE)
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
    looked = ", ".join(map(str, usual))
    raise ValueError(f"no clusters.toml: {ENVIRONMENT_VARIABLE} is not set, and there is none of {looked}")


def _read(file: Path) -> dict[str, object]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: {error}") from error
    clusters = content.get("clusters")
    if not isinstance(clusters, dict):
        raise ValueError(f"{file} has no table [clusters]")
    return clusters
