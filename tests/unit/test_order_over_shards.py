"""Order over shards (docs/semantics.md, 3), on random walks of a service over three shards that notify: a job is
handed out only where there was a moment during the dequeue at which no shard had one of a higher priority.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pinlater.model import DequeuedJob, Job
from tests.unit.breaking import until_quiet
from tests.unit.test_longpoll_candidates import Told, telling

shards, priorities = st.integers(0, 2), st.integers(1, 3)
limits = st.integers(1, 2)
Step = tuple[Any, ...]
steps = st.one_of(
    st.tuples(st.just("put"), shards, priorities, st.booleans()),
    st.tuples(st.just("put"), shards, priorities, st.booleans()),
    st.tuples(st.just("enqueue"), priorities),
    st.tuples(st.just("wait"), limits),
    st.tuples(st.just("wait"), limits),
    st.tuples(st.just("take"), limits),
    st.tuples(st.just("tell"), shards),
)


class Walk:
    """`there`: the jobs that nobody has been given, each with its priority. `dequeues`: those that wait, each with the
    jobs that were there when it began and were since.
    """

    def __init__(self, told: Told) -> None:
        self.told = told
        self.there: dict[str, int] = {}
        self.dequeues: dict[asyncio.Task[list[DequeuedJob]], set[str]] = {}

    async def step(self, step: Step) -> None:
        name, *values = step
        await getattr(self, name)(*values)
        await self.settled()

    async def settled(self) -> None:
        """Until nothing happens any more; then what was handed out meanwhile is judged."""
        for _ in range(3):
            await until_quiet(*self.told.at.stores)
        ended = [task for task in self.dequeues if task.done()]
        left = dict(self.there)
        for task in ended:
            for job in task.result():
                left.pop(job.descriptor)
        for task in ended:
            since_it_began = self.dequeues.pop(task)
            for job in task.result():
                passed = {each for each in since_it_began & left.keys() if left[each] < job.priority}
                assert not passed, f"{job.descriptor} was handed out before {passed}"
        self.there = left

    async def put(self, shard: int, priority: int, is_told: bool) -> None:
        """As another process does, which tells now or later."""
        store, at = self.told.at.stores[shard], self.told.at
        (descriptor,) = await store.inner.enqueue("mail", [Job(b"x", priority)], at.clock.now_ms())
        self.there[descriptor] = priority
        if is_told:
            self.told.told(shard)

    async def tell(self, shard: int) -> None:
        self.told.told(shard)

    async def enqueue(self, priority: int) -> None:
        (descriptor,) = await self.told.at.service.enqueue("mail", [Job(b"x", priority)])
        self.there[descriptor] = priority

    async def wait(self, limit: int) -> None:
        self.dequeues[asyncio.create_task(self.told.at.dequeue(limit, wait_ms=60_000))] = set(self.there)

    async def take(self, limit: int) -> None:
        self.dequeues[asyncio.create_task(self.told.at.dequeue(limit))] = set(self.there)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, min_size=5, max_size=25))
def test_no_job_is_handed_out_before_one_of_a_higher_priority_that_was_there_all_the_time(walked: list[Step]) -> None:
    async def walk() -> None:
        async with telling() as told, asyncio.timeout(60):
            (await told.waiting()).cancel()
            walk = Walk(told)
            await walk.settled()
            for step in walked:
                await walk.step(step)
            for task in walk.dequeues:
                task.cancel()

    asyncio.run(walk())
