"""A call under way: begun at once, stepped by what it waits for, cancelled like a task."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

from pinlater.eager import EagerTask, InlineFuture


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


async def test_several_wait_for_its_end_and_one_that_leaves_takes_nobody_with_it() -> None:
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def call() -> None:
        await answer

    work = await begun(call())
    first, second, leaver = (asyncio.create_task(work.wait()) for _ in range(3))
    await asyncio.sleep(0)
    leaver.cancel()
    await asyncio.sleep(0)
    assert (first.done(), second.done(), leaver.cancelled()) == (False, False, True)
    answer.set_result(None)
    async with asyncio.timeout(60):
        await first
        await second
    assert work.is_done


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


async def test_an_error_that_nobody_takes_is_told_to_the_loop() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    async def call() -> None:
        raise RuntimeError("broken")

    EagerTask(asyncio.get_running_loop()).start(call())
    assert [str(context["exception"]) for context in told] == ["broken"]


async def test_context_variables_stay_with_the_call_that_set_them() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="unset")
    answers: list[asyncio.Future[None]] = [asyncio.get_running_loop().create_future() for _ in range(2)]
    inline: InlineFuture[None] = InlineFuture(asyncio.get_running_loop())
    seen: dict[str, list[str]] = {"one": [], "two": []}

    async def call(name: str, answer: asyncio.Future[None]) -> None:
        seen[name].append(variable.get())
        variable.set(name)
        await asyncio.sleep(0)
        seen[name].append(variable.get())
        await answer
        seen[name].append(variable.get())
        if name == "one":
            await inline
            seen[name].append(variable.get())

    works = [await begun(call(name, answer)) for name, answer in zip(("one", "two"), answers, strict=True)]
    for answer in answers:
        answer.set_result(None)
    for _ in range(3):
        await asyncio.sleep(0)
    inline.set_result(None)
    for work in works:
        await work.wait()
    assert seen == {"one": ["unset", "one", "one", "one"], "two": ["unset", "two", "two"]}
    assert variable.get() == "unset"
