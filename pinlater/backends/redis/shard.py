"""One shard in a Redis database: each call is one script (lua/), and so atomic as a whole."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pinlater.backends.base import (
    AckOutcome,
    AckRequest,
    CheckpointRequest,
    ClaimKey,
    ClaimRequest,
    JobKey,
    LapsedCounts,
    ScanRequest,
    StoreStatus,
    crash_budget_status,
    expired_status,
    released_status,
)
from pinlater.backends.redis.address import parse_address
from pinlater.backends.redis.keys import MAX_PRIORITY, base_key
from pinlater.backends.redis.packing import (
    Args,
    ack_args,
    checkpoint_args,
    claim_args,
    dequeued,
    described,
    descriptors,
    enqueue_args,
    key_args,
)
from pinlater.backends.redis.store import RedisStore
from pinlater.backends.remarks import warn_once
from pinlater.errors import QueueNotFound, StoreRefused
from pinlater.model import CancelOutcome, DequeuedJob, Job, JobInfo, JobState

CONNECT_TIMEOUT_MS = 2_000
CALL_TIMEOUT_MS = 5_000

_ACK_OUTCOMES = {ord(str(int(outcome))): outcome for outcome in AckOutcome}
_CANCEL_OUTCOMES = {ord(str(int(outcome))): outcome for outcome in CancelOutcome}
_MARK = -1
_EVICTS = (
    "maxmemory-policy is {}: when its memory is full this Redis removes jobs and queues without a word; "
    "set maxmemory-policy noeviction"
)

SMALLEST_ID = 10**15
"""Ids are 16 digits wide, even where a machine woke up without the time."""


class RedisShard:
    """`redis://` or `rediss://` URL (see address.py); an id of "" lets the store's own record decide."""

    def __init__(
        self,
        url: str,
        shard_id: str = "",
        *,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        call_timeout_ms: int = CALL_TIMEOUT_MS,
    ) -> None:
        self.shard_id = shard_id
        self._store = RedisStore(parse_address(url), connect_timeout_ms / 1000, call_timeout_ms / 1000)
        self._root = self._store.root

    async def open(self) -> str:
        store, given = self._store, self.shard_id
        answer = await store.call("open", (self._root,), (given, secrets.token_hex(16)))
        shard, store_id = (str(part, "ascii") for part in answer)
        if not shard:
            raise StoreRefused(f"redis {store.address.shown} has no shard id yet: give it one, as in ID=URL")
        if given and shard != given:
            raise StoreRefused(f"redis {store.address.shown} is shard {shard!r}, not {given!r}")
        self.shard_id = shard
        store.identity = (shard, store_id)
        policy = await store.eviction_policy()
        if policy.startswith("allkeys"):
            warn_once(f"redis {store.address.shown}", _EVICTS.format(policy))
        return store_id

    async def close(self) -> None:
        await self._store.close()

    async def ping(self) -> StoreStatus:
        shard, store_id, seconds, micros = await self._store.call("ping", (self._root,))
        self._store.check_identity(shard.decode(), store_id.decode())
        return StoreStatus(store_id.decode(), int(seconds) * 1000 + int(micros) // 1000)

    # -- queues ------------------------------------------------------------------------------------------------------

    async def create_queue(self, queue: str, now_ms: int) -> bool:
        store_id = self._store.identity[1] if self._store.identity else ""
        made = await self._store.call("create_queue", (self._root,), (queue, now_ms, store_id))
        if made is None:
            raise StoreRefused(f"redis {self._store.address.shown} is no longer store {store_id}")
        return bool(made)

    async def delete_queue(self, queue: str, now_ms: int) -> bool:
        return bool(await self._call("delete_queue", queue, (queue, MAX_PRIORITY)))

    async def queue_names(self) -> set[str]:
        return {name.decode() for name in await self._store.call("queue_names", (self._root,))}

    # -- the life of a job -------------------------------------------------------------------------------------------

    async def enqueue(self, queue: str, jobs: Sequence[Job], now_ms: int) -> list[str]:
        if not jobs:
            await self._known("ready", queue, (queue, now_ms))
            return []
        args, priorities = enqueue_args(jobs, now_ms)
        first = await self._known("enqueue", queue, (queue, max(now_ms * 1000, SMALLEST_ID), *args))
        return descriptors(queue, self.shard_id, priorities, int(first), len(jobs))

    async def ready(self, queue: str, priorities: Sequence[int], limit: int, now_ms: int) -> list[int]:
        counts = await self._known("ready", queue, (queue, now_ms, *priorities))
        return [min(count, limit) for count in counts]

    async def claim(self, queue: str, requests: Sequence[ClaimRequest], now_ms: int) -> list[list[DequeuedJob]]:
        answer = await self._known("claim", queue, (queue, now_ms, *claim_args(requests, now_ms)))
        shard = self.shard_id
        return [
            dequeued(flat, queue, shard, request.claim_descriptor, now_ms + request.claim_timeout_ms)
            for flat, request in zip(answer, requests, strict=True)
        ]

    async def peek(
        self, queue: str, priorities: Sequence[int], limit: int, max_bytes: int, now_ms: int
    ) -> list[DequeuedJob]:
        flat = await self._known("peek", queue, (queue, now_ms, limit, max_bytes, *priorities))
        return dequeued(flat, queue, self.shard_id, "", 0)

    async def ack(
        self,
        queue: str,
        acks: Sequence[AckRequest],
        now_ms: int,
        *,
        keep_succeeded: bool = True,
        keep_failed: bool = True,
    ) -> list[AckOutcome]:
        if not acks:
            return []
        args = (queue, now_ms, int(keep_succeeded), int(keep_failed), *ack_args(acks))
        outcomes = _ACK_OUTCOMES
        return [outcomes[code] for code in await self._call("ack", queue, args)]

    async def checkpoint(self, queue: str, checkpoints: Sequence[CheckpointRequest], now_ms: int) -> list[bool]:
        codes = await self._call("checkpoint", queue, checkpoint_args(queue, checkpoints, now_ms))
        return [code == ord("1") for code in codes]

    async def give_back(self, queue: str, claims: Sequence[ClaimKey], now_ms: int) -> int:
        count: int = await self._call("give_back", queue, [now_ms, *key_args(claims)])
        return count

    async def release(self, queue: str, claims: Sequence[ClaimKey], now_ms: int, *, crash_budget: int) -> LapsedCounts:
        words = _words(released_status(now_ms, _MARK))
        return LapsedCounts(
            *await self._call("release", queue, [queue, now_ms, crash_budget, *words, *key_args(claims)])
        )

    async def cancel(self, queue: str, jobs: Sequence[JobKey], now_ms: int) -> list[CancelOutcome]:
        return [_CANCEL_OUTCOMES[code] for code in await self._call("cancel", queue, key_args(jobs))]

    # -- looking -----------------------------------------------------------------------------------------------------

    async def lookup(
        self, queue: str, jobs: Sequence[JobKey], *, with_body: bool, max_bytes: int
    ) -> list[JobInfo | None]:
        flat = await self._call("lookup", queue, [int(with_body), max_bytes, *key_args(jobs)])
        found: list[JobInfo | None] = [None] * len(jobs)
        for place, info in described(flat, queue, self.shard_id):
            found[place] = info
        return found

    async def count(self, queue: str, state: JobState, priorities: Sequence[int], future: bool, now_ms: int) -> int:
        low, high = _run_after_range(future, now_ms)
        count: int = await self._known("count", queue, (queue, int(state), low, high, *priorities))
        return count

    async def scan(self, queue: str, request: ScanRequest, now_ms: int) -> list[JobInfo]:
        low, high = _run_after_range(request.future, now_ms)
        place: tuple[int | str, int | str] = ("", "")
        after = request.after
        if after is not None:
            if request.future or after.run_after_ms <= now_ms:
                high = f"({after.run_after_ms}"
            if (after.run_after_ms > now_ms) is request.future:
                place = (after.run_after_ms, after.id)
        state, bodies = int(request.state), int(request.with_body)
        args = (queue, state, low, high, request.limit, *place, bodies, request.max_bytes, *request.priorities)
        return [info for _, info in described(await self._known("scan", queue, args), queue, self.shard_id)]

    # -- operators ---------------------------------------------------------------------------------------------------

    async def retry_failed(
        self, queue: str, priority: int, attempts: int, run_after_ms: int | None, limit: int, now_ms: int
    ) -> int:
        run_after_ms = now_ms if run_after_ms is None else run_after_ms
        args = (queue, priority, attempts, run_after_ms, limit, now_ms)
        count: int = await self._known("retry_failed", queue, args)
        return count

    async def delete_jobs(self, queue: str, state: JobState, priority: int, limit: int, now_ms: int) -> int:
        count: int = await self._known("delete_jobs", queue, (queue, int(state), priority, limit))
        return count

    async def delete_listed(self, queue: str, state: JobState, jobs: Sequence[JobKey], now_ms: int) -> int:
        count: int = await self._known("delete_listed", queue, [queue, int(state), *key_args(jobs)])
        return count

    # -- maintenance -------------------------------------------------------------------------------------------------

    async def expire_claims(self, limit: int, now_ms: int, *, crash_budget: int) -> Mapping[str, LapsedCounts]:
        args: Args = [limit, now_ms, crash_budget, *_words(expired_status(now_ms, _MARK))]
        parts = iter(await self._store.call("expire_claims", (self._root,), args))
        return {queue.decode(): LapsedCounts(*counts) for queue, *counts in zip(parts, parts, parts, strict=True)}

    async def collect(self, limit: int, now_ms: int, *, succeeded_ttl_ms: int, failed_ttl_ms: int) -> Mapping[str, int]:
        args = (limit, now_ms - succeeded_ttl_ms, now_ms - failed_ttl_ms)
        parts = iter(await self._store.call("collect", (self._root,), args))
        counts: Counter[str] = Counter()
        for queue, count in zip(parts, parts, strict=True):
            counts[queue.decode()] += count
        return dict(counts)

    # -- calling -----------------------------------------------------------------------------------------------------

    async def _call(self, script: str, queue: str, args: Args | tuple[Any, ...]) -> Any:
        return await self._store.call(script, (self._root, base_key(self._root, queue)), args)

    async def _known(self, script: str, queue: str, args: Args | tuple[Any, ...]) -> Any:
        """As `_call`; QueueNotFound where the script says so."""
        answer = await self._call(script, queue, args)
        if answer is None:
            raise QueueNotFound.of(queue)
        return answer


def _words(line: str) -> list[str]:
    """What stands around the number of attempts in a status line, and around the crashes in the one behind it."""
    return [*line.split(str(_MARK)), *crash_budget_status(_MARK).split(str(_MARK))]


def _run_after_range(future: bool, now_ms: int) -> tuple[str, str]:
    return (f"({now_ms}", "+inf") if future else ("-inf", f"{now_ms}")
