"""The HTTP interface in this process, over an Api that a test watches, and raw requests to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from aiohttp import web

from pinlater.dashboard.cluster_menu import ClusterMenu
from pinlater.dashboard.site import DashboardSettings, add_dashboard
from pinlater.errors import Forbidden, QueueNotFound
from pinlater.http.caller import context_of
from pinlater.http.http_server import HttpServer
from pinlater.http.site import SITE, HttpSettings, make_app
from pinlater.listener import listening
from pinlater.metric_family import Key
from pinlater.model import (
    AccessView,
    ClusterStatus,
    JobInfo,
    LevelView,
    QueueStatus,
    QueueView,
    RequestContext,
    SettingView,
)
from tests.server.memory_api import EchoService

TOKEN = "plt_" + "a" * 43
PATIENCE_S = 10.0


class WatchedApi(EchoService):
    """Knows one token; its queues, their versions and their ready jobs are what a test puts there."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = {TOKEN: "token:web"}
        self.queues: dict[str, tuple[str, int]] = {"mail": ("1", 0), "sms": ("1", 0)}
        self.hidden: set[str] = set()
        """Queues that nobody may read."""
        self.looks = 0
        self.ends: dict[str, JobInfo] = {}
        self.jobs_changed = asyncio.Event()

    async def get_access(self, *, context: RequestContext | None = None) -> AccessView:
        self._check(context)
        token = None if context is None else context.token
        identity = "anonymous" if token is None else self.tokens[token]
        return AccessView(identity, [], [], has_rules=False)

    async def get_queues(self, names: Sequence[str] = (), *, context: RequestContext | None = None) -> list[QueueView]:
        self._check(context)
        for name in names:
            if name in self.hidden:
                raise Forbidden(f"nobody may read on queue {name!r}")
            if name not in self.queues:
                raise QueueNotFound.of(name)
        return [QueueView(name, self.queues[name][0], {"paused": SettingView("false", "server")}) for name in names]

    async def cluster_status(
        self,
        *,
        queues: Sequence[str] | None = None,
        counters_since_ms: int | None = None,
        context: RequestContext | None = None,
    ) -> ClusterStatus:
        self.looks += 1
        self._check(context)
        if queues is not None and not queues:
            raise Forbidden("that is a question about all queues")
        found = [QueueStatus(name, 5, [LevelView(1, ready=self.queues[name][1])]) for name in queues or ()]
        return ClusterStatus(5, [], [], found)

    async def lookup(
        self, descriptors: Sequence[str], /, *, wait_ms: int = 0, context: RequestContext | None = None, **_: Any
    ) -> dict[str, JobInfo]:
        self._check(context)
        if wait_ms:
            self.jobs_changed.clear()
            await self.jobs_changed.wait()
        return {name: self.ends[name] for name in descriptors if name in self.ends}

    def _check(self, context: RequestContext | None) -> None:
        if context is not None and context.token is not None and context.token not in self.tokens:
            raise Forbidden("the token is wrong")


class HttpAnswer(NamedTuple):
    """What came back; `status` 0: nothing did, and the connection was closed."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class RunningSite:
    """One that listens on a loopback port. `seen`: the bodies that reached the handler of POST /echo; `pools`: what its
    callers share, by name.
    """

    def __init__(
        self,
        port: int,
        seen: list[bytes],
        contexts: list[RequestContext],
        pools: dict[str, Any],
        server: HttpServer,
    ) -> None:
        self._server = server
        self.port = port
        self.pools = pools
        self.seen = seen
        self.contexts = contexts
        self.writers: list[asyncio.StreamWriter] = []

    def counts(self) -> dict[Key, float]:
        """What it counts now, but for histograms."""
        return {key: values[0] for key, values in self._server.counts()}

    async def connect(self, address: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection from an address of loopback, which is closed with the site."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0))
        self.writers.append(writer)
        return reader, writer

    async def send(self, data: bytes, *, ends: bool = True) -> list[HttpAnswer]:
        """All answers to some bytes, until the site closes the connection; `ends`: nothing more is said after them."""
        reader, writer = await self.connect()
        try:
            writer.write(data)
            if ends:
                writer.write_eof()
            async with asyncio.timeout(PATIENCE_S):
                return answers_in(await reader.read())
        except ConnectionResetError:
            return []
        finally:
            writer.close()

    async def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> HttpAnswer:
        """One request of its own connection; `_` in the name of a header stands for `-`."""
        lines = [f"{method} {path} HTTP/1.1"]
        given = {"Host": f"127.0.0.1:{self.port}", "Connection": "close"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            given["Content-Length"] = str(len(body))
        lines += [f"{name}: {value}" for name, value in given.items()]
        found = await self.send("\r\n".join([*lines, "", ""]).encode() + (body or b""), ends=False)
        return found[0] if found else HttpAnswer(0, {}, b"")

    async def is_well(self) -> bool:
        """Another caller is served as if nothing were."""
        async with asyncio.timeout(PATIENCE_S):
            return (await self.ask("POST", "/echo", b"well")).body == b"well"


def answers_in(data: bytes) -> list[HttpAnswer]:
    """The answers in the bytes of a connection; all have a length."""
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        length = int(headers.get("Content-Length", len(data)))
        found.append(HttpAnswer(int(first.split()[1]), headers, data[:length]))
        data = data[length:]
    return found


@contextlib.asynccontextmanager
async def http_site(
    api: Any,
    max_connections: int = 1000,
    max_peer_connections: int | None = None,
    clusters: ClusterMenu | None = None,
    **settings: Any,
) -> AsyncIterator[RunningSite]:
    """Serves `api`, and beside its own routes POST /echo, which answers with the body, and GET /hang."""
    app = make_app(api, HttpSettings(**settings))
    dashboard = add_dashboard(app, DashboardSettings(clusters=clusters))
    seen: list[bytes] = []
    contexts: list[RequestContext] = []

    async def echo(request: web.Request) -> web.Response:
        contexts.append(context_of(request))
        seen.append(await request.read())
        return web.Response(body=seen[-1])

    async def hang(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    app.router.add_route("*", "/echo", echo)
    app.router.add_get("/hang", hang)
    server = HttpServer(app, max_connections, max_peer_connections)
    await server.start()
    listeners = listening("127.0.0.1", 0)
    server.listen(listeners)
    site = RunningSite(
        listeners[0].getsockname()[1], seen, contexts, {pool.name: pool for pool in app[SITE].pools}, server
    )
    try:
        yield site
    finally:
        for writer in site.writers:
            writer.close()
        await server.close()
        await dashboard.close()
