"""The HTTP process from inside: a client of the servers, and the application that passes calls on to it.

`python -m pinlater.api_process FD` is the child of a supervisor, which hands it the listening sockets.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

from pinlater import browsers
from pinlater.client.async_client import AsyncClient
from pinlater.client.pool import PoolLimits
from pinlater.http.http_server import HttpServer
from pinlater.http.site import HttpSettings, make_app
from pinlater.logs import configure
from pinlater.redaction import SECRETS
from pinlater.server import server_process
from pinlater.server.server_process import HandOver

CONNECTIONS = 256
"""To one server; calls that wait for jobs take one each."""


class ApiProcess:
    """Serves as a server process does for its supervisor; `adopt` is told a listening socket."""

    def __init__(self, servers: Sequence[str], config: dict[str, Any], token: str, names: Sequence[str] = ()) -> None:
        self._client = AsyncClient(
            servers=servers,
            source="http",
            pool=PoolLimits(connections=CONNECTIONS),
            wait_for_rate=False,
            joins_contexts=True,
            token="",
        )
        settings = HttpSettings(
            names=[*browsers.names_of(config), *names],
            max_request_bytes=config["max_frame_bytes"],
            max_buffered_bytes=config["max_buffered_bytes"],
            body_within_s=config["half_sent_timeout_ms"] / 1000,
            write_within_s=config["write_timeout_ms"] / 1000,
            gateway_token=token,
            status_page="" if config["http"] == "none" else config["http"],
        )
        most, of_peer = config["max_connections"], config["max_peer_connections"]
        self._server = HttpServer(make_app(self._client, settings), most, of_peer or max(1, most // 2))

    async def open(self) -> None:
        await self._server.start()

    def adopt(self, connection: socket.socket) -> None:
        self._server.listen([connection])

    async def report(self, kind: str) -> Any:
        """It has nothing to report."""
        return None

    async def drain(self, hand_over: HandOver | None, timeout_s: float) -> None:
        """What was read is answered; dequeues that wait end soon."""
        self._client.cancel_long_polls()
        await self._server.drain(timeout_s)

    async def close(self) -> None:
        await self._server.close()
        await self._client.close()


async def build(payload: dict[str, Any]) -> ApiProcess:
    """What the child of a supervisor serves."""
    config = payload["config"]
    SECRETS.keep([payload["token"]])
    configure(config["log_level"], config["log_format"], api=os.getpid())
    process = ApiProcess([_reachable(payload["server"])], config, payload["token"])
    await process.open()
    return process


def _reachable(address: str) -> str:
    """Where this machine reaches what listens there.

    >>> _reachable("0.0.0.0:9010"), _reachable("[::]:9010"), _reachable("10.0.0.1:9010")
    ('127.0.0.1:9010', '[::1]:9010', '10.0.0.1:9010')
    """
    host, _, port = address.rpartition(":")
    return {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host) + f":{port}"


if __name__ == "__main__":
    server_process.main(int(sys.argv[1]), build)
