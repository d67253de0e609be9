"""What the servers of a cluster tell each other through this store: notes, token buckets, shares."""

from __future__ import annotations

from struct import Struct

from pinlater.backends.base import KvEntry, Quota, Tokens
from pinlater.backends.redis.calling import Calling

_VERSION = Struct(">Q")


class Sharing(Calling):
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
        version: int = await self._store.call("put_note", (self._root,), args)
        return version

    async def kv_list(self, namespace: str, now_ms: int) -> dict[str, KvEntry]:
        parts = iter(await self._store.call("notes", (self._root,), (namespace, now_ms)))
        return {
            name.decode(): KvEntry(value[_VERSION.size :], _VERSION.unpack_from(value)[0], int(expires))
            for name, expires, value in zip(parts, parts, parts, strict=True)
        }

    async def take_tokens(self, queue: str, wanted: int, per_second: float, capacity: float, now_ms: int) -> Tokens:
        args = (queue, wanted, repr(per_second), repr(capacity), now_ms)
        return Tokens(*await self._store.call("take_tokens", (self._root,), args))

    async def set_quota(self, queue: str, share: int, version: int, now_ms: int) -> Quota:
        return Quota(*await self._known("set_share", queue, (queue, share, version)))
