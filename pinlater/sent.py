"""Doing something the moment a call has been sent, before its answer is waited for."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

R = TypeVar("R")


@coroutine
def when_sent(call: Coroutine[Any, Any, R], then: Callable[[], object]) -> Generator[Any, Any, R]:
    """Await the call; `then` runs as soon as it waits for something, and not at all where it never does.

    `then` may settle nothing that the call waits for, and must not raise.
    """
    try:
        waits_for = call.send(None)
    except StopIteration as end:
        result: R = end.value
        return result
    then()
    while True:
        try:
            yield waits_for
        except BaseException as error:
            go_on = call.throw, error
        else:
            go_on = call.send, None
        try:
            waits_for = go_on[0](go_on[1])  # type: ignore[operator]
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
