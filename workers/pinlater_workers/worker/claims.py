"""The claims of this worker: kept alive by the heartbeat process, renewed by checkpoints, and lost."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from pinlater.client.async_client import AsyncClient
from pinlater.client.client_tls import Tls
from pinlater.client.token import Token
from pinlater.errors import MethodUnknown, PinLaterError
from pinlater.model import Checkpoint, DequeuedJob, Heartbeat
from pinlater_workers.errors import ClaimLost, ConfigurationError
from pinlater_workers.heartbeat.beats import HeartbeatCalls
from pinlater_workers.heartbeat.heartbeats import Heartbeats
from pinlater_workers.heartbeat.messages import BlockedBy, HeartbeatEntry, ProgressEntry, WorkerCommanded, WorkerState
from pinlater_workers.jobs.context import StopReason
from pinlater_workers.jobs.progress_report import TakeProgress
from pinlater_workers.jobs.running_job import RunningJob
from pinlater_workers.worker.ack_batches import MAX_RESULTS, Result

FIRST_BEAT_AFTER_S = 1.0
"""Most jobs have ended by then, and cost no heartbeat."""
MARGIN_S = 30.0
"""A job's claim is kept alive for so long beyond its time limit: until the pool has ended it."""
TOLERANCE_S = 5.0
"""How much later than the end of its lease a claim has surely expired, as the server has it."""
SHORT_S = 0.2
IN_A_ROW = 100
KEEP_TIMEOUT_S = 2.0
PROGRESS_EVERY_S = 1.0


class ClaimOwner(Protocol):
    """The jobs of the worker. Called on the loop."""

    def lost(self, running: RunningJob, reason: StopReason) -> None:
        """Its heartbeats fail (OUT_OF_TOUCH), or its claim is lost."""

    def cancelled(self, running: RunningJob, by: str) -> None:
        """Somebody asks that it stops."""

    def is_answered(self, running: RunningJob) -> bool:
        """The job does not run any more, and its result is on its way."""


