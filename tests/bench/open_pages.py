"""Pages of the dashboard that stay open: each asks every two seconds for what has changed, as static/live.js does.

    python -m tests.bench.open_pages --address 127.0.0.1:9012 --cookie pinlater=… --seconds 30 /dashboard

It says `ready` when each page was shown once, begins at a line on standard input, and ends with how often it asked, how
often nothing had changed, and how long the answers took.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time

import aiohttp

EVERY_S = 2.0


class OpenPage:
    """One page, in one browser."""

    def __init__(self, http: aiohttp.ClientSession, path: str) -> None:
        self._http = http
        self._path = path
        self._etag = ""
        self.took_ms: list[float] = []
        self.same = 0

    async def show(self) -> None:
        async with self._http.get(self._path) as answer:
            assert answer.status == 200, f"{self._path}: {answer.status}"
            await answer.read()

    async def stay(self, seconds: float) -> None:
        ends_s = time.monotonic() + seconds
        await asyncio.sleep(random.random() * EVERY_S)
        while time.monotonic() < ends_s:
            began_s = time.monotonic()
            await self.ask()
            took_s = time.monotonic() - began_s
            self.took_ms.append(took_s * 1000)
            await asyncio.sleep(max(0.0, EVERY_S - took_s))

    async def ask(self) -> None:
        headers = {"X-Live": "1", **({"If-None-Match": self._etag} if self._etag else {})}
        async with self._http.get(self._path, headers=headers) as answer:
            assert answer.status in (200, 304), f"{self._path}: {answer.status}"
            await answer.read()
            self.same += answer.status == 304
            self._etag = answer.headers.get("ETag", "")


async def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.bench.open_pages")
    parser.add_argument("--address", required=True)
    parser.add_argument("--cookie", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("path", nargs="+")
    given = parser.parse_args()
    headers = {"Cookie": given.cookie, "Accept-Encoding": "gzip"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(f"http://{given.address}", headers=headers, connector=connector) as http:
        pages = [OpenPage(http, path) for path in given.path]
        for page in pages:
            await page.show()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        began_s = time.monotonic()
        await asyncio.gather(*(page.stay(given.seconds) for page in pages))
        took_ms = sorted(each for page in pages for each in page.took_ms)
        result = {
            "jobs": len(took_ms),
            "seconds": time.monotonic() - began_s,
            "cpu": time.process_time(),
            "same": sum(page.same for page in pages),
            "p99_ms": took_ms[int(len(took_ms) * 0.99)],
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
