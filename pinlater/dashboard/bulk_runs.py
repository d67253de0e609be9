"""Runs of changes to many jobs: each goes on in this process until it is done, whether its page is open or not.

A run goes from queue to queue in slices, a few runs at a time. It can be stopped between two slices, and is when this
process ends; what is left then still matches its filter, so the same filter goes on. Runs are kept in memory; the
audit of the servers has them for good.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from itertools import count
from operator import attrgetter
from time import time
from typing import Any, NamedTuple

import structlog

from pinlater.api import Api
from pinlater.errors import Draining, PinLaterError
from pinlater.http.fair_shares import FairEntries, FairPlaces
from pinlater.job_filters.bulk_order import MAX_NOTE_CHARS, RunOrder
from pinlater.model import CONTINUATION_END, CONTINUATION_START, JobsChanged, RequestContext
from pinlater.model.job_selection import FoundJobsChange

_log = structlog.get_logger("pinlater.dashboard")
AT_ONCE = 6
MAX_RUNS = 200
"""Kept; the oldest that has ended makes room, of whoever has most."""

MAX_WAITING = 40
MAX_REFUSALS = 100
"""Refusals that are kept one by one."""

TRIES = 5
PAUSE_S = 1.0
CLOSE_WITHIN_S = 4.0


class RunState(Enum):
    WAITING = "waits for its turn"
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


_ENDED = (RunState.DONE, RunState.STOPPED, RunState.FAILED)


@dataclass(slots=True, eq=False)
class BulkRun:
    """One run, and how far it is. `payer`: whom it counts as. `queues` are those that it goes through, with the
    priorities that their jobs have; `of_about`: how many jobs these have of the states that it means. `number`: in the
    order of their beginning.
    """

    order: RunOrder
    owner: Hashable
    payer: Hashable
    who: str
    context: RequestContext = field(repr=False)
    queues: dict[str, Sequence[int]]
    of_about: int
    number: int = 0
    id: str = field(default_factory=partial(secrets.token_urlsafe, 9))
    began_ms: int = field(default_factory=lambda: int(time() * 1000))
    state: RunState = RunState.WAITING
    ended_ms: int | None = None
    queue: str = ""
    changed: int = 0
    stops_requested: int = 0
    examined: int = 0
    refused: int = 0
    refusals: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    """By queue, what kept it from being done whole."""

    @property
    def is_ended(self) -> bool:
        return self.state in _ENDED

    @property
    def share(self) -> float:
        """How much of the way it has gone, 0 to 1."""
        if self.is_ended and self.state is RunState.DONE:
            return 1.0
        return min(0.99, self.examined / self.of_about) if self.of_about else 0.0


class BulkRuns:
    """All runs of this process."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._runs: FairEntries[BulkRun] = FairEntries("http_runs", MAX_RUNS, is_spared=lambda run: not run.is_ended)
        self._waits = FairPlaces("http_waiting_runs", MAX_WAITING, "runs that wait", "wait until one is done")
        self._turns = FairPlaces("http_run_turns", AT_ONCE, "runs under way", "wait until one is done")
        self.pools: Sequence[FairPlaces | FairEntries[Any]] = (self._runs, self._waits, self._turns)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._numbers = count(1)

    def start(self, run: BulkRun) -> BulkRun:
        """Begin it when its turn comes. Overloaded: too many of its payer wait."""
        if self._is_closing:
            raise Draining("this process ends, and begins no more runs: try again in a moment")
        self._waits.take(run.payer)
        run.number = next(self._numbers)
        self._runs.put(run.payer, run.id, run)
        self._begin_next()
        return run

    def _begin_next(self) -> None:
        """Those that wait, in their order, as far as whom they count as has turns left."""
        for run in sorted(self._waiting(), key=attrgetter("number")):
            if not self._turns.has_room(run.payer):
                continue
            self._turns.take(run.payer)
            self._waits.give_back(run.payer)
            run.state = RunState.RUNNING
            task = asyncio.create_task(self._carry_out(run))
            self._tasks.add(task)
            task.add_done_callback(partial(self._landed, run))

    def _landed(self, run: BulkRun, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._turns.give_back(run.payer)
        if not self._is_closing:
            self._begin_next()

    def _waiting(self) -> list[BulkRun]:
        return [run for run in self._runs if run.state is RunState.WAITING]

    def find(self, run_id: str) -> BulkRun | None:
        return self._runs.get(run_id)

    def all(self) -> list[BulkRun]:
        """The latest first."""
        return sorted(self._runs, key=attrgetter("number"), reverse=True)

    def stop(self, run: BulkRun) -> None:
        """After the slice that is under way."""
        if run.state is RunState.WAITING:
            self._waits.give_back(run.payer)
            self._end(run, RunState.STOPPED)
        elif run.state is RunState.RUNNING:
            run.state = RunState.STOPPING

    async def close(self) -> None:
        """The runs end after the slices that are under way."""
        self._is_closing = True
        for run in self._runs:
            self.stop(run)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_WITHIN_S)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- one run -------------------------------------------------------------------------------------------------------

    async def _carry_out(self, run: BulkRun) -> None:
        try:
            for queue, priorities in run.queues.items():
                if run.state is not RunState.RUNNING:
                    break
                run.queue = queue
                await self._on_queue(run, queue, priorities)
        except Exception:
            _log.exception("bulk_run_failed", run=run.id, filter=run.order.line.text())
            run.problems.setdefault(run.queue, "it ended by an error; the log of the HTTP process has it")
            self._end(run, RunState.FAILED)
            return
        is_stopped = run.state is RunState.STOPPING
        self._end(run, RunState.STOPPED if is_stopped else RunState.FAILED if self._all_failed(run) else RunState.DONE)

    def _all_failed(self, run: BulkRun) -> bool:
        return bool(run.queues) and len(run.problems) == len(run.queues) and not run.changed

    def _end(self, run: BulkRun, state: RunState) -> None:
        run.state, run.ended_ms = state, int(time() * 1000)
        _log.info(
            "bulk_run_ended",
            run=run.id,
            state=state.name.lower(),
            action=run.order.action.word,
            filter=run.order.line.text(),
            jobs=run.changed,
            who=run.who,
        )

    async def _on_queue(self, run: BulkRun, queue: str, priorities: Sequence[int]) -> None:
        change = run.order.change(queue, run.began_ms, priorities)
        if change is None:
            return
        while True:
            try:
                slice_ = await self._slice(run, change)
            except PinLaterError as error:
                run.problems[queue] = error.message
                if change.continuation != CONTINUATION_START:
                    await self._say_end(run, change, f"failed: {error.message[:200]}")
                return
            run.changed += slice_.changed
            run.stops_requested += slice_.asked_to_stop
            run.examined += slice_.looked_at
            run.refused += len(slice_.refusals)
            for descriptor, why in slice_.refusals.items():
                if len(run.refusals) < MAX_REFUSALS:
                    run.refusals[descriptor] = why
            if slice_.missing_shards:
                run.problems[queue] = f"not all jobs were searched: shard {', '.join(slice_.missing_shards)} is away"
            change.continuation = slice_.continuation
            if slice_.continuation == CONTINUATION_END:
                return
            if run.state is not RunState.RUNNING:
                why = "its HTTP process ended; the same filter goes on" if self._is_closing else ""
                await self._say_end(run, change, why)
                return

    async def _slice(self, run: BulkRun, change: FoundJobsChange) -> JobsChanged:
        """One call. What surely changed nothing, and may pass, is tried again for a while."""
        for tries_left in reversed(range(TRIES)):
            try:
                return await self._api.change_found_jobs(change, context=run.context)
            except PinLaterError as error:
                if not error.retryable or not tries_left or run.state is not RunState.RUNNING:
                    raise
                await asyncio.sleep(max(PAUSE_S, (error.retry_after_ms or 0) / 1000))
        raise AssertionError("the last try returns or raises")

    async def _say_end(self, run: BulkRun, change: FoundJobsChange, why: str) -> None:
        """The audit gets the sum of what was done on this queue."""
        note = "; ".join(each for each in (change.note, why) if each)[:MAX_NOTE_CHARS]
        try:
            await self._api.change_found_jobs(replace(change, limit=0, is_last=True, note=note), context=run.context)
        except PinLaterError as error:
            _log.warning("bulk_run_not_recorded", run=run.id, error=error.message)


