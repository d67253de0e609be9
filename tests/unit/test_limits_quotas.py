"""The maximum in progress: whatever stops between any two steps, no more claims are alive than it says."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pinlater.backends.base import AckRequest, ClaimRequest
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.model import DequeuedJob, Job, parse_descriptor
from pinlater.queues import quota_balancer
from pinlater.queues.directory import QueueDirectory
from pinlater.queues.quota_balancer import KIND, QuotaAllocation, QuotaBalancer
from pinlater.queues.rebalance import Demand, allocate
from pinlater.shards.handle import ShardHandle
from pinlater.shards.rendezvous import rendezvous_pick
from pinlater.shards.shard_set import ShardSet
from tests.unit.breaking import HeldClock
from tests.unit.set_back import Marked
from tests.unit.stepping import Stepped, Turnstile

NEVER_MS = 3_600_000
PRIORITIES = (1, 2, 3)
NAMES = count(1)
Late = Callable[[], Awaitable[Any]]


class Mover:
    """One process that moves quotas."""

    def __init__(self, members: ShardSet, clock: HeldClock, turnstile: Turnstile) -> None:
        self.members = members
        self.turnstile = turnstile
        self.queues = QueueDirectory(members, clock)
        self.quotas = QuotaBalancer(members, self.queues, clock)
        self.task: asyncio.Task[bool] | None = None

    async def begin(self, queue: str) -> None:
        """One round, up to its first call."""
        if self.task is None or self.task.done():
            self.turnstile.is_open = False
            self.task = asyncio.create_task(self.quotas.balance(queue))
            await self.turnstile.until_quiet()

    async def step(self) -> None:
        """One call more."""
        self.turnstile.let_one_in()
        await self.turnstile.until_quiet()

    async def close(self) -> None:
        self.turnstile.is_open = True
        await self.queues.close()
        await self.members.close()

    async def kill(self) -> list[Late]:
        """What it had sent is still on its way."""
        late = self.turnstile.leave_behind()
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
            self.task = None
        return late


class Yard:
    """Stores that stay open, and processes that come and go."""

    def __init__(self, stores: Sequence[SqliteShard], store_ids: Sequence[str], clock: HeldClock) -> None:
        self.stores = stores
        self.store_ids = store_ids
        self.clock = clock
        self.claims = count(1)
        self.held: dict[str, list[DequeuedJob]] = {}

    async def mover(self, ids: Sequence[str] | None = None) -> Mover:
        turnstile = Turnstile()
        chain = [
            ShardHandle(Stepped(store, store_id, turnstile), self.clock)
            for store, store_id in zip(self.stores, self.store_ids, strict=True)
            if ids is None or store.shard_id in ids
        ]
        members = ShardSet(chain, self.clock, watch_interval_ms=NEVER_MS)
        mover = Mover(members, self.clock, turnstile)
        members.sync_before_serving = mover.queues.sync
        await members.open()
        for member in members.all:
            member.skew_ms = 0
        return mover

    async def queue(self, mover: Mover, maximum: int) -> str:
        name = f"q{next(NAMES)}"
        await mover.queues.create(name, "me")
        await mover.queues.change(name, {"max_in_progress": str(maximum)}, [], False, "me")
        self.held = {store.shard_id: [] for store in self.stores}
        return name

    async def enqueue(self, queue: str, shard: int, jobs: int, priority: int = 1) -> None:
        await self.stores[shard].enqueue(queue, [Job(b"x", priority)] * jobs, self.clock.now_ms())

    async def claim(self, queue: str, shard: int, limit: int, *, enforce_quota: bool = True) -> int:
        store = self.stores[shard]
        request = ClaimRequest(f"here:1:1:{next(self.claims)}:me", limit, PRIORITIES, NEVER_MS, 10_000)
        (jobs,) = await store.claim(queue, [request], self.clock.now_ms(), enforce_quota=enforce_quota)
        self.held[store.shard_id] += jobs
        return len(jobs)

    async def ack(self, queue: str, shard: int, jobs: int = 1) -> None:
        store = self.stores[shard]
        held = self.held[store.shard_id]
        done, self.held[store.shard_id] = held[:jobs], held[jobs:]
        await store.ack(queue, [acked(job) for job in done], self.clock.now_ms())

    def in_progress(self) -> int:
        return sum(map(len, self.held.values()))

    async def allocation(self, queue: str) -> QuotaAllocation | None:
        (home,) = [store for store in self.stores if store.shard_id == self.home(queue)]
        return quota_balancer.read_allocation((await home.kv_list(KIND, self.clock.now_ms())).get(queue))

    def home(self, queue: str) -> str | None:
        return rendezvous_pick(queue, [store.shard_id for store in self.stores])

    async def quotas(self, queue: str) -> dict[str, int]:
        return {store.shard_id: (await store.set_quota(queue, 0, 0, 0)).quota for store in self.stores}

    async def check(self, queue: str, maximum: int) -> None:
        assert self.in_progress() <= maximum
        allocation = await self.allocation(queue)
        quotas = await self.quotas(queue)
        if allocation is None:
            assert not any(quotas.values())
        else:
            assert sum(allocation.quotas.values()) <= maximum
            for shard_id, quota in quotas.items():
                assert quota <= allocation.quotas.get(shard_id, 0)

    async def drain(self, queue: str, mover: Mover) -> None:
        """Work until nothing is left, within some rounds for each job."""
        rounds = 40 + 4 * await self.left(queue)
        for _ in range(rounds):
            self.clock.tick(250)
            await mover.quotas.balance(queue)
            for shard in range(len(self.stores)):
                await self.claim(queue, shard, 100)
            if await self.left(queue) == 0:
                return
            for shard in range(len(self.stores)):
                await self.ack(queue, shard, 100)
        raise AssertionError(f"jobs are left after {rounds} rounds: {await self.quotas(queue)}")

    async def left(self, queue: str) -> int:
        now_ms = self.clock.now_ms()
        ready = [sum(await store.count_ready(queue, PRIORITIES, 1_000, now_ms)) for store in self.stores]
        return sum(ready) + self.in_progress()


def acked(job: DequeuedJob) -> AckRequest:
    ref = parse_descriptor(job.descriptor)
    assert ref is not None
    return AckRequest(ref.priority, ref.id, succeeded=True)


def file_of(folder: Path, shard: int) -> Path:
    return folder / f"{shard}.db"


@asynccontextmanager
async def yard(shards: int = 3, folder: Path | None = None) -> AsyncIterator[Yard]:
    """`folder`: of the files of the stores, which are in memory where there is none."""
    urls = ["sqlite://" if folder is None else f"sqlite:///{file_of(folder, number)}" for number in range(shards)]
    stores = [SqliteShard(url, str(number)) for number, url in enumerate(urls, 1)]
    ids = [await store.open() for store in stores]
    try:
        yield Yard(stores, ids, HeldClock())
    finally:
        for store in stores:
            await store.close()


MOVERS = st.integers(0, 1)
SHARDS = st.integers(0, 2)
STEP = st.one_of(
    st.tuples(st.just("round"), MOVERS, st.just(30)),
    st.tuples(st.just("round"), MOVERS, st.integers(0, 14)),
    st.tuples(st.just("round"), MOVERS, st.integers(0, 14)),
    st.tuples(st.just("kill"), MOVERS),
    st.tuples(st.just("late"), st.integers(0, 5)),
    st.tuples(st.just("out"), MOVERS, SHARDS),
    st.tuples(st.just("in"), MOVERS, SHARDS),
    st.tuples(st.just("enqueue"), SHARDS, st.integers(1, 5), st.integers(1, 3)),
    st.tuples(st.just("claim"), SHARDS, st.integers(1, 6)),
    st.tuples(st.just("ack"), SHARDS, st.integers(1, 6)),
    st.tuples(st.just("tick"), st.integers(1, 3_000)),
)


async def play(
    at: Yard, movers: Sequence[Mover], queue: str, maximum: int, is_greedy: bool, steps: Sequence[tuple[Any, ...]]
) -> None:
    """`is_greedy`: workers take at once all that they can get."""
    late: list[Late] = []
    for name, *of in steps:
        if name == "round":
            await movers[of[0]].begin(queue)
            for _ in range(of[1]):
                await movers[of[0]].step()
        elif name == "kill":
            late += await movers[of[0]].kill()
        elif name == "late" and late:
            await late.pop(of[0] % len(late))()
        elif name == "out" and at.stores[of[1]].shard_id != at.home(queue):
            movers[of[0]].members.all[of[1]].health.trip(at.clock.now_ms())
        elif name == "in":
            movers[of[0]].members.all[of[1]].readmit()
        elif name == "enqueue":
            await at.enqueue(queue, *of)
        elif name == "claim":
            await at.claim(queue, *of)
        elif name == "ack":
            await at.ack(queue, *of)
        elif name == "tick":
            at.clock.tick(of[0])
        if is_greedy:
            for shard in range(len(at.stores)):
                await at.claim(queue, shard, 100)
        await at.check(queue, maximum)
    for mover in movers:
        for call in await mover.kill():
            await call()
    for call in late:
        await call()
    await at.check(queue, maximum)


async def test_jobs_are_in_progress_up_to_the_maximum_over_all_shards() -> None:
    async with yard() as at:
        mover = await at.mover()
        queue = await at.queue(mover, 5)
        for shard in range(3):
            await at.enqueue(queue, shard, 10)
            assert await at.claim(queue, shard, 10) == 0
        assert await mover.quotas.balance(queue)
        assert sum([await at.claim(queue, shard, 10) for shard in range(3)]) == 5
        assert not await mover.quotas.balance(queue)
        await at.drain(queue, mover)
        await mover.close()


async def test_with_a_maximum_below_the_number_of_shards_all_of_them_drain_in_turn() -> None:
    async with yard() as at:
        mover = await at.mover()
        queue = await at.queue(mover, 1)
        for shard in range(3):
            await at.enqueue(queue, shard, 4)
        await at.drain(queue, mover)
        await mover.close()


async def test_a_shard_whose_workers_refill_it_at_once_does_not_keep_the_others_waiting() -> None:
    """Workers that take the next job with every ack: whenever one looks, the shard is as full as it may be."""
    async with yard(2) as at:
        mover = await at.mover()
        queue = await at.queue(mover, 1)
        await at.enqueue(queue, 0, 200)
        await at.enqueue(queue, 1, 5)
        handed_out = [0, 0]
        for _ in range(60):
            at.clock.tick(250)
            await mover.quotas.balance(queue)
            for shard in range(2):
                for _ in range(3):
                    await at.ack(queue, shard, 100)
                    handed_out[shard] += await at.claim(queue, shard, 1)
            assert at.in_progress() <= 1
        assert handed_out[1] == 5
        assert handed_out[0] > 20
        await mover.close()


async def test_a_shard_that_is_out_keeps_its_quota_and_the_others_do_not_get_it() -> None:
    async with yard() as at:
        mover = await at.mover()
        queue = await at.queue(mover, 6)
        away, *_ = [number for number in range(3) if at.stores[number].shard_id != at.home(queue)]
        await at.enqueue(queue, away, 4)
        await mover.quotas.balance(queue)
        held = await at.claim(queue, away, 10)
        assert held >= 4
        mover.members.all[away].health.trip(at.clock.now_ms())
        for shard in {0, 1, 2} - {away}:
            await at.enqueue(queue, shard, 10)
        for _ in range(3):
            at.clock.tick(1_000)
            await mover.quotas.balance(queue)
            for shard in {0, 1, 2} - {away}:
                await at.claim(queue, shard, 10)
            await at.check(queue, 6)
        assert at.in_progress() == 6 - (await at.quotas(queue))[at.stores[away].shard_id] + held
        await mover.close()


async def test_nothing_is_granted_before_every_shard_was_seen_once() -> None:
    async with yard() as at:
        mover = await at.mover()
        queue = await at.queue(mover, 5)
        away, *_ = [number for number in range(3) if at.stores[number].shard_id != at.home(queue)]
        mover.members.all[away].health.trip(at.clock.now_ms())
        assert not await mover.quotas.balance(queue)
        assert await at.allocation(queue) is None
        mover.members.all[away].readmit()
        assert await mover.quotas.balance(queue)
        await mover.close()


async def test_quotas_stand_while_the_shard_of_their_allocation_is_out() -> None:
    async with yard() as at:
        mover = await at.mover()
        queue = await at.queue(mover, 3)
        await mover.quotas.balance(queue)
        before = await at.quotas(queue)
        home = [store.shard_id for store in at.stores].index(str(at.home(queue)))
        mover.members.all[home].health.trip(at.clock.now_ms())
        for shard in range(3):
            await at.enqueue(queue, shard, 9)
        assert not await mover.quotas.balance(queue)
        assert await at.quotas(queue) == before
        await mover.close()


async def test_who_loses_the_race_for_the_allocation_lets_no_quota_grow() -> None:
    async with yard() as at:
        first, second = await at.mover(), await at.mover()
        queue = await at.queue(first, 1)
        await second.queues.poll()
        await at.enqueue(queue, 0, 1)
        await first.quotas.balance(queue)
        await at.enqueue(queue, 1, 1, priority=2)
        await first.begin(queue)
        for _ in range(50):
            if first.turnstile.standing() != "kv_put":
                await first.step()
        await at.enqueue(queue, 2, 1, priority=1)
        assert await second.quotas.balance(queue)
        assert await at.quotas(queue) == {"1": 0, "2": 0, "3": 1}
        for _ in range(50):
            await first.step()
        assert first.task is not None
        assert first.task.result() is False
        assert await at.quotas(queue) == {"1": 0, "2": 0, "3": 1}
        await first.close()
        await second.close()


async def test_a_lower_maximum_counts_for_what_is_handed_out_next() -> None:
    async with yard() as at:
        mover = await at.mover()
        queue = await at.queue(mover, 9)
        for shard in range(3):
            await at.enqueue(queue, shard, 20)
        await mover.quotas.balance(queue)
        assert sum([await at.claim(queue, shard, 20) for shard in range(3)]) == 9
        await mover.queues.change(queue, {"max_in_progress": "2"}, [], False, "me")
        for _ in range(20):
            at.clock.tick(1_000)
            await mover.quotas.balance(queue)
            for shard in range(3):
                await at.ack(queue, shard)
                await at.claim(queue, shard, 20)
        assert at.in_progress() <= 2
        await at.drain(queue, mover)
        await mover.close()


async def test_claims_made_while_there_was_no_maximum_count_when_there_is_one_again() -> None:
    async with yard() as at:
        mover = await at.mover()
        queue = await at.queue(mover, 4)
        await mover.quotas.balance(queue)
        await mover.queues.change(queue, {"max_in_progress": "none"}, [], False, "me")
        await at.enqueue(queue, 0, 9)
        await at.enqueue(queue, 1, 9)
        assert await at.claim(queue, 0, 9, enforce_quota=False) == 9
        await mover.queues.change(queue, {"max_in_progress": "4"}, [], False, "me")
        at.clock.tick(1_000)
        await mover.quotas.balance(queue)
        assert await at.claim(queue, 1, 9) == 0
        await at.ack(queue, 0, 7)
        for _ in range(3):
            at.clock.tick(1_000)
            await mover.quotas.balance(queue)
            await at.claim(queue, 1, 9)
            assert at.in_progress() <= 4
        await at.drain(queue, mover)
        await mover.close()


async def test_another_list_of_shards_may_move_the_allocation_and_loses_nothing() -> None:
    async with yard() as at:
        old, new = await at.mover(["1", "2"]), await at.mover()
        while True:
            queue = await at.queue(old, 4)
            if at.home(queue) == "3":
                break
        await at.enqueue(queue, 0, 9)
        await old.quotas.balance(queue)
        assert await at.claim(queue, 0, 9) == 4
        await new.queues.poll()
        await at.enqueue(queue, 2, 9)
        for _ in range(3):
            at.clock.tick(1_000)
            await new.quotas.balance(queue)
            await old.quotas.balance(queue)
            await at.claim(queue, 2, 9)
            assert at.in_progress() <= 4
        await at.ack(queue, 0, 4)
        await at.drain(queue, new)
        await old.close()
        await new.close()


@pytest.mark.parametrize("seed", range(8))
async def test_while_servers_differ_about_the_list_of_shards_the_maximum_holds(seed: int) -> None:
    """One that does not know the allocation's shard yet begins no other allocation, in whichever order they began."""
    dice = random.Random(seed)
    async with yard() as at:
        old, new = await at.mover(["1", "2"]), await at.mover()
        while True:
            queue = await at.queue(old, 6)
            if at.home(queue) == "3":
                break
        await new.queues.poll()
        await new.queues.poll()
        if seed % 2:
            await old.quotas.balance(queue)
        for _ in range(80):
            await dice.choice([old, new]).quotas.balance(queue)
            shard = dice.randrange(3)
            await at.enqueue(queue, shard, dice.randint(0, 2))
            await at.claim(queue, shard, dice.randint(1, 4))
            assert at.in_progress() <= 6
            if dice.random() < 0.5:
                await at.ack(queue, dice.randrange(3))
            at.clock.tick(200)
        await at.drain(queue, new)
        await old.close()
        await new.close()


