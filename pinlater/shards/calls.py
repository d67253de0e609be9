"""Bounds around the calls to one shard: a deadline, a limit of calls under way and waiting, and safe retries.

A call that reached the store is never cancelled, since its answer could reach the next caller of the connection: the
caller stops waiting, the call runs on, and what it then brings is handed to its `undo`.

While one call is past half its deadline no other starts, and none waits for a turn: all are refused as HeldUp.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from pinlater.errors import NothingStored, OutcomeUnknown, Overloaded, StoreConflict
from pinlater.shards.pace import Pace

R = TypeVar("R")
V = TypeVar("V")
Undo = Callable[[R], Coroutine[Any, Any, object]]
Report = Callable[[str, bool, BaseException | None], None]
"""Told how a call to the store ended: its name, whether it took longer than half its deadline, and its error.

A call that is not over at its deadline is told of then, as late, and not again when it ends.
"""


@dataclass(frozen=True, slots=True)
class GuardSettings:
    deadline_ms: int = 10_000
    """A caller waits so long for one call, its retries and its wait for a turn included."""

    max_running: int = 16
    """Calls under way at the store."""

    max_bulk: int = 2
    """Beside those, calls over many jobs (count, scan, retry, delete), so that slow ones hold up only themselves."""

    max_waiting: int = 1_000
    """Calls that wait for one of those to end; one more is refused as Overloaded."""

    max_tries: int = 4
    """Of a call that conflicted, or of a read that did not get through."""

    retry_base_ms: int = 5
    """The first retry comes after up to so long, each further one after up to twice as long as the one before."""


class NoTurn(NothingStored):
    """The call never began: others were before it until its deadline. Says nothing of the store's health."""


class HeldUp(NothingStored):
    """The call never began: an earlier one is past half its deadline. Says nothing more of the store's health."""


