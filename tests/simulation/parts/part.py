"""A part of what callers do: its programs, which run, die and are started again, and the jobs that it waits for."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import ClassVar, TypeVar

from pinlater.errors import PinLaterError
from pinlater.model import JobFilter, JobInfo, JobState
from tests.simulation.callers import Caller, Callers
from tests.simulation.cluster import PASSWORD
from tests.simulation.virtual_time import now_ms

R = TypeVar("R")
ENDED = (JobState.SUCCEEDED, JobState.FAILED)
LIVE = ((JobState.PENDING, False), (JobState.PENDING, True), (JobState.IN_PROGRESS, False))
LOOKUP_JOBS, KNOWN_JOBS = 100, 200
RESTART_S = (0.2, 5.0)
"""How long after its death a program is started again, at least and at most."""

MOST_S = 300.0
"""The longest pause of whoever takes jobs: less than what all parts have to finish in."""

SET_UP_S = 120.0
KNOWN_S = 1.0
"""Until all servers go by the settings of a queue: claims of before would last for minutes."""


class Died(Exception):
    """A program dies at this point."""


@dataclass(frozen=True)
class PartSettings:
    """How much a part does. All of it is small, so that most of a long run is quiet."""

    producers: int = 1
    workers: int = 2
    pause_s: float = 2.0
    """Between two things that a producer or an operator does, on average."""

    burst: int = 4
    """The most jobs of one of them."""

    lull: float = 0.02
    """How often the pause is `lull_s`."""

    lull_s: float = 60.0
    delay_s: float = 10.0
    """How far ahead times are set, at most."""

    work_s: float = 0.3
    """For one job, on average."""

    wait_ms: int = 30_000
    """The longest wait of a dequeue."""

    claim_timeout_s: int = 10
    deaths_per_hour: float = 4.0
    """Of each program."""


Run = Callable[[Caller, random.Random], Awaitable[None]]


@dataclass(frozen=True)
class Program:
    """One process of a part, under a name that no other one of the part has. A producer ends when nothing more is to
    come; others work on until the part stops.
    """

    name: str
    run: Run
    is_producer: bool = False


class Part:
    """Subclasses say what there is to set up, and which programs there are."""

    NAME: ClassVar[str]

    def __init__(self, callers: Callers, rng: random.Random, settings: PartSettings | None = None) -> None:
        self.callers = callers
        self.settings = settings or PartSettings()
        self.rng = rng
        self.is_finishing = False
        """Nothing more comes; what there is, is to end."""

        self.open: dict[str, None] = {}
        """The jobs that were accepted or handed out, and are not known to have ended."""

        self.known: deque[str] = deque(maxlen=KNOWN_JOBS)
        """Those that were accepted last, whether or not they have ended."""

        self.problems: list[str] = []
        """Programs that broke off, which is a fault of theirs or of the client."""

        self._queues: list[str] = []
        self._seed = f"{self.NAME} {rng.getrandbits(64)}"
        self._bodies = count(1)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._producers: list[str] = []

    # -- what a part is made of --------------------------------------------------------------------------------------

    async def set_up(self) -> None:
        """Queues with their settings, before anything runs."""
        raise NotImplementedError

    def programs(self) -> Iterable[Program]:
        """All of them."""
        raise NotImplementedError

    def producers(self, run: Run, name: str = "producer") -> Iterable[Program]:
        """As many as the settings say."""
        return (Program(f"{name}-{number}", run, is_producer=True) for number in range(self.settings.producers))

    def workers(self, run: Run, name: str = "worker") -> Iterable[Program]:
        return (Program(f"{name}-{number}", run) for number in range(self.settings.workers))

    async def open_up(self, caller: Caller) -> None:
        """Nothing keeps jobs from ending any more."""

    async def look_back(self, caller: Caller) -> None:
        """What is to be looked up at the end, beside the jobs that are open."""

    # -- its course --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        for program in self.programs():
            self._running[program.name] = loop.create_task(self._keep(program))
            if program.is_producer:
                self._producers.append(program.name)

    async def stop_producing(self) -> None:
        """Producers end, with what they do at the moment."""
        self.is_finishing = True
        await self._cancel(self._producers)

    async def finish(self, at_most_s: float) -> list[str]:
        """Waits until all jobs have ended. What has not, by its descriptor or queue, and what else went wrong."""
        loop = asyncio.get_running_loop()
        ends_s, pause_s = loop.time() + at_most_s, 1.0
        caller = self.callers.start(f"{self.NAME}-finish")
        await self.open_up(caller)
        left = await self.unended(caller)
        while left and loop.time() < ends_s:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 10.0)
            left = await self.unended(caller)
        await self.look_back(caller)
        await self.callers.close(caller)
        return [*self.problems, *(f"{name} {state}" for name, state in left.items())]

    async def stop(self) -> None:
        """All programs end."""
        await self._cancel(list(self._running))

    async def _cancel(self, names: Sequence[str]) -> None:
        tasks = [self._running.pop(name) for name in names if name in self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, program: Program) -> None:
        """Runs a program again and again, each time as another process."""
        rng = random.Random(f"{self._seed} {program.name}")
        for life in count(1):
            caller = self.callers.start(f"{self.NAME}-{program.name}.{life}")
            task = asyncio.ensure_future(program.run(caller, rng))
            try:
                await self._lives(task, rng)
            except asyncio.CancelledError:
                await _end(task)
                await self.callers.close(caller)
                raise
            self.callers.kill(caller)
            if task.done() and not isinstance(error := task.exception(), Died):
                if error is not None:
                    self.problems.append(f"{caller.name}: {''.join(traceback.format_exception(error))}")
                return
            await _end(task)
            await asyncio.sleep(rng.uniform(*RESTART_S))

    async def _lives(self, task: asyncio.Future[None], rng: random.Random) -> None:
        """Until the program ends, or its process dies. No process dies any more where all is to end."""
        deaths = self.settings.deaths_per_hour
        if deaths and not self.is_finishing:
            await asyncio.wait((task,), timeout=rng.expovariate(deaths / 3600))
            if not self.is_finishing:
                return
        await asyncio.wait((task,))

    # -- jobs --------------------------------------------------------------------------------------------------------

    def accepted(self, descriptors: Iterable[str] | None) -> None:
        """None: the call failed."""
        for descriptor in descriptors or ():
            self.open[descriptor] = None
            self.known.append(descriptor)

    def some_known(self, rng: random.Random, most: int) -> list[str]:
        """Of the jobs that were accepted last."""
        return rng.sample(self.known, min(len(self.known), rng.randint(1, most)))

    def handed_out(self, descriptors: Iterable[str]) -> None:
        """Also jobs that schedules, flows or operators brought."""
        self.open.update(dict.fromkeys(descriptors))

    def ended(self, descriptor: str) -> None:
        self.open.pop(descriptor, None)

    def body(self, caller: Caller) -> bytes:
        """One that no other job has."""
        return f"{caller.name} {next(self._bodies)}".encode()

    async def unended(self, caller: Caller) -> dict[str, str]:
        """The open jobs that have not ended, with what is known of them."""
        left: dict[str, str] = {}
        names = list(self.open)
        for start in range(0, len(names), LOOKUP_JOBS):
            some = names[start : start + LOOKUP_JOBS]
            found: Mapping[str, JobInfo] | None = await self.call("lookup", caller.client.lookup(some))
            for name in some:
                if found is None:
                    left[name] = "cannot be looked up"
                elif name not in found or found[name].state in ENDED:
                    self.ended(name)
                else:
                    left[name] = found[name].state.name
        return left or await self._live_jobs(caller)

    async def _live_jobs(self, caller: Caller) -> dict[str, str]:
        """How many jobs of the part's queues have not ended, also such as nobody knows of."""
        left = {}
        for queue in self._queues:
            for state, future in LIVE:
                count = await self.call("count", caller.client.count(JobFilter(queue, state, future=future)))
                if count != 0:
                    left[f"{queue} {state.name}"] = "cannot be counted" if count is None else str(count)
        return left

    # -- what programs need ------------------------------------------------------------------------------------------

    async def call(self, what: str, work: Awaitable[R]) -> R | None:
        """What a call answers; None where it failed, as it may while there are faults."""
        try:
            return await work
        except PinLaterError as error:
            self.callers.failed(error, what)
        except TimeoutError:  # of a wait
            self.callers.errors[f"{what} took too long"] += 1
        return None

    async def rest(self, rng: random.Random, most_s: float = inf) -> None:
        """Between two things that a producer or an operator does."""
        settings = self.settings
        is_lull = rng.random() < settings.lull
        await asyncio.sleep(min(settings.lull_s if is_lull else rng.expovariate(1 / settings.pause_s), most_s))

    def run_after_ms(self, rng: random.Random, later: float = 0.3) -> int | None:
        """At once, or as often as said here at a time up to `delay_s` ahead, or one that is over."""
        if rng.random() >= later:
            return None
        return now_ms() + rng.randint(-1_000, round(self.settings.delay_s * 1000))

    async def set_up_queue(self, queue: str, **settings: str) -> None:
        """Makes a queue, which has the claim time-out of the part too. At the end no job of it is to be left."""
        self._queues.append(queue)
        caller = self.callers.start(f"{self.NAME}-set-up-{queue}")
        await self.set_queue(caller, queue, claim_timeout=f"{self.settings.claim_timeout_s}s", **settings)
        await asyncio.sleep(KNOWN_S)
        await self.callers.close(caller)

    async def set_queue(self, caller: Caller, queue: str, **settings: str) -> None:
        """Gives a queue settings, however often that has to be tried."""
        ends_s = asyncio.get_running_loop().time() + SET_UP_S
        while asyncio.get_running_loop().time() < ends_s:
            changed = caller.client.update_queue(queue, PASSWORD, set=settings, create=True)
            if await self.call("update_queue", changed) is not None:
                return
            await asyncio.sleep(1)
        self.problems.append(f"{queue} could not be set to {settings}")


async def _end(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
