"""The threads of simulated processes: what they would do is done at once, at the moment in which it is asked for.

A transaction on SQLite takes no virtual time by itself; what it takes, the network of the simulation adds.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pinlater.backends.sql.threads import CallResult, ThreadCall

R = TypeVar("R")


def at_once(loop: asyncio.AbstractEventLoop, function: Callable[..., R], *arguments: Any) -> asyncio.Future[R]:
    """The outcome of a call as of one that has run on a thread."""
    return _ended(loop, CallResult(*_outcome(function, arguments)))


def _outcome(function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[Any, BaseException | None]:
    try:
        return function(*arguments), None
    except BaseException as error:
        return None, error


def _ended(loop: asyncio.AbstractEventLoop, outcome: CallResult) -> asyncio.Future[Any]:
    future = loop.create_future()
    if outcome.error is None:
        future.set_result(outcome.result)
    else:
        future.set_exception(outcome.error)
    return future


class GroupCommitThread:
    """In the place of `pinlater.backends.sql.threads.GroupCommitThread`: each call is a group."""

    def __init__(self, name: str, together: Callable[[Sequence[ThreadCall]], Sequence[CallResult]]) -> None:
        self._together = together

    def call(self, function: Callable[..., R], *arguments: Any) -> asyncio.Future[R]:
        return at_once(asyncio.get_running_loop(), function, *arguments)

    def group_call(self, is_small: bool, function: Callable[..., R], *arguments: Any) -> asyncio.Future[R]:
        loop = asyncio.get_running_loop()
        call = ThreadCall(loop, loop.create_future(), function, arguments)
        return _ended(loop, self._together([call])[0])

    async def close(self) -> None:
        """Nothing is under way."""


class InlineExecutor(concurrent.futures.Executor):
    """In the place of a `ThreadPoolExecutor`."""

    def __init__(self, *_arguments: Any, **_named: Any) -> None:
        """As many threads as may be, of whatever name."""

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[R]:
        future: concurrent.futures.Future[R] = concurrent.futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future
