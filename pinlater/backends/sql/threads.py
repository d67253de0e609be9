"""Threads that run blocking calls for an event loop. A hop costs some 30 microseconds: it is paid per batch.

GroupCommitThread runs calls that wait for it as one group, so that they share one flush to the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, TypeVar

Result = TypeVar("Result")


class CallResult(NamedTuple):
    """What a call returned or raised."""

    result: Any = None
    error: BaseException | None = None


class ThreadCall(NamedTuple):
    """A call that waits for a thread, and the future of its outcome."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def carry_out(self) -> CallResult:
        try:
            return CallResult(self.function(*self.arguments))
        except BaseException as error:
            return CallResult(error=error)


def _end() -> None:
    """The last call that a thread takes."""


class Threads:
    """`count` threads with one queue before them. Calls begin in the order in which they were made."""

    def __init__(self, count: int, name: str) -> None:
        self._calls: SimpleQueue[ThreadCall] = SimpleQueue()
        self._threads = [Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def call(self, function: Callable[..., Result], *arguments: Any) -> asyncio.Future[Result]:
        """Run it on one of the threads. Cancelled before it begins, it never runs; later, it ends by itself."""
        return self._put(ThreadCall, function, arguments)

    async def close(self) -> None:
        """Let every call made so far end, and the threads with them."""
        ends = [self.call(_end) for _ in self._threads]
        for end in ends:
            await end
        for thread in self._threads:
            thread.join()  # it has nothing left to do but to return
        self._threads.clear()

    def _put(
        self, kind: type[ThreadCall], function: Callable[..., Result], arguments: tuple[Any, ...]
    ) -> asyncio.Future[Result]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._calls.put(kind(loop, future, function, arguments))
        return future

    def _work(self) -> None:
        while self._take(self._calls.get()):
            pass  # and no call is kept while the thread waits for its next one

    def _take(self, call: ThreadCall) -> bool:
        """Carry out this call; False if it was the last one."""
        if not call.future.cancelled():
            deliver([(call, call.carry_out())])
        return call.function is not _end


def deliver(outcomes: Iterable[tuple[ThreadCall, CallResult]]) -> None:
    """Answer calls, with one wake-up of the loop for all of them."""
    per_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], CallResult]]] = {}
    for call, outcome in outcomes:
        per_loop.setdefault(call.loop, []).append((call.future, outcome))
    for loop, answers in per_loop.items():
        # RuntimeError: the loop was closed meanwhile, nobody listens any more
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(answer, answers)


def answer(answers: Iterable[tuple[asyncio.Future[Any], CallResult]]) -> None:
    """Set the futures that nobody has cancelled."""
    for future, outcome in answers:
        if future.done():
            continue
        if outcome.error is None:
            future.set_result(outcome.result)
        else:
            future.set_exception(outcome.error)


RunGroup = Callable[[Sequence[ThreadCall]], Sequence[CallResult]]

GROUP_LIMIT = 16
"""Calls that are carried out together: the first of them waits for the last."""


class GroupedCall(ThreadCall):
    """A call that is carried out by `together`: with others, or alone where it is large."""


class SmallCall(GroupedCall):
    """A call that takes but a moment."""


class GroupCommitThread(Threads):
    """A thread that commits calls in groups. `together` carries out those that follow each other: an outcome for each,
    in order.
    """

    def __init__(self, name: str, together: RunGroup) -> None:
        self._together = together
        super().__init__(1, name)

    def group_call(self, is_small: bool, function: Callable[..., Result], *arguments: Any) -> asyncio.Future[Result]:
        """As `call`, carried out by `together`; `is_small`: it may share a group with others."""
        kind = SmallCall if is_small else GroupedCall
        return self._put(kind, function, arguments)

    def _take(self, call: ThreadCall) -> bool:
        if not isinstance(call, GroupedCall):
            return super()._take(call)
        group, behind = self._group(call)
        calls = [each for each in group if not each.future.cancelled()]
        if calls:
            deliver(zip(calls, self._together(calls), strict=True))
        return behind is None or self._take(behind)

    def _group(self, first: ThreadCall) -> tuple[list[ThreadCall], ThreadCall | None]:
        """The calls that are carried out with the first, and one that was taken from the line and goes behind them."""
        group = [first]
        while isinstance(group[-1], SmallCall) and len(group) < GROUP_LIMIT:
            call = self._next_waiting()
            if not isinstance(call, SmallCall):
                return group, call
            group.append(call)
        return group, None

    def _next_waiting(self) -> ThreadCall | None:
        try:
            return self._calls.get_nowait()
        except Empty:
            return None
