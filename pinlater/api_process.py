"""The HTTP process from inside: a client of the servers, and the application that passes calls on to it.

`python -m pinlater.api_process FD` is the child of a supervisor, which hands it the listening sockets; `pinlater api`
runs the same alone, for a cluster.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pinlater import browsers, settings_map
from pinlater.client.async_client import AsyncClient
from pinlater.client.client_tls import PinnedTls, Tls
from pinlater.client.pool import PoolLimits
from pinlater.config import Config, from_plain, to_plain
from pinlater.dashboard.cluster_menu import ClusterMenu
from pinlater.dashboard.site import HOME, DashboardSettings, add_dashboard
from pinlater.http.bound_connections import CLAIMS, MAX_BOUND
from pinlater.http.http_server import HttpServer
from pinlater.http.request_use import MAX_TURNS, MAX_WAITS
from pinlater.http.site import HttpSettings, make_app
from pinlater.listener import HEAD_WITHIN_S
from pinlater.logs import configure
from pinlater.redaction import SECRETS
from pinlater.server import server_process
from pinlater.server.server_process import HandOver, News, StartRefused, Tell
from pinlater.server.tls import ServerTls, TlsInvalid, speaks_tls

POOL = PoolLimits(connections=4 * MAX_TURNS, long_poll_connections=MAX_WAITS)
"""To one server. Calls that wait for jobs take a connection each, and none waits for one; a page makes a few calls at a
time, so that one caller's requests that have their turn do not take all of the others.
"""

OF_HTTP: dict[str, Any] = {
    "source": "http",
    "wait_for_rate": False,
    "joins_contexts": True,
    "whole_lookups": False,
    "token": "",
}
"""Options of all its clients: callers show what they are known by."""

TLS_LOOK_EVERY_S = 1.0
HISTORY_FILE = "history.sqlite"
"""In the data folder."""
_TLS_ONLY = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 41\r\nConnection: close\r\n\r\n"
    b"This port speaks TLS only: use https://.\n"
)


class ApiProcess:
    """Serves as a server process does for its supervisor; `adopt` gets a listening socket. It owns the client."""

    def __init__(
        self,
        client: AsyncClient,
        config: Config,
        gateway_token: str,
        *,
        history_token: str = "",
        history_path: Path | None = None,
        cluster: str = "",
        data: Path | None = None,
        connect: Callable[..., AsyncClient] | None = None,
    ) -> None:
        """StartRefused: the files for TLS cannot be used. `history_path` None: the history is kept in memory.
        `cluster`: what clusters.toml calls the servers, "" for none. `data`: the folder in which sessions of browsers
        outlive this process, None for none. `connect`: see BoundConnections.
        """
        self._client = client
        files = settings_map.tls_files(config)
        try:
            self._tls = None if files is None else ServerTls(files, takes_plain=config.tls == "optional")
        except TlsInvalid as error:
            raise StartRefused(str(error)) from error
        most = config.max_connections
        most_of_peer = config.max_peer_connections or max(1, most // 2)
        settings = HttpSettings(
            names=browsers.names_of(to_plain(config)),
            max_requests=most,
            max_waits=max(1, min(MAX_WAITS, most_of_peer // 2)),  # servers take so many from one address, and calls
            max_request_bytes=config.max_frame_bytes,
            max_buffered_bytes=config.max_buffered_bytes,
            body_within_s=config.half_sent_timeout_ms / 1000,
            write_within_s=config.write_timeout_ms / 1000,
            takes_plain=self._tls is None or self._tls.takes_plain,
            needs_credential=self._tls is not None and self._tls.asks_for_certificates,
            gateway_token=gateway_token,
            status_page="" if config.http == "none" else config.http,
            pages=HOME,
            prefix=config.api_prefix,
            data=data,
            connect=connect,
            max_bound=max(1, min(MAX_BOUND, most_of_peer // 8)),  # each has two connections to the servers
        )
        app = make_app(client, settings)
        self._claims = app[CLAIMS]
        shown = DashboardSettings(
            status_page=settings.status_page,
            clusters=ClusterMenu(cluster, {*map(str, client.servers), config.advertise}),
            history_token=history_token,
            history_path=history_path,
        )
        self._dashboard = add_dashboard(app, shown)
        self._server = HttpServer(
            app,
            most,
            most_of_peer,
            None if self._tls is None else self._hear,
        )
        self._looking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self._server.start()
        await self._dashboard.open()
        if self._tls is not None:
            self._looking = asyncio.ensure_future(self._look(self._tls))

    def adopt(self, connection: socket.socket) -> None:
        self._server.listen([connection])

    def share(self, tell: Tell) -> None:
        """There is no other one."""

    def learn(self, news: News) -> None:
        """There is no other one."""

    async def report(self, kind: str) -> Any:
        """What it counts; it has nothing else to report."""
        return self._server.counts() if kind == "metrics" else None

    async def drain(self, hand_over: HandOver | None, timeout_s: float) -> None:
        """What was read is answered; dequeues that wait end soon."""
        self._client.cancel_long_polls()
        self._claims.start_draining()
        await self._dashboard.drain()
        await self._server.drain(timeout_s)
        await self._claims.leave()

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking
        await self._server.close()
        await self._dashboard.close()
        await self._claims.close()
        await self._client.close()

    async def _look(self, tls: ServerTls) -> None:
        while True:
            await asyncio.sleep(TLS_LOOK_EVERY_S)
            await tls.look()

    async def _hear(self, connection: socket.socket) -> ssl.SSLContext | None:
        """What a connection speaks, by its first byte. OSError: nothing, or no TLS where only that is served."""
        tls = self._tls
        assert tls is not None
        async with asyncio.timeout(HEAD_WITHIN_S):
            is_tls = await speaks_tls(connection)
        if is_tls or tls.takes_plain:
            return tls.context if is_tls else None
        with suppress(BlockingIOError):
            connection.recv(64 * 1024)
            connection.send(_TLS_ONLY)
        raise ConnectionAbortedError("no TLS")


async def build(payload: dict[str, Any]) -> ApiProcess:
    """What the child of a supervisor serves. StartRefused."""
    config = from_plain({**payload["config"], "stores": []})
    token, history_token = payload["token"], payload["history_token"]
    SECRETS.keep([token, history_token])
    configure(config.log_level, config.log_format, api=os.getpid())
    servers, tls = [_reachable(payload["server"])], _tls_to_servers(config) or False
    connect = partial(AsyncClient, servers=servers, tls=tls, **OF_HTTP)
    data = Path(config.data)
    process = ApiProcess(
        connect(pool=POOL),
        config,
        token,
        history_token=history_token,
        history_path=history_path(config, data),
        data=data,
        connect=connect,
    )
    await process.open()
    return process


def history_path(config: Config, folder: Path | None) -> Path | None:
    """Where the history is kept; None: in memory, as where `folder` is none and no path is given."""
    if config.history == "none":
        return None
    if config.history == "auto":
        return None if folder is None else folder.expanduser() / HISTORY_FILE
    return Path(config.history).expanduser()


def _tls_to_servers(config: Config) -> Tls | None:
    """To the server processes beside this one, which have the same certificate."""
    if not config.tls_cert or config.tls == "optional":
        return None
    return PinnedTls(config.tls_cert, config.tls_cert, config.tls_key or None)


def _reachable(address: str) -> str:
    """Where this machine reaches what listens there.

    >>> _reachable("0.0.0.0:9010"), _reachable("[::]:9010"), _reachable("10.0.0.1:9010")
    ('127.0.0.1:9010', '[::1]:9010', '10.0.0.1:9010')
    """
    host, _, port = address.rpartition(":")
    return {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host) + f":{port}"


if __name__ == "__main__":
    server_process.main(int(sys.argv[1]), build)
