"""Work beside the calls: a set of tasks that nobody awaits, and the pauses between tries that fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, TypeVar

R = TypeVar("R")


class BackgroundTasks:
    """Tasks that are kept until they are done; the event loop alone keeps them only weakly.

    What a task raises is the business of the task.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        """Those under way now."""
        return iter([*self._tasks])

    def start(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def add(self, task: asyncio.Task[R]) -> asyncio.Task[R]:
        """Keep a task that is under way."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def drain(self, timeout_s: float | None = None) -> None:
        """Wait until none is under way, those included that begin meanwhile; or so long."""
        loop = asyncio.get_running_loop()
        ends_at = None if timeout_s is None else loop.time() + timeout_s
        while self._tasks and (ends_at is None or loop.time() < ends_at):
            await asyncio.wait(self._tasks, timeout=None if ends_at is None else ends_at - loop.time())

    async def cancel(self) -> None:
        """Break off what is under way, and wait for its end."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def in_daemon_thread(call: Callable[[], R]) -> R:
    """What `call` returns or raises, in a thread that never holds up the end of the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[R] = loop.create_future()

    def settle(result: R | None, error: Exception | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)  # type: ignore[arg-type]
        else:
            done.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = call()
        except Exception as error:
            failure = error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name="pinlater-beside", daemon=True).start()
    return await done


def exponential_backoff_s(failures: int, first_s: float, longest_s: float) -> float:
    """The pause after so many failures in a row: doubled with each, up to the longest; 0 after none.

    >>> [exponential_backoff_s(failures, 0.5, 3.0) for failures in (0, 1, 2, 3, 4, 10_000)]
    [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]
    """
    return min(longest_s, first_s * 2.0 ** min(failures - 1, 16)) if failures > 0 else 0.0