async def test_after_a_while_without_the_shard_of_the_allocation_another_one_begins() -> None:
    async with yard() as at:
        before, after = await at.mover(), await at.mover(["1", "2"])
        while True:
            queue = await at.queue(before, 6)
            if at.home(queue) == "3":
                break
        await before.quotas.balance(queue)
        await after.queues.poll()
        await at.enqueue(queue, 0, 9)
        assert not await after.quotas.balance(queue)
        at.clock.tick(61_000)
        assert await after.quotas.balance(queue)
        await before.close()
        await after.close()


async def test_a_tick_works_on_the_queues_whose_allocation_is_on_a_shard_of_mine() -> None:
    async with yard() as at:
        mover = await at.mover()
        queue = await at.queue(mover, 3)
        await mover.quotas.tick(lambda shard_id: shard_id != at.home(queue))
        assert await at.allocation(queue) is None
        await mover.quotas.tick(lambda shard_id: shard_id == at.home(queue))
        allocation = await at.allocation(queue)
        assert allocation is not None
        assert sum(allocation.quotas.values()) == 3
        await mover.close()


@pytest.mark.parametrize("loses", ["the home of the allocation", "another shard", "both"])
async def test_when_a_store_lost_its_last_changes_quotas_move_again(tmp_path: Path, loses: str) -> None:
    """The allocation, or a quota, is then of an older version than quotas elsewhere."""
    async with yard(folder=tmp_path) as at:
        mover = await at.mover()
        queue = await at.queue(mover, 3)
        home = [store.shard_id for store in at.stores].index(str(at.home(queue)))
        first, second = sorted({0, 1, 2} - {home})
        await mover.quotas.balance(queue)
        losing = {"the home of the allocation": [home], "another shard": [first], "both": [home, first]}[loses]
        marks = [Marked(file_of(tmp_path, shard)) for shard in losing]
        for shard in (first, second, first, second):  # the quotas move there and back
            await at.ack(queue, first, 3)
            await at.ack(queue, second, 3)
            await at.enqueue(queue, shard, 3)
            for _ in range(20):
                at.clock.tick(250)
                await mover.quotas.balance(queue)
                await at.claim(queue, shard, 3)
            assert at.in_progress() == 3
        for mark in marks:
            mark.set_back()
        for shard in range(3):
            await at.enqueue(queue, shard, 5)
        await at.drain(queue, mover)
        for shard in range(3):  # a store that lost its quota may have granted it twice, but not for long
            await at.enqueue(queue, shard, 5)
        while await at.left(queue):
            for shard in range(3):
                await at.claim(queue, shard, 5)
            await at.check(queue, 3)
            for shard in range(3):
                await at.ack(queue, shard, 5)
            at.clock.tick(250)
            await mover.quotas.balance(queue)
        await mover.close()


