"""The export and import of a shard in Redis. Blocks are taken in by transactions, with the state of the import."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from pinlater.backends.redis.exported_keys import exported_blocks
from pinlater.backends.redis.imported_keys import ImportCommands
from pinlater.backends.redis.records import MAX_PRIORITY
from pinlater.backends.redis.scripts import RedisStore
from pinlater.backends.redis.store_version import EXTENDED_VERSION, REFERENCES_VERSION, shard_and_version
from pinlater.backends.requests import StoredState
from pinlater.backends.store_transfer import (
    CLOSED,
    EXTENDED,
    IMPORTING,
    LEASES,
    MARK_STEP,
    PLAIN,
    REFERENCES,
    ExportBlock,
    ImportState,
    StoreFacts,
    StoreName,
    StoreTransfer,
)

_VERSIONS = {PLAIN: 1, EXTENDED: EXTENDED_VERSION, REFERENCES: REFERENCES_VERSION}
_LEVELS = {version: level for level, version in _VERSIONS.items()}
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
        mark, version = divmod(version, MARK_STEP)
        leases = (await self._store.call("kv_list", LEASES, now_ms))[::3]
        name = StoreName.of(store_id.decode())
        servers = sorted(lease.decode() for lease in leases)
        facts = (shard_id, name.store_id, _LEVELS[version], mark, int(last_id or 0), servers, not queues, name.token)
        return StoreFacts(*facts)

    async def job_count(self) -> int:
        root = self._store.root
        names = (await self._store.commands([("HKEYS", root + b":queues")]))[0]
        return sum(await self._store.commands([("HLEN", b"%s:q:%s:jobs" % (root, name)) for name in names]))

    def blocks(self, now_ms: int) -> AsyncGenerator[ExportBlock, None]:
        return exported_blocks(self._store, now_ms)

    async def state(self) -> ImportState | None:
        found = (await self._store.commands([("GET", self._state_key)]))[0]
        return None if found is None else ImportState.load(found)

    async def begin(self, export_id: str) -> ImportState:
        state = ImportState(export_id)
        await self.clear()
        await self._store.commands(
            [("MULTI",), await self._marked(IMPORTING), ("SET", self._state_key, state.dump()), ("EXEC",)]
        )
        return state

    async def load(self, block: ExportBlock, state: bytes, now_ms: int) -> None:
        commands = ImportCommands(self._store.root, now_ms).of(block)
        await self._store.commands([("MULTI",), *commands, ("SET", self._state_key, state), ("EXEC",)])

    async def finish(self, state: ImportState, store_id: str, level: int, last_id: int) -> None:
        state.totals.check_counts(await self._counts())
        root, version = self._store.root, _VERSIONS[level]
        shard_id = await self._shard_id()
        about = shard_id if version == 1 else f"{shard_id} (version {version})"
        await self._store.commands(
            [
                ("MULTI",),
                ("SET", root + b":last", last_id),
                ("DEL", self._state_key),
                ("HSET", root, "shard", about, "store", store_id),
                ("EXEC",),
            ]
        )

    async def close_store(self, token: str) -> None:
        await self._store.commands([await self._marked(CLOSED, token)])

    async def reopen_store(self) -> None:
        await self._store.commands([await self._marked(0)])

    async def clear(self) -> None:
        """The identity stays."""
        root = self._store.root
        pattern = b"".join(b"\\" + bytes([each]) if each in b"*?[]\\^-" else bytes([each]) for each in root) + b":*"
        cursor = b"0"
        while True:
            cursor, found = (await self._store.commands([("SCAN", cursor, "MATCH", pattern, "COUNT", 10_000)]))[0]
            for start in range(0, len(found), _UNLINKED_AT_ONCE):
                await self._store.commands([("UNLINK", *found[start : start + _UNLINKED_AT_ONCE])])
            if cursor == b"0":
                return

    @property
    def _state_key(self) -> bytes:
        return self._store.root + b":import"

    async def _shard_id(self) -> str:
        about = (await self._store.commands([("HGET", self._store.root, "shard")]))[0]
        return shard_and_version(about.decode())[0]

    async def _marked(self, mark: int, token: str = "") -> tuple[Any, ...]:
        """The command that gives the store this mark; 0: none."""
        root = self._store.root
        about, store_id = (await self._store.commands([("HMGET", root, "shard", "store")]))[0]
        shard_id, version = shard_and_version(about.decode())
        version = mark * MARK_STEP + version % MARK_STEP
        name = StoreName.of(store_id.decode())._replace(token=token)
        shown = shard_id if version == 1 else f"{shard_id} (version {version})"
        return ("HSET", root, "shard", shown, "store", name.text)

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
