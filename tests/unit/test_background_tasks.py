"""Tasks that nobody awaits."""

from __future__ import annotations

import asyncio

from pinlater.background_tasks import BackgroundTasks


async def test_what_begins_while_others_are_waited_for_is_waited_for_too() -> None:
    tasks, done = BackgroundTasks(), []

    async def chain(left: int) -> None:
        await asyncio.sleep(0)
        done.append(left)
        if left:
            tasks.start(chain(left - 1))

    tasks.start(chain(3))
    assert len(tasks) == 1
    await tasks.drain()
    assert done == [3, 2, 1, 0]
    assert len(tasks) == 0


async def test_waiting_ends_with_its_time_and_breaks_nothing_off() -> None:
    tasks = BackgroundTasks()
    task = tasks.start(asyncio.Event().wait())
    await tasks.drain(0.01)
    assert not task.done()
    assert list(tasks) == [task]
    await tasks.cancel()
    assert task.cancelled()
    assert len(tasks) == 0


async def test_a_task_that_fails_is_kept_no_longer_and_hurts_no_other() -> None:
    tasks = BackgroundTasks()

    async def fail() -> None:
        raise ValueError("its own business")

    failing, other = tasks.start(fail()), tasks.start(asyncio.sleep(0.01, "done"))
    await tasks.drain()
    assert isinstance(failing.exception(), ValueError)
    assert other.result() == "done"