def test_what_waits_goes_before_what_runs_and_higher_priorities_first() -> None:
    assert allocate(4, {"1": Demand([0, 9], 0), "2": Demand([3, 0], 0)}, 0) == {"1": 1, "2": 3}
    assert allocate(2, {"1": Demand([0], 2), "2": Demand([2], 0)}, 0) == {"1": 0, "2": 2}
    assert allocate(7, {"1": Demand([9], 0), "2": Demand([9], 0), "3": Demand([1], 0)}, 1) == {"1": 3, "2": 3, "3": 1}
    assert allocate(0, {"1": Demand([9], 0)}, 0) == {"1": 0}
    assert allocate(5, {}, 3) == {}


@pytest.mark.slow
def test_whatever_stops_wherever_no_more_claims_are_alive_than_the_maximum(runner: asyncio.Runner) -> None:
    stack = AsyncExitStack()
    at = runner.run(stack.enter_async_context(yard()))
    movers = [runner.run(at.mover()) for _ in range(2)]

    async def one(maximum: int, is_greedy: bool, jobs: int, steps: list[tuple[Any, ...]]) -> None:
        for mover in movers:
            mover.turnstile.is_open = True
            for member in mover.members.all:
                member.readmit()
        queue = await at.queue(movers[0], maximum)
        await movers[1].queues.poll()
        for shard in range(len(at.stores)):
            await at.enqueue(queue, shard, jobs)
        await play(at, movers, queue, maximum, is_greedy, steps)
        movers[0].turnstile.is_open = True
        for member in movers[0].members.all:
            member.readmit()
        await at.drain(queue, movers[0])
        await at.check(queue, maximum)

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(st.integers(1, 7), st.booleans(), st.sampled_from([0, 10]), st.lists(STEP, min_size=20, max_size=80))
    def examples(maximum: int, is_greedy: bool, jobs: int, steps: list[tuple[Any, ...]]) -> None:
        runner.run(one(maximum, is_greedy, jobs, steps))

    try:
        examples()
    finally:
        for mover in movers:
            runner.run(mover.close())
        runner.run(stack.aclose())


