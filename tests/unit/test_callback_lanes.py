"""How many callbacks are made at once, of an owner that is alone and of several."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial

from pinlater.background_tasks import BackgroundTasks
from pinlater.flows.callback_lanes import AT_ONCE, CallbackLanes

MANY = 2 * AT_ONCE


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0)


async def test_an_owner_alone_has_a_hundred_places_and_leaves_some_to_whoever_comes() -> None:
    tasks, begun, over = BackgroundTasks(), Counter[str](), asyncio.Event()

    async def work(owner: str, answer: asyncio.Event) -> bool:
        begun[owner] += 1
        await answer.wait()
        return True

    async def until_begun(owner: str, amount: int) -> None:
        await until(lambda: begun[owner] >= amount)

    lanes = CallbackLanes(tasks)
    for _ in range(MANY):
        assert lanes.add("alone", "hangs.example", partial(work, "alone", over))
    await until_begun("alone", 100)
    for _ in range(AT_ONCE):
        assert lanes.add("other", "hangs.example", partial(work, "other", over))
    await until_begun("other", 10)
    assert begun["alone"] == 100
    over.set()
    await until_begun("alone", MANY)
    await until_begun("other", AT_ONCE)
    await tasks.drain()


async def test_a_receiver_that_was_not_asked_stays_among_the_quick_ones() -> None:
    tasks, hanging, over = BackgroundTasks(), [], asyncio.Event()
    lanes = CallbackLanes(tasks)
    made: list[bool | None] = []

    async def make(outcome: bool | None) -> bool | None:
        made.append(outcome)
        return outcome

    async def hang(number: int) -> bool:
        hanging.append(number)
        await over.wait()
        return False

    for number, outcome in enumerate((True, None), 1):
        assert lanes.add("calm", "quick.example", partial(make, outcome))
        await until(lambda number=number: len(made) == number and not len(tasks))  # type: ignore[misc]
    for number in range(AT_ONCE):
        lanes.add(f"flood-{number}", f"hangs-{number}.example", partial(hang, number))
    await until(lambda: len(hanging) == AT_ONCE // 2)
    assert lanes.add("calm", "quick.example", partial(make, True))
    await until(lambda: len(made) == 3)
    assert len(hanging) == AT_ONCE // 2
    over.set()
    await tasks.cancel()