class ClaimKeeper:
    """The claims of a worker, and the heartbeat process that keeps them alive.

    `queues`: in these the process also keeps alive claims for `source` that it was not told of, while a job holds up
    the worker. So claims of jobs that are likely to end at once are told late. Without `queues` all are told at once.
    `describe` says what the worker runs, for the list of workers. `failed`: no process keeps them alive any more.
    `blocked_by` and `may_end` as of Heartbeats.
    """

    def __init__(
        self,
        servers: Sequence[str],
        source: str,
        lease_s: float,
        queues: Sequence[str] = (),
        describe: Callable[[], WorkerState] | None = None,
        tls: Tls | None = None,
        token: Token | None = None,
        failed: Callable[[ConfigurationError], None] = lambda error: None,
        blocked_by: Callable[[], BlockedBy] = BlockedBy,
        commanded: Callable[[WorkerCommanded], None] = lambda command: None,
        *,
        may_end: bool = False,
    ) -> None:
        self._table = ClaimTable(lease_s)
        self._short = ShortJobs()
        self.ran = self._short.note
        """To be told of each attempt at a job of a type that has ended, and after how long."""
        self._may_be_late = bool(queues)
        self._heartbeats = Heartbeats(
            servers,
            source,
            lease_s,
            self._on_lost,
            self._on_ended,
            self._on_cancelled,
            queues=queues,
            describe=describe,
            tls=tls,
            token=token,
            failed=failed,
            blocked_by=blocked_by,
            commanded=commanded,
            may_end=may_end,
        )
        self._progress: dict[RunningJob, None] = {}
        self._progress_timer: asyncio.TimerHandle | None = None
        self._progress_s = -PROGRESS_EVERY_S
        self.say_alive = self._heartbeats.say_alive
        """To be called when the worker has begun to stop: the list of workers has it at once."""
        self._owner: ClaimOwner | None = None

    async def open(self, owner: ClaimOwner) -> None:
        """Starts the heartbeat process; from here on `owner` is told."""
        self._owner = owner
        await self._heartbeats.open()

    async def ready(self) -> None:
        """They are kept alive. ConfigurationError: nothing would do so."""
        await self._heartbeats.ready()

    async def close(self) -> None:
        if self._progress_timer is not None:
            self._progress_timer.cancel()
        await self._heartbeats.close()

    def progress_made(self, running: RunningJob, take: TakeProgress) -> None:
        """It goes with a heartbeat at once, or a second after the last one that carried any."""
        running.take_new = take
        self._progress[running] = None
        if self._progress_timer is None:
            pause_s = max(0.0, self._progress_s + PROGRESS_EVERY_S - time.monotonic())
            self._progress_timer = asyncio.get_running_loop().call_later(pause_s, self._send_progress)

    def _send_progress(self) -> None:
        self._progress_timer, self._progress_s = None, time.monotonic()
        making, self._progress = self._progress, {}
        self._heartbeats.watch(self._table.promote_all(making))
        entries: list[ProgressEntry] = []
        for running in making:
            number, made = self._table.number_of(running), running.take()
            if number is not None and made is not None:
                entries.append(ProgressEntry(number, made.fraction, made.text, list(made.log_lines)))
        self._heartbeats.send_progress(entries)

    @property
    def holds_any(self) -> bool:
        return bool(self._table)

    def take(self, running_jobs: Sequence[RunningJob], good_s: float) -> None:
        """The claims of a dequeue, answered at `good_s`; kept alive from now on, whatever holds up this process."""
        late = self._late(running_jobs)
        if late:
            self._table.take_short(late, good_s)
        if len(late) < len(running_jobs):
            at_once = [each for each in running_jobs if each not in set(late)] if late else running_jobs
            self._heartbeats.watch(self._table.take(at_once, good_s))

    def _late(self, running_jobs: Sequence[RunningJob]) -> list[RunningJob]:
        """Where a server names no claims, nobody finds those that were not told."""
        if not self._may_be_late:
            return []
        short = self._short.names
        return [each for each in running_jobs if each.type and each.type.name in short and each.job.claim_descriptor]

    def watch_late(self, now_s: float) -> None:
        """Tells the process of claims whose jobs have not ended at once."""
        late = self._table.promote(now_s - SHORT_S)
        for entry in late:
            running = self._table.of(entry)
            if running.type is not None:
                self._short.note(running.type.name, now_s - running.began_s)
        self._heartbeats.watch(late)

    def hand_over_all(self) -> None:
        """At once: a connection is gone, or is about to go, that claims may be bound to."""
        self._heartbeats.watch(self._table.at_once())

    def keep(self, results: Iterable[Result]) -> None:
        """Without an end: no server has these results yet."""
        self._heartbeats.watch(self._table.keep(running for running, _ in results))

    def end(self, results: Iterable[Result]) -> None:
        """A server has these results, or they are given up."""
        self._heartbeats.forget(self._table.end([running for running, _ in results]))

    def has_expired(self, running: RunningJob) -> bool:
        """Surely, by what is known of its claim."""
        return self._table.has_expired(running, time.monotonic())

    def _on_lost(self, number: int, reason: StopReason) -> None:
        """Of a job that has ended here nothing is lost yet: its result is sent until a server answers, or the claim has
        surely expired. Where the claim is another's by now, that answer comes too, and changes nothing.

        The job of an item of a flow ends when it is out of touch: after another beat that fails its item is assigned
        anew, and two must not work on it.
        """
        running = self._table.find(number)
        if running is None or self._owner is None or self._owner.is_answered(running):
            return
        if reason is StopReason.OUT_OF_TOUCH and running.carries_item:
            reason = StopReason.CLAIM_LOST
        if reason is StopReason.CLAIM_LOST:
            self._heartbeats.forget(self._table.end([running]))
        self._owner.lost(running, reason)

    def _on_cancelled(self, number: int, by: str) -> None:
        running = self._table.find(number)
        if running is not None and self._owner is not None and not self._owner.is_answered(running):
            self._owner.cancelled(running, by)

    def _on_ended(self, number: int) -> None:
        """Its job has ended under this claim: by an ack of ours, or, while it still runs, by somebody else."""
        self._on_lost(number, StopReason.CLAIM_LOST)


