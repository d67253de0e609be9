"""Permits and rooms of groups in Redis (see permit_store.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pinlater.backends.permit_store import FreedPermits, GroupRoom, Permit, PermitAnswer, PermitKey, PermitRequest
from pinlater.backends.redis.key_records import PERMIT
from pinlater.backends.redis.records import MAX_PRIORITY, Args
from pinlater.backends.redis.scripts import ScriptCaller
from pinlater.backends.token_bucket import capacity_of


class PermitCommands(ScriptCaller):
    async def take_permits(
        self, queue: str, requests: Sequence[PermitRequest], check_at_ms: int, now_ms: int
    ) -> list[PermitAnswer]:
        keys = [(each.group.encode(), key) for each in requests for key in each.keys]
        args: Args = [queue, now_ms, check_at_ms, len(keys), *[key.holder for _, key in keys]]
        args += [PERMIT.pack(key.priority, len(group)) + group + key.claim_descriptor.encode() for group, key in keys]
        for group, claims, concurrency, per_second in requests:
            rate = ("", "") if per_second is None else (repr(per_second), repr(capacity_of(per_second)))
            args += (group, len(claims), "" if concurrency is None else concurrency, *rate)
        numbers = iter(await self._store.call_queue("take_permits", queue, args))
        return [PermitAnswer(*each) for each in zip(numbers, numbers, strict=True)]

    async def end_permits(self, queue: str, keys: Sequence[PermitKey]) -> dict[str, FreedPermits]:
        args: Args = [queue]
        for key in keys:
            args += (key.holder, key.claim_descriptor)
        parts = iter(await self._store.call_queue("end_permits", queue, args))
        freed = zip(parts, parts, parts, strict=True)
        return {group.decode(): FreedPermits(count, shards.decode().split(",")) for group, count, shards in freed}

    async def await_permits(
        self, queue: str, shard_id: str, groups: Mapping[str, int], until_ms: int
    ) -> dict[str, int]:
        args: Args = [queue, shard_id, until_ms]
        for each in groups.items():
            args += each
        free = await self._store.call_queue("await_permits", queue, args)
        return {group: count for (group, most), count in zip(groups.items(), free, strict=True) if most}

    async def read_permits(self, queue: str, holders: Sequence[str]) -> list[Permit]:
        records = await self._store.call_queue("read_permits", queue, [queue, *holders])
        return [_permit(holder, record) for holder, record in zip(holders, records, strict=True) if record]

    async def due_permits(self, queue: str, limit: int, now_ms: int, next_check_ms: int) -> list[Permit]:
        args: Args = [queue, now_ms, limit, next_check_ms]
        parts = iter(await self._store.call_queue("due_permits", queue, args))
        return [_permit(holder.decode(), record) for holder, record in zip(parts, parts, strict=True)]

    async def count_permits(self, queue: str, groups: Sequence[str]) -> dict[str, int]:
        counts = await self._store.call_queue("count_permits", queue, [queue, *groups])
        return {group: int(count) for group, count in zip(groups, counts, strict=True) if count}

    async def put_rooms(self, queue: str, rooms: Mapping[str, GroupRoom], now_ms: int) -> list[str]:
        args: Args = [queue, now_ms, MAX_PRIORITY]
        for group, room in rooms.items():
            args += (group, *room)
        return [group.decode() for group in await self._store.call_queue("put_rooms", queue, args)]


def _permit(holder: str, record: bytes) -> Permit:
    priority, group_bytes = PERMIT.unpack_from(record)
    claim_at = PERMIT.size + group_bytes
    group, claim_descriptor = record[PERMIT.size : claim_at].decode(), record[claim_at:].decode()
    return Permit(group, PermitKey.of_holder(holder, priority, claim_descriptor))
