"""Workers that report, and an operator who has them rest and go on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from pinlater.model import CommandOutcome, Job, NumberedCommand, WorkerCommand, WorkerReport
from tests.simulation.callers import Caller
from tests.simulation.parts.part import Part, Program
from tests.simulation.parts.worker import Habits, Worker
from tests.simulation.virtual_time import now_ms

QUEUE = "watched"
REPORT_S, LOOK_S = 2.0, 0.5
GO_ON_S = 120.0
"""As long the operator says to those that rest at the end that they go on: a store that fell back may lose an order."""


class Commands(Part):
    """A worker that rests takes nothing, so a `RESUME` that never comes leaves jobs behind. No worker does what nobody
    has ordered it to do, and of two orders it gets none that is older than the one that it has.
    """

    NAME = "commands"

    async def set_up(self) -> None:
        self._resting: set[str] = set()
        self._ordered: dict[str, set[WorkerCommand]] = {}
        """What was ordered of each worker that is alive, or may have been; RESUME of all."""

        await self.set_up_queue(QUEUE)

    def programs(self) -> Iterable[Program]:
        return (
            *self.producers(self._produce),
            *self.workers(self._work),
            Program("operator", self._operate, is_producer=True),
        )

    async def _produce(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            jobs = [Job(self.body(caller), attempts_allowed=3) for _ in range(rng.randint(1, self.settings.burst))]
            self.accepted(await self.call("enqueue", caller.client.enqueue(QUEUE, jobs)))

    async def _work(self, caller: Caller, rng: random.Random) -> None:
        self._ordered[caller.name] = {WorkerCommand.RESUME}
        reporting = asyncio.ensure_future(self._report(caller))
        worker = Worker(self, caller, rng, [QUEUE], Habits())
        try:
            while True:
                if reporting.done():
                    reporting.result()
                if caller.name in self._resting:
                    await asyncio.sleep(LOOK_S)
                    continue
                for job in await worker.dequeue():
                    await worker.work(job)
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)
            self._resting.discard(caller.name)
            del self._ordered[caller.name]

    async def _report(self, caller: Caller) -> None:
        """Every other second, and do what the answer says."""
        began_ms, last = now_ms(), NumberedCommand(WorkerCommand.RESUME, 0)
        while True:
            is_quiet = caller.name in self._resting
            report = WorkerReport(caller.name, "sim", now_ms() - began_ms, queues={QUEUE: 1}, is_quiet=is_quiet)
            answers = await self.call("heartbeat", caller.client.heartbeat(QUEUE, [], worker=report))
            command = None if answers is None else answers.command
            if command is not None and command.number > last.number:
                last = command
                self._obey(caller.name, command.command)
            await asyncio.sleep(REPORT_S)

    def _obey(self, name: str, command: WorkerCommand) -> None:
        if command not in self._ordered[name]:
            self.problems.append(f"{name} is to do {command}, which nobody ordered")
        if command is WorkerCommand.QUIET:
            self._resting.add(name)
        else:
            self._resting.discard(name)

    async def _operate(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            alive = sorted(self._ordered)
            named = rng.sample(alive, min(len(alive), rng.randint(1, 2)))
            if not named:
                continue
            command = rng.choice((WorkerCommand.QUIET, WorkerCommand.QUIET, WorkerCommand.RESUME))
            for name in named:
                self._ordered[name].add(command)
            given = await self.call("command_workers", caller.client.command_workers(command, named))
            outcomes = {each.id: each.outcome for each in given.workers} if given is not None else {}
            strange = outcomes.keys() - set(named)
            if strange or CommandOutcome.TOO_OLD in outcomes.values():
                self.problems.append(f"{command} of {named}: {outcomes}")

    async def open_up(self, caller: Caller) -> None:
        ends_s = asyncio.get_running_loop().time() + GO_ON_S
        while self._resting and asyncio.get_running_loop().time() < ends_s:
            resting = sorted(self._resting)
            await self.call("command_workers", caller.client.command_workers(WorkerCommand.RESUME, resting))
            await asyncio.sleep(2 * REPORT_S)
        self.problems += [f"{name} rests, whatever is ordered" for name in sorted(self._resting)]
