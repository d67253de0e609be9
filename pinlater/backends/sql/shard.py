"""A shard in SQL. Each call runs as one transaction, on a thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from pinlater.backends.base import (
    NO_RULES,
    SLICE_BYTES,
    AckOutcome,
    AckRequest,
    CheckpointRequest,
    ClaimKey,
    ClaimRequest,
    ConfigEntry,
    ConfigPage,
    DeadLetterTarget,
    EndRules,
    ExpiredClaim,
    ExpiryCounts,
    ExpiryRequest,
    JobKey,
    KvEntry,
    NoEvents,
    OnNotification,
    PerQueue,
    Quota,
    ReferencesPage,
    Retention,
    ScanRequest,
    ShardEvents,
    SilentClaim,
    StatsPage,
    StatsPosition,
    StoreStatus,
    Tokens,
    UnrenewedClaim,
)
from pinlater.backends.extended import (
    Barrier,
    BlockedChain,
    HeartbeatAnswer,
    HeartbeatRequest,
    KeyWindow,
    Offer,
    Offered,
    RescheduleRequest,
)
from pinlater.backends.sql import (
    admin,
    attempts,
    chains,
    coordination,
    held_references,
    key_entries,
    keyed_jobs,
    queries,
    ready_jobs,
)
from pinlater.backends.sql.chains import Freed
from pinlater.backends.sql.coordination import Identity, ping
from pinlater.model import CancelOutcome, ClaimAnswer, DequeuedJob, Job, JobInfo, JobState, KeyRef, RescheduleOutcome
from pinlater.model.body_reference import BodyReference, body_length

Result = TypeVar("Result")
_JOBS_PER_SLICE = 64


class SqlShard(ABC):
    """A shard in an SQL database; a subclass per dialect says how a transaction is run."""

    keeps_order = False
    has_own_clock = True

    def __init__(self, shard_id: str) -> None:
        self.shard_id = shard_id
        self.events: ShardEvents = NoEvents()
        self._identity = Identity(shard_id, "")
        self._holds_extended = False

    @abstractmethod
    def write(self, transaction: Callable[..., Result], *arguments: Any) -> Awaitable[Result]:
        """Run a transaction that may change something."""

    @abstractmethod
    def read(self, transaction: Callable[..., Result], *arguments: Any) -> Awaitable[Result]:
        """Run a transaction that changes and locks nothing; it may take long without holding up the others."""

    async def _write_freeing(self, transaction: Callable[..., Result], *arguments: Any) -> Result:
        """Run a transaction that may free jobs, whose last argument takes them in; they are told behind the commit."""
        freed: Freed = {}
        result = await self.write(transaction, *arguments, freed)
        for queue, run_after_ms in freed.items():
            self.events.jobs_freed(queue, run_after_ms)
        return result

    async def ping(self) -> StoreStatus:
        return await self.write(ping, self._identity)

    # -- config entries ----------------------------------------------------------------------------------------------

    async def put_config(self, entries: Sequence[ConfigEntry], now_ms: int) -> list[bool]:
        return await self.write(coordination.put_config, entries, now_ms)

    async def list_config(self, since: int, limit: int) -> ConfigPage:
        return await self.read(coordination.list_config, self._identity.store_id, since, limit)

    # -- the life of a job -------------------------------------------------------------------------------------------

    async def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> list[str]:
        return await self.write(ready_jobs.enqueue, queue, jobs, now_ms)

    async def enqueue_extended(
        self, queue: str, offers: Sequence[Offer], now_ms: int, homes_version: str = ""
    ) -> list[Offered]:
        raises = not self._holds_extended
        offered = await self.write(keyed_jobs.enqueue_extended, queue, offers, now_ms, homes_version, raises)
        self._holds_extended |= bool(offers)
        return offered

    async def find_keys(self, queue: str, keys: Sequence[KeyRef]) -> list[str | None]:
        return await self.read(keyed_jobs.find_keys, queue, keys)

    async def count_ready(self, queue: str, priorities: Sequence[int], limit: int, now_ms: int) -> list[int]:
        return await self.read(ready_jobs.count_ready, queue, priorities, limit, now_ms)

    async def next_due(self, queues: Sequence[str], priorities: Sequence[int]) -> dict[str, int | None]:
        return await self.read(ready_jobs.next_due, queues, priorities)

    async def subscribe(self, queue: str, on_event: OnNotification | None) -> bool:
        """SQL tells nobody anything."""
        return False

    async def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> list[list[DequeuedJob]]:
        return await self.write(ready_jobs.claim, queue, requests, now_ms, enforce_quota)

    async def claim_listed(
        self, queue: str, jobs: Sequence[JobKey], request: ClaimRequest, now_ms: int, *, enforce_quota: bool = False
    ) -> list[ClaimAnswer]:
        return await self.write(ready_jobs.claim_listed, queue, jobs, request, now_ms, enforce_quota)

    async def peek(
        self, queue: str, priorities: Sequence[int], limit: int, max_bytes: int, now_ms: int
    ) -> list[DequeuedJob]:
        return await self.read(ready_jobs.peek, queue, priorities, limit, max_bytes, now_ms)

    async def ack(
        self, queue: str, acks: Sequence[AckRequest], now_ms: int, rules: EndRules = NO_RULES
    ) -> list[AckOutcome]:
        return await self._write_freeing(attempts.ack, queue, acks, now_ms, rules)

    async def ack_and_claim(
        self,
        queue: str,
        acks: Sequence[AckRequest],
        requests: Sequence[ClaimRequest],
        now_ms: int,
        rules: EndRules = NO_RULES,
        *,
        enforce_quota: bool = False,
    ) -> tuple[list[AckOutcome], list[list[DequeuedJob]]]:
        return await self._write_freeing(ready_jobs.ack_and_claim, queue, acks, requests, now_ms, rules, enforce_quota)

    async def checkpoint(self, queue: str, checkpoints: Sequence[CheckpointRequest], now_ms: int) -> list[bool]:
        return await self._write_freeing(attempts.checkpoint, queue, checkpoints, now_ms)

    async def heartbeat(self, queue: str, heartbeats: Sequence[HeartbeatRequest], now_ms: int) -> list[HeartbeatAnswer]:
        return await self.write(attempts.heartbeat, queue, heartbeats, now_ms)

    async def reschedule(
        self, queue: str, requests: Sequence[RescheduleRequest], now_ms: int
    ) -> list[RescheduleOutcome]:
        return await self.write(admin.reschedule, queue, requests, now_ms)

    async def requeue(self, queue: str, claims: Sequence[ClaimKey], now_ms: int) -> int:
        return await self._write_freeing(ready_jobs.requeue, queue, claims, now_ms)

    async def expire_disconnected(
        self, queue: str, claims: Sequence[SilentClaim], now_ms: int, rules: EndRules = NO_RULES
    ) -> ExpiryCounts:
        return await self._write_freeing(attempts.expire_disconnected, queue, claims, now_ms, rules)

    async def expire_listed(
        self, queue: str, claims: Sequence[ExpiryRequest], now_ms: int, rules: EndRules = NO_RULES
    ) -> list[AckOutcome]:
        return await self._write_freeing(attempts.expire_listed, queue, claims, now_ms, rules)

    async def requeue_undelivered(self, queue: str, claims: Sequence[UnrenewedClaim], now_ms: int) -> int:
        return await self._write_freeing(ready_jobs.requeue_undelivered, queue, claims, now_ms)

    async def cancel(self, queue: str, jobs: Sequence[JobKey], now_ms: int, by: str = "") -> list[CancelOutcome]:
        return await self._write_freeing(admin.cancel, queue, jobs, now_ms, by)

    # -- looking -----------------------------------------------------------------------------------------------------

    async def lookup(
        self, queue: str, jobs: Sequence[JobKey], *, with_body: bool, max_bytes: int, with_result: bool = False
    ) -> list[JobInfo | None]:
        """What is known of all in one transaction; bodies beyond the first slice in further ones."""
        found = await self.read(queries.lookup, queue, jobs, with_body, min(max_bytes, SLICE_BYTES))
        room = max_bytes - _body_bytes(found)
        rest = [at for at, info in enumerate(found) if info is not None and info.body is None] if with_body else []
        while rest and room > 0:
            some = rest[:_JOBS_PER_SLICE]
            keys = [jobs[at] for at in some]
            infos = await self.read(queries.lookup, queue, keys, True, min(room, SLICE_BYTES), room)
            for at, info in zip(some, infos, strict=True):
                found[at] = info
            read = next((n for n, info in enumerate(infos) if info is not None and info.body is None), len(some))
            if read == 0:
                break
            room -= _body_bytes(infos)
            del rest[:read]
        if with_result and jobs:
            taken = _body_bytes(found)
            is_first = taken == 0 and max_bytes > 0
            found = await self.read(queries.results, queue, jobs, found, max(0, max_bytes - taken), is_first)
        return found

    async def count(self, queue: str, state: JobState, priorities: Sequence[int], future: bool, now_ms: int) -> int:
        return await self.read(queries.count, queue, state, priorities, future, now_ms)

    async def scan(self, queue: str, request: ScanRequest, now_ms: int) -> list[JobInfo]:
        return await self.read(queries.scan, queue, request, now_ms)

    async def watch_ends(self, queue: str, jobs: Sequence[JobKey], until_ms: int, now_ms: int) -> bool:
        """SQL tells nobody anything."""
        return False

    async def blocked_chains(self, limit: int, now_ms: int) -> list[BlockedChain]:
        return await self.read(chains.blocked_chains, limit)

    # -- operators ---------------------------------------------------------------------------------------------------

    async def retry_failed(
        self, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int, now_ms: int
    ) -> int:
        return await self.write(admin.retry_failed, queue, priority, attempts, run_after_ms, limit, now_ms)

    async def retry_listed(
        self,
        queue: str,
        jobs: Sequence[JobKey],
        attempts: int | None,
        run_after_ms: int | None,
        now_ms: int,
        homes_version: str = "",
    ) -> int:
        return await self.write(admin.retry_listed, queue, jobs, attempts, run_after_ms, now_ms, homes_version)

    async def taken_keys(self, queue: str, jobs: Sequence[JobKey]) -> list[str | None]:
        return await self.read(keyed_jobs.taken_keys, queue, jobs)

    async def delete_jobs(self, queue: str, state: JobState, priority: int, limit: int, now_ms: int) -> int:
        return await self._write_freeing(admin.delete_jobs, queue, state, priority, limit, now_ms)

    async def delete_listed(self, queue: str, state: JobState, jobs: Sequence[JobKey], now_ms: int) -> int:
        return await self._write_freeing(admin.delete_listed, queue, state, jobs, now_ms)

    async def replay(
        self, queue: str, jobs: Sequence[JobKey], now_ms: int, attempts: int | None, homes_version: str = ""
    ) -> list[str | None]:
        return await self._write_freeing(admin.replay, queue, jobs, now_ms, attempts, homes_version)

    async def mark_moved(self, queue: str, moved: Sequence[tuple[ClaimKey, str]], now_ms: int) -> list[bool]:
        return await self._write_freeing(admin.mark_moved, queue, moved, now_ms)

    # -- maintenance -------------------------------------------------------------------------------------------------

    async def expire_claims(self, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, ExpiryCounts]:
        return await self._write_freeing(attempts.expire_claims, limit, now_ms, rules)

    async def expired_claims(
        self, queues: Sequence[str], limit: int, now_ms: int
    ) -> Mapping[str, Sequence[ExpiredClaim]]:
        return await self.read(attempts.expired_claims, queues, limit, now_ms)

    async def expire_jobs(self, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, int]:
        return await self._write_freeing(attempts.expire_jobs, limit, now_ms, rules)

    async def dead_letter(self, limit: int, now_ms: int, targets: Mapping[str, DeadLetterTarget]) -> Mapping[str, int]:
        return await self.write(admin.dead_letter, limit, now_ms, targets)

    async def prune(
        self, limit: int, now_ms: int, retention: PerQueue[Retention], *, tombstones_before: str = ""
    ) -> Mapping[str, int]:
        return await self._write_freeing(admin.prune, limit, now_ms, retention, tombstones_before)

    # -- schedules, and the homes of keys ----------------------------------------------------------------------------

    async def last_firings(self, schedules: Sequence[str]) -> list[str | None]:
        return await self.read(key_entries.last_firings, schedules)

    async def raise_marks(self, marks: Mapping[str, str]) -> None:
        await self.write(keyed_jobs.put_marks, marks)

    async def key_slots(self) -> Sequence[int]:
        return await self.read(key_entries.key_slots)

    async def list_windows(self, limit: int, after: str, now_ms: int) -> list[KeyWindow]:
        return await self.read(key_entries.list_windows, limit, after, now_ms)

    async def put_windows(self, windows: Sequence[KeyWindow], now_ms: int) -> None:
        await self.write(key_entries.put_windows, windows, now_ms)

    async def drop_windows(self, windows: Sequence[KeyWindow]) -> None:
        await self.write(key_entries.drop_windows, windows)

    async def has_chains(self, serialize_keys: Sequence[str]) -> list[bool]:
        return await self.read(chains.has_chains, serialize_keys)

    async def list_barriers(self, limit: int) -> list[Barrier]:
        return await self.read(chains.list_barriers, limit)

    async def lift_barriers(self, barriers: Sequence[Barrier], now_ms: int) -> Mapping[str, Sequence[int]]:
        return await self.write(chains.lift_barriers, barriers, now_ms)

    # -- references to bodies ------------------------------------------------------------------------------------------

    async def list_references(self, after: str, limit: int) -> ReferencesPage:
        return await self.read(held_references.list_references, after, limit)

    async def dropped_references(self, limit: int) -> list[BodyReference]:
        return await self.read(held_references.dropped_references, limit)

    async def forget_references(self, references: Sequence[BodyReference]) -> None:
        await self.write(held_references.forget_references, references)

    # -- what the servers of a cluster tell each other ---------------------------------------------------------------

    async def kv_put(
        self,
        namespace: str,
        name: str,
        body: bytes,
        expires_at_ms: int,
        now_ms: int,
        *,
        expected_version: int | None = None,
        keep: int = 100_000,
    ) -> int:
        return await self.write(
            coordination.kv_put, namespace, name, body, expires_at_ms, now_ms, expected_version, keep
        )

    async def kv_list(self, namespace: str, now_ms: int) -> dict[str, KvEntry]:
        return await self.read(coordination.kv_list, namespace, now_ms)

    async def take_tokens(self, queue: str, wanted: int, per_second: float, capacity: float, now_ms: int) -> Tokens:
        return await self.write(coordination.take_tokens, queue, wanted, per_second, capacity, now_ms)

    async def set_quota(self, queue: str, quota: int, version: int, now_ms: int) -> Quota:
        return await self.write(coordination.set_quota, queue, quota, version)

    async def stats(
        self, queue: str, priorities: Sequence[int], now_ms: int, after: StatsPosition | None, limit: int
    ) -> StatsPage:
        return await self.read(queries.stats, queue, priorities, now_ms, after, limit)


def _body_bytes(infos: Sequence[JobInfo | None]) -> int:
    return sum([body_length(info.body) for info in infos if info is not None and info.body is not None])
