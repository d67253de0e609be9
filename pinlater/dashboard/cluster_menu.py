"""The menu of clusters on each page: those of `clusters.toml`, with links to the dashboards of the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import structlog

from pinlater.client.addresses import ClusterPlace, cluster_places, clusters_file

_log = structlog.get_logger("pinlater.dashboard")
READ_EVERY_S = 10.0
HOME = "/dashboard"
_PORTS = {"http": ":80", "https": ":443"}


class ClusterItem(NamedTuple):
    """A line of the menu; `link` "": the file names no dashboard of it."""

    name: str
    link: str
    is_here: bool


class ClusterMenu:
    """What the file of this process says, read again as it changes. `name`: that of the cluster by which the process
    was started, "" for none; `servers`: those that it asks. `path` is as for clients.
    """

    def __init__(
        self,
        name: str = "",
        servers: Collection[str] = (),
        path: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._servers, self._path, self._clock = name, frozenset(servers), path, clock
        self._places: dict[str, ClusterPlace] = {}
        self._read_s: float | None = None
        self._problem = ""

    def items(self, address: str) -> list[ClusterItem]:
        """By name. `address` is where the browser is, as HOST:PORT and the path of a proxy. Nothing where there is no
        file, or it has no other cluster.
        """
        self._read()
        here = self._here(address)
        if not set(self._places) - {here}:
            return []
        return [ClusterItem(name, _link(place.dashboard), name == here) for name, place in self._places.items()]

    def _here(self, address: str) -> str:
        """The cluster that this dashboard shows, as the file calls it; "" where it does not say."""
        if self._name in self._places:
            return self._name
        by_address = (name for name, place in self._places.items() if _is_at(place.dashboard, address))
        by_server = (name for name, place in self._places.items() if self._servers.intersection(place.servers))
        return next(by_address, "") or next(by_server, "")

    def _read(self) -> None:
        now_s = self._clock()
        if self._read_s is not None and now_s - self._read_s < READ_EVERY_S:
            return
        self._read_s = now_s
        try:
            file = clusters_file(self._path)
        except ValueError:
            self._places = {}
            return
        try:
            self._places, self._problem = cluster_places(file), ""
        except ValueError as error:
            self._places = {}
            if str(error) != self._problem:
                _log.warning("clusters_not_shown", error=str(error))
            self._problem = str(error)


def _link(dashboard: str) -> str:
    return f"{dashboard.rstrip('/')}{HOME}" if dashboard else ""


def _is_at(dashboard: str, address: str) -> bool:
    """
    >>> [_is_at("https://q.example:443/queue/", address) for address in ("Q.example/queue", "q.example:9012/queue")]
    [True, False]
    """
    found = urlsplit(dashboard)
    port = _PORTS.get(found.scheme, "")
    host, _, path = address.lower().partition("/")
    return bool(dashboard) and (found.netloc.lower().removesuffix(port), found.path.strip("/").lower()) == (
        host.removesuffix(port),
        path.strip("/"),
    )
