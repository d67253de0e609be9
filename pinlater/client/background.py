"""An AsyncClient for callers that have no loop of their own: run by hand in their threads where that can be done
(straight_calls.py), else on an event loop in a daemon thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from pinlater.client.async_client import AsyncClient, straight_dispatcher
from pinlater.client.straight_calls import NEEDS_LOOP, StraightWay
from pinlater.held_up_loop import calling_line, holds_up_loop
from pinlater.log_guard import GuardedLogger, guard_loop

P = ParamSpec("P")
ResultT = TypeVar("ResultT")
_CLOSING_S = 5.0

_log = GuardedLogger("pinlater.client")
_BLOCKS = (
    "%s() of a Client blocks the event loop at %s: nothing else there goes on until a server has answered, which may "
    "take as long as the timeout. Await %s of an AsyncClient, or the call of the worker framework that ends in _async, "
    "as in await job.enqueue_async(...) (said once for each such call)"
)
SAID: set[str] = set()
"""Calls that were said to block an event loop."""


class BackgroundClient:
    """Runs the calls of an AsyncClient for any number of threads.

    The loop's thread starts with the first call that needs it. A child process after a fork begins anew with
    connections of its own.
    """

    def __init__(self, make: Callable[[], AsyncClient]) -> None:
        self._make = make
        self._begin()
        _instances.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self.client = self._make()
        dispatcher = straight_dispatcher(self.client)
        self._straight = None if dispatcher is None else StraightWay(self.client, dispatcher)
        self._finalizers: list[weakref.finalize[..., BackgroundClient]] = []
        if self._straight is not None:
            self._finalizers.append(weakref.finalize(self, self._straight.end))

    def run(
        self,
        method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, ResultT]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> ResultT:
        """What a method of AsyncClient returns or raises. Interrupted (Ctrl-C), the call is given up."""
        _say_if_it_blocks(method.__name__)
        if self._straight is None or method.__name__ in NEEDS_LOOP:
            return self._on_loop(partial(method, self.client, *args, **kwargs))
        if self._closed:
            raise RuntimeError("this client is closed")
        return self._straight.run(method, self._on_loop, *args, **kwargs)

    def iterate(
        self,
        method: Callable[Concatenate[AsyncClient, P], AsyncIterator[ResultT]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Iterator[ResultT]:
        """What a method of AsyncClient yields, each when it is asked for."""
        values = method(self.client, *args, **kwargs)
        _say_if_it_blocks(method.__name__)
        while (value := self._on_loop(partial(anext, values, None))) is not None:
            yield value

    def close(self) -> None:
        """Closes every connection and ends the thread. May be called twice."""
        with self._lock:
            self._closed = True
            for finalizer in self._finalizers:
                finalizer()

    def _on_loop(self, begin: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """What the loop makes of it."""
        loop = self._running_loop()

        async def awaited() -> ResultT:
            return await begin()

        future = asyncio.run_coroutine_threadsafe(awaited(), loop)
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError("the client was closed") from None
        except BaseException:
            future.cancel()
            raise

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise RuntimeError("this client is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                guard_loop(self._loop)
                thread = threading.Thread(target=self._loop.run_forever, name="pinlater-client", daemon=True)
                thread.start()
                self._finalizers.append(weakref.finalize(self, _end, self._loop, thread, self.client))
            return self._loop

    def after_fork(self) -> None:
        """The parent's loop and connections stay untouched: to close them would act on what the parent uses."""
        for finalizer in self._finalizers:
            finalizer.detach()
        _inherited.append((self._loop, self.client))
        closed = self._closed
        self._begin()
        self._closed = closed


def _say_if_it_blocks(call: str) -> None:
    if asyncio._get_running_loop() is not None and call not in SAID and holds_up_loop():
        SAID.add(call)
        _log.warning(_BLOCKS, call, calling_line(), call)


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, client: AsyncClient) -> None:
    if threading.current_thread() is thread:  # collected by the loop's own thread, which cannot wait for itself
        loop.stop()
        return
    asyncio.run_coroutine_threadsafe(_finish(client), loop).result(_CLOSING_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(_CLOSING_S)
    loop.close()


async def _finish(client: AsyncClient) -> None:
    """Closes the client; other threads that still wait are told."""
    await client.close()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def _after_fork() -> None:
    for instance in list(_instances):
        instance.after_fork()


_instances: weakref.WeakSet[BackgroundClient] = weakref.WeakSet()
_inherited: list[object] = []
if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_after_fork)
