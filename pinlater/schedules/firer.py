"""The firing of schedules: at each of its times, the job of a schedule is enqueued once.

The process that maintains the shard where a schedule is at home fires it; the others look one second later whether it
did, and fire where it did not. That no time counts twice is the store's doing: the enqueue and the mark of the last
firing are one step there. So a process that is killed, slow, or wrong about who maintains what, does no harm.

Where no schedule is known there is no task. A process that comes learns from the marks how far others were.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple, Protocol

import structlog

from pinlater.backends.extended import Offered, OfferOutcome
from pinlater.clock import Clock
from pinlater.errors import NoHealthyShards, PinLaterError, QueueNotFound, ShardConnectionFailed
from pinlater.metrics import Metrics
from pinlater.model import ExtendedJob, Misfire
from pinlater.schedules.book import ScheduleBook
from pinlater.schedules.record import AHEAD_MS, SCHEDULE_PREFIX, ScheduleRecord, queue_missing_text, silence_text
from pinlater.timetable import Firings, TimetableInvalid, jitter_ms

_log = structlog.get_logger("pinlater.schedules")

OTHERS_WAIT_MS = 1_000
"""How long the others leave a firing to the process whose it is."""

RETRY_MS = 1_000
GRACE_MS = 60_000
"""A time that has passed for less than that is late, and no misfire."""

SETTLES_MS = 3_000
"""When a home was given up, its marks are lost with it, and each process tells the new one what it knows. In this time
all have done so that run; one that has just begun knows nothing.
"""

SETTLE_LOOK_S = 0.5
LONGEST_WAIT_S = 1.0
"""So often the clock is looked at, which may leap."""

MAX_TIMES = 100
"""Of one schedule in one turn, where many are late."""

DESCRIBED = "unfired_schedules"
"""What a lease says beside what it knows itself, of so many schedules, with so long problems."""

DESCRIBED_OF_SHARDS = "unfired_schedules_of_shards"
"""The names of those whose jobs no store took; the others have a cause of their own."""

DESCRIBED_CAUSES = "unfired_schedules_causes"
"""Of some of those a UnfiredCause, by name: what is to be done depends on it."""

MOST_DESCRIBED = 20
MOST_CHARS = 200
OF_SHARDS = (NoHealthyShards, ShardConnectionFailed)
MAX_FIRING = 64
"""Calls under way at once."""

_PAGE = 1_000
_SLICE = 50
"""So many schedules are worked on before other work has its turn."""


class UnfiredCause(StrEnum):
    """Why a schedule does not fire although nothing failed. The words stand in leases."""

    CLOCK_AHEAD = "ahead"
    """Its mark, or its last change, lies ahead: a clock was wrong."""
    TIMETABLE = "timetable"
    """This server cannot read it: its time zone is not known here, or a newer server made it."""


class _Unfired(NamedTuple):
    queue: str
    why: str
    cause: UnfiredCause | None = None
    is_of_shard: bool = False


class FiringCalls(Protocol):
    """The shards, as far as schedules need them."""

    async def fire(self, queue: str, job: ExtendedJob, schedule: str, mark: str, now_ms: int) -> Offered:
        """See Router.fire."""

    async def last_firings(
        self, schedules: Sequence[str], homes: Sequence[str | None] = (), marks: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """See Router.last_firings."""

    def homes_version(self) -> str:
        """See Router.homes_version."""

    def has_lost_homes(self) -> bool:
        """See Router.has_lost_homes."""

    def home_of_schedule(self, schedule: str, serialize_key: str) -> str | None:
        """The shard where it is at home; None: nobody knows yet."""


class FiringCluster(Protocol):
    """The processes of the cluster."""

    def owns(self, shard_id: str) -> bool:
        """Whether this process maintains the shard now."""

    def up_since_ms(self) -> int:
        """Since when there has been a process without a break, as far as the living ones can tell."""


@dataclass(slots=True)
class _Clockwork:
    """A schedule in this process: all times up to `done_ms` are dealt with, and `next_ms` is the one that follows. It
    is looked at when it is `look_ms`; None: it is being looked at. `fired_ms`: the last time that is known to have
    fired, whoever did it; 0: none.

    `is_sure`: the last try did not fail, so nobody else is known to have been needed.
    """

    record: ScheduleRecord
    firings: Firings
    done_ms: int
    fired_ms: int = 0
    next_ms: int | None = None
    look_ms: int | None = None
    is_sure: bool = True
    error: str = ""
    is_of_shard: bool = False
    """A store did not take its job."""


class ScheduleFirer:
    """Fires the schedules of one process's book, from `start` to `close`. `jobs_ready` is told of each new job: the
    queue, how many may be handed out now, and when others may.
    """

    def __init__(
        self,
        book: ScheduleBook,
        calls: FiringCalls,
        cluster: FiringCluster,
        clock: Clock,
        metrics: Metrics,
        jobs_ready: Callable[[str, int, Sequence[int]], None],
        steady: Clock | None = None,
    ) -> None:
        """`steady`: a clock that nobody sets, which shows when the other one was set; None: it never is."""
        self._book = book
        self._calls = calls
        self._cluster = cluster
        self._clock = clock
        self._steady = steady or clock
        self._metrics = metrics
        self._jobs_ready = jobs_ready
        self._known: dict[str, _Clockwork] = {}
        self._unread: dict[str, _Unfired] = {}
        """Those whose timetables cannot be read."""
        self._unsure: dict[str, None] = {}
        """Those that came or changed, and whose marks are to be read, in order."""
        self._due: list[tuple[int, str]] = []
        """A heap: when to look, and name; what is outdated is left in it."""
        self._ahead_ms = 0
        """How far the clock was ahead of the steady one, in the turn before."""
        self._now_ms = 0
        """In the turn before."""
        self._leapt_ms = 0
        """The time of the last leap: nobody was there at the times before it that were not dealt with."""
        self._homes_version = calls.homes_version()
        self._settles_ms = 0
        """By the steady clock: the time until which nothing fires, since marks were lost with their shard."""
        self._has_two_passes = False
        """Of one schedule at least that was ever here."""
        self._two_passes_from_ms = book.repeated_hours.from_ms()
        self._news = asyncio.Event()
        self._one_turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._is_started = False
        book.on_change(self._on_change)

    def start(self) -> None:
        self._is_started = True
        self._on_change(self._book.names())

    async def close(self) -> None:
        """Fires nothing any more."""
        self._is_started = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def is_running(self) -> bool:
        """Whether there is a task."""
        return self._task is not None and not self._task.done()

    def problem_of(self, record: ScheduleRecord) -> str:
        """Why a schedule could not be fired, as far as this process tried."""
        known = self._known.get(record.schedule.name)
        return known.error if known is not None else ""

    def describe(self) -> Mapping[str, Any]:
        """For the lease of this process: the schedules that it cannot fire, with their queues and why; some of them."""
        unfired = dict(islice(self._unfired(), MOST_DESCRIBED))
        if not unfired:
            return {}
        causes = {name: each.cause for name, each in unfired.items() if each.cause is not None}
        return {
            DESCRIBED: [(name, each.queue, each.why[:MOST_CHARS]) for name, each in unfired.items()],
            DESCRIBED_OF_SHARDS: [name for name, each in unfired.items() if each.is_of_shard],
            **({DESCRIBED_CAUSES: causes} if causes else {}),
        }

    def _unfired(self) -> Iterator[tuple[str, _Unfired]]:
        yield from self._unread.items()
        least_ms = self._clock.now_ms() + AHEAD_MS
        for name, known in self._known.items():
            if known.done_ms > least_ms:
                text = silence_text(known.done_ms)
                yield name, _Unfired(known.record.schedule.queue, text, UnfiredCause.CLOCK_AHEAD)
            elif known.error:
                yield name, _Unfired(known.record.schedule.queue, known.error, None, known.is_of_shard)

    # -- what there is -------------------------------------------------------------------------------------------------

    def _on_change(self, names: Sequence[str]) -> None:
        if not self._is_started or not names:
            return
        for name in names:
            self._take(name)
        self._news.set()
        if self._known and not self.is_running:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def _take(self, name: str) -> None:
        record = self._book.get(name)
        before = self._known.pop(name, None)
        self._unsure.pop(name, None)
        self._unread.pop(name, None)
        if record is None or record.schedule.paused:
            return
        try:
            firings = self._book.firings(record)
        except TimetableInvalid as error:
            _log.error("schedule_not_fired", schedule=name, error=str(error))
            self._unread[name] = _Unfired(record.schedule.queue, str(error), UnfiredCause.TIMETABLE)
            return
        self._has_two_passes = self._has_two_passes or record.has_two_passes
        is_same = before is not None and before.record.generation == record.generation
        done_ms = max(record.counts_from_ms, before.done_ms if before and is_same else 0)
        fired_ms = before.fired_ms if before and is_same else 0
        self._known[name] = _Clockwork(record, firings, done_ms, fired_ms, error=before.error if before else "")
        self._unsure[name] = None

    # -- turns ---------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while self._known:
            self._news.clear()
            try:
                wait_s = await self.turn()
            except Exception:
                _log.exception("schedules_interrupted")
                wait_s = LONGEST_WAIT_S
            try:
                await asyncio.wait_for(self._news.wait(), wait_s)
            except TimeoutError:
                continue

    async def turn(self) -> float:
        """Do what is due now; in how many seconds to look again at the latest."""
        async with self._one_turn:
            return await self._turn()

    async def _turn(self) -> float:
        self._look_at_clock()
        if self._calls.homes_version() != self._homes_version:
            self._homes_version = self._calls.homes_version()
            self._unsure.update(dict.fromkeys(self._known))
            if self._calls.has_lost_homes():
                self._settles_ms = self._steady.now_ms() + SETTLES_MS
        await self._count_passes()
        if self._steady.now_ms() < self._settles_ms:
            await self._read_marks([*self._known.values()])
            return SETTLE_LOOK_S
        await self._take_up()
        now_ms = self._clock.now_ms()
        taken: list[_Clockwork] = []
        try:
            await self._look(now_ms, taken)
        finally:
            for known in taken:
                if known.look_ms is None and known.next_ms is not None:  # whatever came between
                    self._look_at(known, now_ms + RETRY_MS)
        if self._unsure:
            return RETRY_MS / 1000
        if not self._due:
            return LONGEST_WAIT_S
        return min(max((self._due[0][0] - self._clock.now_ms()) / 1000, 0.0), LONGEST_WAIT_S)

    async def _count_passes(self) -> None:
        """An hour that comes twice counts twice from now on, or no longer."""
        hours = self._book.repeated_hours
        from_ms = hours.from_ms()
        if from_ms is None and self._has_two_passes:
            await hours.begin()
            from_ms = hours.from_ms()
        if from_ms == self._two_passes_from_ms:
            return
        self._two_passes_from_ms = from_ms
        for name, known in self._known.items():
            if known.record.has_two_passes:
                known.firings = self._book.firings(known.record)
                self._unsure[name] = None

    def _look_at_clock(self) -> None:
        """Set ahead, the clock shows times at which nobody was there. Set back, it brings times that were left out."""
        now_ms = self._clock.now_ms()
        ahead_ms = now_ms - self._steady.now_ms()
        if self._now_ms and ahead_ms > self._ahead_ms + GRACE_MS:
            self._leapt_ms = now_ms - GRACE_MS
        if now_ms < self._now_ms - GRACE_MS:
            self._leapt_ms = 0
            for name, known in self._known.items():
                known.done_ms = known.record.counts_from_ms
                self._unsure[name] = None
        self._now_ms, self._ahead_ms = now_ms, ahead_ms

    async def _look(self, now_ms: int, taken: list[_Clockwork]) -> None:
        """At those whose times have come, which are `taken` off the heap."""
        due: list[_Clockwork] = []
        unsure: list[_Clockwork] = []
        owned: dict[str | None, bool] = {}
        while self._due and self._due[0][0] <= now_ms:
            look_ms, name = heapq.heappop(self._due)
            known = self._known.get(name)
            if known is None or known.look_ms != look_ms or known.next_ms is None:
                continue
            known.look_ms = None
            taken.append(known)
            home = self._home_of(known)
            if home not in owned:
                owned[home] = home is not None and self._cluster.owns(home)
            if not owned[home] and now_ms < known.next_ms + OTHERS_WAIT_MS:
                self._look_at(known, known.next_ms + OTHERS_WAIT_MS)
                continue
            due.append(known)
            if not (owned[home] and known.is_sure):
                unsure.append(known)
        if unsure:
            await self._read_marks(unsure)
        if due:
            await self._fire_all(due, now_ms)

    def _home_of(self, known: _Clockwork) -> str | None:
        schedule = known.record.schedule
        return self._calls.home_of_schedule(schedule.name, schedule.serialize_key)

    async def _take_up(self) -> None:
        """Read the marks of those that came or changed, and look at them when their times come."""
        names = [*self._unsure]
        for start in range(0, len(names), _PAGE):
            some = [self._known[name] for name in names[start : start + _PAGE] if name in self._known]
            if not await self._read_marks(some):
                return
            for place, known in enumerate(some):
                name = known.record.schedule.name
                if self._known.get(name) is not known:
                    continue
                self._unsure.pop(name, None)
                self._plan(known)
                if place % _SLICE == _SLICE - 1:
                    await asyncio.sleep(0)

    async def _read_marks(self, some: Sequence[_Clockwork]) -> bool:
        """How far others were. Whether any shard answered."""
        for start in range(0, len(some), _PAGE):
            part = some[start : start + _PAGE]
            try:
                names = [known.record.entry_name for known in part]
                own = {each.record.entry_name: each.record.mark(each.fired_ms) for each in part if each.fired_ms}
                marks = await self._calls.last_firings(names, [self._home_of(known) for known in part], own)
            except PinLaterError as error:
                _log.debug("schedule_marks_not_read", error=error.message)
                return False
            for known in part:
                fired_ms = known.record.fired_ms(marks.get(known.record.entry_name)) or 0
                known.fired_ms = max(known.fired_ms, fired_ms)
                known.done_ms = max(known.done_ms, fired_ms)
        return True

    def _plan(self, known: _Clockwork) -> None:
        """Look at it again when its next time comes."""
        known.next_ms = known.firings.after(known.done_ms)
        if known.next_ms is None:
            known.look_ms = None
        else:
            self._look_at(known, known.next_ms)

    def _look_at(self, known: _Clockwork, ms: int) -> None:
        if known.look_ms != ms:
            known.look_ms = ms
            heapq.heappush(self._due, (ms, known.record.schedule.name))

    # -- firing --------------------------------------------------------------------------------------------------------

    async def _fire_all(self, due: Sequence[_Clockwork], now_ms: int) -> None:
        permits = asyncio.Semaphore(MAX_FIRING)
        missed_until_ms = max(min(self._cluster.up_since_ms() - 1, now_ms - GRACE_MS), self._leapt_ms)

        async def fire(known: _Clockwork) -> None:
            async with permits:
                try:
                    await self._fire(known, now_ms, missed_until_ms)
                except Exception:  # unforeseen: neither this one nor the others may be forgotten
                    _log.exception("schedule_interrupted", schedule=known.record.schedule.name)
                    known.error, known.is_sure = "an unexpected error, which the server's log has", False
                    self._look_at(known, self._clock.now_ms() + RETRY_MS)

        for start in range(0, len(due), _PAGE):
            await asyncio.gather(*[fire(known) for known in due[start : start + _PAGE]])

    async def _fire(self, known: _Clockwork, now_ms: int, missed_until_ms: int) -> None:
        """All that is due of one schedule, the oldest first; what could not be fired is tried again."""
        name = known.record.schedule.name
        for time_ms in self._due_times(known, now_ms, missed_until_ms):
            if self._book.get(name) is not known.record:
                return  # changed or deleted meanwhile
            try:
                offered = await self._fire_at(known, time_ms)
            except PinLaterError as error:
                self._not_fired(known, time_ms, error)
                return
            known.done_ms = max(known.done_ms, time_ms)
            known.fired_ms = max(known.fired_ms, time_ms)
            self._fired(known, time_ms, offered)
        if self._known.get(name) is known:
            self._plan(known)

    def _due_times(self, known: _Clockwork, now_ms: int, missed_until_ms: int) -> list[int]:
        """In order. Of times at which no process was there, what the misfire rule leaves."""
        schedule, firings = known.record.schedule, known.firings
        times: list[int] = []
        from_ms = known.done_ms
        if from_ms < missed_until_ms:
            limits = {Misfire.SKIP: 0, Misfire.RUN_ONCE: 1, Misfire.RUN_ALL: schedule.max_catch_up}
            before_ms: int = missed_until_ms
            while len(times) < limits[schedule.misfire]:
                time_ms = firings.latest(before_ms, from_ms)
                if time_ms is None:
                    break
                times.insert(0, time_ms)
                before_ms = time_ms - 1
            if not times:
                known.done_ms = missed_until_ms
            from_ms = missed_until_ms
        while len(times) < MAX_TIMES:
            following = firings.after(from_ms)
            if following is None or following > now_ms:
                break
            times.append(following)
            from_ms = following
        return times

    def _fire_at(self, known: _Clockwork, time_ms: int) -> Coroutine[Any, Any, Offered]:
        schedule = known.record.schedule
        delay_ms = jitter_ms(schedule, time_ms)
        job = ExtendedJob(
            schedule.body,
            schedule.priority,
            time_ms + delay_ms if delay_ms else None,
            schedule.attempts_allowed,
            dedupe_key=f"{SCHEDULE_PREFIX}{schedule.name}/{time_ms}",
            serialize_key=schedule.serialize_key,
            tags=schedule.tags,
            group=schedule.group,
        )
        return self._calls.fire(
            schedule.queue, job, known.record.entry_name, known.record.mark(time_ms), self._clock.now_ms()
        )

    def _fired(self, known: _Clockwork, time_ms: int, offered: Offered) -> None:
        schedule = known.record.schedule
        known.error, known.is_sure = "", True
        is_new = offered.outcome is OfferOutcome.STORED
        self._metrics.add(1, "schedule_firings", schedule.queue, "stored" if is_new else "kept")
        if not is_new:
            return
        now_ms = self._clock.now_ms()
        self._metrics.add(1, "jobs_enqueued", schedule.queue, schedule.priority)
        self._metrics.observe((now_ms - time_ms) / 1000, "schedule_lateness", schedule.queue)
        _log.debug("schedule_fired", schedule=schedule.name, time_ms=time_ms, job=offered.descriptor)
        if offered.ready_at_ms is not None:
            is_ready = offered.ready_at_ms <= now_ms
            self._jobs_ready(schedule.queue, int(is_ready), () if is_ready else (offered.ready_at_ms,))

    def _not_fired(self, known: _Clockwork, time_ms: int, error: PinLaterError) -> None:
        schedule = known.record.schedule
        now_ms = self._clock.now_ms()
        self._metrics.add(1, "schedule_firings", schedule.queue, "failed")
        is_gone = isinstance(error, QueueNotFound)
        problem = queue_missing_text(schedule.queue) if is_gone else error.message
        if known.error != problem:
            _log.warning("schedule_not_fired", schedule=schedule.name, time_ms=time_ms, error=problem)
        known.error, known.is_of_shard = problem, isinstance(error, OF_SHARDS)
        if is_gone:
            known.done_ms = max(known.done_ms, now_ms - GRACE_MS)  # its queue is gone: nothing is made up for
        known.is_sure = False
        self._look_at(known, now_ms + RETRY_MS)
