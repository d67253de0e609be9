"""The servers' own operations on a shard: maintenance, key-value entries, buckets, quotas, configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any

from pinlater.backends.base import (
    ConfigEntry,
    ConfigPage,
    DeadLetterTarget,
    EndRules,
    ExpiredClaim,
    ExpiryCounts,
    KvEntry,
    PerQueue,
    Quota,
    ReferencesPage,
    Retention,
    Tokens,
)
from pinlater.backends.redis.claim_ends import (
    PLACEHOLDER,
    expired_claims,
    expiry_rules,
    expiry_templates,
    history_templates,
)
from pinlater.backends.redis.records import (
    MAX_PRIORITY,
    Arg,
    Args,
)
from pinlater.backends.redis.scripts import ScriptCaller, lowest_id
from pinlater.backends.status_lines import expired_status
from pinlater.errors import StoreReplaced
from pinlater.model.body_reference import BodyReference


class Maintenance(ScriptCaller):
    async def expire_claims(self, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, ExpiryCounts]:
        args: Args = [
            limit,
            now_ms,
            *expiry_templates(expired_status(now_ms, PLACEHOLDER)),
            *expiry_rules(rules.default),
        ]
        for queue, own in rules.of.items():
            budget, dead_letters = expiry_rules(own)
            args += (queue, "" if own.lists_expired else budget, dead_letters)
        parts = iter(await self._store.call("expire_claims", *args))
        return {queue.decode(): ExpiryCounts(*counts) for queue, *counts in zip(*[parts] * 4, strict=True)}

    async def expired_claims(self, queues: Sequence[str], limit: int, now_ms: int) -> dict[str, list[ExpiredClaim]]:
        answer = await self._store.call("expired_claims", limit, now_ms, *queues) if queues else ()
        return {queue.decode(): expired_claims(flat) for queue, *flat in answer}

    async def dead_letter(self, limit: int, now_ms: int, targets: Mapping[str, DeadLetterTarget]) -> Mapping[str, int]:
        args: Args = [limit, now_ms, lowest_id(now_ms), self.shard_id, *history_templates(now_ms)]
        for queue, target in targets.items():
            args += (queue, target.queue, target.attempts_allowed)
        parts = iter(await self._store.call("dead_letter", *args))
        return {queue.decode(): count for queue, count in zip(parts, parts, strict=True)}

    async def prune(
        self, limit: int, now_ms: int, retention: PerQueue[Retention], *, tombstones_before: str = ""
    ) -> Mapping[str, int]:
        args: Args = [limit, *_before(now_ms, retention.default), tombstones_before, now_ms]
        for queue, own in retention.of.items():
            args += (queue, *_before(now_ms, own))
        parts = iter(await self._store.call("prune", *args))
        counts: Counter[str] = Counter()
        for queue, count in zip(parts, parts, strict=True):
            counts[queue.decode()] += count
        return dict(counts)


def _before(now_ms: int, retention: Retention) -> tuple[int, int]:
    """What ended before these times is pruned."""
    return now_ms - retention.succeeded_ms, now_ms - retention.failed_ms


_VERSION = Struct(">Q")


_LOOKED_AT = 100
"""Jobs of one page of references at most: a queue that has some may have large bodies too."""


class Coordination(ScriptCaller):
    async def list_references(self, after: str, limit: int) -> ReferencesPage:
        continuation, found = await self._store.call("list_references", after, min(limit, _LOOKED_AT))
        return ReferencesPage([BodyReference(each) for each in found], continuation.decode())

    async def dropped_references(self, limit: int) -> list[BodyReference]:
        return [BodyReference(each) for each in await self._store.call("dropped_references", limit)]

    async def forget_references(self, references: Sequence[BodyReference]) -> None:
        await self._store.call("forget_references", *references)

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
        expected = "" if expected_version is None else expected_version
        args = (namespace, name, body, expires_at_ms, now_ms, expected, keep)
        version: int = await self._store.call("kv_put", *args)
        return version

    async def kv_list(self, namespace: str, now_ms: int) -> dict[str, KvEntry]:
        parts = iter(await self._store.call("kv_list", namespace, now_ms))
        return {
            name.decode(): KvEntry(value[_VERSION.size :], _VERSION.unpack_from(value)[0], int(expires))
            for name, expires, value in zip(parts, parts, parts, strict=True)
        }

    async def take_tokens(self, queue: str, wanted: int, per_second: float, capacity: float, now_ms: int) -> Tokens:
        args = (queue, wanted, repr(per_second), repr(capacity), now_ms)
        return Tokens(*await self._store.call("take_tokens", *args))

    async def set_quota(self, queue: str, quota: int, version: int, now_ms: int) -> Quota:
        return Quota(*await self._store.call_queue("set_quota", queue, (queue, quota, version)))


class ConfigCommands(ScriptCaller):
    async def put_config(self, entries: Sequence[ConfigEntry], now_ms: int) -> list[bool]:
        args: Args = [now_ms, self._store_id, MAX_PRIORITY]
        for entry in entries:
            args += entry
        return [code == ord("1") for code in await self._same_store("put_config", *args)]

    async def list_config(self, since: int, limit: int) -> ConfigPage:
        revision, *flat = await self._same_store("list_config", since, limit, self._store_id)
        parts = iter(part.decode() for part in flat)
        return ConfigPage(int(revision), [ConfigEntry(*each) for each in zip(parts, parts, parts, parts, strict=True)])

    async def _same_store(self, script: str, *args: Arg) -> Any:
        """StoreRefused where the script says that the store is not the one that was opened."""
        answer = await self._store.call(script, *args)
        if answer is None:
            raise StoreReplaced(f"redis {self._store.address.shown} is no longer store {self._store_id}")
        return answer

    @property
    def _store_id(self) -> str:
        return self._store.identity[1] if self._store.identity else ""
