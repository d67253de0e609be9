"""Commands of operators to workers, on their way to whichever server a worker reports to.

    call ──► an entry on one shard, and a word in the lease ──► other processes see the word, and read the entries
    report of a worker ──► the answer carries its command, until it is a minute old; the worker carries it out once

Where no command was given of late a report costs no look at a shard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from operator import methodcaller
from typing import Any

import msgspec
import structlog

from pinlater.backends.base import KvEntry
from pinlater.clock import Clock
from pinlater.cluster.lease import Lease
from pinlater.cluster.worker_entries import SeenWorker
from pinlater.errors import NoHealthyShards, PinLaterError
from pinlater.job_body import UNREADABLE
from pinlater.model import NumberedCommand, WorkerCommand
from pinlater.shards.handle import ask_all
from pinlater.shards.rendezvous import rendezvous_pick
from pinlater.shards.shard_set import ShardSet

_log = structlog.get_logger("pinlater.workers")
KIND = "worker_command"
DESCRIBED = "commands_workers"
"""What the lease of a process says that has given commands of late: how many it has given."""

KEEP_MS = 60_000
"""A worker that has not been heard of for so long is gone, and so is a command to it."""

WORKERS_PER_ENTRY = 1_000
READ_WITHIN_S = 1.0

Key = tuple[str | None, str]
"""An identity, and the id that it gave a worker."""


class _Entry(msgspec.Struct):
    """A command, as it is kept; `keys` are the workers."""

    command: int
    number: int
    keys: list[Key]


_decode = msgspec.json.Decoder(_Entry).decode


class WorkerCommands:
    """Those that are on their way, as one process knows them. `process` is its name, and unlike all others."""

    def __init__(self, members: ShardSet, clock: Clock, process: str, leases: Callable[[], Sequence[Lease]]) -> None:
        self._members = members
        self._clock = clock
        self._process = process
        self._leases = leases
        self._known: dict[Key, tuple[NumberedCommand, int]] = {}
        """With the time until which each counts."""
        self._given, self._given_ms = 0, 0
        self._leases_seen: Sequence[Lease] = ()
        self._signals: Mapping[str, int] = {}
        """What the leases of others said last."""
        self._signals_read: Mapping[str, int] = {}
        """And when the entries were read last."""
        self._reading: asyncio.Task[None] | None = None

    def describe(self) -> Mapping[str, Any]:
        """For the lease of this process."""
        return {DESCRIBED: self._given} if self._given_ms > self._clock.now_ms() - KEEP_MS else {}

    async def give(self, command: WorkerCommand, workers: Sequence[SeenWorker]) -> None:
        """To each of these, in place of an earlier one that it has not heard. NoHealthyShards and other errors of the
        store: others do not know all of them, and it is to be given again.
        """
        await self._read()  # a newer command has the greater number, whoever gave the one before
        keys = [each.key for each in workers]
        now_ms = self._clock.now_ms()
        number = max([now_ms, *(self._known[key][0].number + 1 for key in keys if key in self._known)])
        shards = {shard_id: each.shard for each in self._members.healthy() if (shard_id := each.shard.shard_id)}
        chosen = rendezvous_pick(self._process, shards)
        if chosen is None:
            raise NoHealthyShards("no shard can keep the command for other servers: give it again")
        for start in range(0, len(keys), WORKERS_PER_ENTRY):
            some = keys[start : start + WORKERS_PER_ENTRY]
            body = msgspec.json.encode(_Entry(int(command), number, some))
            self._given += 1
            name = f"{self._process}/{number}/{self._given}"
            await shards[chosen].kv_put(KIND, name, body, now_ms + KEEP_MS, now_ms)
            self._take(NumberedCommand(command, number), some, now_ms)
        self._given_ms = now_ms

    async def for_worker(self, key: Key) -> NumberedCommand | None:
        """What a worker that reports now is to do. Raises nothing."""
        if self._has_news():
            await self._read()
        found = self._known.get(key)
        return None if found is None or found[1] <= self._clock.now_ms() else found[0]

    def _has_news(self) -> bool:
        leases = self._leases()
        if leases is not self._leases_seen:
            self._leases_seen = leases
            self._signals = {
                lease.name: lease.more[DESCRIBED]
                for lease in leases
                if DESCRIBED in lease.more and lease.name != self._process
            }
        return self._signals != self._signals_read and bool(self._signals)

    async def _read(self) -> None:
        """Whoever comes meanwhile waits for the same answer, but not for long. Raises nothing."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read_all(self._signals))
        await asyncio.wait([self._reading], timeout=READ_WITHIN_S)

    async def _read_all(self, signals: Mapping[str, int]) -> None:
        now_ms = self._clock.now_ms()
        self._known = {key: each for key, each in self._known.items() if each[1] > now_ms}
        members = self._members.healthy()
        outcomes = await ask_all(members, methodcaller("kv_list", KIND, now_ms))
        for outcome in outcomes:
            if isinstance(outcome, PinLaterError):
                continue
            self._take_entries(outcome, now_ms)
        if not any(isinstance(outcome, PinLaterError) for outcome in outcomes):
            self._signals_read = signals

    def _take_entries(self, entries: Mapping[str, KvEntry], now_ms: int) -> None:
        for name, entry in entries.items():
            try:
                found = _decode(entry.body)
                command = WorkerCommand(found.command)
            except (*UNREADABLE, ValueError):
                _log.warning("worker_command_not_understood", name=name)
                continue
            self._take(NumberedCommand(command, found.number), found.keys, now_ms)

    def _take(self, command: NumberedCommand, keys: Sequence[Key], now_ms: int) -> None:
        for key in keys:
            known = self._known.get(key)
            if known is None or known[0].number < command.number:
                self._known[key] = command, now_ms + KEEP_MS

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
