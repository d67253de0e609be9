"""What is done the moment a call has been sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pinlater.eager import InlineFuture, after_first_suspend


async def awaited(call: Coroutine[Any, Any, Any], then: Callable[[], object]) -> Any:
    """As its callers do: a task of its own takes coroutines alone, from Python 3.12 on."""
    return await after_first_suspend(call, then)


async def test_it_is_done_when_the_call_waits_and_before_its_answer() -> None:
    answers: list[InlineFuture[str]] = []
    seen: list[str] = []

    async def call() -> str:
        for number in (1, 2):
            answers.append(InlineFuture(asyncio.get_running_loop()))
            seen.append(f"sent {number}")
            seen.append(await answers[-1])
        return "done"

    task = asyncio.create_task(awaited(call(), lambda: seen.append("then")))
    await asyncio.sleep(0)
    assert seen == ["sent 1", "then"]
    answers[0].set_result("answer 1")
    assert seen[2:] == ["answer 1", "sent 2"]
    answers[1].set_result("answer 2")
    assert await task == "done"


async def test_a_call_that_waits_for_nothing_returns_and_nothing_is_done() -> None:
    async def call() -> int:
        return 7

    assert await after_first_suspend(call(), lambda: pytest.fail("it was never sent")) == 7


async def test_the_answer_may_come_while_it_is_done() -> None:
    promise: InlineFuture[str] = InlineFuture(asyncio.get_running_loop())

    async def call() -> str:
        return await promise

    assert await after_first_suspend(call(), lambda: promise.set_result("at once")) == "at once"


async def test_an_error_reaches_the_call_and_the_caller() -> None:
    promise: InlineFuture[None] = InlineFuture(asyncio.get_running_loop())
    seen: list[str] = []

    async def call() -> None:
        try:
            await promise
        except ValueError:
            seen.append("refused")
            await asyncio.sleep(0)
            raise

    task = asyncio.create_task(awaited(call(), lambda: None))
    await asyncio.sleep(0)
    promise.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await task
    assert seen == ["refused"]


async def test_a_caller_that_leaves_takes_the_call_with_it() -> None:
    seen: list[str] = []

    async def call() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            seen.append("left")

    task = asyncio.create_task(awaited(call(), lambda: None))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert seen == ["left"]
