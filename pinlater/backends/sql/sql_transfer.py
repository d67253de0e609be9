"""The export and import of a shard in SQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Protocol, TypeVar

from pinlater.backends.sql.coordination import kv_list
from pinlater.backends.sql.exported_rows import exported_blocks
from pinlater.backends.sql.imported_rows import STATE_KIND, STATE_NAME, drop_state, put_state, take_block
from pinlater.backends.sql.schema_version import (
    EXTENDED_VERSION,
    GROUPS_VERSION,
    REFERENCES_VERSION,
    SCHEMA_VERSION,
    SUCCESSORS_VERSION,
)
from pinlater.backends.sql.session import Session
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
    PLAIN: SCHEMA_VERSION,
    EXTENDED: EXTENDED_VERSION,
    REFERENCES: REFERENCES_VERSION,
    GROUPS: GROUPS_VERSION,
    SUCCESSORS: SUCCESSORS_VERSION,
}
_BLOCKS_AHEAD = 4
_TABLES = (
    *("jobs", "links", "extensions", "tags", "keys", "chains", "waiting", "blocked", "barriers", "expiries"),
    *(
        "cancelled",
        "results",
        "firings",
        "held",
        "shared",
        "dropped",
        "records",
        "shares",
        "notes",
        "buckets",
        "queues",
        "lines",
        "turns",
        "virtual_times",
    ),
)


Result = TypeVar("Result")


class Transactions(Protocol):
    """What a transfer needs of a shard: transactions that read, and that write."""

    def read(self, transaction: Callable[..., Result], *arguments: Any) -> Awaitable[Result]: ...

    def write(self, transaction: Callable[..., Result], *arguments: Any) -> Awaitable[Result]: ...


class _Stopped(Exception):
    """Nobody takes blocks any more."""


class SqlTransfer(StoreTransfer):
    """Blocks are read in one transaction, on the thread of reads, and written in one each."""

    is_snapshot = True

    def __init__(self, shard: Transactions) -> None:
        self._shard = shard

    async def facts(self, now_ms: int) -> StoreFacts:
        return await self._shard.read(_facts, now_ms)

    async def job_count(self) -> int:
        return await self._shard.read(lambda session: int(session.rows("count_jobs")[0][0]))

    async def blocks(self, now_ms: int) -> AsyncGenerator[ExportBlock, None]:
        loop = asyncio.get_running_loop()
        ready: asyncio.Queue[ExportBlock | None] = asyncio.Queue(_BLOCKS_AHEAD)
        stopped = False

        def pump(session: Session) -> None:
            for block in exported_blocks(session, now_ms):
                asyncio.run_coroutine_threadsafe(ready.put(block), loop).result()
                if stopped:
                    raise _Stopped

        async def read() -> None:
            try:
                await self._shard.read(pump)
            finally:
                await ready.put(None)

        task = asyncio.create_task(read())
        try:
            while (block := await ready.get()) is not None:
                yield block
            await task
        finally:
            stopped = True
            while not task.done():  # the thread may wait for a place
                while not ready.empty():
                    ready.get_nowait()
                await asyncio.wait([task], timeout=0.01)
            if not task.cancelled():
                task.exception()

    async def dumped_state(self) -> bytes | None:
        return await self._shard.read(_state)

    async def put_first_state(self, state: bytes) -> None:
        await self._shard.write(_begin, state)

    async def load(self, block: ExportBlock, state: bytes, now_ms: int) -> None:
        await self._shard.write(take_block, block, state)

    async def finish(self, state: ImportState, store_id: str, level: int, last_id: int) -> None:
        await self._shard.write(_finish, state, store_id, level, last_id)

    async def set_mark(self, mark: int, token: str = "") -> None:
        await self._shard.write(_set_mark, mark, token)

    async def clear(self) -> None:
        await self._shard.write(_remove_all)


def _facts(session: Session, now_ms: int) -> StoreFacts:
    session.snapshot()
    meta: dict[str, str] = dict(session.rows("meta"))
    is_empty = not (session.rows("any_jobs") or session.rows("export_queues"))
    last_id, servers = session.rows("ping")[0][4] - 1, kv_list(session, LEASES, now_ms)
    version = int(meta["schema_version"])
    about = (meta["shard_id"], meta["store_id"], version, _VERSIONS)
    return store_facts(*about, last_id=last_id, servers=servers, is_empty=is_empty)


def _state(session: Session) -> bytes | None:
    found = kv_list(session, STATE_KIND, 0).get(STATE_NAME)
    return None if found is None else found.body


def _set_mark(session: Session, mark: int, token: str = "") -> None:
    meta: dict[str, str] = dict(session.rows("meta"))
    version = int(meta["schema_version"]) % MARK_STEP
    session.run("set_schema_version", (str(mark * MARK_STEP + version),))
    session.run("set_store_id", (StoreName.of(meta["store_id"])._replace(token=token).text,))


def _begin(session: Session, state: bytes) -> None:
    _set_mark(session, IMPORTING)
    _remove_all(session)
    put_state(session, state)


def _finish(session: Session, state: ImportState, store_id: str, level: int, last_id: int) -> None:
    """What stands is counted before the store is opened."""
    counts: dict[str, dict[int, int]] = {}
    for queue, number, count in session.rows("counts_by_queue"):
        counts.setdefault(queue, {})[int(number)] = int(count)
    state.totals.check_counts(counts)
    session.allocate_ids(0, last_id + 1)
    drop_state(session)
    session.run("set_store_id", (store_id,))
    session.run("set_schema_version", (str(_VERSIONS[level]),))


def _remove_all(session: Session) -> None:
    for table in _TABLES:
        session.cursor.execute(f"DELETE FROM pinlater_{table}")
