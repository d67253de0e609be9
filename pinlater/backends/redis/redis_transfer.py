"""The export and import of a shard in Redis. Blocks are taken in by transactions, with the state of the import."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from pinlater.backends.redis.exported_keys import exported_blocks, keys_behind
from pinlater.backends.redis.imported_keys import ImportCommands
from pinlater.backends.redis.records import MAX_PRIORITY
from pinlater.backends.redis.scripts import RedisStore
from pinlater.backends.redis.store_version import (
    EXTENDED_VERSION,
    GROUPS_VERSION,
    REFERENCES_VERSION,
    SUCCESSORS_VERSION,
    shard_and_version,
)
from pinlater.backends.requests import StoredState
from pinlater.backends.store_transfer import (
    EXTENDED,
    GROUPS,
    IMPORTING,
    LEASES,
    MARK_STEP,
    PLAIN,
    REFERENCES,
    SUCCESSORS,
    ExportBlock,
    ImportState,
    StoreFacts,
    StoreName,
    StoreTransfer,
    store_facts,
)

_VERSIONS = {
    PLAIN: 1,
    EXTENDED: EXTENDED_VERSION,
    REFERENCES: REFERENCES_VERSION,
    GROUPS: GROUPS_VERSION,
    SUCCESSORS: SUCCESSORS_VERSION,
}
_UNLINKED_AT_ONCE = 1_000


class RedisTransfer(StoreTransfer):
    """Nothing but this may write to the store meanwhile."""

    is_snapshot = False

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    async def facts(self, now_ms: int) -> StoreFacts:
        root = self._store.root
        about, store_id, last_id, queues = await self._store.commands(
            [
                ("HGET", root, "shard"),
                ("HGET", root, "store"),
                ("GET", root + b":last"),
                ("HLEN", root + b":queues"),
            ]
        )
        shard_id, version = shard_and_version(about.decode())
        leases = (await self._store.call("kv_list", LEASES, now_ms))[::3]
        servers = [lease.decode() for lease in leases]
        about = (shard_id, store_id.decode(), version, _VERSIONS)
        return store_facts(*about, last_id=int(last_id or 0), servers=servers, is_empty=not queues)

    async def job_count(self) -> int:
        root = self._store.root
        names = (await self._store.commands([("HKEYS", root + b":queues")]))[0]
        return sum(await self._store.commands([("HLEN", b"%s:q:%s:jobs" % (root, name)) for name in names]))

    def blocks(self, now_ms: int) -> AsyncGenerator[ExportBlock, None]:
        return exported_blocks(self._store, now_ms)

    async def dumped_state(self) -> bytes | None:
        found: bytes | None = (await self._store.commands([("GET", self._state_key)]))[0]
        return found

    async def put_first_state(self, state: bytes) -> None:
        await self.set_mark(IMPORTING)
        await self.clear()
        await self._store.commands([("SET", self._state_key, state)])

    async def load(self, block: ExportBlock, state: bytes, now_ms: int) -> None:
        commands = ImportCommands(self._store.root, now_ms).of(block)
        await self._store.commands([("MULTI",), *commands, ("SET", self._state_key, state), ("EXEC",)])

    async def finish(self, state: ImportState, store_id: str, level: int, last_id: int) -> None:
        state.totals.check_counts(await self._counts())
        root = self._store.root
        about = (await self._store.commands([("HGET", root, "shard")]))[0]
        shown = _about(shard_and_version(about.decode())[0], _VERSIONS[level])
        await self._store.commands(
            [
                ("MULTI",),
                ("SET", root + b":last", last_id),
                ("DEL", self._state_key),
                ("HSET", root, "shard", shown, "store", store_id),
                ("EXEC",),
            ]
        )

    async def set_mark(self, mark: int, token: str = "") -> None:
        root = self._store.root
        about, store_id = (await self._store.commands([("HMGET", root, "shard", "store")]))[0]
        shard_id, version = shard_and_version(about.decode())
        name = StoreName.of(store_id.decode())._replace(token=token)
        shown = _about(shard_id, mark * MARK_STEP + version % MARK_STEP)
        await self._store.commands([("HSET", root, "shard", shown, "store", name.text)])

    async def clear(self) -> None:
        """The identity stays."""
        async for found in keys_behind(self._store, self._store.root + b":"):
            for start in range(0, len(found), _UNLINKED_AT_ONCE):
                await self._store.commands([("UNLINK", *found[start : start + _UNLINKED_AT_ONCE])])

    @property
    def _state_key(self) -> bytes:
        return self._store.root + b":import"

    async def _counts(self) -> dict[str, dict[int, int]]:
        """The jobs of each queue by state."""
        root, states = self._store.root, list(map(int, StoredState))
        counts: dict[str, dict[int, int]] = {}
        for name in (await self._store.commands([("HKEYS", root + b":queues")]))[0]:
            sizes = await self._store.commands(
                [
                    ("ZCARD", b"%s:q:%s:s:%d:%d" % (root, name, state, priority))
                    for state in states
                    for priority in range(1, MAX_PRIORITY + 1)
                ]
            )
            counts[name.decode()] = {
                state: sum(sizes[at * MAX_PRIORITY : (at + 1) * MAX_PRIORITY]) for at, state in enumerate(states)
            }
        return counts


def _about(shard_id: str, version: int) -> str:
    """What a store of this version says as its shard."""
    return shard_id if version == 1 else f"{shard_id} (version {version})"
