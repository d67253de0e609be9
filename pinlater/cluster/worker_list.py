"""The list of workers, from the reports that they send to any server of the cluster.

A process keeps what it heard, and puts it on one shard every few seconds while there is news: joined, in key-value
entries that expire by themselves. All shards are read when somebody asks for the list. Where no worker reports, nothing
is kept, written or timed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import methodcaller
from typing import Any, NamedTuple

import msgspec
import structlog

from pinlater.backends.base import KvEntry
from pinlater.background_tasks import BackgroundTasks
from pinlater.clock import Clock
from pinlater.cluster.lease import Lease
from pinlater.cluster.worker_commands import KEEP_MS, WorkerCommands
from pinlater.cluster.worker_entries import (
    SeenWorker,
    alive,
    bounded,
    decode_entries,
    encode_worker,
    entries,
    newest,
    sums,
)
from pinlater.errors import ContinuationInvalid, PinLaterError
from pinlater.metrics import Metrics
from pinlater.model import ANONYMOUS, CONTINUATION_START, WorkerReport, WorkersPage
from pinlater.shards.handle import ask_all
from pinlater.shards.rendezvous import rendezvous_pick
from pinlater.shards.shard_set import ShardSet

_log = structlog.get_logger("pinlater.workers")
KIND = "worker"
DESCRIBED = "hears_workers"
"""What a lease says beside what it knows itself."""


WRITE_AFTER_S = 5.0
SOON_S = 0.25
"""The same for a worker that starts or stops."""

WRITES_APART_S = 1.0
READ_FOR_S = 1.0
"""Whoever asks within so long gets what was read before."""

MAX_WORKERS = 10_000
"""A process keeps so many; beyond it goes the one heard of longest ago, of the identity that has most."""

MAX_BYTES = 16 * 1024 * 1024
"""And so much of it."""

PAGE_WORKERS = 1_000
PAGE_BYTES = 4 * 1024 * 1024
"""A page ends after about so much."""

READ_WITHIN_S = 2.0
GAUGES_WITHIN_S = 0.5
CLOSE_WITHIN_S = 1.0


_Key = tuple[str | None, str]
"""An identity, and the id that it gave a worker."""


class _Read(NamedTuple):
    body: bytes
    workers: list[SeenWorker]


class WorkerList:
    """The workers of the cluster. `process` is the name of this one, SERVER/PROCESS, and unlike all others."""

    def __init__(self, members: ShardSet, clock: Clock, process: str, leases: Callable[[], Sequence[Lease]] = tuple):
        """`leases`: those of the processes that live, which say where there are commands."""
        self.commands = WorkerCommands(members, clock, process, leases)
        self._members = members
        self._clock = clock
        self._process = process
        self._heard: dict[_Key, SeenWorker] = {}
        """Those heard of last at the end. One that has stopped stays: what others heard before counts less."""
        self._lines: dict[_Key, bytes] = {}
        """Of those, as they are written."""
        self._kept = Counter[str | None]()
        """Workers, by the identity that reported them."""
        self._kept_bytes = Counter[str | None]()
        self._writing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._written_s = float("-inf")
        self._is_troubled = False
        self._tasks = BackgroundTasks()
        self._read: dict[tuple[str, str], _Read] = {}
        """By shard and name of the entry: a body that is read again is not decoded again."""
        self._read_until_s = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._missing: list[str] = []

    # -- what workers say --------------------------------------------------------------------------------------------

    def receive(self, report: WorkerReport, identity: str = ANONYMOUS) -> None:
        """A worker of this identity says something of itself, within bounds or not. One without an id, or that is no
        newer than the last of that id and identity, is not kept. Raises nothing.
        """
        kept_report = bounded(report)
        worker = SeenWorker(kept_report, self._clock.now_ms(), identity)
        key = worker.key
        known = self._heard.get(key)
        if not kept_report.id or (known is not None and known.report.up_ms >= kept_report.up_ms):
            return
        self._forget(key)
        self._heard[key], self._lines[key] = worker, encode_worker(worker)
        self._kept[identity] += 1
        self._kept_bytes[identity] += len(self._lines[key])
        while len(self._heard) > MAX_WORKERS:
            self._forget_oldest_of(max(self._kept, key=self._kept.__getitem__))
        while self._kept_bytes.total() > MAX_BYTES:
            self._forget_oldest_of(max(self._kept_bytes, key=self._kept_bytes.__getitem__))
        is_known = known is not None and _phase(known.report) == _phase(kept_report)
        self._write_within(WRITE_AFTER_S if is_known else SOON_S)

    def connection_lost(self, identity: str, id: str) -> None:
        """The connection by which a worker reported broke: others are told that, until it reports again. Raises
        nothing.
        """
        known = self._heard.get((identity, id))
        if known is None or known.report.has_stopped or known.lost_ms is not None:
            return
        worker = replace(known, lost_ms=self._clock.now_ms())
        line = encode_worker(worker)
        self._kept_bytes[identity] += len(line) - len(self._lines[worker.key])
        self._heard[worker.key], self._lines[worker.key] = worker, line
        self._write_within(SOON_S)

    def _forget_oldest_of(self, identity: str | None) -> None:
        """The worker of this identity, which has most, that was heard of longest ago."""
        self._forget(next(key for key in self._heard if key[0] == identity))

    def _forget(self, key: _Key) -> None:
        if self._heard.pop(key, None) is None:
            return
        identity = key[0]
        self._kept[identity] -= 1
        self._kept_bytes[identity] -= len(self._lines.pop(key))
        if not self._kept[identity]:
            del self._kept[identity], self._kept_bytes[identity]

    def _write_within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        at_s = max(loop.time() + seconds, self._written_s + WRITES_APART_S)
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at_s, self._begin_write)

    def _begin_write(self) -> None:
        self._timer = None
        if self._writing is not None and not self._writing.done():  # an older state must not come after a newer one
            self._write_within(WRITES_APART_S)
            return
        self._written_s = asyncio.get_running_loop().time()
        self._writing = self._tasks.start(self._write())

    async def _write(self) -> None:
        """All that was heard and still counts, on one shard; where that fails, again a little later. Raises nothing."""
        now_ms = self._clock.now_ms()
        for key in [key for key, each in self._heard.items() if each.seen_ms <= now_ms - KEEP_MS]:
            self._forget(key)
        shards = {shard_id: each.shard for each in self._members.healthy() if (shard_id := each.shard.shard_id)}
        chosen = rendezvous_pick(self._process, shards)
        if chosen is None:
            return
        try:
            for number, body in enumerate(entries([*self._lines.values()])):
                await shards[chosen].kv_put(KIND, f"{self._process}/{number}", body, now_ms + KEEP_MS, now_ms)
        except PinLaterError as error:
            if not self._is_troubled:
                _log.warning("workers_not_written", shard=chosen, error=error.message)
            self._is_troubled = True
            self._write_within(WRITE_AFTER_S)
        except Exception:
            _log.exception("workers_not_written", shard=chosen)
        else:
            self._is_troubled = False

    async def close(self) -> None:
        """What is not written yet is written, if that is possible at once: others keep it for as long as it counts."""
        if self._timer is not None:
            self._timer.cancel()
            self._begin_write()
        await self.commands.close()
        await self._tasks.drain(CLOSE_WITHIN_S)
        await self._tasks.cancel()

    # -- the list ----------------------------------------------------------------------------------------------------

    async def page(
        self,
        queue: str = "",
        name: str = "",
        *,
        include_running: bool = False,
        continuation: str = CONTINUATION_START,
        limit: int,
    ) -> WorkersPage:
        """The workers of a queue, where one is given, and of a name. ContinuationInvalid."""
        after = _read_continuation(continuation)
        missing = await self._refresh()
        found = [
            each
            for each in self._alive()
            if (not queue or queue in each.report.queues) and (not name or name == each.report.name)
        ]
        page = WorkersPage(self._clock.now_ms(), [], *sums(found), missing_shards=missing)
        size = 0
        last: SeenWorker | None = None
        for worker in found if after is None else [each for each in found if each.order > after]:
            view = worker.view(include_running=include_running)
            size += len(msgspec.json.encode(view))
            if last is not None and (len(page.workers) >= min(limit, PAGE_WORKERS) or size > PAGE_BYTES):
                page.continuation = msgspec.json.encode(last.order).decode()
                break
            page.workers.append(view)
            last = worker
        return page

    async def observed(self, leases: Iterable[Lease]) -> list[SeenWorker] | None:
        """All workers that were heard of in the last minute, those that have stopped too. None: that is not known, as
        no shard could be read in time. Where no process heard of a worker, no shard is read.
        """
        if any(lease.more.get(DESCRIBED) for lease in leases):
            missing = await self._refresh()
            if missing and len(missing) >= len(self._members.all):
                return None
        since_ms = self._clock.now_ms() - KEEP_MS
        return [each for each in newest(self._known()) if each.seen_ms > since_ms]

    async def known(self) -> tuple[list[SeenWorker], list[str]]:
        """All that live, in the order of the list, and the shards of which too little is known."""
        missing = await self._refresh()
        return self._alive(), missing

    def describe(self) -> Mapping[str, Any]:
        """For the lease of this process: whether it heard of workers of late."""
        since_ms = self._clock.now_ms() - KEEP_MS
        heard = {DESCRIBED: True} if any(each.seen_ms > since_ms for each in self._heard.values()) else {}
        return {**heard, **self.commands.describe()}

    async def set_gauges(self, metrics: Metrics, queues: Collection[str], leases: Iterable[Lease]) -> None:
        """As the whole cluster has them; by queue for these. What takes long is as it was. Where no process heard of a
        worker, no shard is read.
        """
        if any(lease.more.get(DESCRIBED) for lease in leases):
            await asyncio.wait([self._begin_refresh()], timeout=GAUGES_WITHIN_S)
        workers = self._alive()
        total, slots, busy, stuck = sums(workers)
        metrics.set_gauges(("cluster_workers",), {("cluster_workers",): total})
        states = {"free": max(0, slots - busy - stuck), "busy": busy, "stuck": stuck}
        metrics.set_gauges(
            ("cluster_worker_slots",), {("cluster_worker_slots", state): number for state, number in states.items()}
        )
        of_queue = Counter(queue for worker in workers for queue in worker.report.queues if queue in queues)
        metrics.set_gauges(("queue_workers",), {("queue_workers", queue): many for queue, many in of_queue.items()})

    def _alive(self) -> list[SeenWorker]:
        """As far as they are known now."""
        return alive(self._known(), self._clock.now_ms() - KEEP_MS)

    def _known(self) -> list[SeenWorker]:
        return [*self._heard.values(), *(worker for entry in self._read.values() for worker in entry.workers)]

    async def _refresh(self) -> list[str]:
        """The shards of which too little is known; those that are slow are not waited for long."""
        if asyncio.get_running_loop().time() >= self._read_until_s:
            _, late = await asyncio.wait([self._begin_refresh()], timeout=READ_WITHIN_S)
            if late:
                return sorted(each.shard.shard_id or "?" for each in self._members.all)
        return self._missing

    def _begin_refresh(self) -> asyncio.Task[None]:
        """Whoever comes while the shards are read waits for the same answer."""
        if self._reading is None or self._reading.done():
            self._reading = self._tasks.start(self._read_all())
        return self._reading

    async def _read_all(self) -> None:
        """Raises nothing: what cannot be read stays as it was."""
        try:
            await self._read_shards()
        except Exception:
            _log.exception("workers_not_read")

    async def _read_shards(self) -> None:
        members = self._members.healthy()
        outcomes = await ask_all(members, methodcaller("kv_list", KIND, self._clock.now_ms()))
        missing = {each.shard.shard_id or "?" for each in self._members.all if not each.is_healthy}
        read: dict[tuple[str, str], _Read] = {}
        for member, outcome in zip(members, outcomes, strict=True):
            if isinstance(outcome, PinLaterError):
                missing.add(member.shard.shard_id)
            else:
                read |= await self._decoded(member.shard.shard_id, outcome)
        self._read = {key: entry for key, entry in self._read.items() if key[0] in missing} | read
        self._missing = sorted(missing)
        self._read_until_s = asyncio.get_running_loop().time() + READ_FOR_S

    async def _decoded(self, shard_id: str, found: Mapping[str, KvEntry]) -> dict[tuple[str, str], _Read]:
        known = {name: each for (of_shard, name), each in self._read.items() if of_shard == shard_id}
        new = {name: entry.body for name, entry in found.items() if name not in known or known[name].body != entry.body}
        decoded = await decode_entries(new)
        for name, workers in decoded.items():
            if workers is None:
                _log.warning("workers_not_understood", name=name)
            known[name] = _Read(new[name], workers or [])
        return {(shard_id, name): known[name] for name in found}


def _phase(report: WorkerReport) -> tuple[bool, bool, bool | None]:
    return report.is_stopping, report.has_stopped, report.is_quiet


def _read_continuation(text: str) -> tuple[str, str, int, str] | None:
    """The place to go on behind. ContinuationInvalid."""
    if text == CONTINUATION_START:
        return None
    try:
        return msgspec.json.decode(text, type=tuple[str, str, int, str])
    except msgspec.MsgspecError:
        raise ContinuationInvalid(
            f"continuation {text[:100]!r} was not given for this list; begin with {CONTINUATION_START!r}"
        ) from None
