"""One soak, from its first process to its verdict: everything on, a kill every so often, a roll every so often."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from tests.soak.judged import Outcome, trends
from tests.soak.ledger import Journal, Latencies, Ledger
from tests.soak.load import Callers
from tests.soak.measures import AUDIT, Lives, files_in, rows_of
from tests.soak.stand import WITHIN_S, Stand, rolled
from tests.soak.trends import Sample
from tests.soak.viewers import Viewer

KILL_EVERY_S, ROLL_EVERY_S, PROGRESS_EVERY_S = 60.0, 600.0, 30.0
READ_EVERY_S = 0.5
LONG_S = 2_700.0
"""A run at least as long has jobs that the stores remember for ten minutes after their ends: shorter ones would judge
rows while these still become more.
"""

REMEMBERED_S = 660.0
LOOKS_AT_NOTHING = 10
"""A job that is owed when servers have had none for so many looks is lost."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """`seconds`: from the first job to the last. `rate`: 1 is about forty jobs a second in all. `is_small`: SQLite
    alone. `is_calm`: nothing is killed or rolled. `planted`: variables for servers, by which a test plants a fault.
    """

    seconds: float
    seed: int
    rate: float = 1.0
    is_small: bool = False
    is_calm: bool = False
    planted: Mapping[str, str] = field(default_factory=dict)

    @property
    def kill_every_s(self) -> float:
        return inf if self.is_calm else min(KILL_EVERY_S, self.seconds / 6)

    @property
    def roll_every_s(self) -> float:
        return inf if self.is_calm else min(ROLL_EVERY_S, self.seconds / 3)

    @property
    def look_every_s(self) -> float:
        """Between two looks at processes; rows are counted after every third."""
        return min(5.0, self.seconds / 60)

    @property
    def ttl_s(self) -> int:
        """How long what has ended is kept."""
        return round(min(60.0, max(8.0, self.seconds / 6)))

    @property
    def is_long(self) -> bool:
        return self.seconds >= LONG_S

    @property
    def warm_s(self) -> float:
        """Before that rows become more, since nothing is old enough to go."""
        return REMEMBERED_S if self.is_long else min(180.0, self.seconds / 3)


class Soak:
    """`stops`: set to end it early, as Ctrl-C does. `say` prints a line of progress."""

    def __init__(self, stand: Stand, options: Options, say: Callable[[str], None] = print) -> None:
        self.stops = asyncio.Event()
        self._stand = stand
        self._options = options
        self._say = say
        self._dice = random.Random(options.seed)
        self._latencies = Latencies(min(15.0, options.seconds / 12))
        self._ledger = Ledger(self._latencies)
        self._journal = Journal(stand.journal)
        self._lives = Lives()
        self._counts: defaultdict[str, list[Sample]] = defaultdict(list)
        """Rows and files, by what they are of."""

        self._kinds: dict[str, Counter[str]] = {}
        self._killed: Counter[str] = Counter()
        self._reads = self._looks = 0
        self._rolls = 0
        self._victims: list[str] = []
        self._is_over = False
        """Nothing more is killed or rolled."""

        self._viewers: list[Viewer] = []
        self._callers: list[Callers] = []

    async def run(self) -> Outcome:
        """All that it found; what was started for it is ended when the stand is closed."""
        options = self._options
        for number, site in enumerate(self._stand.sites):
            callers = Callers(
                *(site, self._ledger, self._latencies),
                rate=options.rate if len(site.servers) > 1 else options.rate / 2,
                flow_ttl_s=options.ttl_s,
                seed=options.seed + number,
                resends=options.is_long,
            )
            self._callers.append(callers)
        try:
            await asyncio.gather(*(callers.prepare() for callers in self._callers))
            return await self._between()
        finally:
            for callers in self._callers:
                await callers.close()
            self._journal.close()

    async def _between(self) -> Outcome:
        began_s = time.monotonic()
        for callers in self._callers:
            callers.start()
        self._viewers = [Viewer(server, self._latencies) for server in self._stand.servers]
        beside = [self._read(), self._look_at_ticks(), self._look(), self._operate(), self._tell(began_s)]
        tasks = [asyncio.create_task(each) for each in (*beside, *(viewer.stay() for viewer in self._viewers))]
        reading, of_ticks, looking, operating, telling, *viewing = tasks
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._options.seconds):
                await self._until_something_breaks(tasks)
        self._is_over = True
        await operating
        ended_s = time.monotonic()
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        self._say(f"{ended_s - began_s:.0f} s are over: what is there is done, and judged")
        await self._drain()
        rest = *viewing, telling, of_ticks, reading
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        return await self._judge(began_s, ended_s)

    async def _until_something_breaks(self, tasks: list[asyncio.Task[None]]) -> None:
        """Or until it is told to stop. A task that ends has failed: what it raised is a fault of the run."""
        stop = asyncio.create_task(self.stops.wait())
        try:
            done, _ = await asyncio.wait([stop, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stop}:
                self._ledger.faults.append(f"the run broke off: {task.exception()!r}")
        finally:
            stop.cancel()

    # -- what goes on beside the callers -----------------------------------------------------------------------------

    async def _read(self) -> None:
        """What jobs wrote down. Flows count on it soon, so no call is waited for."""
        while True:
            self._ledger.read(self._journal.new_lines())
            self._latencies.roll()
            self._reads += 1
            await asyncio.sleep(READ_EVERY_S)

    async def _look_at_ticks(self) -> None:
        """Of the jobs of schedules that were read."""
        waiting: list[list[str]] = [[] for _ in self._callers]
        while True:
            ticks, self._ledger.ticks = self._ledger.ticks, []
            for number, callers in enumerate(self._callers):
                mine = [each for each in ticks if self._is_of(callers, each)]
                some = [*waiting[number], *mine]
                waiting[number] = await callers.look_at_ticks(some) if some else []
            self._looks += 1
            await asyncio.sleep(READ_EVERY_S)

    def _is_of(self, callers: Callers, descriptor: str) -> bool:
        return descriptor.split(":")[1].removeprefix("s") in callers.site.stores

    async def _look(self) -> None:
        number = 0
        while True:
            self._lives.look(self._stand.processes())
            if number % 3 == 0:
                await asyncio.to_thread(self._count)
            number += 1
            await asyncio.sleep(self._options.look_every_s)

    def _count(self) -> None:
        for site in self._stand.sites:
            for name, url in site.databases.items():
                if kinds := rows_of(url):
                    self._kinds[name] = kinds
                    self._counted(f"rows of {name}", kinds.total() - kinds[AUDIT])
            self._counted(f"files of {site.name} bodies", files_in(site.bodies))
            for server in site.servers:
                self._counted(f"files of server {server.name}", files_in(server.folder))
        self._counted("temporary files", files_in(self._stand.temporary))

    def _counted(self, name: str, count: int) -> None:
        self._counts[name].append(Sample(time.monotonic(), count))

    async def _operate(self) -> None:
        """Kills and rolls, one after the other, each at its time; what has begun is brought to its end."""
        options, began_s = self._options, time.monotonic()
        next_kill_s, next_roll_s = began_s + options.kill_every_s, began_s + options.roll_every_s
        while True:
            while time.monotonic() < min(next_kill_s, next_roll_s):
                if self._is_over:
                    return
                await asyncio.sleep(0.1)
            if next_roll_s <= next_kill_s:
                next_roll_s = max(next_roll_s, time.monotonic()) + options.roll_every_s
                await self._roll()
            else:
                next_kill_s = max(next_kill_s, time.monotonic()) + options.kill_every_s
                await self._kill()

    async def _roll(self) -> None:
        """Server after server."""
        for server in self._stand.servers:
            before = server.of("server process")
            await self._stand.roll(server)
            await self._comes_to_pass(lambda: rolled(server, before), f"the roll of server {server.name}")  # noqa: B023
        self._rolls += 1

    async def _kill(self) -> None:
        """Each of all that can be killed, in a random order, before one of them has its turn again."""
        self._victims = self._victims or self._dice.sample(every := self._stand.victims(), len(every))
        victim = self._victims.pop()
        await self._stand.kill(victim)
        self._killed[victim.partition(" of ")[0].partition(" server ")[0]] += 1
        for server in self._stand.servers:
            await self._comes_to_pass(server.is_whole, f"server {server.name} is whole after a kill of {victim}")

    async def _comes_to_pass(self, holds: Callable[[], bool], what: str) -> None:
        until_s = time.monotonic() + WITHIN_S
        while not await asyncio.to_thread(holds):
            if time.monotonic() > until_s:
                self._ledger.faults.append(f"within {WITHIN_S:.0f} s it did not come to pass: {what}")
                return
            await asyncio.sleep(0.2)

    async def _tell(self, began_s: float) -> None:
        while True:
            await asyncio.sleep(min(PROGRESS_EVERY_S, self._options.seconds / 3))
            self._say(self._progress(began_s))

    def _progress(self, began_s: float) -> str:
        newest = self._lives.newest()
        own = {role: found for role, found in newest.items() if not role.startswith("store")}
        rows = {name: int(samples[-1].value) for name, samples in self._counts.items() if name.startswith("rows")}
        return (
            f"{time.monotonic() - began_s:6.0f} s  {self._ledger.given.total():,} jobs stored, "
            f"{self._ledger.ended.total():,} ended, {len(self._ledger.owed)} open, "
            f"{sum(viewer.seen['pages'] for viewer in self._viewers):,} pages, "
            f"{self._killed.total()} kills, {self._rolls} rolls; "
            f"{sum(mib for mib, _ in own.values()):,.0f} MiB, "
            f"{sum(count for _, count in own.values()):,.0f} descriptors, "
            f"{sum(rows.values()):,} rows; {len(self._ledger.faults)} faults"
        )

    # -- the end -----------------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Until all that was stored has ended; what has not after a while never will."""
        for result in await asyncio.gather(*(callers.stop() for callers in self._callers), return_exceptions=True):
            if isinstance(result, BaseException):
                self._ledger.faults.append(f"the end of the callers: {result!r}")
        until_s = time.monotonic() + WITHIN_S
        left: list[dict[str, int]] = []
        looks_without_any = 0
        while time.monotonic() < until_s and looks_without_any < LOOKS_AT_NOTHING:
            left = [await callers.left() for callers in self._callers]
            if not any(left) and not self._ledger.owed:
                break
            looks_without_any = 0 if any(left) else looks_without_any + 1
            await asyncio.sleep(0.5)
        if any(left):
            self._ledger.faults.append(f"jobs are left that never ended: {left}")
        read = self._reads
        while self._reads < read + 2:  # what was written last, too
            await asyncio.sleep(0.1)
        looked = self._looks
        while self._looks < looked + 2:  # and looked up
            await asyncio.sleep(0.1)
        for callers in self._callers:
            await callers.judge_schedules()

    async def _judge(self, began_s: float, ended_s: float) -> Outcome:
        ledger = self._ledger
        owed = Counter(ledger.owed.values())
        faults = [
            f"{count} jobs of {part} were lost: an answer says that they are stored" for part, count in owed.items()
        ]
        faults += ledger.faults
        for viewer in self._viewers:
            faults += [f"a page: {what} ({times} times)" for what, times in viewer.refused.items() if times > 3]
        faults += self._stand.end_workers()
        verdicts = []
        for callers in self._callers:
            await callers.site.run.look_up(callers.client)
            verdicts.append(await asyncio.to_thread(callers.site.run.verdict))
        self._stand.close()
        faults += [f"somebody wrote {text[:2_000]}" for text in self._stand.remarks()]
        for verdict in verdicts:
            faults += [line for violation in verdict.violations for line in violation.lines()]
        judged = trends(
            self._lives, self._counts, self._latencies, warm_until_s=began_s + self._options.warm_s, until_s=ended_s
        )
        return Outcome(
            seconds=ended_s - began_s,
            faults=faults,
            trends=judged,
            amounts=self._amounts(),
            calls=sum(verdict.calls for verdict in verdicts),
            notes=[*self._notes(), *(line for verdict in verdicts for line in verdict.lines())],
        )

    def _amounts(self) -> dict[str, int]:
        ledger = self._ledger
        return {
            "jobs": ledger.given.total() - ledger.given["flow"],
            "flows": ledger.given["flow"],
            "kills": self._killed.total(),
            "rolls": self._rolls,
            "pages": sum(viewer.seen["pages"] for viewer in self._viewers),
            "events": sum(viewer.seen["events"] for viewer in self._viewers),
            "jobs of unknown outcome": ledger.unknown,
            "jobs that ended twice": ledger.again,
        }

    def _notes(self) -> Iterator[str]:
        yield f"stored: {dict(self._ledger.given)}"
        yield f"calls that failed: {dict(self._ledger.unanswered.most_common(12))}"
        yield f"killed: {dict(self._killed)}"
        for name, kinds in self._kinds.items():
            yield f"rows of {name}: {dict(kinds.most_common(8))}"
