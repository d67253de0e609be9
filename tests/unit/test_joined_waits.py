"""Callers that wait for ends of jobs, over look-ups that the test answers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import pytest

from pinlater.client.joined_waits import LONG_CALLS, LONGEST_WAIT_MS, MANY_BYTES, SHORT_WAIT_MS, JoinedWaits
from pinlater.errors import Draining, RequestInvalid, ShardConnectionFailed
from pinlater.model import JobInfo, JobState

NAMES = [f"mail:s{number % 2 + 1}:p1:179000000000000{number}" for number in range(9)]


def info(name: str, state: JobState = JobState.SUCCEEDED, result: bytes | None = None) -> JobInfo:
    return JobInfo(name, state, 1, 2, 2, "", 1, 1, 1, result=result)


class Lookups:
    """The calls under way, in order, each to be answered."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], int]] = []
        self.answers: list[asyncio.Future[dict[str, JobInfo]]] = []

    async def __call__(self, names: Sequence[str], wait_ms: int) -> dict[str, JobInfo]:
        self.asked.append((list(names), wait_ms))
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]

    async def calls(self, number: int) -> None:
        while len(self.asked) < number:
            await asyncio.sleep(0)

    def answer(self, number: int, *infos: JobInfo) -> None:
        self.answers[number].set_result({each.descriptor: each for each in infos})


async def test_those_of_one_moment_share_a_call_and_travel_on_together() -> None:
    lookups = Lookups()
    waits = JoinedWaits(lookups)
    first, second, again = (waits.wait(name, math.inf) for name in (NAMES[0], NAMES[1], NAMES[0]))
    await lookups.calls(1)
    assert lookups.asked == [(NAMES[:2], LONGEST_WAIT_MS)]
    lookups.answer(0, info(NAMES[0]), info(NAMES[1], JobState.PENDING))
    assert (await first, await again) == (info(NAMES[0]), info(NAMES[0]))
    third = waits.wait(NAMES[2], math.inf)
    await lookups.calls(2)
    assert set(lookups.asked[1][0]) == set(NAMES[1:3])
    lookups.answer(1, info(NAMES[2], JobState.IN_PROGRESS))
    assert (await second, third.done()) == (None, False)
    await waits.close(RuntimeError("closed"))
    with pytest.raises(RuntimeError, match="closed"):
        await third


async def test_a_call_waits_no_longer_than_its_callers() -> None:
    lookups = Lookups()
    waits = JoinedWaits(lookups)
    now_s = asyncio.get_running_loop().time()
    waits.wait(NAMES[0], now_s + 1.0)
    waits.wait(NAMES[1], now_s + 2.0)
    await lookups.calls(1)
    assert 1_000 < lookups.asked[0][1] <= 2_000
    await waits.close(RuntimeError("closed"))


async def test_who_waits_no_more_is_not_asked_for() -> None:
    lookups = Lookups()
    waits = JoinedWaits(lookups)
    futures = [waits.wait(name, math.inf) for name in NAMES[:3]]
    await lookups.calls(1)
    futures[0].cancel()
    lookups.answer(0, info(NAMES[1]), info(NAMES[2], JobState.PENDING), info(NAMES[0], JobState.PENDING))
    await lookups.calls(2)
    assert lookups.asked[1][0] == [NAMES[2]]
    await waits.close(RuntimeError("closed"))


async def test_with_many_calls_under_way_further_ones_are_short() -> None:
    lookups = Lookups()
    waits = JoinedWaits(lookups)
    for number, name in enumerate(NAMES):
        waits.wait(name, math.inf)
        await lookups.calls(number + 1)
    assert [wait_ms for _, wait_ms in lookups.asked] == [*[LONGEST_WAIT_MS] * LONG_CALLS, SHORT_WAIT_MS]
    await waits.close(RuntimeError("closed"))


async def test_a_shard_that_is_out_keeps_nothing_from_the_others() -> None:
    lookups = Lookups()
    waits = JoinedWaits(lookups)
    first, second = waits.wait(NAMES[0], math.inf), waits.wait(NAMES[1], math.inf)
    await lookups.calls(1)
    lookups.answers[0].set_exception(ShardConnectionFailed("shard 1 is out"))
    await lookups.calls(3)
    assert sorted(names for names, _ in lookups.asked[1:]) == [[NAMES[0]], [NAMES[1]]]
    lookups.answer([names for names, _ in lookups.asked].index([NAMES[1]]), info(NAMES[1]))
    assert await second == info(NAMES[1])
    assert not first.done()
    await waits.close(RuntimeError("closed"))


async def test_what_a_server_that_stops_says_is_asked_again_and_what_is_wrong_is_told() -> None:
    lookups = Lookups()
    waits = JoinedWaits(lookups)
    first, second = waits.wait(NAMES[0], math.inf), waits.wait(NAMES[1], math.inf)
    await lookups.calls(1)
    lookups.answers[0].set_exception(Draining("it stops"))
    await lookups.calls(2)
    lookups.answers[1].set_exception(RequestInvalid("too many"))
    for future in (first, second):
        with pytest.raises(RequestInvalid, match="too many"):
            await future


async def test_a_result_that_did_not_fit_is_asked_for_alone() -> None:
    lookups = Lookups()
    waits = JoinedWaits(lookups)
    first, second = waits.wait(NAMES[0], math.inf), waits.wait(NAMES[1], math.inf)
    await lookups.calls(1)
    large = info(NAMES[0], result=bytes(MANY_BYTES))
    lookups.answer(0, large, info(NAMES[1]))
    assert await first == large
    await lookups.calls(2)
    assert lookups.asked[1][0] == [NAMES[1]]
    lookups.answer(1, info(NAMES[1], result=b"small"))
    assert await second == info(NAMES[1], result=b"small")
