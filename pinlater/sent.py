"""Doing something the moment a call has been sent, before its answer is waited for."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

R = TypeVar("R")


@coroutine
def when_sent(call: Coroutine[Any, Any, R], then: Callable[[], object]) -> Generator[Any, Any, R]:
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
