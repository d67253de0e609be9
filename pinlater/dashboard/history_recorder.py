"""The recorder of the history: asks the servers for totals and counts every few seconds, and closes minutes.

It is a client like others, and writes in one process at a time. What the process before it did not write is in the
difference of the totals, which the ledger in the file brings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from heapq import nlargest
from time import monotonic

import msgspec
import structlog

from pinlater.api import Api
from pinlater.counter_ledger import CounterLedger, spread
from pinlater.dashboard.history_file import HOUR
from pinlater.dashboard.history_store import HistoryStore
from pinlater.dashboard.job_sampler import JobSampler
from pinlater.dashboard.queue_record import QueueRecord, fewer_words, pack, scaled, share_words, unpack
from pinlater.errors import Forbidden, PinLaterError
from pinlater.model import ClusterStatus, QueueStatus, RequestContext

_log = structlog.get_logger("pinlater.history")
MINUTE_MS = 60_000
EVERY_S, SELDOM_S = 5.0, 30.0
SHARE = 0.004
"""The part of the time that a server may take to answer."""

LONGEST_GAP_MS = 180_000
"""Of what was counted in a longer time nobody knows when it was: it is in no minute."""

SET_BACK_MS = 600_000
"""A clock that is behind by more was set back; one that is behind by less is waited for."""

OVERLAP_MS = 120_000
"""A lease may be read late: what changed so long before is asked for again."""

ALL_QUEUES = ""
MAX_WORDS_OF_ALL = 12
WORDS_BYTES = 64 * 1024
"""Of the reasons and types in a minute: a job may fail with any word. Each queue has a share of them."""

MOST_QUEUES = 4_000
"""In a minute; the busiest come first."""

Levels = tuple[int, int, int, int, int]
"""Jobs that are ready, scheduled, running and blocked, and since when one has been ready (0: none is)."""

_NO_JOBS: Levels = (0, 0, 0, 0, 0)


class HistoryRecorder:
    """`context` is that of its own calls. `every_s`: how often it asks at most."""

    def __init__(
        self,
        api: Api,
        context: RequestContext,
        store: HistoryStore,
        *,
        every_s: float = EVERY_S,
        new_sampler: Callable[[int], JobSampler] | None = None,
    ) -> None:
        self._api = api
        self._context = context
        self._store = store
        self._every_s = every_s
        self._new_sampler = new_sampler or (lambda since_ms: JobSampler(api, context, since_ms))
        self.problem = ""
        """Why nothing is recorded now, or not all."""
        self._logged: str | None = None
        self._failure = ""
        """The error that the last try has ended with."""
        self.sampler: JobSampler | None = None
        self._ledger = CounterLedger()
        self._counted_ms: int | None = None
        """Until when totals are in the ledger."""
        self._requested_ms = 0
        self._open: dict[int, dict[str, QueueRecord]] = {}
        self._levels: dict[str, Levels] = {}
        self._emitted: dict[str, Levels] = {}
        self._hour: int | None = None
        """The hours before this one are put away."""
        self._names: list[str] | None = None
        """Only these may be asked for; None: all."""
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = asyncio.Event()

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Write what is known, and let another process go on."""
        if self._task is None:
            return
        self._is_stopping.set()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    async def _run(self) -> None:
        is_recording = False
        while not self._is_stopping.is_set():
            took_s = 0.0
            try:
                if not is_recording and await self._store.claim():
                    await self.resume()
                    is_recording = True
                if is_recording:
                    took_s = await self.poll()
                else:
                    await self._store.follow()
                    self._go_well()
            except Exception as error:
                if self._failure != repr(error):
                    self._failure = repr(error)
                    _log.exception("history_failed")
                self.problem = "recording fails; the log says why (history_failed)"
            with suppress(TimeoutError):
                wait_s = max(self._every_s, min(SELDOM_S, took_s / SHARE))
                await asyncio.wait_for(self._is_stopping.wait(), wait_s)
        if is_recording:
            await self.close_minutes(None)
            await self._store.release()

    async def resume(self) -> None:
        """Go on where the process before has ended."""
        facts = await self._store.facts()
        try:
            self._ledger = CounterLedger.unpacked(facts["ledger"])
            self._counted_ms = int(facts["counted_ms"])
        except (KeyError, ValueError, msgspec.MsgspecError):
            self._ledger, self._counted_ms = CounterLedger(), None
        self._requested_ms = 0
        self.sampler = None

    # -- one look ------------------------------------------------------------------------------------------------------

    async def poll(self) -> float:
        """Ask once, and look at some jobs; how long the servers took for the first, in seconds."""
        begun_s = monotonic()
        try:
            status = await self._status()
        except PinLaterError as error:
            self._say(_why(error))
            return 0.0
        took_s = monotonic() - begun_s
        now_ms = status.now_ms
        if self._counted_ms is not None and now_ms <= self._counted_ms:
            if self._counted_ms - now_ms < SET_BACK_MS:
                return took_s
            _log.warning("history_clock_set_back", by_ms=self._counted_ms - now_ms)
            self._open.clear()
            self._counted_ms = None
            await self._store.forget_after(now_ms // MINUTE_MS)
        since_ms, passed_ms = self._counted_ms, now_ms - (self._counted_ms or now_ms)
        if self.sampler is None:  # before the counts are taken: it has to know what happened
            self.sampler = self._new_sampler(now_ms if since_ms is None else since_ms)
        self._take(status)
        for queue, record in (await self.sampler.sample(now_ms, passed_ms / 1000)).items():
            self._record(now_ms // MINUTE_MS, queue).merge_samples(record)
        await self.close_minutes(now_ms // MINUTE_MS)
        self._go_well()
        return took_s

    def _go_well(self) -> None:
        if self._failure:
            self._failure, self.problem = "", self._logged or ""

    async def _status(self) -> ClusterStatus:
        """PinLaterError. Where all queues may not be asked for, those are that may."""
        since_ms = max(0, self._requested_ms - OVERLAP_MS)
        if self._names is None:
            try:
                status = await self._api.cluster_status(counters_since_ms=since_ms, context=self._context)
            except Forbidden:
                self._names = []
            else:
                self._requested_ms = status.now_ms
                return status
        self._names = sorted(await self._api.queue_names(context=self._context))
        try:
            status = await self._api.cluster_status(
                queues=self._names, counters_since_ms=since_ms, context=self._context
            )
        except Forbidden:
            self._names = None  # next time by what it may do then
            raise
        self._requested_ms = status.now_ms
        return status

    def _take(self, status: ClusterStatus) -> None:
        now_ms = status.now_ms
        minute = now_ms // MINUTE_MS
        since_ms = self._counted_ms
        first = minute
        if status.counters is None:
            self._say("the servers are of an earlier version, which does not report its counts")
        else:
            some = self._names is not None
            self._say(f"only the {len(self._names or ())} queues that it may read are recorded" if some else "")
            new = self._ledger.take(status.counters, since_ms, now_ms)
            if since_ms is not None and now_ms - since_ms <= LONGEST_GAP_MS:
                first = since_ms // MINUTE_MS
                self._count(new, since_ms, now_ms)
            elif since_ms is None:
                self._count(new, now_ms, now_ms)
            if self.sampler is not None:
                self.sampler.note(new)
            self._counted_ms = now_ms
        unseen = [each for each in range(first, minute) if not self._seen(each)]
        self._see(status.queues, now_ms, [*unseen, minute])

    def _count(self, new: dict[str, list[int]], from_ms: int, to_ms: int) -> None:
        for queue, numbers in new.items():
            for minute, part in spread(numbers, from_ms, to_ms, MINUTE_MS).items():
                if any(part):
                    self._record(minute, queue).count(part)
                    self._record(minute, ALL_QUEUES).count(part)

    def _see(self, queues: list[QueueStatus], now_ms: int, minutes: list[int]) -> None:
        """How many jobs are there, for these minutes."""
        total = [0, 0, 0, 0, 0]
        levels: dict[str, Levels] = {}
        for queue in queues:
            found = levels[queue.name] = _levels_of(queue)
            for at in range(4):
                total[at] += found[at]
            if found[4] and (not total[4] or found[4] < total[4]):
                total[4] = found[4]
        levels[ALL_QUEUES] = (total[0], total[1], total[2], total[3], total[4])
        self._levels = levels
        for minute in minutes:
            for name, (ready, scheduled, running, blocked, since_ms) in levels.items():
                oldest_s = max(0, now_ms - since_ms) // 1000 if since_ms else 0
                self._record(minute, name).see(ready, scheduled, running, blocked, oldest_s)

    def _seen(self, minute: int) -> bool:
        records = self._open.get(minute)
        return records is not None and len(records) > 1

    def _record(self, minute: int, queue: str) -> QueueRecord:
        records = self._open.get(minute)
        if records is None:
            records = self._open[minute] = {ALL_QUEUES: QueueRecord()}
        record = records.get(queue)
        if record is None:
            record = records[queue] = QueueRecord()
        return record

    # -- minutes that are over -----------------------------------------------------------------------------------------

    async def close_minutes(self, before: int | None) -> None:
        """Write the minutes before that one; None: all, since another process goes on."""
        over = sorted(minute for minute in self._open if before is None or minute < before)
        if not over or self._counted_ms is None:
            return
        packed = {minute: self._closed(minute) for minute in over}
        facts = {"ledger": self._ledger.packed(), "counted_ms": str(self._counted_ms).encode()}
        await self._store.write(packed, facts)
        hour = (over[-1] + (before is not None)) // HOUR
        if hour != self._hour:
            await self._store.put_away(hour)
            self._hour = hour

    def _closed(self, minute: int) -> dict[str, bytes]:
        records = self._open.pop(minute)
        total = records.pop(ALL_QUEUES)
        self._sum_up(records, total)
        changed = [queue for queue, record in records.items() if self._is_new(minute, queue, record)]
        if len(changed) > MOST_QUEUES:
            changed = nlargest(MOST_QUEUES, changed, lambda queue: records[queue].events)
        packed = {ALL_QUEUES: pack(total), **{queue: pack(records[queue]) for queue in changed}}
        for queue in self._emitted.keys() - records.keys():  # it was deleted: what waited there does so no more
            del self._emitted[queue]
            packed[queue] = pack(QueueRecord())
        for queue, before in self._store.recent.get(minute, {}).items():  # of the process before this one
            record = unpack(before)
            if queue in packed:
                record.merge(unpack(packed[queue]))
            packed[queue] = pack(record)
        return packed

    def _sum_up(self, records: Mapping[str, QueueRecord], total: QueueRecord) -> None:
        """Scale what was seen of failures up to all of them, and add the samples of all queues up."""
        for record in records.values():
            record.reasons = fewer_words(scaled(record.reasons, record.failed))
            record.types = fewer_words(scaled(record.types, record.failed))
        share_words(records.values(), WORDS_BYTES)
        for record in records.values():
            total.merge_samples(record)
        total.reasons = fewer_words(total.reasons, MAX_WORDS_OF_ALL)
        total.types = fewer_words(total.types, MAX_WORDS_OF_ALL)

    def _is_new(self, minute: int, queue: str, record: QueueRecord) -> bool:
        """Whether it says more than that all is as before. In each hour's first minute what waits is told again."""
        since_ms = self._levels.get(queue, _NO_JOBS)[4]
        shown = (record.ready, record.scheduled, record.running, record.blocked, since_ms)
        is_same = shown == self._emitted.get(queue, _NO_JOBS)
        if any(shown):
            self._emitted[queue] = shown
        else:
            self._emitted.pop(queue, None)
        says_more = record.events or record.waits or record.sampled or not is_same
        return bool(says_more or (minute % HOUR == 0 and any(shown)))

    def _say(self, problem: str) -> None:
        if problem != self._logged:
            self.problem = self._logged = problem
            if problem:
                _log.warning("history_incomplete", reason=problem)
            else:
                _log.info("history_recorded", path=str(self._store.path or "in memory"))


def _levels_of(queue: QueueStatus) -> Levels:
    ready = scheduled = running = blocked = since_ms = 0
    for level in queue.levels:
        ready += level.ready
        scheduled += level.scheduled
        running += level.in_progress
        blocked += level.waiting
        if level.oldest_ready_ms and (not since_ms or level.oldest_ready_ms < since_ms):
            since_ms = level.oldest_ready_ms
    return ready, scheduled, running, blocked, since_ms


def _why(error: PinLaterError) -> str:
    if isinstance(error, Forbidden):
        return "it may read no queue: give its identity the role history"
    return f"no server answers: {error.message}"
