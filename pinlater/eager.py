"""Tasks that begin at once, and futures whose one waiter goes on at once: asyncio's, without turns of the loop between.

asyncio's own task begins in the next round of the loop and enters a weak set that is written in Python: 4 µs, where
an EagerTask takes 1.4. Its future wakes the waiter a turn of the loop later: 4 µs and a poll of the sockets, at each
of the places that an answer of a store passes on its way to the caller. Everything else is asyncio's: to its coroutine
an EagerTask is the current task, so that `asyncio.timeout` works inside, and a task can await an InlineFuture.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.tasks import _enter_task, _leave_task  # documented in "Extending asyncio"
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import coroutine
from typing import Any, Generic, TypeVar

R = TypeVar("R")

_current_task: Callable[[asyncio.AbstractEventLoop], Any] = (
    asyncio.current_task if sys.version_info >= (3, 12) else asyncio.tasks._current_tasks.get  # type: ignore[attr-defined]
)
"""The former is written in Python before 3.12."""


class _Ended:
    """What a driver yields when the coroutine that it ran is over, with what that returned."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = None


@coroutine
def _drive() -> Generator[Any, Any, None]:
    """Runs one coroutine after the other: each is sent to it, and it yields what that waits for, and then an _Ended. So
    the end of a coroutine is no exception: StopIteration, caught in code of Python, costs as much as ten calls there.
    """
    ended = _Ended()
    while True:
        begun = yield ended
        ended.value = yield from begun


def _new_driver() -> Generator[Any, Any, None]:
    driver = _drive()
    driver.send(None)
    return driver


_IDLE_DRIVERS: list[Generator[Any, Any, None]] = []
"""As many as were ever at work at one time. One whose coroutine failed is not used again."""


class EagerTask:
    """`start` steps the coroutine until it waits for something; `on_done` is called when it is over, outside of it.

    As with asyncio's, the coroutine has context variables of its own, copied from where it was started. A subclass with
    an `__init__` of its own sets `_loop` and `is_done` there.
    """

    __slots__ = ("_cancels", "_context", "_driver", "_loop", "_must_cancel", "_over", "_waits_for", "is_done")
    _driver: Generator[Any, Any, None]
    _waits_for: asyncio.Future[Any] | None
    _over: asyncio.Future[None] | None

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.is_done = True
        """Nothing was started, or it is over."""

    def start(self, coroutine: Coroutine[Any, Any, Any], context: Context | None = None) -> None:
        """From outside of every task, or from within one, which is none of the coroutine's business. `context`: instead
        of a copy of the current one, which is that of an earlier task where this begins at its end.
        """
        self._driver = _IDLE_DRIVERS.pop() if _IDLE_DRIVERS else _new_driver()
        self._context = copy_context() if context is None else context
        self._over = None
        self._must_cancel = self.is_done = False
        self._cancels = 0
        outer = _current_task(self._loop)
        if outer is None:
            self._context.run(self._advance, coroutine)
            return
        _leave_task(self._loop, outer)
        try:
            self._context.run(self._advance, coroutine)
        finally:
            _enter_task(self._loop, outer)

    def on_done(self, value: Any, error: BaseException | None) -> None:
        """The coroutine is over: it returned this, or broke off with that error, a CancelledError for one."""
        if isinstance(error, Exception):
            self._loop.call_exception_handler({"message": "a call broke off", "exception": error})

    async def wait(self) -> None:
        """Until it is over. Of several callers each may leave without the others."""
        while not self.is_done:
            if self._over is None:
                self._over = self._loop.create_future()
            await asyncio.shield(self._over)

    # As asyncio.Task has them

    def cancel(self, msg: object = None) -> bool:
        if self.is_done:
            return False
        self._cancels += 1
        if self._waits_for is None or not self._waits_for.cancel():
            self._must_cancel = True
        return True

    def cancelling(self) -> int:
        return self._cancels

    def uncancel(self) -> int:
        self._cancels = max(0, self._cancels - 1)
        return self._cancels

    # Stepping

    def _step(self, _: object = None) -> None:
        self._advance(None)

    def _advance(self, begins: Coroutine[Any, Any, Any] | None) -> None:
        """Until it waits for something, or is over. `begins`: what the driver is to run, at first."""
        driver, loop = self._driver, self._loop
        self._waits_for = None
        error: BaseException | None = None
        _enter_task(loop, self)  # type: ignore[arg-type]
        try:
            if self._must_cancel:
                self._must_cancel = False
                waits_for = driver.throw(asyncio.CancelledError())
            else:
                waits_for = driver.send(begins)
        except (Exception, asyncio.CancelledError) as failure:
            error = failure
        finally:
            _leave_task(loop, self)  # type: ignore[arg-type]
        if error is not None or waits_for.__class__ is _Ended:
            self.is_done = True
            if self._over is not None:
                self._over.set_result(None)
            value = None
            if error is None:
                value, waits_for.value = waits_for.value, None
                _IDLE_DRIVERS.append(driver)
            try:
                self.on_done(value, error)
            finally:
                del error  # which keeps this frame
        elif waits_for is None:  # a sleep of no length
            loop.call_soon(self._step, context=self._context)
        else:
            waits_for._asyncio_future_blocking = False
            waits_for.add_done_callback(self._step, context=self._context)
            self._waits_for = waits_for
            if self._must_cancel and waits_for.cancel():
                self._must_cancel = False


