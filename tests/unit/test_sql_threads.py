"""Calls on threads: in order, let to their end, and unheard when the caller has gone."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pinlater.backends.sql.threads import Threads


async def test_calls_answer_and_fail_where_they_were_made() -> None:
    threads = Threads(2, "test")
    assert await asyncio.gather(*[threads.call(pow, 2, n) for n in range(10)]) == [2**n for n in range(10)]
    with pytest.raises(ZeroDivisionError):
        await threads.call(divmod, 1, 0)
    await threads.close()


async def test_close_lets_every_call_end_and_the_threads_with_them() -> None:
    before = threading.active_count()
    threads = Threads(2, "test")
    gate = threading.Event()
    calls = [threads.call(gate.wait, 5) for _ in range(4)]
    closing = asyncio.ensure_future(threads.close())
    await asyncio.sleep(0)
    assert not closing.done()
    gate.set()
    await closing
    assert [call.result() for call in calls] == [True] * 4
    assert threading.active_count() == before


async def test_a_call_whose_caller_is_gone_ends_by_itself_and_one_not_begun_never_runs() -> None:
    threads = Threads(1, "test")
    gate, ran = threading.Event(), []
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow() -> None:
        loop.call_soon_threadsafe(begun.set)
        gate.wait(5)
        ran.append("slow")

    running = threads.call(slow)
    waiting = threads.call(ran.append, "never")
    await begun.wait()
    running.cancel()
    waiting.cancel()
    gate.set()
    assert await threads.call(len, ran) == 1
    assert ran == ["slow"]
    await threads.close()
