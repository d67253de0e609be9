"""Queues whose groups have limits: a maximum in progress, a rate and a bound of jobs that wait.

Operators change them, and pause groups, by name and by pattern. An observer asks for the settings now and then, so that
the checker of histories knows which of them hold. The limits stay when all is to end: what a group has to wait for, it
must get; and then no permit may be left.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence

from pinlater.model import ExtendedJob, GroupsPage, GroupView
from tests.simulation.callers import Caller
from tests.simulation.cluster import PASSWORD
from tests.simulation.parts.part import MOST_S, SET_UP_S, Part, Program, Run
from tests.simulation.parts.worker import Habits, Worker
from tests.simulation.virtual_time import now_ms

CAPPED, TIMED, FILLED = "group_capped", "group_timed", "group_filled"
TENANTS = ("big-0", "big-1", "small-0", "new-0")
PATTERNS = ("big-*", "small-*", "*-1")
MOST_OPEN = 40
"""Beyond so many jobs of a queue producers bring no more to it."""

OPERATED_S = 12.0
"""Between two changes, on average: the checker counts the greatest limit of the last half minute."""

OBSERVED_S = 10.0
ROOM_S, NO_PERMIT_S = 200.0, 120.0
"""Within these, once all is well, a full group takes jobs again, and permits of claims that ended are taken back."""

MAY_END_SOON = 0.15
"""Claims that may go back by themselves are no proof; so hardly any do."""

HABITS = Habits(limit=10, binds=MAY_END_SOON, confirms=MAY_END_SOON, covers_less=0.2)


class GroupLimits(Part):
    NAME = "group_limits"

    async def set_up(self) -> None:
        await self.set_up_queue(CAPPED, group_concurrency="2", succeeded_ttl="1m")
        await self.set_up_queue(TIMED, group_rate="1/s", succeeded_ttl="1m")
        await self.set_up_queue(FILLED, group_max_pending="8", succeeded_ttl="10s", failed_ttl="10s")
        caller = self.callers.start(f"{self.NAME}-set-up")
        for queue in (CAPPED, TIMED):
            await self._page(caller, queue)
        await self.callers.close(caller)

    def programs(self) -> Iterable[Program]:
        for queue in (CAPPED, TIMED, FILLED):
            yield from self.producers(self._producer_of(queue), f"producer-{queue}")
            yield from self.workers(self._worker_of(queue), f"worker-{queue}")
        yield Program("operator", self._operate, is_producer=True)
        yield Program("observer", self._observe)

    def _worker_of(self, queue: str) -> Run:
        async def work(caller: Caller, rng: random.Random) -> None:
            await Worker(self, caller, rng, [queue], HABITS).run()

        return work

    def _producer_of(self, queue: str) -> Run:
        async def produce(caller: Caller, rng: random.Random) -> None:
            while True:
                await self.rest(rng)
                if sum(name.startswith(queue) for name in self.open) < MOST_OPEN:
                    jobs = [self._job(caller, rng) for _ in range(rng.randint(1, self.settings.burst))]
                    self.accepted(await self.call("enqueue", caller.client.enqueue(queue, jobs)))

        return produce

    def _job(self, caller: Caller, rng: random.Random) -> ExtendedJob:
        """Of a tenant, or of nobody, whom no limit holds."""
        group = rng.choice((*TENANTS, TENANTS[0], TENANTS[0], ""))
        priority = 1 if rng.random() < 0.8 else 2
        return ExtendedJob(self.body(caller), priority, self.run_after_ms(rng, 0.1), rng.randint(2, 4), group=group)

    # -- operators ---------------------------------------------------------------------------------------------------

    async def _operate(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await asyncio.sleep(min(rng.expovariate(1 / OPERATED_S) * max(1.0, self.settings.pause_s), MOST_S))
            name = rng.choice((*TENANTS, *PATTERNS))
            choice = rng.random()
            if choice < 0.2:
                await self._change(caller, CAPPED, {"group_concurrency": _concurrency(rng)})
            elif choice < 0.25:
                await self._change(caller, TIMED, {"group_rate": f"{rng.randint(1, 3)}/s"})
            elif choice < 0.3:
                await self._change(caller, FILLED, {"group_max_pending": str(rng.randint(4, 12))})
            elif choice < 0.55:
                await self._change_group(caller, CAPPED, name, {"concurrency": _concurrency(rng)})
            elif choice < 0.65:
                await self._change_group(caller, TIMED, name, {"rate": f"{rng.randint(1, 4)}/s"})
            elif choice < 0.75:
                await self._change_group(caller, rng.choice((CAPPED, TIMED)), name, {}, ["concurrency", "rate"])
            elif choice < 0.8:
                await self._change_group(caller, CAPPED, name, {"weight": str(rng.randint(1, 5))})
            elif choice < 0.9:
                await self._pause(caller, rng)
            else:
                await self._change_group(caller, CAPPED, rng.choice(TENANTS), {}, ["paused"])

    async def _pause(self, caller: Caller, rng: random.Random) -> None:
        until = {} if rng.random() < 0.5 else {"paused_until": str(now_ms() + rng.randint(1_000, 10_000))}
        await self._change_group(caller, CAPPED, rng.choice(TENANTS), {"paused": "true"} | until)

    async def _change(self, caller: Caller, queue: str, change: dict[str, str]) -> None:
        await self.call("update_queue", caller.client.update_queue(queue, PASSWORD, set=change))

    async def _change_group(
        self, caller: Caller, queue: str, name: str, change: dict[str, str], unset: Sequence[str] = ()
    ) -> bool:
        changing = caller.client.update_group(queue, name, PASSWORD, set=change, unset=unset)
        return await self.call("update_group", changing) is not None

    async def _observe(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await asyncio.sleep(min(OBSERVED_S * rng.uniform(0.5, 1.5) * max(1.0, self.settings.pause_s), MOST_S))
            for queue in (CAPPED, TIMED):
                await self.call("get_groups", caller.client.get_groups(queue))
            await self.call("get_queues", caller.client.get_queues([CAPPED, TIMED, FILLED]))

    # -- the end -----------------------------------------------------------------------------------------------------

    async def _page(self, caller: Caller, queue: str) -> GroupsPage | None:
        """However often it has to be asked for; None: in vain."""
        ends_s = asyncio.get_running_loop().time() + SET_UP_S
        while asyncio.get_running_loop().time() < ends_s:
            page = await self.call("get_groups", caller.client.get_groups(queue))
            if page is not None:
                return page
            await asyncio.sleep(1.0)
        self.problems.append(f"the groups of {queue} cannot be listed")
        return None

    async def open_up(self, caller: Caller) -> None:
        """Limits stay; pauses end, and rates are high enough for what is left to come."""
        for name in TENANTS:
            await self._until(self._change_group, caller, CAPPED, name, {}, ["paused"])
        for name in (*TENANTS, *PATTERNS):
            await self._until(self._change_group, caller, TIMED, name, {"rate": "20/s"})
        for name in TENANTS:
            await self._until(self._takes_a_job, caller, name)

    async def _takes_a_job(self, caller: Caller, group: str) -> bool:
        descriptor = await self.call(
            "enqueue", caller.client.enqueue(FILLED, ExtendedJob(self.body(caller), group=group))
        )
        self.accepted([descriptor] if descriptor is not None else ())
        return descriptor is not None

    async def _until(self, do: Callable[..., Awaitable[bool]], *arguments: object) -> None:
        """However often it has to be tried."""
        ends_s = asyncio.get_running_loop().time() + ROOM_S
        while not await do(*arguments):
            if asyncio.get_running_loop().time() >= ends_s:
                self.problems.append(f"{getattr(do, '__name__', do)} {arguments[1:]} failed for {ROOM_S:g} s")
                return
            await asyncio.sleep(1.0)

    async def look_back(self, caller: Caller) -> None:
        """No job runs any more."""
        ends_s = asyncio.get_running_loop().time() + NO_PERMIT_S
        while True:
            page = await self._page(caller, CAPPED)
            groups = await self.call("get_groups", caller.client.get_groups(CAPPED, TENANTS))
            views = [] if page is None or groups is None else groups.groups
            left = [each for each in views if each.running != (None if _has_no_limit(each) else 0)]
            if views and not left:
                return
            if asyncio.get_running_loop().time() >= ends_s:
                self.problems += [f"{each.name} of {CAPPED} has {each.running} permits at the end" for each in left]
                return
            await asyncio.sleep(1.0)


def _concurrency(rng: random.Random) -> str:
    return rng.choice((*4 * ("1", "2"), "3", "4", "none"))


def _has_no_limit(view: GroupView) -> bool:
    return view.settings["concurrency"].value == "none"