@pytest.mark.parametrize("seed", range(12))
async def test_with_more_claims_alive_than_a_new_maximum_no_quota_lets_one_in(seed: int) -> None:
    """Claims end in any order, and nobody gets a new one until fewer than the maximum are alive, on all shards."""
    dice = random.Random(seed)
    async with yard() as at:
        mover = await at.mover()
        queue = await at.queue(mover, 9)
        for shard in range(3):
            await at.enqueue(queue, shard, 30, dice.randint(1, 3))
        await mover.quotas.balance(queue)
        await mover.queues.change(queue, {"max_in_progress": "none"}, [], False, "me")
        for shard in range(3):
            await at.claim(queue, shard, dice.randint(0, 6), enforce_quota=False)
        maximum = dice.randint(1, 5)
        await mover.queues.change(queue, {"max_in_progress": str(maximum)}, [], False, "me")
        for _ in range(2):
            at.clock.tick(1_000)
            await mover.quotas.balance(queue)
        for _ in range(40):
            before = at.in_progress()
            got = sum([await at.claim(queue, shard, 30) for shard in dice.sample(range(3), 3)])
            assert got == 0 or before + got <= maximum
            await at.ack(queue, dice.randrange(3), dice.randint(0, 2))
            at.clock.tick(dice.choice([10, 300, 1_000]))
            if dice.random() < 0.5:
                await mover.quotas.balance(queue)
        await at.drain(queue, mover)
        await mover.close()
