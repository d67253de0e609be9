"""Stores that several processes share, and calls to them that a test lets through one by one, late, or never."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from pinlater.backends.base import Shard
from pinlater.shards.passing import Passing

_CALLS = [name for name in vars(Passing) if not name.startswith("_") and name not in ("shard_id", "open", "close")]


class Lent(Passing):
    """A store that is open already, and stays open: somebody else's to close."""

    def __init__(self, inner: Shard, store_id: str) -> None:
        super().__init__(inner)
        self._store_id = store_id

    async def open(self) -> str:
        return self._store_id

    async def close(self) -> None:
        return None


class Turnstile:
    """Calls of one process that stand before a store, in order, unless it is open."""

    def __init__(self) -> None:
        self.is_open = True
        self.waiting: list[tuple[asyncio.Future[None], Callable[[], Awaitable[Any]]]] = []

    async def enter(self, call: Callable[[], Awaitable[Any]]) -> None:
        if not self.is_open:
            turn = asyncio.get_running_loop().create_future()
            self.waiting.append((turn, call))
            await turn

    def let_one_in(self) -> bool:
        """False where none stands there."""
        while self.waiting:
            turn, _ = self.waiting.pop(0)
            if not turn.done():
                turn.set_result(None)
                return True
        return False

    def leave_behind(self) -> list[Callable[[], Awaitable[Any]]]:
        """The process died: its calls are on their way all the same, and may still arrive."""
        calls = [call for _, call in self.waiting]
        self.waiting = []
        return calls


class Stepped(Lent):
    """Every call goes through the turnstile of its process."""

    def __init__(self, inner: Shard, store_id: str, turnstile: Turnstile) -> None:
        super().__init__(inner, store_id)
        self._turnstile = turnstile
        for name in _CALLS:
            setattr(self, name, partial(self._step, name))

    async def _step(self, name: str, *args: Any, **kwargs: Any) -> Any:
        call = partial(getattr(self._inner, name), *args, **kwargs)
        await self._turnstile.enter(call)
        return await call()
