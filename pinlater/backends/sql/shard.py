"""A shard in SQL. Each call runs as one transaction, on a thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from pinlater.backends.base import (
    NO_RULES,
    SLICE_BYTES,
    AckOutcome,
    AckRequest,
    ClaimRequest,
    ConfigPage,
    EndRules,
    JobKey,
    NoEvents,
    Shard,
    ShardEvents,
    StoreStatus,
)
from pinlater.backends.extended import Offer, Offered
from pinlater.backends.sql import (
    admin,
    attempts,
    chains,
    cleared_groups,
    coordination,
    dead_letters,
    group_counts,
    group_lines,
    group_permits,
    held_references,
    key_entries,
    keyed_jobs,
    queries,
    ready_jobs,
    trails,
)
from pinlater.backends.sql.chains import Freed
from pinlater.backends.sql.coordination import Identity, ping
from pinlater.backends.sql.session import Session
from pinlater.backends.sql.sql_transfer import SqlTransfer
from pinlater.model import ClaimAnswer, DequeuedJob, Job, JobInfo
from pinlater.model.body_reference import body_length

P = ParamSpec("P")
Result = TypeVar("Result")
_JOBS_PER_SLICE = 64


def _reads(
    transaction: Callable[Concatenate[Session, P], Result],
) -> Callable[Concatenate[SqlShard, P], Coroutine[Any, Any, Result]]:
    """A method that runs a transaction which changes and locks nothing."""
    run: Callable[..., Result] = transaction

    async def method(self: SqlShard, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await self.read(partial(run, **kwargs) if kwargs else run, *args)

    return method


def _writes(
    transaction: Callable[Concatenate[Session, P], Result],
) -> Callable[Concatenate[SqlShard, P], Coroutine[Any, Any, Result]]:
    """A method that runs a transaction which may change something."""
    run: Callable[..., Result] = transaction

    async def method(self: SqlShard, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return await self.write(partial(run, **kwargs) if kwargs else run, *args)

    return method


def _frees(
    transaction: Callable[Concatenate[Session, Freed, P], Result],
) -> Callable[Concatenate[SqlShard, P], Coroutine[Any, Any, Result]]:
    """A method that runs a transaction which may free jobs, and takes these in; they are told behind the commit."""
    run: Callable[..., Result] = transaction

    async def method(self: SqlShard, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        freed: Freed = {}
        result = await self.write(partial(run, **kwargs) if kwargs else run, freed, *args)
        for queue, run_after_ms in freed.items():
            self.events.jobs_freed(queue, run_after_ms)
        return result

    return method


class SqlShard(Shard, ABC):
    """A shard in an SQL database; a subclass per dialect says how a transaction is run."""

    keeps_order = False
    has_own_clock = True

    def __init__(self, shard_id: str) -> None:
        self.shard_id = shard_id
        self.events: ShardEvents = NoEvents()
        self._identity = Identity(shard_id, "")
        self._holds_extended = False
        self.opens_marked = False
        """Whether `open` opens a store that is no server's to open; for a transfer."""

    def transfer(self) -> SqlTransfer:
        """How what the store holds is exported and imported."""
        return SqlTransfer(self)

    @abstractmethod
    def write(self, transaction: Callable[..., Result], *arguments: Any) -> Awaitable[Result]:
        """Run a transaction that may change something."""

    @abstractmethod
    def read(self, transaction: Callable[..., Result], *arguments: Any) -> Awaitable[Result]:
        """Run a transaction that changes and locks nothing; it may take long without holding up the others."""

    async def ping(self) -> StoreStatus:
        return await self.write(ping, self._identity)

    # -- config entries ----------------------------------------------------------------------------------------------

    put_config = _writes(coordination.put_config)

    async def list_config(self, since: int, limit: int) -> ConfigPage:
        return await self.read(coordination.list_config, self._identity.store_id, since, limit)

    # -- the life of a job -------------------------------------------------------------------------------------------

    # written out, as claim is: the way of most calls packs no arguments
    async def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> list[str]:
        return await self.write(ready_jobs.enqueue, queue, jobs, now_ms)

    async def enqueue_extended(
        self, queue: str, offers: Sequence[Offer], now_ms: int, homes_version: str = ""
    ) -> list[Offered]:
        raises = not self._holds_extended
        offered = await self.write(keyed_jobs.enqueue_extended, queue, offers, now_ms, homes_version, raises)
        self._holds_extended |= bool(offers)
        return offered

    find_keys = _reads(keyed_jobs.find_keys)
    count_ready = _reads(ready_jobs.count_ready)
    next_due = _reads(ready_jobs.next_due)

    async def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> list[list[DequeuedJob]]:
        return await self.write(ready_jobs.claim, queue, requests, now_ms, enforce_quota)

    async def claim_listed(
        self, queue: str, jobs: Sequence[JobKey], request: ClaimRequest, now_ms: int, *, enforce_quota: bool = False
    ) -> list[ClaimAnswer]:
        return await self.write(ready_jobs.claim_listed, queue, jobs, request, now_ms, enforce_quota)

    peek = _reads(ready_jobs.peek)
    ack = _frees(attempts.ack)
    _ack_and_claim = _frees(ready_jobs.ack_and_claim)

    def ack_and_claim(
        self,
        queue: str,
        acks: Sequence[AckRequest],
        requests: Sequence[ClaimRequest],
        now_ms: int,
        rules: EndRules = NO_RULES,
        *,
        enforce_quota: bool = False,
    ) -> Coroutine[Any, Any, tuple[list[AckOutcome], list[list[DequeuedJob]]]]:
        return self._ack_and_claim(queue, acks, requests, now_ms, rules, enforce_quota)

    checkpoint = _frees(attempts.checkpoint)
    heartbeat = _writes(attempts.heartbeat)
    reschedule = _writes(admin.reschedule)
    requeue = _frees(ready_jobs.requeue)
    expire_disconnected = _frees(attempts.expire_disconnected)
    expire_listed = _frees(attempts.expire_listed)
    requeue_undelivered = _frees(ready_jobs.requeue_undelivered)
    cancel = _frees(admin.cancel)

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

    count = _reads(queries.count)
    scan = _reads(queries.scan)
    blocked_chains = _reads(chains.blocked_chains)

    # -- operators ---------------------------------------------------------------------------------------------------

    retry_failed = _frees(admin.retry_failed)
    retry_listed = _frees(admin.retry_listed)
    taken_keys = _reads(keyed_jobs.taken_keys)
    delete_jobs = _frees(admin.delete_jobs)
    delete_listed = _frees(admin.delete_listed)
    replay = _frees(dead_letters.replay)
    mark_moved = _frees(dead_letters.mark_moved)

    # -- maintenance -------------------------------------------------------------------------------------------------

    expire_claims = _frees(attempts.expire_claims)
    expired_claims = _reads(attempts.expired_claims)
    expire_jobs = _frees(attempts.expire_jobs)
    dead_letter = _writes(dead_letters.dead_letter)
    prune = _frees(admin.prune)

    # -- schedules, and the homes of keys ----------------------------------------------------------------------------

    last_firings = _reads(key_entries.last_firings)
    raise_marks = _writes(keyed_jobs.put_marks)
    key_slots = _reads(key_entries.key_slots)
    list_windows = _reads(key_entries.list_windows)
    put_windows = _writes(key_entries.put_windows)
    drop_windows = _writes(key_entries.drop_windows)
    has_chains = _reads(chains.has_chains)
    list_barriers = _reads(chains.list_barriers)
    lift_barriers = _writes(chains.lift_barriers)

    # -- groups ------------------------------------------------------------------------------------------------------

    list_groups = _reads(group_counts.list_groups)
    count_groups = _reads(group_counts.count_groups)
    waiting_groups = _reads(group_lines.waiting_groups)
    clear_groups = _writes(cleared_groups.clear_groups)
    take_permits = _writes(group_permits.take_permits)
    end_permits = _writes(group_permits.end_permits)
    await_permits = _writes(group_permits.await_permits)
    read_permits = _reads(group_permits.read_permits)
    due_permits = _writes(group_permits.due_permits)
    count_permits = _reads(group_permits.count_permits)
    put_rooms = _frees(group_permits.put_rooms)

    # -- references to bodies ------------------------------------------------------------------------------------------

    list_references = _reads(held_references.list_references)
    dropped_references = _reads(held_references.dropped_references)
    forget_references = _writes(held_references.forget_references)

    # -- attempts and log lines --------------------------------------------------------------------------------------

    read_trails = _reads(trails.read_trails)
    put_trails = _writes(trails.put_trails)

    # -- what the servers of a cluster tell each other ---------------------------------------------------------------

    kv_put = _writes(coordination.kv_put)
    kv_list = _reads(coordination.kv_list)
    take_tokens = _writes(coordination.take_tokens)
    set_quota = _writes(coordination.set_quota)
    stats = _reads(queries.stats)


def _body_bytes(infos: Sequence[JobInfo | None]) -> int:
    return sum([body_length(info.body) for info in infos if info is not None and info.body is not None])
