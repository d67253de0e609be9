"""A shard in one table of DynamoDB. What each call does is in the modules beside this one, with the call's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pinlater.backends.base import (
    NO_RULES,
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
from pinlater.backends.dynamodb.attempt_steps import (
    ack,
    ack_and_claim,
    checkpoint,
    expire_disconnected,
    expire_listed,
    heartbeat,
    mark_moved,
    requeue,
    requeue_undelivered,
)
from pinlater.backends.dynamodb.claims import (
    claim,
    claim_listed,
    count_ready,
    next_due,
    peek,
)
from pinlater.backends.dynamodb.client import DynamodbClient, TableMissing
from pinlater.backends.dynamodb.coordination import (
    dropped_references,
    forget_references,
    kv_list,
    kv_put,
    last_firings,
    list_references,
    raise_marks,
    set_quota,
    take_tokens,
)
from pinlater.backends.dynamodb.due_work import (
    Pruner,
    dead_letter,
    expire_claims,
    expire_jobs,
    expired_claims,
)
from pinlater.backends.dynamodb.enqueue import (
    enqueue,
    enqueue_extended,
)
from pinlater.backends.dynamodb.key_items import (
    blocked_chains,
    drop_windows,
    find_keys,
    has_chains,
    key_slots,
    lift_barriers,
    list_barriers,
    list_windows,
    put_windows,
    taken_keys,
)
from pinlater.backends.dynamodb.operators import (
    cancel,
    delete_jobs,
    delete_listed,
    replay,
    reschedule,
    retry_failed,
    retry_listed,
)
from pinlater.backends.dynamodb.queue_records import (
    list_config,
    put_config,
)
from pinlater.backends.dynamodb.store_parts import Store
from pinlater.backends.dynamodb.table import IDENTITY, IDS, JobTable, TableIdentity, newest_ms
from pinlater.backends.dynamodb.table_address import parse_address
from pinlater.backends.dynamodb.table_queries import (
    count,
    lookup,
    scan,
    stats,
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
from pinlater.errors import StoreReplaced
from pinlater.model import (
    CancelOutcome,
    ClaimAnswer,
    DequeuedJob,
    Job,
    JobInfo,
    JobState,
    KeyRef,
    RescheduleOutcome,
)
from pinlater.model.body_reference import BodyReference


class DynamodbShard:
    """`url` as address.py says. A call of more than 100 jobs or 4 MB is whole in parts alone: OutcomeUnknown where one
    fails.
    """

    keeps_order = False
    has_own_clock = True

    def __init__(self, url: str, shard_id: str = "") -> None:
        self.shard_id = shard_id
        self._store = Store(JobTable(parse_address(url)))
        self._pruner = Pruner(self._store)

    @property
    def events(self) -> ShardEvents:
        return self._store.events

    @events.setter
    def events(self, events: ShardEvents) -> None:
        self._store.events = events

    @property
    def client(self) -> DynamodbClient:
        """For those who count what calls consume."""
        return self._store.table.client

    async def open(self) -> str:
        try:
            self._store.identity = await self._store.table.open(self.shard_id)
        except BaseException:
            await self.close()
            raise
        self.shard_id = self._store.identity.shard_id
        return self._store.identity.store_id

    async def close(self) -> None:
        await self._store.table.client.close()

    async def ping(self) -> StoreStatus:
        identity = self._store.identity
        try:
            found = await self._store.table.read_all([IDENTITY, IDS])
        except TableMissing as error:
            raise StoreReplaced(f"the store was {identity} when it was opened: {error.message}") from error
        record = found.get(IDENTITY)
        if record is None or TableIdentity(record["shard"], record["store"]) != identity:
            raise StoreReplaced(f"the store was {identity} when it was opened and is another one now: it was emptied")
        return StoreStatus(identity.store_id, self.client.server_ms, newest_ms=newest_ms(found.get(IDS)))

    # -- config entries ----------------------------------------------------------------------------------------------

    async def put_config(self, entries: Sequence[ConfigEntry], now_ms: int) -> list[bool]:
        return await put_config(self._store.steps, entries, now_ms)

    async def list_config(self, since: int, limit: int) -> ConfigPage:
        return await list_config(self._store.table, self._store.identity, since, limit)

    # -- the life of a job -------------------------------------------------------------------------------------------

    async def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> list[str]:
        return await enqueue(self._store, queue, jobs, now_ms)

    async def enqueue_extended(
        self, queue: str, offers: Sequence[Offer], now_ms: int, homes_version: str = ""
    ) -> list[Offered]:
        return await enqueue_extended(self._store, queue, offers, now_ms, homes_version)

    async def find_keys(self, queue: str, keys: Sequence[KeyRef]) -> list[str | None]:
        return await find_keys(self._store, queue, keys)

    async def count_ready(self, queue: str, priorities: Sequence[int], limit: int, now_ms: int) -> list[int]:
        return await count_ready(self._store, queue, priorities, limit, now_ms)

    async def next_due(self, queues: Sequence[str], priorities: Sequence[int]) -> dict[str, int | None]:
        return await next_due(self._store, queues, priorities)

    async def subscribe(self, queue: str, on_event: OnNotification | None) -> bool:
        """DynamoDB tells nobody anything in time."""
        return False

    async def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> list[list[DequeuedJob]]:
        return await claim(self._store, queue, requests, now_ms, enforce_quota)

    async def claim_listed(
        self, queue: str, jobs: Sequence[JobKey], request: ClaimRequest, now_ms: int, *, enforce_quota: bool = False
    ) -> list[ClaimAnswer]:
        return await claim_listed(self._store, queue, jobs, request, now_ms, enforce_quota)

    async def peek(
        self, queue: str, priorities: Sequence[int], limit: int, max_bytes: int, now_ms: int
    ) -> list[DequeuedJob]:
        return await peek(self._store, queue, priorities, limit, max_bytes, now_ms)

    async def ack(
        self, queue: str, acks: Sequence[AckRequest], now_ms: int, rules: EndRules = NO_RULES
    ) -> list[AckOutcome]:
        return await ack(self._store, queue, acks, now_ms, rules)

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
        return await ack_and_claim(self._store, queue, acks, requests, now_ms, rules, enforce_quota)

    async def checkpoint(self, queue: str, checkpoints: Sequence[CheckpointRequest], now_ms: int) -> list[bool]:
        return await checkpoint(self._store, queue, checkpoints, now_ms)

    async def heartbeat(self, queue: str, heartbeats: Sequence[HeartbeatRequest], now_ms: int) -> list[HeartbeatAnswer]:
        return await heartbeat(self._store, queue, heartbeats, now_ms)

    async def reschedule(
        self, queue: str, requests: Sequence[RescheduleRequest], now_ms: int
    ) -> list[RescheduleOutcome]:
        return await reschedule(self._store, queue, requests, now_ms)

    async def requeue(self, queue: str, claims: Sequence[ClaimKey], now_ms: int) -> int:
        return await requeue(self._store, queue, claims, now_ms)

    async def expire_disconnected(
        self, queue: str, claims: Sequence[SilentClaim], now_ms: int, rules: EndRules = NO_RULES
    ) -> ExpiryCounts:
        return await expire_disconnected(self._store, queue, claims, now_ms, rules)

    async def expire_listed(
        self, queue: str, claims: Sequence[ExpiryRequest], now_ms: int, rules: EndRules = NO_RULES
    ) -> list[AckOutcome]:
        return await expire_listed(self._store, queue, claims, now_ms, rules)

    async def requeue_undelivered(self, queue: str, claims: Sequence[UnrenewedClaim], now_ms: int) -> int:
        return await requeue_undelivered(self._store, queue, claims, now_ms)

    async def cancel(self, queue: str, jobs: Sequence[JobKey], now_ms: int, by: str = "") -> list[CancelOutcome]:
        return await cancel(self._store, queue, jobs, now_ms, by)

    # -- queries -----------------------------------------------------------------------------------------------------

    async def lookup(
        self, queue: str, jobs: Sequence[JobKey], *, with_body: bool, max_bytes: int, with_result: bool = False
    ) -> list[JobInfo | None]:
        return await lookup(self._store, queue, jobs, with_body, max_bytes, with_result)

    async def count(self, queue: str, state: JobState, priorities: Sequence[int], future: bool, now_ms: int) -> int:
        return await count(self._store, queue, state, priorities, future, now_ms)

    async def scan(self, queue: str, request: ScanRequest, now_ms: int) -> list[JobInfo]:
        return await scan(self._store, queue, request, now_ms)

    async def watch_ends(self, queue: str, jobs: Sequence[JobKey], until_ms: int, now_ms: int) -> bool:
        """DynamoDB tells nobody anything in time."""
        return False

    async def blocked_chains(self, limit: int, now_ms: int) -> list[BlockedChain]:
        return await blocked_chains(self._store, limit)

    # -- operators ---------------------------------------------------------------------------------------------------

    async def retry_failed(
        self, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int, now_ms: int
    ) -> int:
        return await retry_failed(self._store, queue, priority, attempts, run_after_ms, limit, now_ms)

    async def retry_listed(
        self,
        queue: str,
        jobs: Sequence[JobKey],
        attempts: int | None,
        run_after_ms: int | None,
        now_ms: int,
        homes_version: str = "",
    ) -> int:
        return await retry_listed(self._store, queue, jobs, attempts, run_after_ms, now_ms, homes_version)

    async def taken_keys(self, queue: str, jobs: Sequence[JobKey]) -> list[str | None]:
        return await taken_keys(self._store, queue, jobs)

    async def delete_jobs(self, queue: str, state: JobState, priority: int, limit: int, now_ms: int) -> int:
        return await delete_jobs(self._store, queue, state, priority, limit, now_ms)

    async def delete_listed(self, queue: str, state: JobState, jobs: Sequence[JobKey], now_ms: int) -> int:
        return await delete_listed(self._store, queue, state, jobs, now_ms)

    async def replay(
        self, queue: str, jobs: Sequence[JobKey], now_ms: int, attempts: int | None, homes_version: str = ""
    ) -> list[str | None]:
        return await replay(self._store, queue, jobs, now_ms, attempts, homes_version)

    async def mark_moved(self, queue: str, moved: Sequence[tuple[ClaimKey, str]], now_ms: int) -> list[bool]:
        return await mark_moved(self._store, queue, moved, now_ms)

    # -- maintenance -------------------------------------------------------------------------------------------------

    async def expire_claims(self, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, ExpiryCounts]:
        return await expire_claims(self._store, limit, now_ms, rules)

    async def expired_claims(
        self, queues: Sequence[str], limit: int, now_ms: int
    ) -> Mapping[str, Sequence[ExpiredClaim]]:
        return await expired_claims(self._store, queues, limit, now_ms)

    async def expire_jobs(self, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, int]:
        return await expire_jobs(self._store, limit, now_ms, rules)

    async def dead_letter(self, limit: int, now_ms: int, targets: Mapping[str, DeadLetterTarget]) -> Mapping[str, int]:
        return await dead_letter(self._store, limit, now_ms, targets)

    async def prune(
        self, limit: int, now_ms: int, retention: PerQueue[Retention], *, tombstones_before: str = ""
    ) -> Mapping[str, int]:
        return await self._pruner.prune(limit, now_ms, retention, tombstones_before)

    # -- schedules, and the homes of keys ----------------------------------------------------------------------------

    async def last_firings(self, schedules: Sequence[str]) -> list[str | None]:
        return await last_firings(self._store, schedules)

    async def raise_marks(self, marks: Mapping[str, str]) -> None:
        await raise_marks(self._store, marks)

    async def key_slots(self) -> Sequence[int]:
        return await key_slots(self._store)

    async def list_windows(self, limit: int, after: str, now_ms: int) -> list[KeyWindow]:
        return await list_windows(self._store, limit, after, now_ms)

    async def put_windows(self, windows: Sequence[KeyWindow], now_ms: int) -> None:
        await put_windows(self._store, windows, now_ms)

    async def drop_windows(self, windows: Sequence[KeyWindow]) -> None:
        await drop_windows(self._store, windows)

    async def has_chains(self, serialize_keys: Sequence[str]) -> list[bool]:
        return await has_chains(self._store, serialize_keys)

    async def list_barriers(self, limit: int) -> list[Barrier]:
        return await list_barriers(self._store, limit)

    async def lift_barriers(self, barriers: Sequence[Barrier], now_ms: int) -> Mapping[str, Sequence[int]]:
        return await lift_barriers(self._store, barriers, now_ms)

    # -- references to bodies ----------------------------------------------------------------------------------------

    async def list_references(self, after: str, limit: int) -> ReferencesPage:
        return await list_references(self._store, after, limit)

    async def dropped_references(self, limit: int) -> list[BodyReference]:
        return await dropped_references(self._store, limit)

    async def forget_references(self, references: Sequence[BodyReference]) -> None:
        await forget_references(self._store, references)

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
        return await kv_put(self._store, namespace, name, body, expires_at_ms, now_ms, expected_version, keep)

    async def kv_list(self, namespace: str, now_ms: int) -> dict[str, KvEntry]:
        return await kv_list(self._store, namespace, now_ms)

    async def take_tokens(self, queue: str, wanted: int, per_second: float, capacity: float, now_ms: int) -> Tokens:
        return await take_tokens(self._store, queue, wanted, per_second, capacity, now_ms)

    async def set_quota(self, queue: str, quota: int, version: int, now_ms: int) -> Quota:
        return await set_quota(self._store, queue, quota, version)

    async def stats(
        self, queue: str, priorities: Sequence[int], now_ms: int, after: StatsPosition | None, limit: int
    ) -> StatsPage:
        return await stats(self._store, queue, priorities, now_ms, after, limit)
