"""The maximum in progress: whatever stops between any two steps, no more claims are alive than it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pinlater.backends.base import AckRequest, ClaimRequest, Note
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.model import Ack, DequeuedJob, Job, parse_descriptor
from pinlater.queues import share_record
from pinlater.queues.registry import Queues
from pinlater.queues.share_record import KIND, ShareRecord
from pinlater.queues.shares import Shares
from pinlater.queues.splitting import Demand, split
from pinlater.rendezvous import chosen
from pinlater.shards.member import Member
from pinlater.shards.members import Members
from tests.unit.breaking import HeldClock, settled
from tests.unit.stepping import Stepped, Turnstile

NEVER_MS = 3_600_000
PRIORITIES = (1, 2, 3)
NAMES = count(1)


class Mover:
    """One process that moves shares."""

    def __init__(self, members: Members, clock: HeldClock, turnstile: Turnstile) -> None:
        self.members = members
        self.turnstile = turnstile
        self.queues = Queues(members, clock)
        self.shares = Shares(members, self.queues, clock)
        self.task: asyncio.Task[bool] | None = None

    def kill(self) -> list[object]:
        """What it had sent is still on its way."""
        if self.task is not None:
            self.task.cancel()
            self.task = None
        return list(self.turnstile.leave_behind())


class Yard:
    """Stores that stay open, and processes that come and go."""

    def __init__(self, stores: Sequence[SqliteShard], store_ids: Sequence[str], clock: HeldClock) -> None:
        self.stores = stores
        self.store_ids = store_ids
        self.clock = clock
        self.claims = count(1)
        self.held: dict[str, list[DequeuedJob]] = {}

    async def mover(self, ids: Sequence[str] | None = None) -> Mover:
        turnstile = Turnstile()
        chain = [
            Member(Stepped(store, store_id, turnstile), self.clock)
            for store, store_id in zip(self.stores, self.store_ids, strict=True)
            if ids is None or store.shard_id in ids
        ]
        members = Members(chain, self.clock, watch_interval_ms=NEVER_MS)
        mover = Mover(members, self.clock, turnstile)
        members.bring_up = mover.queues.bring_up
        await members.open()
        for member in members.all:
            member.skew_ms = 0
        return mover

    async def queue(self, mover: Mover, maximum: int) -> str:
        name = f"q{next(NAMES)}"
        await mover.queues.create(name, "me")
        await mover.queues.change(name, {"max_in_progress": str(maximum)}, [], False, "me")
        self.held = {store.shard_id: [] for store in self.stores}
        return name

    async def enqueue(self, queue: str, shard: int, jobs: int, priority: int = 1) -> None:
        await self.stores[shard].enqueue(queue, [Job(b"x", priority)] * jobs, self.clock.now_ms())

    async def claim(self, queue: str, shard: int, limit: int, *, capped: bool = True) -> int:
        store = self.stores[shard]
        request = ClaimRequest(f"here:1:1:{next(self.claims)}:me", limit, PRIORITIES, NEVER_MS, 10_000)
        (jobs,) = await store.claim(queue, [request], self.clock.now_ms(), capped=capped)
        self.held[store.shard_id] += jobs
        return len(jobs)

    async def ack(self, queue: str, shard: int, jobs: int = 1) -> None:
        store = self.stores[shard]
        held = self.held[store.shard_id]
        done, self.held[store.shard_id] = held[:jobs], held[jobs:]
        await store.ack(queue, [acked(job) for job in done], self.clock.now_ms())

    def in_progress(self) -> int:
        return sum(map(len, self.held.values()))

    async def record(self, queue: str) -> ShareRecord | None:
        home = chosen(queue, [store.shard_id for store in self.stores])
        notes: dict[str, Note] = {}
        for store in self.stores:
            if store.shard_id == home:
                notes = await store.notes(KIND, self.clock.now_ms())
        return share_record.read(notes.get(queue))

    async def shares(self, queue: str) -> dict[str, int]:
        return {store.shard_id: (await store.set_share(queue, 0, 0, 0)).share for store in self.stores}

    async def check(self, queue: str, maximum: int) -> None:
        assert self.in_progress() <= maximum
        record = await self.record(queue)
        shares = await self.shares(queue)
        if record is None:
            assert not any(shares.values())
        else:
            assert sum(record.shares.values()) <= maximum
            for shard_id, share in shares.items():
                assert share <= record.shares.get(shard_id, 0)

    async def drain(self, queue: str, mover: Mover, rounds: int = 60) -> int:
        """Work until nothing is left; how many rounds it took."""
        for number in range(rounds):
            self.clock.tick(250)
            await mover.shares.balance(queue)
            left = 0
            for shard, store in enumerate(self.stores):
                await self.claim(queue, shard, 100)
                left += sum(await store.ready(queue, PRIORITIES, 100, self.clock.now_ms()))
            left += self.in_progress()
            for shard in range(len(self.stores)):
                await self.ack(queue, shard, 100)
            if left == 0:
                return number
        raise AssertionError(f"{left} jobs are left after {rounds} rounds")


def acked(job: DequeuedJob) -> AckRequest:
    ref = parse_descriptor(job.descriptor)
    assert ref is not None
    return AckRequest(ref.priority, ref.id, Ack(job.descriptor).append_status == "", claim_descriptor="")


@asynccontextmanager
async def yard(shards: int = 3) -> AsyncIterator[Yard]:
    stores = [SqliteShard("sqlite://", str(number)) for number in range(1, shards + 1)]
    ids = [await store.open() for store in stores]
    try:
        yield Yard(stores, ids, HeldClock())
    finally:
        for store in stores:
            await store.close()
