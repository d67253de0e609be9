"""Several servers at one store, all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from pinlater.errors import StoreConflict
from tests.conformance.subject import Subject

R = TypeVar("R")
Crowd = Sequence[Subject]
CROWD = 4
MOST_TRIES = 50


async def settled(call: Callable[[], Awaitable[R]]) -> R:
    """The answer of a call; an expected conflict means to try again, as the chain does by itself."""
    for _ in range(MOST_TRIES):
        try:
            return await call()
        except StoreConflict:
            await asyncio.sleep(0)
    return await call()


async def at_once(*calls: Callable[[], Awaitable[Any]]) -> list[Any]:
    """All the calls, started together; their answers in order."""
    return list(await asyncio.gather(*[settled(call) for call in calls]))
