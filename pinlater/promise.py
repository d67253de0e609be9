"""A future with one waiter, who goes on at once when it is settled.

asyncio's own wakes who waits a turn of the loop later: 4 µs and a poll of the sockets, at each of the places that an
answer of a store passes on its way to the caller.
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import _enter_task, _leave_task  # documented in "Extending asyncio"
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any, Generic, TypeVar

R = TypeVar("R")


class Promise(Generic[R]):
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
        outer = asyncio.current_task(loop)
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
            self._asyncio_future_blocking = True
            yield self
        return self.result()
