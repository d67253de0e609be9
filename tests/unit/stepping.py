"""Stores that several processes share, and calls to them that a test lets through one by one, late, or never."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Any

from pinlater.backends.base import OPERATIONS, Shard
from tests.lent import Lent

Call = partial[Awaitable[Any]]
_CALLS = [name for name in (*OPERATIONS, "subscribe") if name != "open"]


class Turnstile:
    """Calls of one process that stand before a store, in order, unless it is open."""

    def __init__(self) -> None:
        self.is_open = True
        self.running = 0
        self.waiting: list[tuple[asyncio.Future[None], str, Call]] = []

    async def enter(self, name: str, call: Call) -> None:
        if not self.is_open:
            turn = asyncio.get_running_loop().create_future()
            self.waiting.append((turn, name, call))
            await turn

    def let_one_in(self) -> bool:
        """False where none stands there."""
        while self.waiting:
            turn, _, _ = self.waiting.pop(0)
            if not turn.done():
                turn.set_result(None)
                return True
        return False

    def standing(self) -> str:
        """The call that is let in next; "" for none."""
        return self.waiting[0][1] if self.waiting else ""

    async def until_quiet(self) -> None:
        """Until nothing of this process is under way at a store."""
        while True:
            for _ in range(20):
                await asyncio.sleep(0)
            if not self.running:
                return

    def leave_behind(self) -> list[Call]:
        """The process died: its calls are on their way all the same, and may still arrive."""
        calls = [call for _, _, call in self.waiting]
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
        call = partial(getattr(self.inner, name), *args, **kwargs)
        await self._turnstile.enter(name, call)
        self._turnstile.running += 1
        try:
            return await call()
        finally:
            self._turnstile.running -= 1
