"""Schedules: set, changed, paused and deleted, with times a few seconds apart."""

from __future__ import annotations

import random
from collections.abc import Iterable

from pinlater.model import Misfire, ScheduleChange
from tests.simulation.callers import Caller
from tests.simulation.cluster import PASSWORD
from tests.simulation.parts.part import Part, Program
from tests.simulation.parts.worker import Habits, Worker

QUEUE = "schedules"
NAMES = ("ticks", "tocks", "chimes")


class Schedules(Part):
    NAME = "schedules"

    async def set_up(self) -> None:
        await self.set_up_queue(QUEUE, succeeded_ttl="1m")

    def programs(self) -> Iterable[Program]:
        return (*self.workers(self._work), Program("planner", self._plan, is_producer=True))

    async def _work(self, caller: Caller, rng: random.Random) -> None:
        await Worker(self, caller, rng, [QUEUE], Habits()).run()

    def handed_out(self, descriptors: Iterable[str]) -> None:
        """Nobody else knows of these jobs."""
        self.accepted(descriptors)

    async def _plan(self, caller: Caller, rng: random.Random) -> None:
        while True:
            deed = rng.choice((self._set, self._set, self._pause, self._delete, self._see))
            await deed(caller, rng, rng.choice(NAMES))
            await self.rest(rng)

    async def _set(self, caller: Caller, rng: random.Random, name: str) -> None:
        change = ScheduleChange(
            name=name,
            queue=QUEUE,
            body=self.body(caller),
            priority=rng.randint(1, 3),
            attempts_allowed=rng.randint(1, 3),
            serialize_key=rng.choice(("", "", name)),
            misfire=rng.choice(tuple(Misfire)),
            max_catch_up=rng.randint(1, 5),
            jitter_ms=rng.choice((0, 0, 900)),
            paused=False,
        )
        if rng.random() < 0.7:
            change.every_ms = 1_000 * rng.randint(1, 10)
        else:
            change.cron = rng.choice(("* * * * *", "*/2 * * * *"))
        await self.call("update_schedule", caller.client.update_schedule(change, PASSWORD))

    async def _pause(self, caller: Caller, rng: random.Random, name: str) -> None:
        change = ScheduleChange(name=name, paused=rng.random() < 0.6)
        await self.call("update_schedule", caller.client.update_schedule(change, PASSWORD))

    async def _delete(self, caller: Caller, rng: random.Random, name: str) -> None:
        await self.call("delete_schedule", caller.client.delete_schedule(name, PASSWORD))

    async def _see(self, caller: Caller, rng: random.Random, name: str) -> None:
        await self.call("get_schedules", caller.client.get_schedules(rng.choice((None, [name])), next_limit=3))

    async def look_back(self, caller: Caller) -> None:
        """The last jobs, by which it is judged which times fired."""
        if self.known:
            await self.call("lookup", caller.client.lookup(list(self.known)))

    async def open_up(self, caller: Caller) -> None:
        """No schedule fires any more, so that all jobs end."""
        for name in NAMES:
            for _ in range(20):
                deleted = caller.client.delete_schedule(name, PASSWORD)
                if await self.call("delete_schedule", deleted) is not None:
                    break