class InlineFuture(Generic[R]):
    """For a task, or what is stepped like one. Who settles it lets the waiter run within that call, so has done before
    what must be done first.
    """

    __slots__ = ("_asyncio_future_blocking", "_context", "_error", "_is_done", "_loop", "_value", "_wake")
    _value: R

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._error: BaseException | None = None
        self._is_done = False
        self._wake: Callable[[Any], object] | None = None

    def done(self) -> bool:
        """Settled, or its waiter has left."""
        return self._is_done

    def set_result(self, value: R) -> None:
        self._value = value
        self._is_done = True
        if self._wake is not None:
            self._go_on()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._is_done = True
        if self._wake is not None:
            self._go_on()

    def _go_on(self) -> None:
        wake, loop = self._wake, self._loop
        assert wake is not None
        self._wake = None
        outer = _current_task(loop)
        if outer is not None:
            _leave_task(loop, outer)
        try:
            if self._context is None:
                wake(self)
            else:
                self._context.run(wake, self)
        except Exception as error:  # of who waited, and none of the business of who settles it
            loop.call_exception_handler({"message": "who waited for an answer failed", "exception": error})
        finally:
            if outer is not None:
                _enter_task(loop, outer)

    # What asyncio asks of a future

    def cancel(self, msg: object = None) -> bool:
        """The waiter leaves."""
        if self._is_done:
            return False
        self._error = asyncio.CancelledError()
        self._is_done = True
        if self._wake is not None:
            self._loop.call_soon(self._go_on)
        return True

    def add_done_callback(self, wake: Callable[[Any], object], *, context: Context | None = None) -> None:
        self._wake, self._context = wake, context
        if self._is_done:  # between the moment at which it was waited for and this
            self._loop.call_soon(self._go_on)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def result(self) -> R:
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error, self  # the error keeps this frame, and the frame would keep the error
        return self._value

    def __await__(self) -> Generator[Any, None, R]:
        if not self._is_done:
            if self._wake is not None:
                raise RuntimeError("another caller awaits this already: an InlineFuture has one waiter")
            self._asyncio_future_blocking = True
            yield self
        return self.result()


@coroutine
def after_first_suspend(call: Coroutine[Any, Any, R], then: Callable[[], object]) -> Generator[Any, Any, R]:
    """Await the call; `then` runs as soon as it waits for something, and not at all where it never does.

    `then` must not raise. The answer may come while it runs.
    """
    try:
        waits_for = call.send(None)
        then()
        while True:
            try:
                yield waits_for
            except BaseException as error:
                waits_for = call.throw(error)
            else:
                waits_for = call.send(None)
    except StopIteration as end:
        result: R = end.value
        return result
