"""A call under way: begun at once, stepped by what it waits for, cancelled like a task."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from pinlater.eager import EagerTask
from pinlater.model import ConnectionRef
from pinlater.server.pending import PendingCall


class Noting(EagerTask):
    __slots__ = ("ends", "error", "value")

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop())
        self.ends = 0

    def on_done(self, value: Any, error: BaseException | None) -> None:
        self.ends += 1
        self.value, self.error = value, error


async def begun(coroutine: Coroutine[Any, Any, Any]) -> Noting:
    """Begun as a connection does it: by the loop, outside of every task."""
    work = Noting()
    asyncio.get_running_loop().call_soon(work.start, coroutine)
    await asyncio.sleep(0)
    return work


async def test_what_waits_for_nothing_is_over_at_once() -> None:
    seen: list[str] = []

    async def call() -> None:
        seen.append("called")

    work = await begun(call())
    assert (seen, work.is_done, work.ends) == (["called"], True, 1)
    assert not work.cancel()
    await work.wait()


async def test_it_goes_on_when_what_it_waits_for_is_there() -> None:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()
    seen: list[str] = []

    async def call() -> None:
        await asyncio.sleep(0)
        seen.append(await answer)
        with pytest.raises(ValueError, match="no"):
            await refused
        seen.append("refused")

    refused: asyncio.Future[None] = loop.create_future()
    work = await begun(call())
    answer.set_result("there")
    refused.set_exception(ValueError("no"))
    await work.wait()
    assert (seen, work.ends) == (["there", "refused"], 1)


async def test_cancelling_reaches_what_it_waits_for() -> None:
    seen: list[str] = []

    async def call() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    work = await begun(call())
    assert work.cancel()
    await work.wait()
    assert (seen, work.ends) == (["cancelled"], 1)


async def test_cancelling_counts_also_when_the_answer_is_there_already() -> None:
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    seen: list[str] = []

    async def call() -> None:
        try:
            await answer
            seen.append("answered")
        except asyncio.CancelledError:
            seen.append("cancelled")

    work = await begun(call())
    answer.set_result(None)
    work.cancel()
    await work.wait()
    assert seen == ["cancelled"]


async def test_a_bounded_wait_inside_ends() -> None:
    seen: list[object] = []

    async def call() -> None:
        seen.append(asyncio.current_task())
        try:
            async with asyncio.timeout(0.001):
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            seen.append("over")

    work = await begun(call())
    await work.wait()
    assert seen == [work, "over"]


async def test_it_tells_what_the_call_returned_or_why_it_broke_off() -> None:
    async def call() -> str:
        await asyncio.sleep(0)
        return "done"

    async def broken() -> None:
        raise RuntimeError("broken")

    work = await begun(call())
    await work.wait()
    assert (work.value, work.error) == ("done", None)
    work = await begun(broken())
    assert (work.value, str(work.error), work.ends) == (None, "broken", 1)


async def test_begun_by_a_task_it_is_a_task_of_its_own() -> None:
    seen: list[object] = []

    async def call() -> None:
        seen.append(asyncio.current_task())

    work = Noting()
    work.start(call())
    assert seen == [work]
    assert isinstance(asyncio.current_task(), asyncio.Task)


async def test_a_call_of_a_connection_that_breaks_off_is_told_to_the_loop() -> None:
    told: list[dict[str, Any]] = []
    ended: list[PendingCall] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context))

    async def call() -> None:
        raise RuntimeError("broken")

    pending = PendingCall(loop, ended.append, 0, None, ConnectionRef())
    pending.start(call())
    assert [str(context["exception"]) for context in told] == ["broken"]
    assert ended == [pending]
