"""The same test over AsyncClient and over Client, and over both ways that a call of Client goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Self

import pytest

from pinlater import AsyncClient, Client, ScanPage
from pinlater.client import background

THREADS = 64
"""More than any test makes calls at once."""


class ThreadsClient:
    """A Client with the calls of AsyncClient: each is made by a thread."""

    def __init__(self, *addresses: str, **options: Any) -> None:
        self._client = Client(*addresses, **options)
        self._threads = ThreadPoolExecutor(THREADS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._in_thread(self._client.close)()
        self._threads.shutdown(wait=False)

    async def scan_pages(self, *args: Any, **given: Any) -> AsyncIterator[ScanPage]:
        pages = self._client.scan_pages(*args, **given)
        while (page := await self._in_thread(next)(pages, None)) is not None:
            yield page

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._client, name)
        return self._in_thread(value) if callable(value) else value

    def _in_thread(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def made(*args: Any, **given: Any) -> Any:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, partial(call, *args, **given))

        return made


@pytest.fixture(params=[AsyncClient, ThreadsClient], ids=["async", "threads"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests of a module call AsyncClient is one, then the other."""
    monkeypatch.setattr(request.module, "AsyncClient", request.param)


@pytest.fixture(params=["straight", "joined"])
def client_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Client goes the short way where it can, then always by its loop."""
    if request.param == "joined":
        monkeypatch.setattr(background, "straight_dispatcher", lambda client: None)
    return str(request.param)