class Calls:
    """The calls to one shard: who runs, who waits for a turn, and what still runs although nobody waits for it."""

    def __init__(self, shard_id: Callable[[], str], settings: GuardSettings, *, is_pinged: bool = False) -> None:
        """`is_pinged`: urgent calls tell soon whether a store that let a call wait too long is well again."""
        self._shard_id = shard_id
        self._settings = settings
        self._turns: deque[asyncio.Future[bool | None]] = deque()
        """True: it is yours; False: the deadline came first; None: the shard is too slow now."""
        self._free = settings.max_running
        self._running: set[asyncio.Task[Any]] = set()
        deadline_s = settings.deadline_ms / 1000
        self._pace = Pace(deadline_s, self._hold_up, deadline_s if is_pinged else 0.0)
        self.deadline_ms = settings.deadline_ms
        self.report: Report | None = None
        self.on_slow: Callable[[HeldUp], None] | None = None
        """Called with a HeldUp when a call passes half its deadline."""

    def held_up(self, now: float) -> HeldUp | None:
        """The error of a call that may not start now, by the loop's time."""
        return self._held_up() if self._pace.is_slow(now) else None

    async def make(
        self,
        name: str,
        call: Callable[[], Coroutine[Any, Any, R]],
        *,
        read: bool = False,
        undo: Undo[R] | None = None,
        is_urgent: bool = False,
    ) -> R:
        """The answer of `call` within the deadline; then OutcomeUnknown, or NothingStored for a read or no turn.

        `undo` gets an answer that came when its caller waited no more. An urgent call waits for no turn, starts however
        slow others are, and is not reported.
        """
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        ends_at = asked_at + self._settings.deadline_ms / 1000
        if not is_urgent and self._pace.is_slow(asked_at):
            raise self._held_up()
        if self._free > 0 or is_urgent:
            self._free -= 1
        else:
            await self._turn(loop, ends_at)
        task = loop.create_task(self._try(call, read, ends_at))
        self._running.add(task)
        if not is_urgent:
            self._pace.began(task, loop.time())
        answered = loop.create_future()
        task.add_done_callback(lambda done: self._ended(name, done, answered, undo))
        timer = loop.call_at(ends_at, _settle, answered, False)
        try:
            in_time = await answered
        except asyncio.CancelledError:
            if not answered.cancelled() and answered.result():  # the answer came at the very moment the caller left
                self._abandoned(task, undo)
            raise
        finally:
            timer.cancel()
        if in_time:
            try:
                answer = task.result()
                if is_urgent:
                    self._pace.answered()
                return answer
            finally:
                del task  # else its error keeps this frame, and with it all that the caller sent, until the next gc
        text = f"shard {self._shard_id()}: no answer within {self._settings.deadline_ms} ms"
        late = NothingStored(text) if read else OutcomeUnknown(text)
        if self._pace.gave_up(task, loop.time()) and self.report is not None:
            self.report(name, True, late)
        raise late

    async def _try(self, call: Callable[[], Coroutine[Any, Any, R]], read: bool, ends_at: float) -> R:
        tries = 1
        while True:
            try:
                return await call()
            except OutcomeUnknown as error:
                if read:
                    raise NothingStored(error.message) from error
                raise
            except NothingStored as error:
                if tries >= self._settings.max_tries or not (read or isinstance(error, StoreConflict)):
                    raise
                delay = random.uniform(0.1, 1) * self._settings.retry_base_ms * 2 ** (tries - 1) / 1000
                if asyncio.get_running_loop().time() + delay >= ends_at:
                    raise
                await asyncio.sleep(delay)
                tries += 1

    async def _turn(self, loop: asyncio.AbstractEventLoop, ends_at: float) -> None:
        """Wait for a place, in order of arrival."""
        if len(self._turns) >= self._settings.max_waiting:
            told = f"shard {self._shard_id()}: {len(self._turns)} calls wait already"
            raise Overloaded.by("waiting_store_calls", told, retry_after_ms=100)
        turn: asyncio.Future[bool | None] = loop.create_future()
        self._turns.append(turn)
        timer = loop.call_at(ends_at, _settle, turn, False)
        try:
            has_place = await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.result():
                self._leave()
            raise
        finally:
            timer.cancel()
            if turn in self._turns:
                self._turns.remove(turn)
        if has_place is None:
            raise self._held_up()
        if not has_place:
            raise NoTurn(f"shard {self._shard_id()}: no turn within {self._settings.deadline_ms} ms")

    def _held_up(self) -> HeldUp:
        return HeldUp(
            f"shard {self._shard_id()}: a call takes longer than half of {self._settings.deadline_ms} ms",
            retry_after_ms=self._settings.deadline_ms // 2,
        )

    def _hold_up(self) -> None:
        """A call passed half its deadline: who waits for a turn, waits no longer."""
        for turn in self._turns:
            _settle(turn, None)
        if self.on_slow is not None:
            self.on_slow(self._held_up())

    def _leave(self) -> None:
        """Hand the place to the next that still waits, unless an urgent call had taken one too many."""
        if self._free < 0:
            self._free += 1
            return
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(True)
                return
        self._free += 1

    def _ended(self, name: str, task: asyncio.Task[R], answered: asyncio.Future[bool], undo: Undo[R] | None) -> None:
        self._running.discard(task)
        is_late = self._pace.ended(task, asyncio.get_running_loop().time())
        if is_late is not None and self.report is not None and not task.cancelled():
            self.report(name, is_late, task.exception())
        self._leave()
        if answered.done():
            self._abandoned(task, undo)
        else:
            answered.set_result(True)

    def _abandoned(self, task: asyncio.Task[R], undo: Undo[R] | None) -> None:
        if task.cancelled() or task.exception() is not None or undo is None:
            return
        undoing = asyncio.get_running_loop().create_task(undo(task.result()))
        self._running.add(undoing)
        undoing.add_done_callback(self._running.discard)

    async def drain(self) -> None:
        """Until nothing is under way any more, undoing included; at most two deadlines."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + 2 * self._settings.deadline_ms / 1000
        while self._running and loop.time() < ends_at:
            await asyncio.wait(self._running, timeout=ends_at - loop.time())
        self._pace.close()


def _settle(future: asyncio.Future[V], value: V) -> None:
    if not future.done():
        future.set_result(value)
