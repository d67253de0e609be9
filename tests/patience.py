"""A caller who waits for a server, whatever befalls it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pinlater.errors import PinLaterError

T = TypeVar("T")


async def until_answered(call: Callable[[], Awaitable[T]], within_s: float) -> T:
    """Again until it is answered, so the call may be carried out twice. TimeoutError; PinLaterError that is final."""
    async with asyncio.timeout(within_s):
        while True:
            try:
                return await call()
            except PinLaterError as error:
                if not error.retryable:
                    raise
                await asyncio.sleep(0.2)
