"""Jobs of types with batch=, from the claim to the results: they gather here, and begin together in one slot.

    claimed ─► gathering ─► ready ─► running ─► a result for each job
               until there are `batch` of them, or `wait` after the first

A batch that is ready has the next free slot, before jobs at hand. Where no slot becomes free in time it is handed back:
another worker may have one. Claims are kept alive from the first moment on, and a job that is lost meanwhile leaves.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from pinlater.clock import Clock
from pinlater_workers.jobs.batch import MemberOutcomes
from pinlater_workers.jobs.context import StopReason, waited_s
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.outcome import Action, Outcome
from pinlater_workers.jobs.running_job import RunningBatch, RunningJob
from pinlater_workers.observability.metrics import WorkerMetrics
from pinlater_workers.pools.router import PoolRouter
from pinlater_workers.worker.ack_batches import Result
from pinlater_workers.worker.claims import ClaimKeeper

SLOT_WAIT_S = 1.0
"""How long a batch that is ready waits for a slot."""
MAX_BYTES = 4 << 20
"""A batch is full where the next body would make it larger. One body alone may be."""
_GONE = (StopReason.CANCELLED, StopReason.CLAIM_LOST)
MOST_AT_ONCE = 2_000
"""The most jobs of a queue that one dequeue asks for, unless a single batch is larger: others wait for its answer."""


class GatheredBatch:
    """One batch before it begins. `due_s`: when it is ready, full or not. `ready_s`: since when it is; inf: not yet.
    Times are of time.monotonic.
    """

    __slots__ = ("bytes", "due_s", "jobs", "queue", "ready_s", "type")

    def __init__(self, job_type: JobType, queue: str, due_s: float) -> None:
        self.type = job_type
        self.queue = queue
        self.due_s = due_s
        self.ready_s = math.inf
        self.jobs: dict[RunningJob, None] = {}
        self.bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self.jobs) >= (self.type.settings.batch or 1)

    def add(self, running: RunningJob) -> None:
        self.jobs[running] = None
        self.bytes += len(running.job.body)

    def begin(self, now_s: float, now_ms: int) -> RunningBatch:
        """The higher priorities first. Their time begins now."""
        members = sorted(self.jobs, key=lambda running: (running.job.priority, running.job.run_after_ms))
        limit_s = self.type.settings.time_limit_s
        until_s, deadline_ms = now_s + limit_s, now_ms + int(limit_s * 1000)
        for member in members:
            member.began_s, member.until_s, member.deadline_ms = now_s, until_s, deadline_ms
        return RunningBatch(
            members[0].job,
            self.queue,
            self.type,
            now_s,
            until_s,
            members[0].envelope,
            deadline_ms,
            members=members,
        )


class BatchLine:
    """The batches that gather, one for each type and queue, and those that are ready. Pure."""

    def __init__(self) -> None:
        self._open: dict[tuple[JobType, str], GatheredBatch] = {}
        self._ready: list[GatheredBatch] = []

    def __len__(self) -> int:
        return sum(len(batch.jobs) for batch in self._all())

    def __contains__(self, running: RunningJob) -> bool:
        return any(running in batch.jobs for batch in self._all())

    def __iter__(self) -> Iterator[RunningJob]:
        return (running for batch in self._all() for running in batch.jobs)

    @property
    def ready(self) -> int:
        """How many batches wait for a slot."""
        return len(self._ready)

    def gathering(self, queue: str) -> int:
        """How many jobs of the queue wait for others."""
        return sum(len(batch.jobs) for (_, of), batch in self._open.items() if of == queue)

    def add(self, jobs: Iterable[RunningJob], now_s: float) -> None:
        """Those of one dequeue. Until a batch has a slot it takes more, as long as it is not full."""
        for running in jobs:
            assert running.type is not None
            key = running.type, running.queue
            wait_s = running.type.settings.batch_wait_s
            running.until_s += wait_s + SLOT_WAIT_S  # its claim is kept alive for so much longer
            batch = self._open.get(key)
            if batch is not None and batch.bytes + len(running.job.body) > MAX_BYTES:
                self._make_ready(batch, now_s)
                batch = self._open.pop(key) and None
            if batch is None:
                batch = self._open[key] = GatheredBatch(running.type, running.queue, now_s + wait_s)
            batch.add(running)
            if batch.is_full:
                self._make_ready(batch, now_s)
                del self._open[key]
        self.look(now_s)

    def look(self, now_s: float) -> None:
        """Those whose time is over are ready."""
        for batch in self._open.values():
            if batch.due_s <= now_s:
                self._make_ready(batch, now_s)

    def take(self) -> GatheredBatch | None:
        """The next to begin: by the highest priority in it, then the one that has waited longest."""
        if not self._ready:
            return None
        batch = min(self._ready, key=lambda each: (min(job.job.priority for job in each.jobs), each.ready_s))
        self._remove(batch)
        return batch

    def discard(self, running: RunningJob) -> None:
        """Takes it out, if it is here."""
        for batch in list(self._all()):
            if running in batch.jobs:
                del batch.jobs[running]
                batch.bytes -= len(running.job.body)
                if not batch.jobs:
                    self._remove(batch)

    def take_overdue(self, now_s: float) -> list[RunningJob]:
        """The jobs of those that were ready for too long."""
        overdue = [batch for batch in self._ready if batch.ready_s + SLOT_WAIT_S <= now_s]
        for batch in overdue:
            self._remove(batch)
        return [running for batch in overdue for running in batch.jobs]

    def take_all(self) -> list[RunningJob]:
        left = list(self)
        self._open.clear()
        self._ready.clear()
        return left

    def next_s(self) -> float:
        """When to look again; inf: there is nothing to look at."""
        due_s = (batch.due_s for batch in self._open.values() if batch.ready_s == math.inf)
        overdue_s = (batch.ready_s + SLOT_WAIT_S for batch in self._ready)
        return min(min(due_s, default=math.inf), min(overdue_s, default=math.inf))

    def _all(self) -> Iterator[GatheredBatch]:
        yield from self._ready
        yield from (batch for batch in self._open.values() if batch.ready_s == math.inf)

    def _make_ready(self, batch: GatheredBatch, now_s: float) -> None:
        if batch.ready_s == math.inf:
            batch.ready_s = now_s
            self._ready.append(batch)

    def _remove(self, batch: GatheredBatch) -> None:
        if batch in self._ready:
            self._ready.remove(batch)
        if self._open.get((batch.type, batch.queue)) is batch:
            del self._open[batch.type, batch.queue]


class BatchQueues:
    """How many jobs one slot takes, by queue: 1 where not all types of the queue have batch=. Pure."""

    def __init__(self, types: Iterable[JobType]) -> None:
        of_queue: dict[str, list[int]] = {}
        for job_type in types:
            of_queue.setdefault(job_type.settings.queue, []).append(job_type.settings.batch or 1)
        self._per_slot = {queue: min(sizes) for queue, sizes in of_queue.items() if min(sizes) > 1}

    def is_whole(self, queue: str) -> bool:
        """All its types have batch=."""
        return queue in self._per_slot

    def slots(self, queue: str, jobs: int) -> int:
        """How many slots so many jobs of the queue take, if they come in whole batches."""
        return math.ceil(jobs / self._per_slot.get(queue, 1))

    def extra(self, slots: int, weights: Mapping[str, int], gathering: Callable[[str], int]) -> dict[str, int]:
        """How many jobs to ask for beyond so many slots, by queue, for those whose types all have batch=: what makes
        whole batches of those that gather, in its share of the slots.
        """
        extra: dict[str, int] = {}
        for queue, per_slot in self._per_slot.items():
            if queue in weights:
                share = math.ceil(slots * weights[queue] / sum(weights.values()))
                wanted = min(share * per_slot - gathering(queue), max(MOST_AT_ONCE, per_slot))
                extra[queue] = max(0, wanted - share)
        return extra


class BatchHost(Protocol):
    """The jobs of the worker, as batches see them."""

    running: dict[RunningJob, None]
    pool: PoolRouter

    def free(self) -> int:
        """How many slots have no job."""

    @property
    def leads(self) -> bool:
        """A slot is free in a moment, if none is now: threads take what is submitted when they can."""

    def stop(self, running: RunningJob, reason: StopReason) -> None:
        """It is told, or ended."""

    def hand_back(self, jobs: Sequence[RunningJob]) -> None:
        """They have not begun, and are requeued."""

    def drop_cancelled(self, running: RunningJob) -> None:
        """It has not begun, and is cancelled."""

    def say_dropped(self, name: str, kind: str) -> None:
        """A function returned a value of that type, which nobody keeps."""


class RunningBatches:
    """The batches of a worker. All of it is called on the event loop."""

    def __init__(self, host: BatchHost, claims: ClaimKeeper, metrics: WorkerMetrics, clock: Clock) -> None:
        self.line = BatchLine()
        self._host = host
        self._claims = claims
        self._metrics = metrics
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._of: dict[RunningJob, RunningBatch] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __contains__(self, running: RunningJob) -> bool:
        """It gathers, or runs in a batch."""
        return running in self._of or running in self.line

    def gather(self, loaded: Sequence[RunningJob], now_s: float) -> list[RunningJob]:
        """Takes those of batches; the others."""
        others: list[RunningJob] = []
        gathered: list[RunningJob] = []
        for running in loaded:
            assert running.type is not None
            (gathered if running.type.is_batch else others).append(running)
        self.line.add(gathered, now_s)
        return others

    def begin(self, now_s: float) -> None:
        """As many of those that are ready as there are free slots."""
        while (self._host.free() > 0 or self._host.leads) and (gathered := self.line.take()) is not None:
            now_ms = self._clock.now_ms()
            batch = gathered.begin(now_s, now_ms)
            for member in batch.members:
                self._of[member] = batch
                self._metrics.started(gathered.type.name, waited_s(member.job, now_ms))
            self._host.running[batch] = None
            self._host.pool.submit(batch)
        self._look_at(self.line.next_s())

    def ended(self, batch: RunningBatch, outcome: Outcome, run_s: float) -> list[Result]:
        """The results of its jobs, but of those whose claims are lost."""
        assert batch.type is not None
        name, metrics = batch.type.name, self._metrics
        outcomes = outcome.members if isinstance(outcome, MemberOutcomes) else (outcome,) * len(batch.members)
        results: list[Result] = []
        succeeded = 0
        for member, each in zip(batch.members, outcomes, strict=True):
            del self._of[member]
            if member.stop_reason is StopReason.CLAIM_LOST:
                metrics.dropped(name)
                continue
            if member.cancelled_by is not None and each.action not in (Action.SUCCEED, Action.CANCEL):
                each = replace(each, action=Action.CANCEL, body=None, error="")  # the server makes no difference
            results.append((member, each))
            if each.action is Action.SUCCEED:
                succeeded += 1
                if each.error:
                    self._host.say_dropped(name, each.dropped)
            else:
                is_last = member.job.attempts_remaining <= 1
                metrics.ended(name, each.action, run_s, is_last=is_last, error=each.error)
        if succeeded:
            metrics.ended(name, Action.SUCCEED, run_s, times=succeeded)
        self._claims.ran(name, run_s, len(batch.members))
        return results

    def lost(self, running: RunningJob, reason: StopReason) -> None:
        """Heartbeats say so of one job. One that gathers is gone, if another worker has it."""
        batch = self._of.get(running)
        if batch is None:
            if reason is StopReason.CLAIM_LOST:
                self.line.discard(running)
        elif reason is not StopReason.CLAIM_LOST:
            if batch.stop_reason is None:
                self._host.stop(batch, reason)
        elif running.stop_reason is not reason:
            running.stop_reason = reason
            if all(member.stop_reason is reason for member in batch.members):
                self._host.stop(batch, reason)
            else:
                self._host.pool.stop_member(batch, batch.members.index(running))

    def cancelled(self, running: RunningJob) -> None:
        """Somebody asks that this job stops. The batch goes on, unless that is so of all that are left."""
        batch = self._of.get(running)
        if batch is None:
            self.line.discard(running)
            self._host.drop_cancelled(running)
            return
        if running.stop_reason is None:
            running.stop_reason = StopReason.CANCELLED
        if all(member.stop_reason in _GONE for member in batch.members):
            self._host.stop(batch, StopReason.CANCELLED)
        else:
            self._host.pool.stop_member(batch, batch.members.index(running))

    def close(self) -> None:
        """What gathers is handed back, whole."""
        self._look_at(math.inf)
        self._host.hand_back(self.line.take_all())

    def _look_at(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_s < math.inf:
            self._timer = self._loop.call_later(max(0.0, at_s - time.monotonic()), self._look)

    def _look(self) -> None:
        self._timer = None
        now_s = time.monotonic()
        self.line.look(now_s)
        overdue = self.line.take_overdue(now_s)
        if overdue:
            self._host.hand_back(overdue)
        self.begin(now_s)
