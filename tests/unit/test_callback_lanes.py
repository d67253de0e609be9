"""How many callbacks are made at once, of an owner that is alone and of several."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

from pinlater.background_tasks import BackgroundTasks
from pinlater.flows.callback_lanes import AT_ONCE, CallbackLanes

MANY = 2 * AT_ONCE


async def test_an_owner_alone_has_a_hundred_places_and_leaves_some_to_whoever_comes() -> None:
    tasks, begun, over = BackgroundTasks(), Counter[str](), asyncio.Event()

    async def work(owner: str, answer: asyncio.Event) -> bool:
        begun[owner] += 1
        await answer.wait()
        return True

    async def until_begun(owner: str, amount: int) -> None:
        async with asyncio.timeout(60):
            while begun[owner] < amount:
                await asyncio.sleep(0)

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
