"""Short ways to make, drop and name queues on one bare shard, by the records that stand for them."""

from __future__ import annotations

from pinlater.backends.base import ConfigEntry, Shard
from pinlater.model import new_version

EVERYTHING = 100_000


async def record_of(shard: Shard, queue: str) -> ConfigEntry | None:
    """The record of that name, a mark of a deleted queue included."""
    page = await shard.list_config(0, EVERYTHING)
    return next((record for record in page.entries if record.name == queue), None)


async def make_queue(shard: Shard, queue: str, now_ms: int, text: str = "{}") -> bool:
    """True if it is new, False if it is already there."""
    before = await record_of(shard, queue)
    if before is not None and not before.is_deleted:
        return False
    above, deleted = (before.version, before.deleted_version) if before else ("", "")
    (taken,) = await shard.put_config([ConfigEntry(queue, new_version(now_ms, above), text, deleted)], now_ms)
    return taken


async def drop_queue(shard: Shard, queue: str, now_ms: int) -> bool:
    """False if there is none."""
    before = await record_of(shard, queue)
    if before is None or before.is_deleted:
        return False
    version = new_version(now_ms, before.version)
    (taken,) = await shard.put_config([ConfigEntry(queue, version, "{}", version)], now_ms)
    return taken


async def names_of(shard: Shard) -> set[str]:
    """The queues that are there."""
    page = await shard.list_config(0, EVERYTHING)
    return {record.name for record in page.entries if not record.is_deleted and "@" not in record.name}
