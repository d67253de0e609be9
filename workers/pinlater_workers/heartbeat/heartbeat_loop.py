"""The loop that beats claims and reports of their worker, over a client of its own; in a process where jobs cannot hold
it up, or for want of one in the worker (`own_beats`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Coroutine, Sequence
from time import monotonic
from typing import Any

from pinlater.client.async_client import AsyncClient
from pinlater.client.pool import PoolLimits
from pinlater.errors import MethodUnknown, PinLaterError
from pinlater.log_guard import GuardedLogger
from pinlater.model import (
    CONTINUATION_END,
    CONTINUATION_START,
    JobFilter,
    JobState,
    NumberedCommand,
    WorkerReport,
    claim_source,
)
from pinlater_workers.heartbeat.beats import BeatResult, BeatSchedule, HeartbeatCalls, beat
from pinlater_workers.heartbeat.messages import (
    Alive,
    Begin,
    ClaimsCancelled,
    ClaimsEnded,
    ClaimsFailing,
    ClaimsRenewed,
    ForgetClaims,
    HeartbeatEntry,
    RunningEntry,
    SendProgress,
    ToProcess,
    ToWorker,
    WatchClaims,
    WorkerCommanded,
    WorkerState,
)
from pinlater_workers.heartbeat.reports import SOON_S, ReportSchedule
from pinlater_workers.jobs.context import StopReason

_log = GuardedLogger("pinlater_workers.heartbeat")
GATHER_S = 0.02
BEATS_AT_ONCE = 32
SHORTEST_TIMEOUT_S = 0.5
STAY_S = 60.0
LAST_REPORT_S = 1.0
IDLE_S = 1_800.0
"""Half of what a server grants an idle connection by default: closing one costs a beat of all claims."""
LONGEST_SEARCH_S = 3_600.0
"""A worker that stands still for longer keeps no such claims."""
PAGE = 1_000
PAGES = 20
COLONS_BEFORE_SOURCE = 4
Key = tuple[str, str]
"""Descriptor and claim descriptor."""


class HeartbeatLoop:
    """Has a client of its own. `receive` takes the messages of the worker, on the loop."""

    def __init__(self, begin: Begin, send: Callable[[ToWorker], None]) -> None:
        self._send = send
        self._table = BeatSchedule(begin.lease_s, begin.interval_s)
        self._timeout_s = max(SHORTEST_TIMEOUT_S, begin.lease_s / 6)
        self._reports = ReportSchedule()
        self._news = asyncio.Event()
        self._next_s = math.inf
        self._beats: set[asyncio.Task[None]] = set()
        self._client = AsyncClient(
            servers=begin.servers,
            tls=begin.tls or False,
            token=begin.token or "",
            source=begin.source,
            retry_unavailable=False,
            pool=PoolLimits(idle_s=IDLE_S),
            sticky_s=STAY_S,
            on_disconnect=self._disconnected,
        )
        self._hears_commands = begin.hears_commands
        self._calls = HeartbeatCalls(self._client, self._note_command)
        self._hears_cancels = begin.hears_cancels
        self._unread = UnreadClaims(self._calls, begin, self._timeout_s, self._table.known)

    def receive(self, message: ToProcess) -> None:
        """Whatever it says, the worker's event loop goes round."""
        self._unread.worker_spoke()
        if isinstance(message, Alive) and message.worker is not None:
            self._tell(message.worker)
        elif isinstance(message, WatchClaims):
            self._watch(message.claims)
        elif isinstance(message, ForgetClaims):
            self._table.forget(message.numbers)
        elif isinstance(message, SendProgress):
            self._table.note_progress(message.progress)
            self._news.set()

    @property
    def spoke_s(self) -> float:
        """When the worker last said anything."""
        return self._unread.spoke_s

    @property
    def slots(self) -> int:
        return self._reports.slots

    def running(self) -> list[RunningEntry]:
        """What it runs, as far as it is known of one that has fallen silent."""
        return self._reports.running(self._table.entries())

    def forget_all(self) -> None:
        """Beat nothing, and report nothing any more."""
        self._table.forget([entry.number for entry in self._table.entries()])
        self._reports = ReportSchedule()

    def _tell(self, state: WorkerState) -> None:
        """What the worker runs."""
        self._reports.tell(state, monotonic())
        if self._reports.due_s < self._next_s:
            self._news.set()

    async def last_report(self) -> None:
        """Of a worker that has ended in order: it leaves the list at once, if a server answers soon."""
        if self._reports.has_stopped:
            await self._report(monotonic(), LAST_REPORT_S)

    def _watch(self, claims: Sequence[HeartbeatEntry]) -> None:
        self._table.watch(claims)
        if min(each.from_s for each in claims) < self._next_s:
            self._news.set()

    async def run(self) -> None:
        """Until it is cancelled; then nothing is told any more."""
        unread = asyncio.create_task(self._unread.run())
        try:
            while True:
                self._begin_due()
                await self._until_next()
        finally:
            tasks = [unread, *self._beats]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._client.close()

    def _disconnected(self) -> None:
        """Any claim may be bound to that connection: a beat binds it to another before the server's grace ends."""
        self._table.all_due(monotonic())
        self._news.set()
        self._unread.disconnected()

    def _begin_due(self) -> None:
        now_s = monotonic()
        lost = self._table.take_lost(now_s)
        if lost:
            self._send(ClaimsFailing(lost, StopReason.CLAIM_LOST, "no heartbeat got through before the lease was over"))
        due = self._table.take_due(now_s) if len(self._beats) < BEATS_AT_ONCE else []
        is_due = self._reports.due_s <= now_s + (SOON_S if due else 0.0) and not self._reports.has_stopped
        if due:
            self._start(self._beat(due, now_s, self._take_report(now_s) if is_due else None))
        elif is_due and len(self._beats) < BEATS_AT_ONCE:
            self._start(self._report(now_s, self._timeout_s))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._beats.add(task)
        task.add_done_callback(self._beats.discard)

    def _take_report(self, now_s: float) -> WorkerReport | None:
        return self._reports.take(now_s, self._unread.spoke_s, self._table.entries())

    async def _report(self, now_s: float, timeout_s: float) -> None:
        """A heartbeat of nothing, for the report that it carries; where a server does not know that, a checkpoint."""
        report = self._take_report(now_s)
        try:
            try:
                await self._calls.heartbeat(self._reports.queue, [], report, timeout_s)
            except MethodUnknown:
                await self._client.checkpoint(self._reports.queue, [], worker=report, timeout=timeout_s)
        except PinLaterError:  # what is wrong with the servers, the worker's dequeues say
            self._reports.failed(monotonic())
            self._news.set()

    def _note_command(self, command: NumberedCommand) -> None:
        if self._hears_commands:
            self._send(WorkerCommanded(int(command.command), command.number))

    async def _until_next(self) -> None:
        """News, or the time of the next beat; a little later, so that what comes together is beaten together."""
        self._next_s = min(self._table.next_s(), self._reports.due_s)
        wait_s = None if self._next_s == math.inf else max(0.0, self._next_s - monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._news.wait()
        self._news.clear()
        await asyncio.sleep(GATHER_S)

    async def _beat(self, claims: Sequence[HeartbeatEntry], began_s: float, report: WorkerReport | None) -> None:
        progress = self._table.take_progress(entry.number for entry in claims)
        try:
            outcome = await beat(self._calls, claims, self._timeout_s, report, progress)
        except Exception as error:
            _log.exception("a heartbeat of %d claims failed", len(claims))
            outcome = BeatResult()
            outcome.failing(claims, error)
        if outcome.good:
            self._table.beaten(outcome.good, began_s)
            self._send(ClaimsRenewed(outcome.good, began_s))
        news = self._table.cancelled(outcome.cancelled) if self._hears_cancels else []
        if news:
            self._send(ClaimsCancelled(news, [outcome.cancelled[number] for number in news]))
        if outcome.lost:
            self._table.lose(outcome.lost, monotonic())
            self._send(
                ClaimsFailing(outcome.lost, StopReason.CLAIM_LOST, "it is not in progress under this claim any more")
            )
        if outcome.ended:
            self._table.forget(outcome.ended)
            self._send(ClaimsEnded(outcome.ended))
        self._table.progress_failed(progress, outcome.failed)
        twice = self._table.failed(outcome.failed, began_s, monotonic())
        if twice:
            self._send(ClaimsFailing(twice, StopReason.OUT_OF_TOUCH, outcome.detail))
        if outcome.failed:
            if report is not None:
                self._reports.failed(monotonic())
            self._news.set()


class UnreadClaims:
    """Looks for them in the worker's queues while its event loop is silent, and beats them.

    `known` says which claims the worker has taken. `worker_spoke` is called with every message of the worker: then it
    takes the others itself, and nothing of them is left here. Where a server names no claims, none is found.
    """

    def __init__(self, calls: HeartbeatCalls, begin: Begin, timeout_s: float, known: Callable[[], set[Key]]) -> None:
        self._calls = calls
        self._client = calls.client
        self._begin = begin
        self._timeout_s = timeout_s
        self._known = known
        self._at_once = asyncio.Event()
        self.spoke_s = monotonic()
        """When the worker last said anything."""

    def worker_spoke(self) -> None:
        self.spoke_s = monotonic()

    def disconnected(self) -> None:
        """Claims that were beaten are bound to a connection that may be gone."""
        self._at_once.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        while self._begin.queues:
            silent_s = monotonic() - self.spoke_s
            if silent_s < self._begin.silent_s:
                await asyncio.sleep(self._begin.silent_s - silent_s)
                continue
            self._at_once.clear()
            if silent_s < LONGEST_SEARCH_S:
                looks = [self._keep(queue) for queue in self._begin.queues]
                for failed in await asyncio.gather(*looks, return_exceptions=True):
                    if isinstance(failed, Exception):
                        _log.error("a search for unread claims failed", exc_info=failed)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._begin.interval_s):
                    await self._at_once.wait()

    async def _keep(self, queue: str) -> None:
        """One look, and one beat. What fails is tried again an interval later."""
        filter, continuation = JobFilter(queue, JobState.IN_PROGRESS), CONTINUATION_START
        for _ in range(PAGES):
            try:
                page = await self._client.scan(filter, continuation=continuation, limit=PAGE, timeout=self._timeout_s)
            except PinLaterError:
                return
            known = self._known()
            found = [
                HeartbeatEntry(0, queue, job.descriptor, claim, 0.0, 0.0, 0.0, job.run_after_ms)
                for job in page.jobs
                if (claim := job.claim_descriptor or "")
                and self._is_ours(claim)
                and (job.descriptor, claim) not in known
            ]
            if found:
                await beat(self._calls, found, self._timeout_s)
            continuation = page.continuation
            if continuation == CONTINUATION_END:
                return

    def _is_ours(self, claim: str) -> bool:
        return claim.count(":") >= COLONS_BEFORE_SOURCE and claim_source(claim) == self._begin.source
