"""Rounds of pollers that fail or hang: those who wait are served late, and operators are told why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from pinlater.errors import NothingStored
from pinlater.model import DequeuedJob, DequeueRequest, Job
from pinlater.service import ServiceSettings
from tests.unit.breaking import HeldTime, settled
from tests.unit.stand import ME, Stand, stand

WAIT_MS = 3_600_000
OFTEN = ServiceSettings(poll_min_ms=1_000, poll_max_ms=2_000, max_wait_ms=WAIT_MS)
WELL_S = 0.4
"""Less than a round may take before it is told of."""


async def in_line(at: Stand, queue: str = "mail") -> asyncio.Task[list[DequeuedJob]]:
    waiting = at.service.waiting
    task = asyncio.create_task(at.service.dequeue(DequeueRequest(queue, 1, wait_ms=WAIT_MS), context=ME))
    while at.service.waiting == waiting:
        await asyncio.sleep(0)
    return task


def events(logs: list[Any], name: str) -> list[Any]:
    return [each for each in logs if each["event"] == name]


def has_told(logs: list[Any], name: str, times: int = 1) -> bool:
    return len(events(logs, name)) == times


async def until_told(time_of_loop: HeldTime, is_told: Callable[[], bool]) -> None:
    for _ in range(400):
        if is_told():
            return
        await time_of_loop.leap(0.25)
    pytest.fail("nothing was told in 100 s")


async def test_a_round_that_fails_is_told_of_for_each_queue() -> None:
    async with stand(settings=OFTEN) as at:
        store = at.stores[0]
        await at.service.create_queue("post")
        time_of_loop = HeldTime(store)
        waiting = [await in_line(at), await in_line(at), await in_line(at, "post")]
        await settled()
        with capture_logs() as logs:
            for number, queue in enumerate(("mail", "post"), 1):
                store.failures["claim"] = [NothingStored("this claim was refused")]
                await at.service.enqueue(queue, [Job(b"x"), Job(b"x")])
                await until_told(time_of_loop, partial(has_told, logs, "dequeue_round_failed", number))
            told = events(logs, "dequeue_round_failed")
            assert [each["log_level"] for each in told] == ["warning"] * 2
            assert {each["queue"]: each["waiters"] for each in told} == {"mail": 2, "post": 1}
            assert all("this claim was refused" in each["error"] for each in told)
        await time_of_loop.leap(2.5)
        assert [len(jobs) for jobs in await asyncio.gather(*waiting)] == [1, 1, 1]


async def test_rounds_without_a_shard_are_told_of_once_a_minute_in_all() -> None:
    async with stand(settings=OFTEN) as at:
        queues = ["mail", "post", "news"]
        for queue in queues[1:]:
            await at.service.create_queue(queue)
        time_of_loop = HeldTime(at.stores[0])
        waiting = [await in_line(at, queue) for queue in queues]
        with capture_logs() as logs:
            at.members.all[0].eject("gone")
            await until_told(time_of_loop, partial(has_told, logs, "dequeue_round_failed"))
            await time_of_loop.leap(30.0)
            await time_of_loop.leap(2.5)
            assert len(events(logs, "dequeue_round_failed")) == 1
            await time_of_loop.leap(30.0)
            await until_told(time_of_loop, partial(has_told, logs, "dequeue_round_failed", 2))
        assert events(logs, "dequeue_round_failed")[1]["left_out"] >= 2
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_claim_that_hangs_is_told_of_while_it_does_and_when_it_is_over() -> None:
    async with stand(settings=OFTEN) as at:
        store = at.stores[0]
        waiting = [await in_line(at) for _ in range(3)]
        await settled()
        with capture_logs() as logs:
            late, begun = store.hold_answer("claim"), store.begun["claim"]
            await at.service.enqueue("mail", [Job(b"x") for _ in range(3)])
            await store.until_begun("claim", begun + 1)
            await store.until_quiet()
            time_of_loop = HeldTime(store)
            await time_of_loop.leap(WELL_S)
            assert events(logs, "dequeue_round_hangs") == []
            await until_told(time_of_loop, partial(has_told, logs, "dequeue_round_hangs"))
            await time_of_loop.leap(1.5)
            (hangs,) = events(logs, "dequeue_round_hangs")
            assert (hangs["log_level"], hangs["queue"], hangs["doing"]) == ("warning", "mail", "claiming")
            assert (hangs["waiters"], hangs["for_s"] >= 1.0) == (3, True)
            assert at.service.long_polls.longest_round_s() >= 2.5
            late.set()
            assert [len(jobs) for jobs in await asyncio.gather(*waiting)] == [1, 1, 1]
        (slow,) = events(logs, "dequeue_round_slow")
        assert (slow["queue"], slow["took_s"] >= 2.5) == ("mail", True)
        assert at.service.long_polls.longest_round_s() == 0.0


async def test_rounds_that_go_well_are_not_told_of() -> None:
    async with stand(settings=OFTEN) as at:
        time_of_loop = HeldTime(at.stores[0])
        with capture_logs() as logs:
            for _ in range(5):
                waiting = await in_line(at)
                await time_of_loop.leap(WELL_S)
                await at.service.enqueue("mail", [Job(b"x")])
                assert len(await waiting) == 1
        assert [each for each in logs if each["event"].startswith("dequeue_round")] == []
