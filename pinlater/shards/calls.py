"""Bounds around the calls to one shard: a deadline, a limit of calls under way and waiting, and safe retries.

A call that reached the store is never cancelled, since its answer could reach the next caller of the connection: the
caller stops waiting, the call runs on, and what it then brings is handed to its `undo`.

While one call is past half its deadline no other starts, and none waits for a turn: all are refused as HeldUp.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from pinlater.eager import EagerTask, InlineFuture
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


class _UnderWay(EagerTask):
    """A call that went to the store. It runs on when its caller has left."""

    __slots__ = ("_calls", "answer", "is_read", "is_urgent", "name", "undo")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        calls: Calls,
        name: str,
        is_read: bool,
        is_urgent: bool,
        undo: Undo[Any] | None,
    ) -> None:
        super().__init__(loop)
        self._calls = calls
        self.answer: InlineFuture[Any] = InlineFuture(loop)
        self.name = name
        self.is_read = is_read
        self.is_urgent = is_urgent
        self.undo = undo

    def on_done(self, value: Any, error: BaseException | None) -> None:
        self._calls._ended(self, value, error)


class Calls:
    """The calls to one shard: who runs, who waits for a turn, and what still runs although nobody waits for it."""

    def __init__(self, shard_id: Callable[[], str], settings: GuardSettings, *, is_pinged: bool = False) -> None:
        """`is_pinged`: urgent calls tell soon whether a store that let a call wait too long is well again."""
        self._shard_id = shard_id
        self._settings = settings
        self._turns: deque[asyncio.Future[bool | None]] = deque()
        """True: it is yours; False: the deadline came first; None: the shard is too slow now."""
        self._free = settings.max_running
        self._under_way: dict[_UnderWay, float] = {}
        """And the deadline of each."""
        self._undoing: set[asyncio.Task[object]] = set()
        self._idle: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = math.inf
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
        now = loop.time()
        ends_at = now + self._settings.deadline_ms / 1000
        if not is_urgent and self._pace.is_slow(now):
            raise self._held_up()
        if self._free > 0 or is_urgent:
            self._free -= 1
        else:
            await self._turn(loop, ends_at)
            now = loop.time()
        under_way = _UnderWay(loop, self, name, read, is_urgent, undo)
        answer: InlineFuture[R] = under_way.answer
        self._under_way[under_way] = ends_at
        if ends_at < self._looks_at:
            self._look_at(loop, ends_at)
        if not is_urgent:
            self._pace.began(under_way, now)
        under_way.start(self._try(call, read, ends_at))
        del under_way  # else its error keeps this frame, and with it all that the caller sent, until the next gc
        return await answer

    def _look_at(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        """One timer for all: it goes to the next that may miss its deadline."""
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = when
        self._timer = loop.call_at(when, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer, self._looks_at = None, math.inf
        for under_way, ends_at in list(self._under_way.items()):
            if ends_at <= now and under_way in self._under_way:  # it may end while an earlier one's caller goes on
                self._under_way[under_way] = math.inf
                self._missed(under_way, now)
        next_at = min(self._under_way.values(), default=math.inf)
        if next_at < self._looks_at:
            self._look_at(loop, next_at)

    def _missed(self, under_way: _UnderWay, now: float) -> None:
        """Its deadline is over."""
        if under_way.answer.done():
            return
        text = f"shard {self._shard_id()}: no answer within {self._settings.deadline_ms} ms"
        late = NothingStored(text) if under_way.is_read else OutcomeUnknown(text)
        if self._pace.gave_up(under_way, now) and self.report is not None:
            self.report(under_way.name, True, late)
        under_way.answer.set_exception(late)

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

    def _ended(self, under_way: _UnderWay, value: Any, error: BaseException | None) -> None:
        now = asyncio.get_running_loop().time()
        left_s = self._under_way.pop(under_way) - now
        is_late = self._pace.ended(under_way, now)
        if is_late is not None and self.report is not None and not isinstance(error, asyncio.CancelledError):
            self.report(under_way.name, is_late, error)
        self._leave()
        if self._idle is not None:
            self._note_idle()
        answer = under_way.answer
        if answer.done():
            if error is None and under_way.undo is not None:
                self._undo(under_way.undo(value))
        elif error is not None:
            answer.set_exception(error)
        else:
            if under_way.is_urgent and left_s >= self._settings.deadline_ms / 2000:  # slower is as bad as a call
                self._pace.answered()
            answer.set_result(value)

    def _undo(self, undoing: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(undoing)
        self._undoing.add(task)
        task.add_done_callback(self._undone)

    def _undone(self, task: asyncio.Task[object]) -> None:
        self._undoing.discard(task)
        self._note_idle()

    def _note_idle(self) -> None:
        if self._idle is not None and not self._under_way and not self._undoing:
            _settle(self._idle, None)

    async def drain(self) -> None:
        """Until nothing is under way any more, undoing included; at most two deadlines."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + 2 * self._settings.deadline_ms / 1000
        while (self._under_way or self._undoing) and loop.time() < ends_at:
            self._idle = loop.create_future()
            await asyncio.wait([self._idle], timeout=ends_at - loop.time())
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._looks_at = None, math.inf
        self._pace.close()


def _settle(future: asyncio.Future[V], value: V) -> None:
    if not future.done():
        future.set_result(value)
