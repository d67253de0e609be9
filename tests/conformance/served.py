"""A service over two shards of a store, with a clock that a test holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pinlater.backends.base import Shard
from pinlater.data_folder.password import hash_password
from pinlater.model import DequeuedJob, DequeueRequest, Job, JobFilter, JobInfo, JobState, RequestContext
from pinlater.service import ClaimTokens, Service, ServiceSettings
from pinlater.shards.handle import ShardHandle
from pinlater.shards.router import Router
from pinlater.shards.shard_set import ShardSet
from tests.conformance.chain import chained
from tests.conformance.subject import DAY_MS, START_MS

__all__ = ["CLAIM_TIMEOUT_MS", "MAX_CLAIM_TIMEOUT_MS", "QUEUE", "START_MS", "SUCCEEDED_TTL_MS", "HeldClock", "Served"]

QUEUE = "mail"
CLAIM_TIMEOUT_MS = 300_000
MAX_CLAIM_TIMEOUT_MS = DAY_MS
SUCCEEDED_TTL_MS = DAY_MS
PASSWORD = "let me in"
PASSWORD_HASH = hash_password(PASSWORD)


class HeldClock:
    """Stands still but for `tick`."""

    def __init__(self) -> None:
        self._now_ms = START_MS
        self.uncertainty_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def tick(self, ms: int) -> None:
        self._now_ms += ms


class Served:
    """The service with one empty queue, and short ways to ask it."""

    def __init__(
        self,
        shards: Sequence[Shard],
        *,
        queue: str = QUEUE,
        deadline_ms: int = 30_000,
        process: int = 4711,
        **settings: Any,
    ) -> None:
        self.queue = queue
        self.clock = HeldClock()
        self.context = RequestContext("worker")
        self.password = PASSWORD
        self.max_body_bytes: int = settings.get("max_body_bytes", 2**20)
        self.shards = [chained(shard, deadline_ms=deadline_ms, clock=self.clock) for shard in shards]
        self.members = ShardSet([ShardHandle(shard, self.clock) for shard in self.shards], self.clock)
        self.api = Service(
            Router(self.members),
            self.clock,
            ClaimTokens("host", process, START_MS),
            ServiceSettings(admin_password_hash=PASSWORD_HASH, **settings),
        )

    async def open(self) -> None:
        await self.api.open()
        await self.api.create_queue(self.queue)

    async def close(self) -> None:
        await self.api.close()

    async def enqueue(self, *jobs: Job) -> list[str]:
        return await self.api.enqueue(self.queue, jobs, context=self.context)

    async def spread(self, number: int = 24) -> list[str]:
        """So many jobs, each enqueued alone: some on either shard, but for one chance in millions."""
        return [descriptor for _ in range(number) for descriptor in await self.enqueue(Job(b""))]

    async def dequeue(self, limit: int) -> list[DequeuedJob]:
        return await self.api.dequeue(DequeueRequest(self.queue, limit), context=self.context)

    async def info(self, descriptor: str) -> JobInfo:
        """The job, which must be there."""
        return (await self.api.lookup([descriptor], include_body=True))[descriptor]

    def filter(self, state: JobState, *, queue: str | None = None, **fields: Any) -> JobFilter:
        return JobFilter(self.queue if queue is None else queue, state, **fields)

    async def count(self, state: JobState, **fields: Any) -> int:
        return await self.api.count(self.filter(state, **fields))

    async def change(self, **settings: str) -> None:
        """Change settings of the queue, as an operator does."""
        await self.api.update_queue(self.queue, self.password, set=settings, context=self.context)

    async def maintain(self) -> None:
        """One round of maintenance on every shard."""
        queues, now_ms = self.api.queues, self.clock.now_ms()
        for shard in self.shards:
            await shard.expire_claims(1_000, now_ms, queues.end_rules())
            await shard.expire_jobs(1_000, now_ms, queues.end_rules())
            await shard.dead_letter(1_000, now_ms, queues.dead_letter_targets())
            await shard.prune(1_000, now_ms, queues.retention())
