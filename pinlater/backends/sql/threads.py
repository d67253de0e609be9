"""Threads that run blocking calls for an event loop. A hop costs some 30 microseconds: it is paid per batch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

Result = TypeVar("Result")
_Call = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]


def _end() -> None:
    """The last call that a thread takes."""


class Threads:
    """`count` threads with one queue before them. Calls begin in the order in which they were made."""

    def __init__(self, count: int, name: str) -> None:
        self._calls: SimpleQueue[_Call] = SimpleQueue()
        self._threads = [Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def call(self, function: Callable[..., Result], *arguments: Any) -> asyncio.Future[Result]:
        """Run it on one of the threads. Cancelled before it begins, it never runs; later, it ends by itself."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._calls.put((loop, future, function, arguments))
        return future

    async def close(self) -> None:
        """Let every call made so far end, and the threads with them."""
        ends = [self.call(_end) for _ in self._threads]
        for end in ends:
            await end
        for thread in self._threads:
            thread.join()  # it has nothing left to do but to return
        self._threads.clear()

    def _work(self) -> None:
        function: Callable[..., Any] | None = None
        while function is not _end:
            loop, future, function, arguments = self._calls.get()
            if not future.cancelled():
                _run(loop, future, function, arguments)
            del loop, future, arguments  # else they live on while the thread waits for its next call


def _run(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any],
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    try:
        result = function(*arguments)
    except BaseException as error:
        _tell(loop, _fail, future, error)
    else:
        _tell(loop, _answer, future, result)


def _tell(loop: asyncio.AbstractEventLoop, how: Callable[[Any, Any], None], future: Any, outcome: Any) -> None:
    # RuntimeError: the loop was closed meanwhile, nobody listens any more
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(how, future, outcome)


def _answer(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
