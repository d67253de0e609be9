"""Fair use among identities: bounds, and the turns of those that call at the same time, by a clock under control."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from pinlater.access.fair_use import SHARED_FOR_S, SHARED_LIMIT, STALLED_S, WINDOW_S, CallUse, FairUse, UseLimits
from pinlater.errors import Overloaded
from pinlater.model import Caller, ConnectionRef

BOTH = ("token:noisy", "token:calm")


class Process:
    """A server process that carries out calls one by one, in the order in which they have their turns."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.fair_use = FairUse(UseLimits(), lambda: self.now_s)
        self.begun: list[CallUse] = []
        self.callers: set[asyncio.Task[None]] = set()

    def call(self, identity: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._call(identity))
        self.callers.add(task)
        return task

    async def _call(self, identity: str) -> None:
        call = self.fair_use.begin(Caller(identity), ConnectionRef(), 1)
        turn = self.fair_use.turn(call)
        if turn is not None:
            await self.fair_use.wait(call, turn)
        self.begun.append(call)

    async def calls(self, *identities: str) -> None:
        """New ones, one behind the other, as far as they come."""
        for identity in identities:
            self.call(identity)
        for _ in range(3):
            await asyncio.sleep(0)

    def running(self) -> Counter[str]:
        return Counter(call.use.name for call in self.begun)

    async def end(self, identities: Sequence[str] = ()) -> list[str]:
        """End the calls that run, of these identities or of all; whose they were."""
        over = [call for call in self.begun if not identities or call.use.name in identities]
        self.begun = [call for call in self.begun if call not in over]
        for call in over:
            call.end()
        for _ in range(3):
            await asyncio.sleep(0)
        return [call.use.name for call in over]

    async def pass_window(self, *identities: str) -> None:
        """A window in which these make a call each, which is answered."""
        self.now_s += WINDOW_S
        for identity in identities:
            self.fair_use.begin(Caller(identity), ConnectionRef(), 1).end()

    async def share(self) -> None:
        """Two identities call at the same time, one call each."""
        for _ in range(2):
            await self.pass_window(*BOTH)


@pytest.fixture
def process() -> Process:
    return Process()


async def test_who_calls_alone_waits_for_nobody(process: Process) -> None:
    for _ in range(3):
        await process.calls(*["token:noisy"] * 100)
        process.now_s += WINDOW_S
    assert process.running() == {"token:noisy": 300}


async def test_nobody_has_more_calls_under_way_than_the_busiest_of_the_others(process: Process) -> None:
    await process.share()
    await process.calls(*["token:noisy"] * 50, "token:calm")
    assert process.running() == {"token:noisy": 1, "token:calm": 1}
    for _ in range(10):  # whatever the one asks for, the other gets as much
        assert sorted(await process.end()) == sorted(BOTH)
        await process.calls("token:calm")
    assert process.running() == {"token:noisy": 1, "token:calm": 1}
    while await process.end():
        pass
    assert all(caller.done() for caller in process.callers)


async def test_two_that_ask_for_much_hinder_each_other_not(process: Process) -> None:
    await process.calls(*["token:noisy"] * 30, *["token:busy"] * 30)
    await process.pass_window()
    await process.calls(*["token:noisy"] * 10, *["token:busy"] * 10)
    assert process.running() == {"token:noisy": 30, "token:busy": 30}
    assert len(await process.end()) == 60
    assert process.running() == {"token:noisy": 10, "token:busy": 10}


async def test_a_call_that_waits_has_its_turn_in_order_and_all_have_it_when_the_others_are_gone(
    process: Process,
) -> None:
    await process.share()
    await process.calls(*["token:noisy"] * 20)
    assert process.running() == {"token:noisy": 1}
    await process.pass_window()
    await process.pass_window()
    await process.end()
    assert process.running() == {"token:noisy": SHARED_LIMIT}  # the other one may come back
    process.now_s += SHARED_FOR_S
    await process.pass_window()
    await process.end()
    assert process.running() == {"token:noisy": 20 - 1 - SHARED_LIMIT}


async def test_a_call_whose_caller_is_gone_loses_its_place_and_keeps_nobody_waiting(process: Process) -> None:
    await process.share()
    await process.calls("token:noisy")
    gone = process.call("token:noisy")
    await process.calls("token:noisy")
    gone.cancel()
    await process.end()
    assert process.running() == {"token:noisy": 1}
    await process.end()
    assert all(caller.done() for caller in process.callers)


async def test_a_turn_that_comes_with_the_end_of_its_caller_is_the_next_ones(process: Process) -> None:
    await process.share()
    await process.calls("token:noisy")
    gone = process.call("token:noisy")
    await process.calls("token:noisy")
    process.begun.pop().end()  # gives the turn to the one that is gone in the same step
    gone.cancel()
    for _ in range(4):
        await asyncio.sleep(0)
    assert process.running() == {"token:noisy": 1}


async def test_calls_that_no_store_answers_hold_up_none_of_the_rest_for_long(process: Process) -> None:
    await process.share()
    await process.calls(*["token:noisy"] * 3, "token:calm")
    assert process.running() == {"token:noisy": 1, "token:calm": 1}
    deadline = asyncio.get_running_loop().time() + 100 * STALLED_S
    while process.running()["token:noisy"] < 3:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(STALLED_S / 5)


async def test_bounds_hold_beside_any_number_of_other_identities() -> None:
    now_s = 1_000.0
    fair_use = FairUse(UseLimits(calls=2, calls_per_second=10), lambda: now_s)
    for number in range(3_000):
        fair_use.begin(Caller(f"token:busy{number}"), ConnectionRef(), 1)
    noisy, fast = Caller("token:noisy"), Caller("token:fast")
    for _ in range(2):
        fair_use.begin(noisy, ConnectionRef(), 1)
    with pytest.raises(Overloaded, match="2 calls under way"):
        fair_use.begin(noisy, ConnectionRef(), 1)
    for _ in range(5):
        fair_use.begin(fast, ConnectionRef(), 1).end()
    for number in range(10_000):
        fair_use.begin(Caller(f"token:brief{number}"), ConnectionRef(), 1).end()
    with pytest.raises(Overloaded, match="calls a second"):
        fair_use.begin(fast, ConnectionRef(), 1)
    now_s += 0.1
    fair_use.begin(fast, ConnectionRef(), 1).end()
