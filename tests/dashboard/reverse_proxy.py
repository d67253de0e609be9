"""A reverse proxy in a thread: what it has below one path is another site, and nothing else of its own is there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import ClientSession, DummyCookieJar, web
from yarl import URL

WITHIN_S = 100.0
_OF_ONE_HOP = ("Connection", "Keep-Alive", "Transfer-Encoding", "Content-Length")


class ReverseProxy:
    """`strips`: the path is taken off what the site gets. `outside`: paths that were asked for and are not below it."""

    def __init__(self, target: str, prefix: str, *, strips: bool) -> None:
        self.prefix = prefix
        self.origin = ""
        self.outside: list[str] = []
        self._target = target
        self._strips = strips

    @property
    def address(self) -> str:
        """Where browsers find the site, without a / at the end."""
        return self.origin + self.prefix

    async def start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.origin = site.name.replace(":0", f":{runner.addresses[0][1]}")
        return runner

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        path = request.raw_path
        if not path.startswith(f"{self.prefix}/"):
            self.outside.append(path)
            return web.Response(status=404, text="another site of this name")
        if self._strips:
            path = path.removeprefix(self.prefix)
        async with (
            ClientSession(auto_decompress=False, cookie_jar=DummyCookieJar()) as session,
            session.request(
                request.method,
                URL(self._target + path, encoded=True),
                headers={name: value for name, value in request.headers.items() if name not in _OF_ONE_HOP},
                data=await request.read(),
                allow_redirects=False,
            ) as answer,
        ):
            response = web.StreamResponse(status=answer.status)
            response.headers.extend([each for each in answer.headers.items() if each[0] not in _OF_ONE_HOP])
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            return response


@contextmanager
def proxying(target: str, prefix: str, *, strips: bool) -> Iterator[ReverseProxy]:
    """To the origin `target`."""
    proxy = ReverseProxy(target, prefix, strips=strips)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        runner = asyncio.run_coroutine_threadsafe(proxy.start(), loop).result(WITHIN_S)
        try:
            yield proxy
        finally:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(WITHIN_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WITHIN_S)
        loop.close()
