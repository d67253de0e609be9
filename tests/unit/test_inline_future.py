"""A future whose one waiter goes on at once: as a task and as what is stepped like one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from pinlater.eager import EagerTask, InlineFuture


def begun_as_work(coroutine: Coroutine[Any, Any, None]) -> EagerTask:
    work = EagerTask(asyncio.get_running_loop())
    work.start(coroutine)
    return work


async def begun(kind: str, coroutine: Coroutine[Any, Any, None]) -> EagerTask | asyncio.Task[None]:
    begun = begun_as_work(coroutine) if kind == "work" else asyncio.create_task(coroutine)
    await asyncio.sleep(0)
    return begun


@pytest.mark.parametrize("kind", ["work", "task"])
async def test_its_waiter_has_gone_on_when_it_is_settled(kind: str) -> None:
    promise: InlineFuture[str] = InlineFuture(asyncio.get_running_loop())
    seen: list[object] = []

    async def wait() -> None:
        seen.append(await promise)
        seen.append(asyncio.current_task())

    waiter = await begun(kind, wait())
    mine = asyncio.current_task()
    promise.set_result("there")
    assert seen == ["there", waiter]
    assert asyncio.current_task() is mine
    assert await promise == "there"


@pytest.mark.parametrize("kind", ["work", "task"])
async def test_an_error_reaches_its_waiter(kind: str) -> None:
    promise: InlineFuture[str] = InlineFuture(asyncio.get_running_loop())
    seen: list[str] = []

    async def wait() -> None:
        try:
            await promise
        except ValueError as error:
            seen.append(str(error))

    await begun(kind, wait())
    promise.set_exception(ValueError("no"))
    assert seen == ["no"]


@pytest.mark.parametrize("kind", ["work", "task"])
async def test_a_waiter_that_is_cancelled_leaves_and_nothing_more_is_to_be_settled(kind: str) -> None:
    promise: InlineFuture[str] = InlineFuture(asyncio.get_running_loop())
    seen: list[str] = []

    async def wait() -> None:
        try:
            await promise
        except asyncio.CancelledError:
            seen.append("left")
            raise

    waiter = await begun(kind, wait())
    assert waiter.cancel()
    assert (promise.done(), seen) == (True, [])
    for _ in range(2):
        await asyncio.sleep(0)
    assert seen == ["left"]
    assert not promise.cancel()


async def test_what_was_settled_before_is_not_waited_for() -> None:
    promise: InlineFuture[int] = InlineFuture(asyncio.get_running_loop())
    promise.set_result(7)
    ran: list[str] = []
    asyncio.get_running_loop().call_soon(ran.append, "a turn of the loop")
    assert await promise == 7
    assert ran == []


async def test_who_comes_after_it_is_settled_goes_on_soon() -> None:
    """As one that a task has been told of, and that is settled before the task asks to be woken."""
    promise: InlineFuture[str] = InlineFuture(asyncio.get_running_loop())
    woken: list[object] = []
    promise.set_result("there")
    promise.add_done_callback(woken.append)
    assert woken == []
    await asyncio.sleep(0)
    assert woken == [promise]


async def test_a_second_waiter_is_refused_and_the_first_goes_on() -> None:
    promise: InlineFuture[str] = InlineFuture(asyncio.get_running_loop())

    async def wait() -> str:
        return await promise

    first = asyncio.create_task(wait())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="one waiter"):
        await promise
    promise.set_result("there")
    assert await first == "there"
