"""A shard in one table of DynamoDB. What each call does is in the modules beside this one, with the call's name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from pinlater.backends.base import (
    ConfigEntry,
    ConfigPage,
    GroupStore,
    PermitStore,
    PerQueue,
    Retention,
    Shard,
    ShardEvents,
    StoreStatus,
)
from pinlater.backends.dynamodb import (
    attempt_steps,
    claims,
    coordination,
    due_work,
    key_items,
    operators,
    table_queries,
)
from pinlater.backends.dynamodb import enqueue as enqueues
from pinlater.backends.dynamodb.client import DynamodbClient, TableMissing
from pinlater.backends.dynamodb.due_work import Pruner
from pinlater.backends.dynamodb.queue_records import list_config, put_config
from pinlater.backends.dynamodb.store_parts import Store
from pinlater.backends.dynamodb.table import IDENTITY, IDS, JobTable, TableIdentity, newest_ms
from pinlater.backends.dynamodb.table_address import parse_address
from pinlater.errors import StoreReplaced

P = ParamSpec("P")
T = TypeVar("T")


def _of_store(
    call: Callable[Concatenate[Store, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[DynamodbShard, P], Coroutine[Any, Any, T]]:
    """A method that is a call of the shard's store."""

    def method(self: DynamodbShard, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return call(self._store, *args, **kwargs)

    return method


class DynamodbShard(Shard, lacks=(GroupStore, PermitStore)):
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
        """The client, for those who count what calls consume."""
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
            raise StoreReplaced.since(identity.store_id, place=error.message) from error
        record = found.get(IDENTITY)
        if record is None or TableIdentity(record["shard"], record["store"]) != identity:
            raise StoreReplaced.since(identity.store_id, "" if record is None else record["store"])
        return StoreStatus(identity.store_id, self.client.server_ms, newest_ms=newest_ms(found.get(IDS)))

    # -- config entries ----------------------------------------------------------------------------------------------

    async def put_config(self, entries: Sequence[ConfigEntry], now_ms: int) -> list[bool]:
        return await put_config(self._store.steps, entries, now_ms)

    async def list_config(self, since: int, limit: int) -> ConfigPage:
        return await list_config(self._store.table, self._store.identity, since, limit)

    # -- the life of a job -------------------------------------------------------------------------------------------

    enqueue = _of_store(enqueues.enqueue)
    enqueue_extended = _of_store(enqueues.enqueue_extended)
    find_keys = _of_store(key_items.find_keys)
    count_ready = _of_store(claims.count_ready)
    next_due = _of_store(claims.next_due)
    claim = _of_store(claims.claim)
    claim_listed = _of_store(claims.claim_listed)
    peek = _of_store(claims.peek)
    ack = _of_store(attempt_steps.ack)
    ack_and_claim = _of_store(attempt_steps.ack_and_claim)
    checkpoint = _of_store(attempt_steps.checkpoint)
    heartbeat = _of_store(attempt_steps.heartbeat)
    reschedule = _of_store(operators.reschedule)
    requeue = _of_store(attempt_steps.requeue)
    expire_disconnected = _of_store(attempt_steps.expire_disconnected)
    expire_listed = _of_store(attempt_steps.expire_listed)
    requeue_undelivered = _of_store(attempt_steps.requeue_undelivered)
    cancel = _of_store(operators.cancel)

    # -- queries -----------------------------------------------------------------------------------------------------

    lookup = _of_store(table_queries.lookup)
    count = _of_store(table_queries.count)
    scan = _of_store(table_queries.scan)
    blocked_chains = _of_store(key_items.blocked_chains)

    read_trails = _of_store(table_queries.read_trails)
    put_trails = _of_store(attempt_steps.put_trails)

    # -- operators ---------------------------------------------------------------------------------------------------

    retry_failed = _of_store(operators.retry_failed)
    retry_listed = _of_store(operators.retry_listed)
    taken_keys = _of_store(key_items.taken_keys)
    delete_jobs = _of_store(operators.delete_jobs)
    delete_listed = _of_store(operators.delete_listed)
    replay = _of_store(operators.replay)
    mark_moved = _of_store(attempt_steps.mark_moved)

    # -- maintenance -------------------------------------------------------------------------------------------------

    expire_claims = _of_store(due_work.expire_claims)
    expired_claims = _of_store(due_work.expired_claims)
    expire_jobs = _of_store(due_work.expire_jobs)
    dead_letter = _of_store(due_work.dead_letter)

    async def prune(
        self, limit: int, now_ms: int, retention: PerQueue[Retention], *, tombstones_before: str = ""
    ) -> Mapping[str, int]:
        return await self._pruner.prune(limit, now_ms, retention, tombstones_before)

    # -- schedules, and the homes of keys ----------------------------------------------------------------------------

    last_firings = _of_store(coordination.last_firings)
    raise_marks = _of_store(coordination.raise_marks)
    key_slots = _of_store(key_items.key_slots)
    list_windows = _of_store(key_items.list_windows)
    put_windows = _of_store(key_items.put_windows)
    drop_windows = _of_store(key_items.drop_windows)
    has_chains = _of_store(key_items.has_chains)
    list_barriers = _of_store(key_items.list_barriers)
    lift_barriers = _of_store(key_items.lift_barriers)

    # -- references to bodies ----------------------------------------------------------------------------------------

    list_references = _of_store(coordination.list_references)
    dropped_references = _of_store(coordination.dropped_references)
    forget_references = _of_store(coordination.forget_references)

    # -- what the servers of a cluster tell each other ---------------------------------------------------------------

    kv_put = _of_store(coordination.kv_put)
    kv_list = _of_store(coordination.kv_list)
    take_tokens = _of_store(coordination.take_tokens)
    set_quota = _of_store(coordination.set_quota)
    stats = _of_store(table_queries.stats)
