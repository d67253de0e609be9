"""Browsers that leave the dashboard open: its pages ask for what has changed, and a stream of events is read."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import aiohttp

from tests.bench.open_pages import EVERY_S, OpenPage
from tests.soak.ledger import Latencies
from tests.soak.stand import PASSWORD, Server

PAGES = (
    *("/dashboard", "/dashboard/queues", "/dashboard/queues/mail", "/dashboard/jobs", "/dashboard/flows"),
    *("/dashboard/schedules", "/dashboard/workers", "/dashboard/cluster", "/dashboard/audit"),
)
STREAM = "/v1/events?queue=mail&queue=tenants"
METRICS = "/metrics"
SCRAPE_EVERY_S = 5.0
GONE = (aiohttp.ClientError, TimeoutError, ConnectionError)
"""While its server is killed."""


class Viewer:
    """One browser at one server. `seen` counts what it was answered; `refused` says what it did not like."""

    def __init__(self, server: Server, latencies: Latencies) -> None:
        self._server = server
        self._latencies = latencies
        self.seen: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.last_s = time.monotonic()
        """When a page was shown last."""

    async def stay(self) -> None:
        """Until it is cancelled; with a new session where the server has forgotten it."""
        while True:
            try:
                await self._session()
            except* GONE:
                self.seen["broken off"] += 1
            except* AssertionError as refused:
                self.refused.update(str(each)[:200] for each in refused.exceptions)
            await asyncio.sleep(0.5)

    async def _session(self) -> None:
        timeout = aiohttp.ClientTimeout(total=30)
        headers = {"Accept-Encoding": "gzip", "Accept": "text/html"}
        address = f"http://127.0.0.1:{self._server.api_port}"
        jar = aiohttp.CookieJar(unsafe=True)  # which takes those of addresses too
        async with aiohttp.ClientSession(address, headers=headers, timeout=timeout, cookie_jar=jar) as http:
            signed = {"X-PinLater-Source": "anna@laptop", "X-Admin-Password": PASSWORD}
            async with http.post("/dashboard/links", headers=signed) as answer:
                assert answer.status == 201, f"/dashboard/links: {answer.status}"
                path = str((await answer.json())["path"])
            async with http.get(path) as answer:
                assert answer.status == 200, f"a link: {answer.status}"
            async with asyncio.TaskGroup() as group:
                for each in PAGES:
                    group.create_task(self._page(http, each))
                group.create_task(self._stream(http))
                group.create_task(self._scrape(http))

    async def _page(self, http: aiohttp.ClientSession, path: str) -> None:
        page = OpenPage(http, path)
        await page.show()
        while True:
            began_s = time.monotonic()
            await page.ask()
            self.last_s = time.monotonic()
            self._latencies.add("page", (self.last_s - began_s) * 1000)
            self.seen["pages"] += 1
            await asyncio.sleep(EVERY_S)

    async def _stream(self, http: aiohttp.ClientSession) -> None:
        while True:
            async with http.get(STREAM, timeout=aiohttp.ClientTimeout(sock_read=60)) as answer:
                assert answer.status == 200, f"{STREAM}: {answer.status}"
                async for line in answer.content:
                    self.seen["events"] += line.startswith(b"event:")
            self.seen["streams ended"] += 1
            await asyncio.sleep(2.0)  # as a browser is told to

    async def _scrape(self, http: aiohttp.ClientSession) -> None:
        address = f"http://127.0.0.1:{self._server.http_port}{METRICS}"
        while True:
            async with http.get(address) as answer:
                assert answer.status == 200, f"{METRICS}: {answer.status}"
                self.seen["metrics"] += len(await answer.read()) > 0
            await asyncio.sleep(SCRAPE_EVERY_S)