class ClaimTable:
    """All claims of a worker, each from its dequeue until its result is through, or it is lost.

    A claim gets a number, used once, when the heartbeat process is told of it. Those of short jobs stay here
    until they are old enough: most have ended by then.
    """

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._beaten_after_s = min(FIRST_BEAT_AFTER_S, lease_s / 6)
        self._last_number = 0
        self._short: dict[RunningJob, float] = {}
        self._held: dict[RunningJob, HeartbeatEntry] = {}
        self._running: dict[int, RunningJob] = {}

    def __len__(self) -> int:
        return len(self._held) + len(self._short)

    def take(self, running_jobs: Iterable[RunningJob], good_s: float) -> list[HeartbeatEntry]:
        """The claims of a dequeue that was answered at `good_s`."""
        return [self._entry(running, good_s) for running in running_jobs]

    def take_short(self, running_jobs: Iterable[RunningJob], good_s: float) -> None:
        """Such that nothing is said of for now."""
        self._short.update(dict.fromkeys(running_jobs, good_s))

    def promote(self, until_s: float) -> list[HeartbeatEntry]:
        """The short claims that were taken by then: they are like all others from now on."""
        old = []
        for running, good_s in self._short.items():
            if good_s > until_s:
                break  # they stand in the order in which they were taken
            old.append(running)
        return [self._entry(running, self._short.pop(running)) for running in old]

    def promote_all(self, running_jobs: Iterable[RunningJob]) -> list[HeartbeatEntry]:
        """Those of them that are short claims."""
        return [
            self._entry(running, good_s)
            for running in running_jobs
            if (good_s := self._short.pop(running, None)) is not None
        ]

    def number_of(self, running: RunningJob) -> int | None:
        """None: it is not held, or a short claim."""
        entry = self._held.get(running)
        return None if entry is None else entry.number

    def end(self, running_jobs: Iterable[RunningJob]) -> list[int]:
        """They are not held any more. The numbers of those that have one."""
        numbers = []
        for running in running_jobs:
            if self._short.pop(running, None) is None:
                entry = self._held.pop(running, None)
                if entry is not None:
                    del self._running[entry.number]
                    numbers.append(entry.number)
        return numbers

    def find(self, number: int) -> RunningJob | None:
        """Whose claim that is."""
        return self._running.get(number)

    def of(self, entry: HeartbeatEntry) -> RunningJob:
        """Whose claim is held so."""
        return self._running[entry.number]

    def at_once(self) -> list[HeartbeatEntry]:
        """All of them, to be beaten at once: a connection is gone that some may have been bound to."""
        self.promote(math.inf)
        for entry in self._held.values():
            entry.from_s = 0.0
        return list(self._held.values())

    def keep(self, running_jobs: Iterable[RunningJob]) -> list[HeartbeatEntry]:
        """The claims held for these jobs: kept alive without an end, since their results are not through yet."""
        kept = []
        for running in running_jobs:
            good_s = self._short.pop(running, None)
            entry = self._held.get(running) if good_s is None else self._entry(running, good_s)
            if entry is not None:
                entry.until_s = math.inf
                kept.append(entry)
        return kept

    def has_expired(self, running: RunningJob, now_s: float) -> bool:
        """Surely, by what is known of it; also one that is not held at all."""
        entry = self._held.get(running)
        good_s = self._short.get(running, -math.inf) if entry is None else entry.good_s
        return now_s >= good_s + self._lease_s + TOLERANCE_S

    def _entry(self, running: RunningJob, good_s: float) -> HeartbeatEntry:
        self._last_number = number = self._last_number + 1
        job, from_s, until_s = running.job, good_s + self._beaten_after_s, running.until_s + MARGIN_S
        claim, planned_ms = job.claim_descriptor, job.run_after_ms
        name = "" if running.type is None else running.type.name
        times = good_s, from_s, until_s
        entry = HeartbeatEntry(number, running.queue, job.descriptor, claim, *times, planned_ms, name, running.until_s)
        self._held[running] = entry
        self._running[number] = running
        return entry


class ShortJobs:
    """The types of job that end at once, by their last attempts: so many in a row took less than SHORT_S. A new type is
    none.

    `names` are those of the types.
    """

    def __init__(self) -> None:
        self._in_a_row: defaultdict[str, int] = defaultdict(int)
        self.names: set[str] = set()

    def note(self, job: str, run_s: float, times: int = 1) -> None:
        """An attempt ended, or goes on, after so long; or so many attempts."""
        if job in self.names:
            if run_s >= SHORT_S:
                self.names.remove(job)
        elif run_s >= SHORT_S:
            self._in_a_row[job] = 0
        else:
            self._in_a_row[job] += times
            if self._in_a_row[job] >= IN_A_ROW:
                self._in_a_row[job] = 0
                self.names.add(job)


class CheckpointWriter:
    """Called by the pool, with the job that asks. Jobs keep their run_after: a checkpoint without one means now."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._heartbeats = HeartbeatCalls(client)

    async def __call__(self, running: RunningJob, checkpoint: Checkpoint) -> None:
        """ClaimLost: it is known to be lost. Else the errors of AsyncClient.checkpoint."""
        if running.stop_reason is StopReason.CLAIM_LOST:
            raise ClaimLost(f"the claim of job {running.job.descriptor} is lost")
        if checkpoint.run_after_ms is None:
            checkpoint = replace(checkpoint, run_after_ms=running.job.run_after_ms or None)
        await self._client.checkpoint(running.queue, [checkpoint])

    async def keep(self, running_jobs: Iterable[RunningJob]) -> None:
        """Bind these claims to connections that carry no long polls. Where no server answers, nothing is done."""
        queues: dict[str, list[DequeuedJob]] = {}
        for running in running_jobs:
            queues.setdefault(running.queue, []).append(running.job)
        with contextlib.suppress(PinLaterError):
            for queue, listed in queues.items():
                for start in range(0, len(listed), MAX_RESULTS):
                    await self._keep(queue, listed[start : start + MAX_RESULTS])

    async def _keep(self, queue: str, jobs: Sequence[DequeuedJob]) -> None:
        """By heartbeats; where a server has none, by checkpoints."""
        with contextlib.suppress(MethodUnknown):
            if all(job.claim_descriptor for job in jobs):
                beats = [Heartbeat(job.descriptor, job.claim_descriptor) for job in jobs]
                await self._heartbeats.heartbeat(queue, beats, None, KEEP_TIMEOUT_S)
                return
        kept = [
            Checkpoint(job.descriptor, run_after_ms=job.run_after_ms or None, claim_descriptor=job.claim_descriptor)
            for job in jobs
        ]
        await self._client.checkpoint(queue, kept, timeout=KEEP_TIMEOUT_S)
