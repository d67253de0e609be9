"""An HTTP relay in front of a DynamoDB: it answers that requests are throttled, delays them, or drops answers.

    with ThrottlingRelay(port) as relay:       # relay.port leads to 127.0.0.1:port
        relay.throttled = 0.5                  # the share of requests that are refused
        relay.delay_s = 0.2
        relay.lost = {"UpdateItem": 1}         # so many answers of that operation are dropped, behind the write

It runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import Counter
from types import TracebackType

import aiohttp
from aiohttp import web

REFUSAL = "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"


class ThrottlingRelay:
    def __init__(self, target_port: int) -> None:
        self.port = 0
        self.throttled = 0.0
        self.delay_s = 0.0
        self.lost: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        """By operation, how many requests were throttled."""

        self.passed: Counter[str] = Counter()
        self._target = f"http://127.0.0.1:{target_port}/"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._random = random.Random(0)
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.ServerRunner | None = None

    def __enter__(self) -> ThrottlingRelay:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _open(self) -> None:
        self._session = aiohttp.ClientSession(auto_decompress=False)
        self._runner = web.ServerRunner(web.Server(self._relay))
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _close(self) -> None:
        assert self._session is not None and self._runner is not None  # noqa: PT018
        await self._session.close()
        await self._runner.cleanup()

    async def _relay(self, request: web.BaseRequest) -> web.StreamResponse:
        assert self._session is not None
        operation = request.headers["X-Amz-Target"].rpartition(".")[2]
        body = await request.read()
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if self._random.random() < self.throttled:
            self.refused[operation] += 1
            told = json.dumps({"__type": REFUSAL, "message": "The level of throughput was exceeded"})
            return web.Response(status=400, text=told, content_type="application/x-amz-json-1.0")
        headers = {
            name: value for name, value in request.headers.items() if name.lower() not in ("host", "content-length")
        }
        async with self._session.post(self._target, data=body, headers=headers) as answer:
            text = await answer.read()
            self.passed[operation] += 1
            if self.lost[operation] > 0:
                self.lost[operation] -= 1
                assert request.transport is not None
                request.transport.abort()
            return web.Response(status=answer.status, body=text, headers={"Date": answer.headers.get("Date", "")})
