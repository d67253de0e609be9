"""A real store that breaks on demand, and a clock that a test holds."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

from pinlater.backends.base import OPERATIONS, Shard
from pinlater.errors import PinLaterError
from pinlater.shards.decorator import ShardDecorator

R = TypeVar("R")
_STEP_S = 0.25
_CALLS = [*OPERATIONS, "subscribe", "close"]


class HeldClock:
    """Tells the time that it was told. `set_ahead_ms`: how far the machine's clock was set ahead of it."""

    def __init__(self, now_ms: int = 1_790_000_000_000) -> None:
        self._now_ms = now_ms
        self.uncertainty_ms = 0
        self.set_ahead_ms = 0

    def wall_ns(self) -> int:
        return (self._now_ms + self.set_ahead_ms) * 1_000_000

    def now_ms(self) -> int:
        return self._now_ms

    def tick(self, ms: int) -> None:
        self._now_ms += ms


class Breaking(ShardDecorator):
    """Hands calls on to a real store, unless it is told to fail them, to hold them, or to lose their answers."""

    def __init__(self, inner: Shard) -> None:
        super().__init__(inner)
        self.failures: dict[str, list[Exception | None]] = defaultdict(list)
        """Per call: raised instead of calling, one after the other; None lets one call through."""
        self.losses: dict[str, list[Exception | None]] = defaultdict(list)
        """Per call: raised after the store has done it."""
        self.broken: Exception | None = None
        """Raised instead of every call."""
        self.gates: dict[str, asyncio.Event] = {}
        """Per call: it reaches the store only when this is set."""
        self.late: dict[str, asyncio.Event] = {}
        """Per call: the store has done it, and the answer comes only when this is set."""
        self.begun: Counter[str] = Counter()
        self.sent: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self._inside = 0
        self.moves = 0
        """How often a call came to the store itself, or left it."""
        self._progress = asyncio.Event()
        for name in _CALLS:
            setattr(self, name, partial(self._call, name))

    async def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self.begun[name] += 1
        self.sent[name].append(args)
        self._progress.set()
        if self.broken is not None and name != "close":
            raise self.broken
        _raise_next(self.failures[name])
        if name in self.gates:
            await self.gates[name].wait()
        self._inside += 1
        self.moves += 1
        try:
            answer = await getattr(self.inner, name)(*args, **kwargs)
        finally:
            self._inside -= 1
            self.moves += 1
            self._progress.set()
        if name in self.late:
            await self.late[name].wait()
        _raise_next(self.losses[name])
        return answer

    def hold(self, name: str) -> asyncio.Event:
        """Hold calls until the event is set."""
        self.gates[name] = asyncio.Event()
        return self.gates[name]

    def hold_answer(self, name: str) -> asyncio.Event:
        """Hold the answers of calls that the store carries out until the event is set."""
        self.late[name] = asyncio.Event()
        return self.late[name]

    async def until_begun(self, name: str, times: int = 1) -> None:
        while self.begun[name] < times:
            self._progress.clear()
            await self._progress.wait()

    def hold_all(self) -> None:
        """It accepts every call and answers none, until `heal`."""
        for name in _CALLS:
            if name not in ("open", "close"):
                self.hold(name)

    def heal(self) -> None:
        """All that is held goes on, and nothing fails any more."""
        self.broken = None
        self.failures.clear()
        for name, gate in list(self.gates.items()):
            gate.set()
            del self.gates[name]
        for late in self.late.values():
            late.set()
        self.late.clear()

    async def until_quiet(self) -> None:
        """Nothing is under way in the store itself."""
        while self._inside:
            self._progress.clear()
            await self._progress.wait()


def _raise_next(errors: list[Exception | None]) -> None:
    error = errors.pop(0) if errors else None
    if error is not None:
        raise error


class HeldTime:
    """The time of the running event loop, which a test may move on: what waits for it, waits no longer.

    It moves only while nothing is under way in these stores, so that they seem to take no time.
    """

    def __init__(self, *stores: Breaking) -> None:
        self._stores = stores
        loop = asyncio.get_running_loop()
        passed = loop.time
        self._ahead_s = 0.0
        loop.time = lambda: passed() + self._ahead_s  # type: ignore[method-assign]

    async def leap(self, seconds: float) -> None:
        await until_quiet(*self._stores)
        self._ahead_s += seconds
        await settled()

    async def taken(self, call: Coroutine[Any, Any, R]) -> tuple[float, R | PinLaterError]:
        """How many seconds a call takes, and what it comes to."""
        began_s = self._ahead_s
        task = asyncio.ensure_future(call)
        await until_quiet(*self._stores)
        while not task.done():
            await self.leap(_STEP_S)
            await until_quiet(*self._stores)
        error = task.exception()
        return self._ahead_s - began_s, error if isinstance(error, PinLaterError) else task.result()


async def until_quiet(*stores: Breaking) -> None:
    """Let every task go on, until nothing is under way in these stores and nobody calls them any more."""
    moves = None
    while moves != (moves := [store.moves for store in stores]):
        for store in stores:
            await store.until_quiet()
        await settled()


async def settled() -> None:
    """Let every task that can go on without a store do so."""
    for _ in range(20):
        await asyncio.sleep(0)