class Tried(NamedTuple):
    """What a run would touch, as far as was looked within a moment."""

    matched: int
    examined: int
    of_about: int
    is_all: bool
    problems: dict[str, str]


async def try_run(
    api: Api,
    context: RequestContext,
    order: RunOrder,
    queues: dict[str, Sequence[int]],
    of_about: int,
    now_ms: int,
    within_s: float,
) -> Tried:
    """Count what a run would touch, for so long."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + within_s
    matched = examined = 0
    problems: dict[str, str] = {}
    is_all = True
    for queue, priorities in queues.items():
        change = order.change(queue, now_ms, priorities)
        if change is None:
            continue
        change = replace(change, dry_run=True, limit=1_000_000)
        while True:
            left_ms = int((ends_s - loop.time()) * 1000)
            if left_ms <= 0:
                return Tried(matched, examined, of_about, False, problems)
            try:
                found = await api.change_found_jobs(replace(change, max_ms=left_ms), context=context)
            except PinLaterError as error:
                problems[queue] = error.message
                is_all = False
                break
            matched += found.changed
            examined += found.looked_at
            if found.missing_shards:
                problems[queue] = f"shard {', '.join(found.missing_shards)} is away"
                is_all = False
            if found.continuation == CONTINUATION_END:
                break
            change.continuation = found.continuation
    return Tried(matched, examined, of_about, is_all, problems)
